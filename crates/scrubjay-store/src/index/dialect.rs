//! How SQLite and PostgreSQL differ for the index: its location, how it is opened and emptied; full-text search is in
//! `full_text`.
//!
//! On SQLite the index is a file beside the tapes. On PostgreSQL it is a schema beside the ledger's, one for each data
//! directory, because catching up forgets all tapes that are not in the process's own directory.

mod full_text;

use std::path::PathBuf;

use sqlx::{AnyConnection, AnyPool, AssertSqlSafe, Executor};

use super::{CONNECTIONS_MAX, IndexError, WAIT_MAX};
use crate::database::{self, Renewal};
use crate::ledger::Storage;
use crate::ledger::dialect::{Dialect, sqlite_code, sqlite_url};
use scrubjay_tape::home::Home;

pub(super) use full_text::{
    FOLDING, any_text, from_texts, has_text, matches, stored_text, text_placeholder, text_query, text_without,
};

/// SQLite's codes of failures that are not the file's fault.
const BUSY: u32 = 5;
const LOCKED: u32 = 6;
const NO_MEMORY: u32 = 7;
const READ_ONLY: u32 = 8;
const IO_FAILED: u32 = 10;
const FULL: u32 = 13;
const CANNOT_OPEN: u32 = 14;

/// Where the index is.
#[derive(Clone)]
pub(super) enum IndexLocation {
    /// A SQLite file.
    File(PathBuf),
    /// A schema of a PostgreSQL database, whose URL may hold a password.
    Schema { url: String, name: String },
}

impl std::fmt::Debug for IndexLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Schema { name, .. } => f.debug_tuple("Schema").field(name).finish(),
        }
    }
}

impl IndexLocation {
    pub(super) fn of(home: &Home, storage: &Storage) -> Result<Self, IndexError> {
        sqlx::any::install_default_drivers();
        let Storage::Postgres(url) = storage else { return Ok(Self::File(home.index())) };
        let key =
            home.hash_key().map_err(|source| IndexError::File { path: home.root().to_owned(), source })?;
        // Derived from the directory's own key, so that it stays the same when the directory is moved.
        let id = blake3::derive_key("scrubjay: the schema of a data directory's index", &key);
        let id: String = id[..6].iter().map(|byte| format!("{byte:02x}")).collect();
        // Letters, digits and underscores only: the name is written into statements without quotes.
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

    fn settings(&self) -> String {
        match self {
            // `synchronous=NORMAL`: a loss of power may undo the last commits. The rows of a tape and how far it was
            // read are committed together, so the next catch-up reads those entries again.
            Self::File(_) => "PRAGMA busy_timeout=30000; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;
                              PRAGMA temp_store=MEMORY; PRAGMA cache_size=-65536; PRAGMA mmap_size=1073741824;
                              PRAGMA wal_autocheckpoint=8192"
                .to_owned(),
            // 300 s, because rewriting a large table to remove deleted words locks other statements out.
            Self::Schema { name, .. } => {
                format!("SET lock_timeout = '300s'; SET synchronous_commit = off; SET search_path TO {name}")
            }
        }
    }

    /// Connects once. A pool would retry even if the file is not a database.
    pub(super) async fn connect(&self) -> Result<AnyConnection, sqlx::Error> {
        let mut connection = crate::database::connect(&self.url()).await?;
        connection.execute(AssertSqlSafe(self.settings())).await?;
        Ok(connection)
    }

    /// Prepares a pool, which opens connections later.
    pub(super) fn pool(&self, renewal: &Renewal) -> Result<AnyPool, IndexError> {
        let settings = self.settings();
        let pool = crate::database::pool(CONNECTIONS_MAX, WAIT_MAX, renewal)
            .after_connect(move |connection, _| {
                let settings = settings.clone();
                Box::pin(async move { connection.execute(AssertSqlSafe(settings)).await.map(drop) })
            })
            .connect_lazy(&self.url())?;
        Ok(pool)
    }

    /// Returns the statements that empty it: they drop everything, then create the tables.
    pub(super) fn creation_statements(&self) -> Vec<String> {
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
        if let Self::File(_) = self {
            statements.push(format!("PRAGMA application_id = {}", database::INDEX.application_id));
        }
        statements
    }
}

/// Tells whether SQLite failed because of a full or failing disk or a lock: the file itself is not broken.
pub(super) fn is_environment_failure(error: &sqlx::Error) -> bool {
    // The one I/O error that shows a damaged file: it is shorter than its header says.
    const SHORT_READ: &str = "522";
    let sqlx::Error::Database(error) = error else { return false };
    let of_environment = [BUSY, LOCKED, NO_MEMORY, READ_ONLY, IO_FAILED, FULL, CANNOT_OPEN];
    error.code().is_none_or(|code| code != SHORT_READ)
        && sqlite_code(&**error).is_some_and(|code| of_environment.contains(&code))
}

/// Returns the statement that begins a write transaction.
pub(super) fn begin_write(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => "BEGIN IMMEDIATE",
        Dialect::Postgres => "BEGIN",
    }
}

