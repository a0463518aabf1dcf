//! The query languages of full-text search (FTS5 of SQLite, `tsquery` of PostgreSQL), and the limits of `tsvector`.
//!
//! Words are quoted and contain only letters, digits and prefixes of ours, so nothing in them needs to be escaped. What
//! a word is, `words.rs` decides.

use super::dialect::Dialect;

/// The most positions that PostgreSQL stores of one word; it ignores more.
pub(crate) const POSITIONS_MAX: usize = 255;
/// The largest position that PostgreSQL stores; it lowers greater ones to this.
pub(crate) const POSITION_MAX: usize = 16_383;

/// Writes the query for a word.
pub(crate) fn word(dialect: Dialect, word: &str) -> String {
    match dialect {
        Dialect::Sqlite => format!("\"{word}\""),
        Dialect::Postgres => format!("'{word}'"),
    }
}

/// Writes the query for words that follow one another; with `is_prefix`, the last one is the beginning of a word.
pub(crate) fn phrase(dialect: Dialect, words: &[String], is_prefix: bool) -> String {
    match dialect {
        Dialect::Sqlite => format!("\"{}\"{}", words.join(" "), if is_prefix { " *" } else { "" }),
        Dialect::Postgres => {
            let words: Vec<String> = words.iter().map(|one| word(dialect, one)).collect();
            format!("({}{})", words.join(" <-> "), if is_prefix { ":*" } else { "" })
        }
    }
}

/// Returns the operator between queries that must all match.
pub(crate) fn and(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => " AND ",
        Dialect::Postgres => " & ",
    }
}

/// Returns the operator between queries of which one must match.
pub(crate) fn or(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => " OR ",
        Dialect::Postgres => " | ",
    }
}
