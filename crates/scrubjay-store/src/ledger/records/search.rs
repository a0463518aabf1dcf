//! Full-text search over records.
//!
//! All words must match; if no record has all of them, one is enough. Very common words match more records than can be
//! ranked in time: then only the newest are ranked, and the answer says so.

use sqlx::Row;

use super::collection::RecordCollection;
use super::row::sql;
use super::text_index::{FOLDING, of_ancestor, of_state, of_text, of_type, record_of};
use super::{RecordError, RecordId, RecordRef, RecordState, listing, row};
use crate::ledger::dialect::Dialect;
use crate::ledger::full_text;
use crate::ledger::statement::select;
use crate::ledger::words::{self, Term, Word, words};
use crate::ledger::{LedgerConnection, LedgerError};

/// The most matches that are ranked, the newest: ranking reads every match.
pub const RANKED_MAX: i64 = 1_000;
/// The longest query, in characters.
const QUERY_CHARS_MAX: usize = 1_000;
/// The most words and phrases of a query: each is a lookup in the index.
const TERMS_MAX: usize = 32;
/// The length of a snippet.
const SNIPPET_CHARS: usize = 160;
/// How much of the snippet comes before the match.
const LEAD_CHARS: usize = 50;

/// A search.
#[derive(Clone, Debug, Default)]
pub struct RecordSearch {
    /// Words, "phrases" and beginnings of words*.
    pub query: String,
    /// The types; if empty, any.
    pub types: Vec<String>,
    /// The states; if empty, any.
    pub states: Vec<RecordState>,
    /// The record below which to search; `None` for everywhere.
    pub below: Option<RecordId>,
    /// The most matches to return.
    pub limit: usize,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct RecordSearchResults {
    /// The best matches.
    pub hits: Vec<RecordHit>,
    /// How many match.
    pub total: i64,
    /// Whether they have all words; otherwise each has at least one.
    pub all_words: bool,
    /// Whether only the newest matches were ranked.
    pub newest_only: bool,
}

/// A record that matches.
#[derive(Clone, Debug)]
pub struct RecordHit {
    /// The record.
    pub now: RecordRef,
    /// How well it matches, from 0 to 1; the best match has 1.
    pub relevance: f64,
    /// The text around the first match, with matches between `**`.
    pub snippet: String,
}

/// Searches records.
///
/// # Errors
/// The query has no words, the record to search below does not exist, or the ledger failed.
pub async fn search(
    on: &mut impl LedgerConnection,
    collection: &RecordCollection,
    search: &RecordSearch,
) -> Result<RecordSearchResults, RecordError> {
    if search.query.chars().count() > QUERY_CHARS_MAX {
        return Err(RecordError::Invalid(format!("query has at most {QUERY_CHARS_MAX} characters")));
    }
    if search.types.len() > listing::TYPES_MAX {
        return Err(RecordError::Invalid(format!("at most {} types can be asked for", listing::TYPES_MAX)));
    }
    let terms = terms(&search.query);
    if terms.is_empty() || terms.len() > TERMS_MAX {
        return Err(RecordError::Invalid(format!("query needs 1 to {TERMS_MAX} words or \"phrases\"")));
    }
    let mut filters: Vec<Vec<String>> = Vec::new();
    if let Some(below) = search.below {
        row::require(on, collection, below).await?;
        filters.push(vec![of_ancestor(collection, below)]);
    }
    filters.push(search.states.iter().map(|state| of_state(collection, *state)).collect());
    filters.push(search.types.iter().map(|kind| of_type(collection, kind)).collect());
    filters.retain(|any_of| !any_of.is_empty());

    let (mut all_words, mut ranked, mut total) = (true, vec![], 0);
    for all in [true, false] {
        // With a single term, any is the same as all.
        if !all && (total > 0 || terms.len() == 1) {
            break;
        }
        all_words = all;
        let text = expression(on.dialect(), collection, &terms, all, &filters);
        (ranked, total) = matches(on, collection, &text).await?;
    }
    let newest_only = total > ranked.len() as i64;
    // Of equally good matches the newer one comes first.
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
    // Ranks of the two databases have different scales, so only their ratio to the best match is shown.
    let best = ranked.first().map_or(0.0, |first| first.1);
    ranked.truncate(search.limit);
    let mut hits = Vec::new();
    for (id, score) in ranked {
        let record = row::full(on, collection, id, None).await?;
        let content = &record.content;
        let snippet = snippet(&[&content.body, &content.summary, &content.title], &terms);
        let relevance = if best > 0.0 { (score / best).clamp(0.0, 1.0) } else { 1.0 };
        hits.push(RecordHit { now: record.now, relevance, snippet });
    }
    Ok(RecordSearchResults { hits, total, all_words, newest_only })
}

/// Returns the newest matches with their scores, and how many there are in all.
async fn matches(
    on: &mut impl LedgerConnection,
    collection: &RecordCollection,
    expression: &str,
) -> Result<(Vec<(RecordId, f64)>, i64), LedgerError> {
    // The book is a part of every word. Conditions of the form `>= 0` are always true: they only use a bind, so that
    // both statements take the same binds on both databases.
    let (page, count) = match on.dialect() {
        Dialect::Sqlite => (
            sql!(
                "SELECT rowid, -bm25(record_texts, 8.0, 4.0, 1.0, 2.0, 0.0) FROM record_texts
                 WHERE record_texts MATCH $1 AND $2 >= 0 ORDER BY rowid DESC LIMIT $3"
            ),
            sql!("SELECT count(*) FROM record_texts WHERE record_texts MATCH $1 AND $2 >= 0 AND $3 >= 0"),
        ),
        Dialect::Postgres => (
            sql!(
                "SELECT number, CAST(ts_rank('{0, 0.1, 0.4, 1}', words, CAST($1 AS tsquery)) AS DOUBLE PRECISION)
                 FROM record_texts WHERE book = $2 AND words @@ CAST($1 AS tsquery)
                 ORDER BY number DESC LIMIT $3"
            ),
            sql!("SELECT count(*) FROM record_texts
                  WHERE words @@ CAST($1 AS tsquery) AND book = $2 AND $3 >= 0"),
        ),
    };
    let rows =
        select(page).bind(expression).bind(collection.id).bind(RANKED_MAX).fetch_all(on.conn()).await?;
    let score =
        |row: &sqlx::any::AnyRow| Ok((record_of(row.try_get(0)?), row.try_get::<f64, _>(1)?.max(0.0)));
    let ranked = rows.iter().map(score).collect::<Result<Vec<_>, LedgerError>>()?;
    // Counting scans all matches once more, so it is done only if there may be others.
    if (ranked.len() as i64) < RANKED_MAX {
        let total = ranked.len() as i64;
        return Ok((ranked, total));
    }
    let row =
        select(count).bind(expression).bind(collection.id).bind(RANKED_MAX).fetch_one(on.conn()).await?;
    Ok((ranked, row.try_get(0)?))
}

/// Parses a query. Text without spaces between its words is a phrase, and only a single word can be a prefix.
fn terms(query: &str) -> Vec<Term> {
    let terms = words::terms(query, FOLDING).into_iter();
    terms.map(|term| Term { prefix: term.prefix && term.words.len() == 1, ..term }).collect()
}

/// Writes the full-text query.
fn expression(
    dialect: Dialect,
    collection: &RecordCollection,
    terms: &[Term],
    all: bool,
    filters: &[Vec<String>],
) -> String {
    let (and, or) = (full_text::and(dialect), full_text::or(dialect));
    let term = |term: &Term| {
        let words: Vec<String> = term.words.iter().map(|word| of_text(collection, word)).collect();
        full_text::phrase(dialect, &words, term.prefix)
    };
    let texts: Vec<_> = terms.iter().map(term).collect();
    let mut parts = vec![format!("({})", texts.join(if all { and } else { or }))];
    for any_of in filters {
        let any_of: Vec<_> = any_of.iter().map(|word| full_text::word(dialect, word)).collect();
        parts.push(format!("({})", any_of.join(or)));
    }
    parts.join(and)
}

/// Returns the text around the first match, on one line, with all matches in it marked.
///
/// `index/snippet.rs` says why it is not the snippet of recordings or of progress.
fn snippet(texts: &[&str], terms: &[Term]) -> String {
    let matching = |word: &Word| {
        terms.iter().any(|term| {
            let whole = term.words.contains(&word.folded);
            whole || term.prefix && term.words.iter().any(|start| word.folded.starts_with(start))
        })
    };
    for text in texts {
        let matches: Vec<Word> = words(text, FOLDING).into_iter().filter(matching).collect();
        if let Some(first) = matches.first() {
            return around(text, first.at.start, &matches);
        }
    }
    // The record matches by its type only, which no snippet shows.
    let text = texts.iter().find(|text| !text.is_empty()).unwrap_or(&"");
    around(text, 0, &[])
}

fn around(text: &str, at: usize, matches: &[Word]) -> String {
    let start = text[..at].char_indices().rev().nth(LEAD_CHARS - 1).map_or(0, |(start, _)| start);
    let end = text[start..].char_indices().nth(SNIPPET_CHARS).map_or(text.len(), |(end, _)| start + end);
    let mut marked = String::new();
    let mut from = start;
    for word in matches.iter().filter(|word| word.at.start >= start && word.at.end <= end) {
        marked += &text[from..word.at.start];
        marked += &format!("**{}**", &text[word.at.clone()]);
        from = word.at.end;
    }
    marked += &text[from..end];
    let line = marked.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{}{line}{}", if start > 0 { "…" } else { "" }, if end < text.len() { "…" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collection() -> RecordCollection {
        RecordCollection { id: 7, project: String::new(), totals: Default::default() }
    }

    #[test]
    fn queries_become_safe_search_expressions() {
        let check = |query: &str, sqlite: &str, postgres: &str| {
            let terms = terms(query);
            assert_eq!(expression(Dialect::Sqlite, &collection(), &terms, true, &[]), sqlite);
            assert_eq!(expression(Dialect::Postgres, &collection(), &terms, true, &[]), postgres);
        };
        check("Blue jay*", "(\"7xblue\" AND \"7xjay\" *)", "(('7xblue') & ('7xjay':*))");
        check("\"blue jay\"", "(\"7xblue 7xjay\")", "(('7xblue' <-> '7xjay'))");
        check(
            "a') OR NEAR(b",
            "(\"7xa\" AND \"7xor\" AND \"7xnear 7xb\")",
            "(('7xa') & ('7xor') & ('7xnear' <-> '7xb'))",
        );
        let filters = [vec!["7sopen".to_owned(), "7slater".to_owned()]];
        let text = expression(Dialect::Sqlite, &collection(), &terms("x y"), false, &filters);
        assert_eq!(text, "(\"7xx\" OR \"7xy\") AND (\"7sopen\" OR \"7slater\")");
    }

    #[test]
    fn snippets_mark_what_matches() {
        let long = format!("{} the Blue\n jay nests {}", "lead ".repeat(40), "tail ".repeat(60));
        let shown = snippet(&[&long], &terms("blue nes*"));
        assert!(shown.starts_with('…') && shown.ends_with('…'), "{shown}");
        assert!(shown.contains("the **Blue** jay **nests** tail"), "{shown}");
        assert_eq!(snippet(&["no", "Überall"], &terms("uberall")), "**Überall**");
        assert_eq!(snippet(&["body"], &terms("question")), "body");
    }
}
