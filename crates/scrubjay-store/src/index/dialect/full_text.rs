//! How SQLite and PostgreSQL differ in full-text search over tapes: queries, conditions, and the stored form of a text.

use scrubjay_core::query::SearchTerm;

use super::placeholder;
use crate::ledger::dialect::Dialect;
use crate::ledger::full_text::{self, POSITION_MAX, POSITIONS_MAX};
use crate::ledger::words::{Folding, words};

/// How the texts of the index are cut into words for PostgreSQL.
pub(in crate::index) const FOLDING: Folding = Folding::DropAccents;
/// The most bytes of words in one `tsvector`: PostgreSQL refuses more than a megabyte.
const VECTOR_BYTES_MAX: usize = 1_000_000;

/// Returns the condition that a text matches the query bound to `placeholder`.
pub(in crate::index) fn matches(dialect: Dialect, placeholder: &str) -> String {
    match dialect {
        Dialect::Sqlite => format!("texts MATCH {placeholder}"),
        Dialect::Postgres => format!("texts.text @@ CAST({placeholder} AS tsquery)"),
    }
}

/// Returns the condition that the text of the exchange `e` matches the query bound to `placeholder`.
pub(in crate::index) fn has_text(dialect: Dialect, placeholder: &str) -> String {
    match dialect {
        // The subquery runs once, and each exchange is looked up in its result.
        Dialect::Sqlite => format!("e.id IN (SELECT rowid FROM texts WHERE texts MATCH {placeholder})"),
        // EXISTS lets the planner choose the order.
        Dialect::Postgres => {
            format!(
                "EXISTS (SELECT 1 FROM texts t WHERE t.rowid = e.id AND t.text @@ CAST({placeholder} AS tsquery))"
            )
        }
    }
}

/// Joins text queries with OR.
pub(in crate::index) fn any_text(dialect: Dialect, queries: &[String]) -> String {
    let queries: Vec<&str> = queries.iter().map(String::as_str).filter(|query| !query.is_empty()).collect();
    let or = match dialect {
        Dialect::Sqlite => ") OR (",
        Dialect::Postgres => ") | (",
    };
    if queries.is_empty() { String::new() } else { format!("(({}))", queries.join(or)) }
}

/// Joins text queries that must match with those that must not.
pub(in crate::index) fn text_without(dialect: Dialect, wanted: &[String], unwanted: &[String]) -> String {
    // A query without words matches nothing, so all together match nothing.
    if wanted.iter().any(String::is_empty) {
        return String::new();
    }
    let (and, not) = match dialect {
        Dialect::Sqlite => (" AND ", " NOT "),
        Dialect::Postgres => (" & ", " & !"),
    };
    let wanted = wanted.join(and);
    match any_text(dialect, unwanted) {
        unwanted if unwanted.is_empty() => wanted,
        unwanted => format!("({wanted}){not}{unwanted}"),
    }
}

/// Returns the join from matching texts to their exchanges.
pub(in crate::index) fn from_texts(dialect: Dialect) -> &'static str {
    match dialect {
        // CROSS JOIN fixes the order: the text leaves the fewest rows.
        Dialect::Sqlite => "CROSS JOIN",
        Dialect::Postgres => "JOIN",
    }
}

/// Writes the full-text query for terms that must all match.
pub(in crate::index) fn text_query(dialect: Dialect, terms: &[SearchTerm]) -> String {
    let term = |term: &SearchTerm| {
        let is_prefix = matches!(term, SearchTerm::Prefix(_));
        match dialect {
            Dialect::Sqlite => {
                let quoted = term.as_str().replace('"', "\"\"");
                Some(format!("\"{quoted}\"{}", if is_prefix { " *" } else { "" }))
            }
            Dialect::Postgres => {
                let words: Vec<String> =
                    words(term.as_str(), FOLDING).into_iter().map(|word| word.folded).collect();
                (!words.is_empty()).then(|| full_text::phrase(dialect, &words, is_prefix))
            }
        }
    };
    let all: Option<Vec<String>> = terms.iter().map(term).collect();
    // A term without words makes the query empty, and the empty query matches nothing.
    all.unwrap_or_default().join(full_text::and(dialect))
}

