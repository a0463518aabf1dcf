//! How SQLite and PostgreSQL differ for the index: where it is, how it is opened and emptied, full-text search.
//!
//! On SQLite the index is a file beside the tapes. On PostgreSQL it is a schema beside the ledger's, one for each data
//! directory: a process with another data directory would take these tapes for removed ones.

use std::path::PathBuf;

use scrubjay_core::query::SearchTerm;
use sqlx::{AnyConnection, AnyPool, AssertSqlSafe, Executor};

use super::{CONNECTIONS_MAX, IndexError, PATIENCE};
use crate::database::Renewal;
use crate::ledger::Storage;
use crate::ledger::dialect::{Dialect, sqlite_code, sqlite_url};
use crate::ledger::words::{Folding, words};
use scrubjay_tape::home::Home;

/// How the texts of the index are cut into words for PostgreSQL.
pub(super) const FOLDING: Folding = Folding::DropAccents;
/// Limits of `tsvector`: the number of positions of one word, and the largest position.
const PLACES_MAX: usize = 255;
const PLACE_MAX: usize = 16_383;
/// Limit of `tsvector`: about a megabyte of words in one value.
const VECTOR_BYTES_MAX: usize = 1_000_000;

/// SQLite's codes of failures that are no fault of the file.
const BUSY: u32 = 5;
const LOCKED: u32 = 6;
const NO_MEMORY: u32 = 7;
const READ_ONLY: u32 = 8;
const IO_FAILED: u32 = 10;
const FULL: u32 = 13;
const CANNOT_OPEN: u32 = 14;

/// Where the index is.
#[derive(Clone)]
pub(super) enum IndexPlace {
    /// A SQLite file.
    File(PathBuf),
    /// A schema of a PostgreSQL database, whose URL may hold a password.
    Schema { url: String, name: String },
}

impl std::fmt::Debug for IndexPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Schema { name, .. } => f.debug_tuple("Schema").field(name).finish(),
        }
    }
}

impl IndexPlace {
    pub(super) fn of(home: &Home, storage: &Storage) -> Result<Self, IndexError> {
        sqlx::any::install_default_drivers();
        let Storage::Postgres(url) = storage else { return Ok(Self::File(home.index())) };
        let key =
            home.hash_key().map_err(|source| IndexError::File { path: home.root().to_owned(), source })?;
        // Derived from the directory's own key, so that it stays the same when the directory is moved.
        let id = blake3::derive_key("scrubjay: the schema of a data directory's index", &key);
        let id: String = id[..6].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self::Schema { url: url.clone(), name: format!("scrubjay_index_{id}") })
    }

    pub(super) fn dialect(&self) -> Dialect {
        match self {
            Self::File(_) => Dialect::Sqlite,
            Self::Schema { .. } => Dialect::Postgres,
        }
    }

    fn url(&self) -> String {
        match self {
            Self::File(path) => sqlite_url(path),
            Self::Schema { url, .. } => url.clone(),
        }
    }

    fn greeting(&self) -> String {
        match self {
            // `synchronous=NORMAL`: an index lost with the power is made again.
            Self::File(_) => "PRAGMA busy_timeout=30000; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;
                              PRAGMA temp_store=MEMORY; PRAGMA cache_size=-65536; PRAGMA mmap_size=1073741824;
                              PRAGMA wal_autocheckpoint=8192"
                .to_owned(),
            // 300 s, because rewriting a large table to remove deleted words locks others out.
            Self::Schema { name, .. } => {
                format!("SET lock_timeout = '300s'; SET synchronous_commit = off; SET search_path TO {name}")
            }
        }
    }

    /// Connects once. A pool would retry although the file is no database.
    pub(super) async fn connect(&self) -> Result<AnyConnection, sqlx::Error> {
        let mut connection = crate::database::connect(&self.url()).await?;
        connection.execute(AssertSqlSafe(self.greeting())).await?;
        Ok(connection)
    }

    /// Prepares a pool; no connection is opened yet.
    pub(super) fn pool(&self, renewal: &Renewal) -> Result<AnyPool, IndexError> {
        let greeting = self.greeting();
        let pool = crate::database::pool(CONNECTIONS_MAX, PATIENCE, renewal)
            .after_connect(move |connection, _| {
                let greeting = greeting.clone();
                Box::pin(async move { connection.execute(AssertSqlSafe(greeting)).await.map(drop) })
            })
            .connect_lazy(&self.url())?;
        Ok(pool)
    }

    /// Returns the statements that empty it: they drop everything, then create the tables.
    pub(super) fn making(&self) -> Vec<String> {
        let mut statements = match self {
            Self::File(_) => ["version", "tapes", "names", "exchanges", "judged", "definitions", "texts"]
                .iter()
                .map(|table| format!("DROP TABLE IF EXISTS {table}"))
                .collect(),
            Self::Schema { name, .. } => {
                vec![format!("DROP SCHEMA IF EXISTS {name} CASCADE"), format!("CREATE SCHEMA {name}")]
            }
        };
        let (number, counted, id, bytes, own) = match self.dialect() {
            Dialect::Sqlite => (
                "INTEGER PRIMARY KEY",
                "INTEGER PRIMARY KEY",
                "TEXT",
                "BLOB",
                include_str!("schema.sqlite.sql"),
            ),
            Dialect::Postgres => (
                "BIGINT PRIMARY KEY",
                "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
                "TEXT COLLATE \"C\"",
                "BYTEA",
                include_str!("schema.postgres.sql"),
            ),
        };
        let text = format!("{}{own}", include_str!("schema.sql"))
            .replace("{number}", number)
            .replace("{counted}", counted)
            .replace("{id}", id)
            .replace("{bytes}", bytes);
        statements.extend(text.split(";\n").map(str::trim).filter(|s| !s.is_empty()).map(str::to_owned));
        statements
    }
}

