//! How SQLite and PostgreSQL differ for the ledger: connecting, locking out other writers, two words of their schema
//! language.
//!
//! Full-text search differs too: see `full_text.rs`, and the code beside what is searched. Nothing else may ask which
//! database it is.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use sqlx::{Any, AnyConnection, AssertSqlSafe, Connection, Executor, Transaction};

use super::unsynced::Unsynced;
use super::{CommitDurability, LedgerError, Storage};
use crate::database::{self, FileInspection, LEDGER, beside};
pub(crate) use crate::database::{sqlite_code, sqlite_url};
use scrubjay_tape::home::create_private_dir;

/// The kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

/// Inspects the storage without changing it.
pub(super) async fn inspect(storage: &Storage) -> Result<(), LedgerError> {
    let Storage::File(path) = storage else { return Ok(()) };
    inspect_file(path).await.map(drop)
}

async fn inspect_file(path: &Path) -> Result<FileInspection, LedgerError> {
    database::inspect(path, LEDGER).await.map_err(|why| LedgerError::NotUsable { path: path.to_owned(), why })
}

/// Creates the file if needed; returns the database's URL, and a lock to hold while it is opened.
pub(super) async fn prepare(storage: &Storage) -> Result<(String, Option<File>), LedgerError> {
    sqlx::any::install_default_drivers();
    let path = match storage {
        Storage::Postgres(url) => return Ok((url.clone(), None)),
        Storage::File(path) => path,
    };
    // Before `create`, which makes a lock file, waits for it and changes the mode: a file of others is left alone.
    inspect_file(path).await?;
    let file = path.clone();
    // On a blocking thread, because it waits for other processes that open it.
    let created = tokio::task::spawn_blocking(move || create(&file)).await;
    let created = created.map_err(io::Error::other).flatten();
    let lock = created.map_err(|source| LedgerError::File { path: path.clone(), source })?;
    let url = sqlite_url(path);
    // The previous holder of the lock may have created the database.
    if inspect_file(path).await? == FileInspection::Empty {
        set_application_id(&url)
            .await
            .map_err(|source| LedgerError::Unreachable { location: shown(storage), source })?;
    }
    Ok((url, Some(lock)))
}

/// Writes our application id into the header of an empty file, before anything is in its log.
async fn set_application_id(url: &str) -> Result<(), sqlx::Error> {
    let mut connection = database::connect(url).await?;
    // The page size first: once a page is written, only VACUUM could change it, and in WAL mode not even that.
    let first = format!("PRAGMA page_size=16384; PRAGMA application_id={}", LEDGER.application_id);
    connection.execute(AssertSqlSafe(first)).await?;
    connection.close().await
}

/// Connects once, configures the connection and reads the first page, to find at once any reason that keeps the ledger
/// from being used. Also moves a long log that other processes left into the database.
pub(super) async fn reach(storage: &Storage, url: &str, unsynced: &Unsynced) -> Result<(), LedgerError> {
    let dialect = Dialect::of(storage);
    let reached = async {
        let mut connection = database::connect(url).await?;
        dialect.configure(&mut connection).await?;
        if dialect == Dialect::Sqlite {
            // SQLite opens any file. Only a query reads it, and shows whether it is a database.
            connection.execute("SELECT count(*) FROM sqlite_schema").await?;
            unsynced.shorten_log(&mut connection).await;
        }
        connection.close().await
    };
    let reached = match tokio::time::timeout(database::CONNECT_TIMEOUT, reached).await {
        Ok(reached) => reached,
        // A SQLite file can be reached, so it is only busy, and the caller waits.
        Err(_) if dialect == Dialect::Sqlite => Ok(()),
        Err(_) => Err(sqlx::Error::Io(io::ErrorKind::TimedOut.into())),
    };
    reached.map_err(|source| LedgerError::Unreachable { location: shown(storage), source })
}

/// Describes where a ledger is, without a password.
pub(super) fn shown(storage: &Storage) -> String {
    match storage {
        Storage::File(path) => path.display().to_string(),
        Storage::Postgres(url) => database::postgres_location(url),
    }
}

