//! Where the two databases differ: how to connect, how to take turns, a few words of their schema language.
//!
//! Full-text search differs too, and lives beside what it searches. Nothing else may ask which database it is.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sqlx::{Any, AnyConnection, Executor, Transaction};

use super::{LedgerError, Storage, Survives};
use crate::home::create_private_dir;

/// Which database it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

/// Makes the database reachable; returns its URL, and a lock held while it is opened.
pub(super) fn prepare(storage: &Storage) -> Result<(String, Option<File>), LedgerError> {
    sqlx::any::install_default_drivers();
    match storage {
        Storage::Postgres(url) => Ok((url.clone(), None)),
        Storage::File(path) => {
            let failed = |source| LedgerError::File { path: path.clone(), source };
            let lock = create(path).map_err(failed)?;
            Ok((sqlite_url(path), Some(lock)))
        }
    }
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

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns the URL of a SQLite file that is there.
pub(crate) fn sqlite_url(path: &Path) -> String {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt;
    let mut url = "sqlite://".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => url.push(*byte as char),
            other => write!(url, "%{other:02X}").expect("a string takes any text"),
        }
    }
    url + "?mode=rw"
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
                    // once; a checkpoint must be rare among small commits.
                    "PRAGMA busy_timeout=30000; PRAGMA page_size=16384; PRAGMA journal_mode=WAL;
                     PRAGMA foreign_keys=ON; PRAGMA temp_store=MEMORY; PRAGMA cache_size=-16384;
                     PRAGMA wal_autocheckpoint=1000",
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
