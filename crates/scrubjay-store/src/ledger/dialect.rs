//! Where the two databases differ: how to connect, how to take turns, a few words of their schema language.
//!
//! Full-text search differs too, and lives beside what it searches. Nothing else may ask which database it is.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use sqlx::{Any, AnyConnection, AssertSqlSafe, Connection, Executor, Transaction};

use super::unsynced::Unsynced;
use super::{LedgerError, Storage, Survives};
use crate::database::{self, FileInspection, LEDGER, beside};
pub(crate) use crate::database::{sqlite_code, sqlite_url};
use scrubjay_tape::home::create_private_dir;

/// Which database it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

/// Looks at what the storage names, and changes nothing.
pub(super) async fn look(storage: &Storage) -> Result<(), LedgerError> {
    let Storage::File(path) = storage else { return Ok(()) };
    looked(path).await.map(drop)
}

async fn looked(path: &Path) -> Result<FileInspection, LedgerError> {
    database::inspect(path, LEDGER).await.map_err(|why| LedgerError::NotUsable { path: path.to_owned(), why })
}

/// Makes the database reachable; returns its URL, and a lock held while it is opened.
pub(super) async fn prepare(storage: &Storage) -> Result<(String, Option<File>), LedgerError> {
    sqlx::any::install_default_drivers();
    let path = match storage {
        Storage::Postgres(url) => return Ok((url.clone(), None)),
        Storage::File(path) => path,
    };
    looked(path).await?;
    let place = path.clone();
    // Waiting for another process to open it must not hold up this one's other work.
    let created = tokio::task::spawn_blocking(move || create(&place)).await;
    let created = created.map_err(io::Error::other).flatten();
    let lock = created.map_err(|source| LedgerError::File { path: path.clone(), source })?;
    let url = sqlite_url(path);
    // Whoever had the lock before may have made something of it.
    if looked(path).await? == FileInspection::Empty {
        mark(&url).await.map_err(|source| LedgerError::Unreachable { place: shown(storage), source })?;
    }
    Ok((url, Some(lock)))
}

/// Writes into the header of an empty file whose it is, before anything goes to a log beside it.
async fn mark(url: &str) -> Result<(), sqlx::Error> {
    let mut connection = database::connect(url).await?;
    let first = format!("PRAGMA page_size=16384; PRAGMA application_id={}", LEDGER.application_id);
    connection.execute(AssertSqlSafe(first)).await?;
    connection.close().await
}

/// Connects once, as every connection is made, and reads the first page: whatever keeps the ledger from being
/// used shows at once. A log that others left long is moved into the database.
pub(super) async fn reach(storage: &Storage, url: &str, unsynced: &Unsynced) -> Result<(), LedgerError> {
    let dialect = Dialect::of(storage);
    let reached = async {
        let mut connection = database::connect(url).await?;
        dialect.greet(&mut connection).await?;
        if dialect == Dialect::Sqlite {
            connection.execute("SELECT count(*) FROM sqlite_schema").await?;
            unsynced.shorten_log(&mut connection).await;
        }
        connection.close().await
    };
    let reached = match tokio::time::timeout(database::REACHED_WITHIN, reached).await {
        Ok(reached) => reached,
        // It is there and others hold it: the one who asks waits for a turn like everybody.
        Err(_) if dialect == Dialect::Sqlite => Ok(()),
        Err(_) => Err(sqlx::Error::Io(io::ErrorKind::TimedOut.into())),
    };
    reached.map_err(|source| LedgerError::Unreachable { place: shown(storage), source })
}

/// Names a ledger to a person.
pub(super) fn shown(storage: &Storage) -> String {
    match storage {
        Storage::File(path) => path.display().to_string(),
        Storage::Postgres(url) => database::postgres_place(url),
    }
}

/// Tells whether a database that cannot be reached now will be by itself.
pub(super) fn is_passing(error: &LedgerError) -> bool {
    let LedgerError::Unreachable { source: sqlx::Error::Database(error), .. } = error else { return false };
    // SQLite is busy; PostgreSQL has no place left, or is starting.
    matches!(sqlite_code(&**error), Some(5 | 6))
        || error.code().is_some_and(|code| matches!(&*code, "53300" | "57P03"))
}

/// Creates the file for its owner alone, and the lock beside it: two processes that create a database at
/// once would fail each other.
fn create(path: &Path) -> io::Result<File> {
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty() && !p.exists()) {
        create_private_dir(parent)?;
    }
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    let lock = options.open(beside(path, ".lock"))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
    let file = options.open(path)?;
    // A file that was there already may be open to others; what SQLite puts beside it follows its mode.
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(lock)
}

impl Dialect {
    pub(crate) fn of(storage: &Storage) -> Self {
        match storage {
            Storage::File(_) => Self::Sqlite,
            Storage::Postgres(_) => Self::Postgres,
        }
    }

    /// Prepares a new connection.
    pub(super) async fn greet(self, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        match self {
            // The first: waiting for a lock must be possible before anything takes one.
            Self::Sqlite => connection
                .execute(
                    // Contents of a few kilobytes leave much of a small page empty. Searches read some megabytes at
                    // once. The log is moved into the database by `unsynced.rs`.
                    "PRAGMA busy_timeout=30000; PRAGMA page_size=16384; PRAGMA journal_mode=WAL;
                     PRAGMA foreign_keys=ON; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-16384;
                     PRAGMA wal_autocheckpoint=0",
                )
                .await
                .map(drop),
            Self::Postgres => connection.execute("SET lock_timeout = '30s'").await.map(drop),
        }
    }

    pub(super) fn begin_write(self, survives: Survives) -> &'static str {
        match (self, survives) {
            (Self::Sqlite, Survives::Power) => "PRAGMA synchronous=FULL; BEGIN IMMEDIATE",
            (Self::Sqlite, Survives::Process) => "PRAGMA synchronous=NORMAL; BEGIN IMMEDIATE",
            (Self::Postgres, _) => "BEGIN",
        }
    }

    pub(crate) fn begin_read(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN",
            Self::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        }
    }

    /// Waits until no other process writes; SQLite has done so when it began.
    pub(super) async fn take_turn(self, tx: &mut Transaction<'static, Any>) -> Result<(), sqlx::Error> {
        if self == Self::Postgres {
            // In a block, because the function's result has no type that is known here.
            tx.execute("DO $$ BEGIN PERFORM pg_advisory_xact_lock(1544727322); END $$").await?;
        }
        Ok(())
    }

    /// Translates the few words of the schema language that differ.
    pub(super) fn schema(self, text: &str) -> String {
        let (number, bytes) = match self {
            Self::Sqlite => ("INTEGER PRIMARY KEY AUTOINCREMENT", "BLOB"),
            Self::Postgres => ("BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "BYTEA"),
        };
        text.replace("{number}", number).replace("{bytes}", bytes)
    }
}