/// Converts a text to the form in which the database stores it; the flag tells whether words had to be left out.
pub(in crate::index) fn stored_text(dialect: Dialect, text: &str) -> (String, bool) {
    match dialect {
        Dialect::Sqlite => (text.to_owned(), false),
        Dialect::Postgres => vector(text),
    }
}

/// Returns the placeholder of a text in its stored form.
pub(in crate::index) fn text_placeholder(dialect: Dialect, number: usize) -> String {
    match dialect {
        Dialect::Sqlite => placeholder(dialect, number),
        Dialect::Postgres => format!("CAST({} AS tsvector)", placeholder(dialect, number)),
    }
}

/// Writes a `tsvector`: each word with its positions, up to a limit; the flag tells whether words are
/// missing.
fn vector(text: &str) -> (String, bool) {
    use std::collections::HashMap;
    use std::fmt::Write as _;
    let mut order: Vec<(String, Vec<usize>)> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    let (mut bytes, mut clipped) = (0, false);
    for (at, word) in words(text, FOLDING).into_iter().enumerate() {
        let number = match known.get(&word.folded) {
            Some(number) => *number,
            None => {
                // What PostgreSQL stores for it: the word, its entry in the list of words, and padding.
                let cost = word.folded.len() + 6;
                if bytes + cost > VECTOR_BYTES_MAX {
                    clipped = true;
                    continue;
                }
                bytes += cost;
                known.insert(word.folded.clone(), order.len());
                order.push((word.folded, Vec::new()));
                order.len() - 1
            }
        };
        let positions = &mut order[number].1;
        // Positions beyond the limits are left out: a word without a position is found alone, but not in a phrase.
        if at + 1 < POSITION_MAX && positions.len() < POSITIONS_MAX && bytes + 2 <= VECTOR_BYTES_MAX {
            bytes += 2;
            positions.push(at + 1);
        }
    }
    let mut vector = String::with_capacity(bytes * 2);
    for (word, positions) in order {
        write!(vector, "'{word}'").expect("a string takes any text");
        for (n, position) in positions.iter().enumerate() {
            let between = if n == 0 { ':' } else { ',' };
            write!(vector, "{between}{position}").expect("a string takes any text");
        }
        vector.push(' ');
    }
    (vector, clipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_written_for_each_database() {
        let terms = [SearchTerm::Phrase("Read \"file\"".to_owned()), SearchTerm::Prefix("über".to_owned())];
        assert_eq!(text_query(Dialect::Sqlite, &terms), "\"Read \"\"file\"\"\" AND \"über\" *");
        assert_eq!(text_query(Dialect::Postgres, &terms), "('read' <-> 'file') & ('uber':*)");
    }

    #[test]
    fn texts_are_joined_for_each_database() {
        let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let (sqlite, postgres) = (Dialect::Sqlite, Dialect::Postgres);
        assert_eq!(any_text(sqlite, &texts(&["a", "", "b"])), "((a) OR (b))");
        assert_eq!(any_text(postgres, &texts(&["a", "b"])), "((a) | (b))");
        assert_eq!(any_text(postgres, &texts(&[""])), "");
        assert_eq!(text_without(sqlite, &texts(&["a", "b"]), &texts(&["c"])), "(a AND b) NOT ((c))");
        assert_eq!(
            text_without(postgres, &texts(&["a", "b"]), &texts(&["c", "d"])),
            "(a & b) & !((c) | (d))"
        );
        assert_eq!(text_without(postgres, &texts(&["a", ""]), &texts(&["c"])), "");
        assert_eq!(text_without(sqlite, &texts(&["a"]), &[]), "a");
    }

    #[test]
    fn a_vector_has_every_word_once_and_a_limit() {
        assert_eq!(vector("b a 'B\\"), ("'b':1,3 'a':2 ".to_owned(), false));
        let many: String = (0..400_000).map(|n| format!("{n:x} ")).collect();
        let (vector, clipped) = vector(&many);
        assert!(clipped && vector.len() < 4 * VECTOR_BYTES_MAX);
    }
}