/// Tells whether a database that cannot be reached now will become reachable by itself.
pub(super) fn is_transient(error: &LedgerError) -> bool {
    let LedgerError::Unreachable { source: sqlx::Error::Database(error), .. } = error else { return false };
    // SQLite is busy or locked; PostgreSQL has no connection left, or is starting.
    matches!(sqlite_code(&**error), Some(5 | 6))
        || error.code().is_some_and(|code| matches!(&*code, "53300" | "57P03"))
}

/// Creates the file with mode 0600, under a lock, because two processes that create a database at once make each other
/// fail; returns the lock.
fn create(path: &Path) -> io::Result<File> {
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty() && !p.exists()) {
        create_private_dir(parent)?;
    }
    let mut options = OpenOptions::new();
    // To create needs write access; `append` gives it without truncating what may be a database already.
    options.create(true).append(true).mode(0o600);
    // The lock file is never removed: a process could then lock the removed file while another locks a new one.
    let lock = options.open(beside(path, ".lock"))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
    let file = options.open(path)?;
    // An existing file may be open to others, and SQLite gives its log the same mode.
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

    /// Configures a new connection.
    pub(super) async fn configure(self, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        match self {
            // busy_timeout comes first: the following statements may have to wait for a lock.
            Self::Sqlite => connection
                .execute(
                    // 16 KiB pages, because contents of a few kilobytes waste much of smaller ones. 16 MiB cache,
                    // because searches read some megabytes. `unsynced.rs` does the checkpoints.
                    "PRAGMA busy_timeout=30000; PRAGMA page_size=16384; PRAGMA journal_mode=WAL;
                     PRAGMA foreign_keys=ON; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-16384;
                     PRAGMA wal_autocheckpoint=0",
                )
                .await
                .map(drop),
            // As long as SQLite's busy_timeout: the advisory lock of the writers is what a statement here waits for.
            Self::Postgres => connection.execute("SET lock_timeout = '30s'").await.map(drop),
        }
    }

    pub(super) fn begin_write(self, durability: CommitDurability) -> &'static str {
        // SQLite does not allow `synchronous` to be changed within a transaction, so this precedes each.
        match (self, durability) {
            (Self::Sqlite, CommitDurability::Power) => "PRAGMA synchronous=FULL; BEGIN IMMEDIATE",
            (Self::Sqlite, CommitDurability::Process) => "PRAGMA synchronous=NORMAL; BEGIN IMMEDIATE",
            // READ COMMITTED: with one snapshot for the transaction, the statement that waits for the lock would take
            // it, and what the previous writer committed meanwhile would be missing.
            (Self::Postgres, _) => "BEGIN",
        }
    }

    pub(crate) fn begin_read(self) -> &'static str {
        match self {
            // Deferred: the first SELECT takes the snapshot. In WAL mode a reader waits for no writer, and no writer
            // for it.
            Self::Sqlite => "BEGIN",
            // By default each statement would see a snapshot of its own.
            Self::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        }
    }

    /// Waits until no other process writes. On SQLite `BEGIN IMMEDIATE` has done that already.
    pub(super) async fn lock_writers(self, tx: &mut Transaction<'static, Any>) -> Result<(), sqlx::Error> {
        if self == Self::Postgres {
            // The number must stay the same: versions that lock different numbers would not exclude each other. In a DO
            // block, because sqlx::Any has no type for the function's result (void). `xact`: the lock ends with the
            // transaction, also if the process is killed.
            tx.execute("DO $$ BEGIN PERFORM pg_advisory_xact_lock(1544727322); END $$").await?;
        }
        Ok(())
    }

    /// Replaces the words of the schema that differ.
    pub(super) fn schema(self, text: &str) -> String {
        let (number, bytes) = match self {
            Self::Sqlite => ("INTEGER PRIMARY KEY AUTOINCREMENT", "BLOB"),
            Self::Postgres => ("BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "BYTEA"),
        };
        // AUTOINCREMENT never assigns a number twice, even after the newest row was removed, as IDENTITY does not.
        text.replace("{number}", number).replace("{bytes}", bytes)
    }
}
