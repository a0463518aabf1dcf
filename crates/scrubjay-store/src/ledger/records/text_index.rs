//! The full-text index of records, the same on both databases.
//!
//! Each word begins with its collection's number, so that records of other projects cost a search nothing. State, type
//! and ancestors are words too: a filter is one more word that must match.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::collection::RecordCollection;
use super::{RecordContent, RecordId, RecordRef, RecordState};
use crate::ledger::dialect::Dialect;
use crate::ledger::full_text::{POSITION_MAX, POSITIONS_MAX};
use crate::ledger::statement::{SearchWords, change};
use crate::ledger::words::{Folding, words};
use crate::ledger::{LedgerConnection, LedgerError, Write};

/// How records are cut into words. It cannot change, because the words of every record are stored.
pub(super) const FOLDING: Folding = Folding::DropAccents;
/// A row id holds the collection's key above this bit, and the record's number below it: room for 8 million projects
/// with a trillion records each. Row ids of a project ascend with its records, so the newest come first in descending
/// order.
const COLLECTION_SHIFT: u32 = 40;

/// Returns the stored form of a word.
pub(super) fn of_text(collection: &RecordCollection, word: &str) -> String {
    format!("{}x{word}", collection.id)
}

/// Returns the word for a state.
pub(super) fn of_state(collection: &RecordCollection, state: RecordState) -> String {
    format!("{}s{}", collection.id, state.name().to_lowercase())
}

/// Returns the word for a type: a hash, because a type may be any text.
pub(super) fn of_type(collection: &RecordCollection, kind: &str) -> String {
    format!("{}t{}", collection.id, &blake3::hash(kind.as_bytes()).to_hex()[..16])
}

/// Returns the word that all descendants of a record have.
pub(super) fn of_ancestor(collection: &RecordCollection, id: RecordId) -> String {
    format!("{}a{}", collection.id, id.0)
}

/// Returns the row id of a record's words.
fn row_of(collection: &RecordCollection, id: RecordId) -> i64 {
    (collection.id << COLLECTION_SHIFT) | id.0
}

/// Returns the record of a row id.
pub(super) fn record_of(row: i64) -> RecordId {
    RecordId(row & ((1 << COLLECTION_SHIFT) - 1))
}

fn facets(collection: &RecordCollection, now: &RecordRef, content: &RecordContent) -> Vec<String> {
    let mut facets = vec![of_state(collection, content.state), of_type(collection, &content.kind)];
    let lineage = now.lineage();
    facets.extend(lineage.iter().filter(|id| **id != now.id).map(|id| of_ancestor(collection, *id)));
    facets
}

/// Replaces the stored words of a record by those of its newest version.
pub(super) async fn put(
    write: &mut Write,
    collection: &RecordCollection,
    now: &RecordRef,
    content: &RecordContent,
) -> Result<(), LedgerError> {
    // Cut from redacted text only: a word of a secret in the index would be as readable as the secret.
    let clean =
        [&content.title, &content.summary, &content.body, &content.kind].map(|text| write.clean(text));
    let stored_words = |text: &str| {
        words(text, FOLDING).iter().map(|word| of_text(collection, &word.folded)).collect::<Vec<_>>()
    };
    let texts = clean.each_ref().map(|text| stored_words(text));
    let sources = clean.each_ref();
    let cut = |words: String| SearchWords::cut_from(&sources, words);
    let facets = facets(collection, now, content);
    match write.dialect() {
        Dialect::Sqlite => {
            let [title, summary, body, kind] = texts.map(|words| cut(words.join(" ")));
            let columns = [title, summary, body, kind, cut(facets.join(" "))];
            put_sqlite(write, row_of(collection, now.id), now.version > 1, columns).await
        }
        Dialect::Postgres => {
            change(
                "INSERT INTO record_texts (book, number, words) VALUES ($1, $2, CAST($3 AS tsvector))
                 ON CONFLICT (book, number) DO UPDATE SET words = excluded.words",
            )
            .bind(collection.id)
            .bind(now.id.0)
            .bind(cut(vector(&texts, &facets)))
            .execute(write)
            .await?;
            Ok(())
        }
    }
}

async fn put_sqlite(
    write: &mut Write,
    row: i64,
    replaces: bool,
    columns: [SearchWords; 5],
) -> Result<(), LedgerError> {
    // FTS5 knows no upsert.
    if replaces {
        change("DELETE FROM record_texts WHERE rowid = $1").bind(row).execute(write).await?;
    }
    let statement = change(
        "INSERT INTO record_texts (rowid, title, summary, body, type, facets)
         VALUES ($1, $2, $3, $4, $5, $6)",
    );
    columns
        .into_iter()
        .fold(statement.bind(row), |statement, words| statement.bind(words))
        .execute(write)
        .await?;
    Ok(())
}

/// Writes a `tsvector`: each word with its positions and their weights.
fn vector(texts: &[Vec<String>; 4], facets: &[String]) -> String {
    let mut positions: BTreeMap<&str, Vec<(usize, char)>> = BTreeMap::new();
    let mut at = 0;
    for (words, weight) in texts.iter().zip(['A', 'B', 'C', 'B']) {
        for word in words {
            // From 1, because PostgreSQL has no position 0.
            at += 1;
            let positions = positions.entry(word).or_default();
            if positions.len() < POSITIONS_MAX {
                positions.push((at.min(POSITION_MAX), weight));
            }
        }
        // A gap, so that no phrase reaches into the next text.
        at += 1;
    }
    let mut vector = String::new();
    for (word, positions) in &positions {
        let positions: Vec<_> = positions.iter().map(|(at, weight)| format!("{at}{weight}")).collect();
        write!(vector, "'{word}':{} ", positions.join(",")).expect("a string takes any text");
    }
    // Weight D counts as zero when matches are ranked, so filters do not change the rank.
    for facet in facets {
        write!(vector, "'{facet}':1D ").expect("a string takes any text");
    }
    vector
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_id_names_its_record() {
        let collection = RecordCollection { id: 77, project: String::new(), totals: Default::default() };
        assert_eq!(record_of(row_of(&collection, RecordId(123_456))), RecordId(123_456));
    }
}