/// Returns how many exchanges may match a text before it counts as frequent. A search for a frequent text is limited to
/// this number of them.
pub(super) fn frequent_max(dialect: Dialect) -> usize {
    match dialect {
        Dialect::Sqlite => 20_000,
        // PostgreSQL unpacks all words of each match.
        Dialect::Postgres => 5_000,
    }
}

/// PostgreSQL's statistics are renewed after this number of new entries: fewer hardly change which words are frequent.
const ENTRIES_BETWEEN_ANALYZE: u64 = 1000;

/// Returns the statements that keep searches fast after `entries` new ones.
pub(super) fn maintenance_statements(dialect: Dialect, entries: u64) -> &'static [&'static str] {
    match dialect {
        // A GIN index collects new words in a pending list, which every search scans; and without statistics the
        // planner guesses.
        Dialect::Postgres if entries >= ENTRIES_BETWEEN_ANALYZE => {
            &["SELECT gin_clean_pending_list('texts_by_word')", "ANALYZE texts, exchanges, names, tapes"]
        }
        _ => &[],
    }
}

/// Returns the statements that rewrite all tables, so that nothing of deleted rows is left in them.
pub(super) fn rewrite_statements(dialect: Dialect) -> &'static [&'static str] {
    match dialect {
        Dialect::Sqlite => &["PRAGMA temp_store=FILE", "VACUUM"],
        // ANALYZE too, because the statistics contain frequent words of deleted rows.
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

/// Returns the placeholder of a value.
pub(super) fn placeholder(dialect: Dialect, number: usize) -> String {
    match dialect {
        // SQLite searches a list for each numbered placeholder, which takes long for thousands of values.
        Dialect::Sqlite => "?".to_owned(),
        Dialect::Postgres => format!("${number}"),
    }
}

/// Tries to take the advisory lock of a schema; tells whether it was free.
pub(super) async fn try_lock(connection: &mut AnyConnection, schema: &str) -> Result<bool, sqlx::Error> {
    // 64 bits of a hash, because advisory locks have only numbers, and all programs that use the database share them.
    let hash = blake3::hash(schema.as_bytes());
    let key = i64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash is longer"));
    sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(key).fetch_one(connection).await
}

#[cfg(test)]
mod tests {
    use sqlx::Connection;

    use super::*;

    /// A process that was killed while it created the index leaves its tables in the log.
    #[tokio::test]
    async fn an_index_whose_tables_are_only_in_its_log_is_recognised() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("index.db");
        std::fs::File::create(&path).unwrap();
        sqlx::any::install_default_drivers();
        let mut maker = AnyConnection::connect(&sqlite_url(&path)).await.unwrap();
        maker.execute("PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0").await.unwrap();
        let mut tx = maker.begin_with("BEGIN IMMEDIATE").await.unwrap();
        for statement in IndexLocation::File(path.clone()).creation_statements() {
            tx.execute(AssertSqlSafe(statement)).await.unwrap();
        }
        tx.commit().await.unwrap();
        let found = database::inspect(&path, database::INDEX).await;
        assert!(matches!(found, Ok(database::FileInspection::Ours)), "{found:?}");

        maker.execute("PRAGMA wal_checkpoint(TRUNCATE)").await.unwrap();
        let id: i64 = sqlx::query_scalar("PRAGMA application_id").fetch_one(&mut maker).await.unwrap();
        assert_eq!(id, i64::from(database::INDEX.application_id));
    }
}