/// Tells whether SQLite failed because of a full or failing disk or a lock: the file itself is not broken.
pub(super) fn is_of_disk(error: &sqlx::Error) -> bool {
    const SHORT_READ: &str = "522";
    let sqlx::Error::Database(error) = error else { return false };
    let of_disk = [BUSY, LOCKED, NO_MEMORY, READ_ONLY, IO_FAILED, FULL, CANNOT_OPEN];
    error.code().is_none_or(|code| code != SHORT_READ)
        && sqlite_code(&**error).is_some_and(|code| of_disk.contains(&code))
}

/// Returns the statement that begins a write transaction.
pub(super) fn begin_write(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => "BEGIN IMMEDIATE",
        Dialect::Postgres => "BEGIN",
    }
}

/// Returns how many exchanges may match a text before it counts as frequent. A search for a frequent text looks at no
/// more of them than this.
pub(super) fn frequent_max(dialect: Dialect) -> usize {
    match dialect {
        Dialect::Sqlite => 20_000,
        // PostgreSQL unpacks all words of each match.
        Dialect::Postgres => 5_000,
    }
}

/// From how many new entries on PostgreSQL's statistics are renewed: fewer hardly change what is frequent.
const ENTRIES_MANY: u64 = 1000;

/// Returns the statements that keep searches fast after `entries` new ones.
pub(super) fn tidying(dialect: Dialect, entries: u64) -> &'static [&'static str] {
    match dialect {
        // A GIN index collects new words in a pending list that every search scans, and the planner guesses without
        // statistics.
        Dialect::Postgres if entries >= ENTRIES_MANY => {
            &["SELECT gin_clean_pending_list('texts_by_word')", "ANALYZE texts, exchanges, names, tapes"]
        }
        _ => &[],
    }
}

/// Returns the statements that rewrite all tables, so that nothing of deleted rows is left in them.
pub(super) fn rewriting(dialect: Dialect) -> &'static [&'static str] {
    match dialect {
        Dialect::Sqlite => &["PRAGMA temp_store=FILE", "VACUUM"],
        // ANALYZE too, because statistics hold frequent words.
        Dialect::Postgres => &[
            "VACUUM (FULL, ANALYZE) texts",
            "VACUUM (FULL, ANALYZE) names",
            "VACUUM (FULL, ANALYZE) exchanges",
            "VACUUM (FULL, ANALYZE) judged",
            "VACUUM (FULL, ANALYZE) definitions",
            "VACUUM (FULL, ANALYZE) tapes",
        ],
    }
}

/// Returns the condition that a text matches what is bound to `placeholder`.
pub(super) fn matches(dialect: Dialect, placeholder: &str) -> String {
    match dialect {
        Dialect::Sqlite => format!("texts MATCH {placeholder}"),
        Dialect::Postgres => format!("texts.text @@ CAST({placeholder} AS tsquery)"),
    }
}

