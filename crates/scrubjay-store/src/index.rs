//! The index: tables by which tapes are searched and compared, in a database file of its own.
//!
//! Derived from tapes and disposable: whatever is wrong with it, it is made anew. It is filled by *catching
//! up*: whoever is about to ask takes the lease (a lock on a file) and reads what tapes have grown by, live
//! ones too. Nothing here is on the way of a message, and no lock of the ledger is touched. `catch_up.rs` says
//! what is to be read, `gather.rs` reads tapes, `fill.rs` writes rows, `search.rs` and `past.rs` ask.

mod catch_up;
mod fill;
mod gather;
mod lease;
mod look;
mod past;

mod search;
mod snippet;

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Executor, SqlitePool};
use thiserror::Error;

use crate::home::{FindError, Home};
use lease::Lease;

pub use catch_up::CaughtUp;

pub use search::{Facet, Facets, Found, Hit};
pub use snippet::Snippet;

/// What the tables and the text in them are like; another number makes the index anew.
const VERSION: i64 = 2;
/// How long anyone waits for a lock or a connection.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long anyone waits for another who is catching up: its first time may take minutes.
const CATCHING_UP_MAX: Duration = Duration::from_secs(10);
const CONNECTIONS_MAX: u32 = 4;

/// The index cannot be used.
#[derive(Debug, Error)]
pub enum IndexError {
    /// Its file cannot be made or removed.
    #[error("cannot use {path} as the index: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The database failed.
    #[error("the index failed: {0} (`scrubjay index rebuild` makes it anew from the tapes)")]
    Database(#[from] sqlx::Error),
    /// The tapes cannot be listed.
    #[error(transparent)]
    Tapes(#[from] FindError),
    /// Another process is at it.
    #[error("another process has been filling the index for longer than {0:?}: try again later")]
    Busy(Duration),
}

/// The index of a data directory. Cheap to clone; all clones share their connections.
#[derive(Clone, Debug)]
pub struct Index {
    home: Home,
    pool: SqlitePool,
}

impl Index {
    /// Opens the index; makes it where there is none that this version can use.
    ///
    /// # Errors
    /// It cannot be made.
    pub async fn open(home: &Home) -> Result<Self, IndexError> {
        if let Some(index) = Self::open_existing(home).await {
            return Ok(index);
        }
        let lease = Lease::take(home, PATIENCE).await?;
        // Somebody else may have made it meanwhile.
        if let Some(index) = Self::open_existing(home).await {
            return Ok(index);
        }
        Self::make(home, &lease).await
    }

    /// Makes the index anew from the tapes.
    ///
    /// # Errors
    /// It cannot be made, or the tapes cannot be listed.
    pub async fn rebuild(home: &Home, tell: impl FnMut(u64)) -> Result<(Self, CaughtUp), IndexError> {
        let lease = Lease::take(home, PATIENCE).await?;
        let index = Self::make(home, &lease).await?;
        let caught_up = index.catch_up_with(&lease, tell).await?;
        Ok((index, caught_up))
    }

    /// Reads what tapes have grown by since the last time, and forgets those that are gone.
    ///
    /// # Errors
    /// The tapes cannot be listed, or the index cannot be written; [`IndexError::Busy`] where another process
    /// is at it and takes long: what it has so far can be asked for.
    pub async fn catch_up(&self, tell: impl FnMut(u64)) -> Result<CaughtUp, IndexError> {
        if self.is_current().await? {
            return Ok(CaughtUp::default());
        }
        let lease = Lease::take(&self.home, CATCHING_UP_MAX).await?;
        self.catch_up_with(&lease, tell).await
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    async fn open_existing(home: &Home) -> Option<Self> {
        let path = home.index();
        if !path.exists() {
            return None;
        }
        let index = Self { home: home.clone(), pool: pool(&path) };
        let version: Result<i64, _> = sqlx::query_scalar("PRAGMA user_version").fetch_one(&index.pool).await;
        match version {
            Ok(VERSION) => Some(index),
            // Another version's, half made, or no database at all.
            _ => {
                index.close().await;
                None
            }
        }
    }

    /// Makes an empty one in place of whatever is there.
    async fn make(home: &Home, _lease: &Lease) -> Result<Self, IndexError> {
        let path = home.index();
        let failed = |source| IndexError::File { path: path.clone(), source };
        for suffix in ["", "-wal", "-shm"] {
            let mut name = path.clone().into_os_string();
            name.push(suffix);
            match std::fs::remove_file(Path::new(&name)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
                _ => {}
            }
        }
        // What SQLite puts beside it follows its mode.
        OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(failed)?;
        let index = Self { home: home.clone(), pool: pool(&path) };
        let mut connection = index.pool.acquire().await?;
        connection.execute(include_str!("index/schema.sql")).await?;
        // Last: what has a version is whole.
        connection.execute(sqlx::AssertSqlSafe(format!("PRAGMA user_version = {VERSION}"))).await?;
        drop(connection);
        Ok(index)
    }
}

fn pool(path: &Path) -> SqlitePool {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .busy_timeout(PATIENCE)
        .journal_mode(SqliteJournalMode::Wal)
        // Lost with the power, it is made anew.
        .synchronous(SqliteSynchronous::Normal)
        .pragma("temp_store", "MEMORY")
        .pragma("cache_size", "-65536")
        .pragma("mmap_size", "1073741824")
        .pragma("wal_autocheckpoint", "8192")
        .row_buffer_size(1024);
    SqlitePoolOptions::new()
        .max_connections(CONNECTIONS_MAX)
        .acquire_timeout(PATIENCE)
        .connect_lazy_with(options)
}

/// Returns a number as the database holds it.
fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a number of the database.
fn uint(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// The ids of a tape's exchanges: its number, and the exchange's place.
fn id_of(tape: i64, place: u64) -> i64 {
    tape << 32 | int(place).min(u32::MAX.into())
}

fn tape_of(id: i64) -> i64 {
    id >> 32
}
