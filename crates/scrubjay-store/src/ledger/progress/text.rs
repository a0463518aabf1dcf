//! Full-text search over titles and contents, with FTS5 or `tsvector`.
//!
//! Every word begins with its project's number, so that entries of other projects cost a search nothing. Tags are words
//! too, in a form that no word of a text has.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{EntryTexts, FOLDING};
use crate::ledger::dialect::Dialect;
use crate::ledger::full_text::{self, POSITION_MAX};
use crate::ledger::statement::{SearchWords, change};
use crate::ledger::words::{Term, words};
use crate::ledger::{LedgerConnection, LedgerError, Write};

/// The pages that FTS5 merges with each entry: a few each time, so that no entry waits for a large merge.
const MERGE_PAGES: i64 = 16;
/// One more page is merged for each of this many words, because long entries leave more to merge.
const WORDS_PER_PAGE: usize = 16;

/// The SQL that searches the words of entries.
pub(super) struct TextSearchSql {
    /// The column that identifies the entry.
    pub(super) key: &'static str,
    /// The condition that the query, bound as `$4`, matches.
    pub(super) matches: &'static str,
    /// The rank; the best match has the least.
    pub(super) rank: &'static str,
}

/// Returns the SQL for a database.
pub(super) fn search_sql(dialect: Dialect) -> TextSearchSql {
    match dialect {
        Dialect::Sqlite => TextSearchSql {
            key: "progress_text.rowid",
            matches: "progress_text MATCH $4",
            // The title counts five times as much as the content, and tags not at all: they are conditions.
            rank: "bm25(progress_text, 5.0, 1.0, 0.0)",
        },
        Dialect::Postgres => TextSearchSql {
            key: "progress_text.at_us",
            matches: "words @@ CAST($4 AS tsquery)",
            // ts_rank is greater for better matches and bm25 less, hence the minus. The weights are for D, C, B, A:
            // content has B, the title A.
            rank: "CAST(-ts_rank('{0.1, 0.2, 0.2, 1.0}', words, CAST($4 AS tsquery)) AS DOUBLE PRECISION)",
        },
    }
}

/// Writes the full-text query.
pub(super) fn query(dialect: Dialect, scope: i64, terms: &[Term], tags: &[&str]) -> String {
    let term = |term: &Term| {
        let words: Vec<String> = term.words.iter().map(|word| format!("{scope}x{word}")).collect();
        full_text::phrase(dialect, &words, term.prefix)
    };
    let tag = |tag: &&str| full_text::word(dialect, &tag_word(scope, tag));
    let all: Vec<String> = terms.iter().map(term).chain(tags.iter().map(tag)).collect();
    all.join(full_text::and(dialect))
}

/// Makes an entry findable by its words and tags.
pub(super) async fn index(
    write: &mut Write,
    scope: i64,
    at_us: i64,
    texts: &EntryTexts,
) -> Result<(), LedgerError> {
    let tags: Vec<String> = texts.tags.iter().map(|tag| tag_word(scope, tag.as_str())).collect();
    let sources: Vec<_> = [&texts.title, &texts.content].into_iter().chain(&texts.tags).collect();
    let cut = |words: String| SearchWords::cut_from(&sources, words);
    match write.dialect() {
        Dialect::Sqlite => {
            let (title, _) = scoped(scope, texts.title.as_str());
            let (content, count) = scoped(scope, texts.content.as_str());
            change("INSERT INTO progress_text (rowid, title, content, tags) VALUES ($1, $2, $3, $4)")
                .bind(at_us)
                .bind(cut(title))
                .bind(cut(content))
                .bind(cut(tags.join(" ")))
                .execute(write)
                .await?;
            // The schema turns automatic merging off, which would let some entry wait for a large merge.
            change("INSERT INTO progress_text (progress_text, rank) VALUES ('merge', $1)")
                .bind(MERGE_PAGES + (count / WORDS_PER_PAGE) as i64)
                .execute(write)
                .await?;
        }
        Dialect::Postgres => {
            let mut vector = vector(scope, texts.title.as_str(), texts.content.as_str());
            // Without a position: a tag is never part of a phrase.
            for tag in tags {
                write!(vector, " '{tag}'").expect("a string takes any text");
            }
            change("INSERT INTO progress_text (at_us, words) VALUES ($1, CAST($2 AS tsvector))")
                .bind(at_us)
                .bind(cut(vector))
                .execute(write)
                .await?;
        }
    }
    Ok(())
}

/// Returns the word for a tag. It is a hash, because a tag may be any text; words of texts have an `x` behind the
/// scope.
fn tag_word(scope: i64, tag: &str) -> String {
    format!("{scope}t{}", &blake3::hash(tag.as_bytes()).to_hex()[..32])
}

fn scoped(scope: i64, text: &str) -> (String, usize) {
    let mut all = String::with_capacity(text.len() * 2);
    let words = words(text, FOLDING);
    for word in &words {
        write!(all, "{scope}x{} ", word.folded).expect("a string takes any text");
    }
    (all, words.len())
}

/// Writes a `tsvector`: each word with its positions, those of the title with more weight.
fn vector(scope: i64, title: &str, content: &str) -> String {
    let (title, content) = (words(title, FOLDING), words(content, FOLDING));
    // A gap, so that no phrase reaches from the title into the content.
    let start = title.len() + 10;
    let mut positions: BTreeMap<&str, String> = BTreeMap::new();
    let title_positions = title.iter().enumerate().map(|(n, word)| (word, n + 1, 'A'));
    let content_positions = content.iter().enumerate().map(|(n, word)| (word, n + start, 'B'));
    for (word, position, weight) in title_positions.chain(content_positions) {
        let positions = positions.entry(&word.folded).or_default();
        let comma = if positions.is_empty() { "" } else { "," };
        write!(positions, "{comma}{}{weight}", position.min(POSITION_MAX)).expect("a string takes any text");
    }
    let lexemes: Vec<String> = positions.iter().map(|(word, at)| format!("'{scope}x{word}':{at}")).collect();
    lexemes.join(" ")
}