/// Returns the condition that the text of the exchange `e` matches what is bound to `placeholder`.
pub(super) fn has_text(dialect: Dialect, placeholder: &str) -> String {
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
pub(super) fn any_text(dialect: Dialect, queries: &[String]) -> String {
    let queries: Vec<&str> = queries.iter().map(String::as_str).filter(|query| !query.is_empty()).collect();
    let or = match dialect {
        Dialect::Sqlite => ") OR (",
        Dialect::Postgres => ") | (",
    };
    if queries.is_empty() { String::new() } else { format!("(({}))", queries.join(or)) }
}

/// Joins text queries that must match with those that must not.
pub(super) fn text_without(dialect: Dialect, wanted: &[String], unwanted: &[String]) -> String {
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
pub(super) fn from_texts(dialect: Dialect) -> &'static str {
    match dialect {
        // CROSS JOIN fixes the order: the text leaves the fewest rows.
        Dialect::Sqlite => "CROSS JOIN",
        Dialect::Postgres => "JOIN",
    }
}

/// Writes the full-text query for terms that must all match.
pub(super) fn text_query(dialect: Dialect, terms: &[SearchTerm]) -> String {
    let term = |term: &SearchTerm| {
        let is_prefix = matches!(term, SearchTerm::Prefix(_));
        match dialect {
            Dialect::Sqlite => {
                let quoted = term.as_str().replace('"', "\"\"");
                Some(format!("\"{quoted}\"{}", if is_prefix { " *" } else { "" }))
            }
            Dialect::Postgres => {
                let words: Vec<String> =
                    words(term.as_str(), FOLDING).iter().map(|word| format!("'{}'", word.folded)).collect();
                let all = format!("({}{})", words.join(" <-> "), if is_prefix { ":*" } else { "" });
                (!words.is_empty()).then_some(all)
            }
        }
    };
    let all: Option<Vec<String>> = terms.iter().map(term).collect();
    // A term without words makes the query empty, and the empty query matches nothing.
    all.unwrap_or_default().join(match dialect {
        Dialect::Sqlite => " AND ",
        Dialect::Postgres => " & ",
    })
}

/// Converts a text to the form in which the database stores it; tells whether some of it had to be left out.
pub(super) fn stored_text(dialect: Dialect, text: &str) -> (String, bool) {
    match dialect {
        Dialect::Sqlite => (text.to_owned(), false),
        Dialect::Postgres => vector(text),
    }
}

/// Returns the placeholder of a value.
pub(super) fn placeholder(dialect: Dialect, number: usize) -> String {
    match dialect {
        // SQLite looks numbered placeholders up in a list, which takes long for many values.
        Dialect::Sqlite => "?".to_owned(),
        Dialect::Postgres => format!("${number}"),
    }
}

/// Returns the placeholder of a text in its stored form.
pub(super) fn text_placeholder(dialect: Dialect, number: usize) -> String {
    match dialect {
        Dialect::Sqlite => placeholder(dialect, number),
        Dialect::Postgres => format!("CAST({} AS tsvector)", placeholder(dialect, number)),
    }
}

/// Writes a `tsvector`: each word with its positions, as long as there is room.
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
                // The word, its entry in the list, and padding.
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
        let places = &mut order[number].1;
        // A word without a position is found alone, but not in a phrase.
        if at + 1 < PLACE_MAX && places.len() < PLACES_MAX && bytes + 2 <= VECTOR_BYTES_MAX {
            bytes += 2;
            places.push(at + 1);
        }
    }
    let mut vector = String::with_capacity(bytes * 2);
    for (word, places) in order {
        write!(vector, "'{word}'").expect("a string takes any text");
        for (n, placeholder) in places.iter().enumerate() {
            let between = if n == 0 { ':' } else { ',' };
            write!(vector, "{between}{placeholder}").expect("a string takes any text");
        }
        vector.push(' ');
    }
    (vector, clipped)
}

/// Tries to take the advisory lock of a schema; tells whether it was free.
pub(super) async fn try_lock(connection: &mut AnyConnection, schema: &str) -> Result<bool, sqlx::Error> {
    let hash = blake3::hash(schema.as_bytes());
    let key = i64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash is longer"));
    sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(key).fetch_one(connection).await
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
