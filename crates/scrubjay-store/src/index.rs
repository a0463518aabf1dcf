//! The index: tables for searching and comparing tapes, in a SQLite file of their own, or in a schema of their own if
//! the ledger is in PostgreSQL.
//!
//! It is derived from tapes and disposable: an index that cannot be used is created again. It is filled by *catching
//! up*: a process that wants to search takes the lease and reads the new entries of all tapes, live ones too. Nothing
//! here runs on the relay path, and no lock of the ledger is taken. `catch_up.rs` decides what to read,
//! `tape_reading.rs` reads tapes, `fill.rs` writes rows, `search.rs` and `tape_calls.rs` answer queries; only
//! `dialect.rs` knows which database it is.

mod call_details;
mod catch_up;
mod clean;
mod dialect;
mod entry_lookup;
mod fill;
mod keeper;
mod lease;
mod search;
mod snippet;
mod sql;
mod tape_calls;
mod tape_reading;

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::{Any, AnyPool, AssertSqlSafe, Connection, Executor, Transaction};
use thiserror::Error;

use crate::database::{self, NotUsable, Renewal};
use crate::ledger::Storage;
use crate::ledger::dialect::Dialect;
use dialect::IndexLocation;
use lease::Lease;
use scrubjay_tape::home::{FindError, Home};
use tape_reading::OpenTapes;

pub use catch_up::{CaughtUp, Progress};
pub use keeper::KeeperLock;
pub use search::{Facet, Facets, SearchResults, TapeHit, WhyBounded};
pub use snippet::Snippet;

/// The version of the tables and of the text in them. An index of another version is created again from the tapes.
const VERSION: i64 = 4;
/// How long to wait for the lease or a connection.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How long to wait for another process that is catching up. That may take minutes the first time; a search does not
/// wait so long, and finds what is indexed so far.
const CATCH_UP_WAIT_MAX: Duration = Duration::from_secs(10);
/// The most connections of one process: one fills the index while the others search.
const CONNECTIONS_MAX: u32 = 4;

/// The index cannot be used.
#[derive(Debug, Error)]
pub enum IndexError {
    /// Its file cannot be created or removed.
    #[error("cannot use {path} as the index: {source}")]
    File {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file at its path is not ours. It was not changed.
    #[error("cannot use {} as the index: {why}", .path.display())]
    NotUsable {
        /// The path.
        path: PathBuf,
        /// What is wrong with the file.
        why: NotUsable,
    },
    /// The database failed.
    #[error("the index failed: {0} (`scrubjay index rebuild` creates it again from the tapes)")]
    Database(#[from] sqlx::Error),
    /// The PostgreSQL server cannot be reached.
    #[error("cannot reach the database that `storage` names, which holds the index too: {0}")]
    Unreachable(sqlx::Error),
    /// The tapes cannot be listed.
    #[error(transparent)]
    Tapes(#[from] FindError),
    /// The thread that listed the tapes panicked or was ended.
    #[error("cannot list the tapes: {0}")]
    Listing(tokio::task::JoinError),
    /// Another process is filling the index and has not finished in time.
    #[error("another process has been filling the index for longer than {0:?}: try again later")]
    Busy(Duration),
}

/// Whether the index holds everything that is on the tapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It holds every entry that was on the tapes when the refresh began.
    Current,
    /// Another process is still filling it: entries that it has not read yet cannot be found.
    Behind,
}

/// The index of a data directory. Cheap to clone; all clones share their connections.
#[derive(Clone, Debug)]
pub struct Index {
    home: Home,
    location: IndexLocation,
    pool: AnyPool,
    renewal: Renewal,
    /// Live tapes that were read to their end, so that the next catch-up continues there.
    open_tapes: Arc<Mutex<OpenTapes>>,
    frequent_max: usize,
}

impl Index {
    /// Opens the index; creates it if there is none that this version can use. It may be behind the tapes:
    /// [`Index::open_current`] brings it up to date, too.
    ///
    /// # Errors
    /// It cannot be opened or created.
    pub async fn open(home: &Home, storage: &Storage) -> Result<Self, IndexError> {
        let location = Self::location(home, storage).await?;
        if let Some(index) = Self::open_existing(home, &location).await? {
            return Ok(index);
        }
        let lease = Lease::take(home, &location, WAIT_MAX).await?;
        // Another process may have created it meanwhile, and replacing that one would lose its work.
        if let Some(index) = Self::open_existing(home, &location).await? {
            return Ok(index);
        }
        Self::make(home, location, &lease).await
    }

    /// Creates the index again from the tapes.
    ///
    /// # Errors
    /// It cannot be created, or the tapes cannot be listed.
    pub async fn rebuild(
        home: &Home,
        storage: &Storage,
        report: impl FnMut(Progress),
    ) -> Result<(Self, CaughtUp), IndexError> {
        let location = Self::location(home, storage).await?;
        // Held until it is filled: otherwise another process could begin to fill it in between.
        let lease = Lease::take(home, &location, WAIT_MAX).await?;
        let index = Self::make(home, location, &lease).await?;
        let caught_up = index.catch_up_with(&lease, report).await?;
        Ok((index, caught_up))
    }

    /// Sets how many exchanges may match a text before a search is limited to those that were indexed last. For tests.
    #[must_use]
    pub fn frequent_after(self, exchanges: usize) -> Self {
        Self { frequent_max: exchanges, ..self }
    }

    /// Reads entries that are new since the last time, and forgets removed tapes.
    ///
    /// # Errors
    /// The tapes cannot be listed, or the index cannot be written; [`IndexError::Busy`] if another process is filling it
    /// and takes long. Then what is indexed so far can be searched.
    pub async fn catch_up(&self, mut report: impl FnMut(Progress)) -> Result<CaughtUp, IndexError> {
        match self.catch_up_once(&mut report).await {
            // See `is_read_only`: the pool must open new connections before another try can succeed.
            Err(IndexError::Database(e)) if database::is_read_only(&e) => {
                self.renewal.renew();
                self.catch_up_once(report).await
            }
            caught_up => caught_up,
        }
    }

    /// Opens the index and reads entries that are new since the last time.
    ///
    /// # Errors
    /// The index cannot be opened or filled. If another process is filling it, that is not an error: see
    /// [`Freshness::Behind`].
    pub async fn open_current(
        home: &Home,
        storage: &Storage,
        report: impl FnMut(Progress),
    ) -> Result<(Self, Freshness), IndexError> {
        let index = Self::open(home, storage).await?;
        let freshness = index.refresh(report).await?;
        Ok((index, freshness))
    }

    /// Catches up like [`Index::catch_up`], unless another process is doing it and takes long.
    ///
    /// # Errors
    /// The tapes cannot be listed, or the index cannot be written.
    pub async fn refresh(&self, report: impl FnMut(Progress)) -> Result<Freshness, IndexError> {
        match self.catch_up(report).await {
            Ok(_) => Ok(Freshness::Current),
            Err(IndexError::Busy(_)) => Ok(Freshness::Behind),
            Err(error) => Err(error),
        }
    }

    async fn catch_up_once(&self, report: impl FnMut(Progress)) -> Result<CaughtUp, IndexError> {
        // Without the lease: usually nothing is new, and a search then waits for nobody.
        if self.is_current().await? {
            return Ok(CaughtUp::default());
        }
        let lease = Lease::take(&self.home, &self.location, CATCH_UP_WAIT_MAX).await?;
        self.catch_up_with(&lease, report).await
    }

    /// Deletes removed tapes from the index, if it exists; returns how many. Afterwards nothing of them is left in its
    /// files. An index that this version cannot use is emptied.
    ///
    /// # Errors
    /// The tapes cannot be listed, or the index cannot be written; [`IndexError::Busy`] if another process is filling it
    /// and takes long. That process removes them too before it is done.
    pub async fn forget_removed(home: &Home, storage: &Storage) -> Result<u64, IndexError> {
        let location = Self::location(home, storage).await?;
        // Opening would create it, only to find nothing to delete.
        if matches!(&location, IndexLocation::File(path) if !path.exists()) {
            return Ok(0);
        }
        let lease = Lease::take(home, &location, CATCH_UP_WAIT_MAX).await?;
        let index = match Self::open_existing(home, &location).await? {
            Some(index) => index,
            None => Self::make(home, location, &lease).await?,
        };
        let removed = index.forget_with(&lease).await;
        index.close().await;
        removed
    }

    /// Returns the size of its file; `None` in PostgreSQL.
    #[must_use]
    pub fn file_bytes(&self) -> Option<u64> {
        match &self.location {
            IndexLocation::File(path) => std::fs::metadata(path).ok().map(|facts| facts.len()),
            IndexLocation::Schema { .. } => None,
        }
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    async fn location(home: &Home, storage: &Storage) -> Result<IndexLocation, IndexError> {
        let (home, storage) = (home.clone(), storage.clone());
        let location = tokio::task::spawn_blocking(move || IndexLocation::of(&home, &storage)).await;
        let location = location.map_err(|e| IndexError::Database(sqlx::Error::Configuration(e.into())))??;
        if let IndexLocation::File(path) = &location {
            match database::inspect(path, database::INDEX).await {
                // A damaged index is created again.
                Ok(_) | Err(NotUsable::NotADatabase | NotUsable::Damaged(_)) => {}
                Err(why) => return Err(IndexError::NotUsable { path: path.clone(), why }),
            }
        }
        Ok(location)
    }

    fn new(home: &Home, location: IndexLocation) -> Result<Self, IndexError> {
        let renewal = Renewal::default();
        let pool = location.pool(&renewal)?;
        let frequent_max = dialect::frequent_max(location.dialect());
        Ok(Self { home: home.clone(), location, pool, renewal, open_tapes: Arc::default(), frequent_max })
    }

    async fn open_existing(home: &Home, location: &IndexLocation) -> Result<Option<Self>, IndexError> {
        if matches!(location, IndexLocation::File(path) if !path.exists()) {
            return Ok(None);
        }
        let version = async {
            let mut connection = location.connect().await?;
            let version = sqlx::query_scalar("SELECT version FROM version").fetch_one(&mut connection).await;
            connection.close().await?;
            version
        };
        match version.await {
            Ok(VERSION) => Self::new(home, location.clone()).map(Some),
            // It is of another version, was not created completely, or is not a database.
            _ => Ok(None),
        }
    }

    /// Replaces the index, if there is one, by an empty one.
    async fn make(home: &Home, location: IndexLocation, _lease: &Lease) -> Result<Self, IndexError> {
        if let IndexLocation::File(path) = &location {
            let failed = |source| IndexError::File { path: path.clone(), source };
            // SQLite creates its log with the same mode.
            let create =
                || OpenOptions::new().create(true).append(true).mode(0o600).open(path).map_err(failed);
            create()?;
            // Emptied in place and not removed, so that processes that have the file open continue with the new index.
            match empty(&location).await {
                Ok(()) => {}
                // The file is not at fault, so a new one would fail, too.
                Err(e) if dialect::is_environment_failure(&e) => return Err(e.into()),
                // It is not a database, or a damaged one.
                Err(_) => {
                    remove(path).map_err(failed)?;
                    create()?;
                    empty(&location).await?;
                }
            }
        } else {
            empty(&location).await?;
        }
        Self::new(home, location)
    }

    fn dialect(&self) -> Dialect {
        self.location.dialect()
    }

    /// Begins a read transaction: it sees one snapshot of the index.
    async fn read(&self) -> Result<Transaction<'static, Any>, sqlx::Error> {
        self.pool.begin_with(self.dialect().begin_read()).await
    }
}

/// Drops everything and creates the tables, in one transaction.
async fn empty(location: &IndexLocation) -> Result<(), sqlx::Error> {
    let mut connection = location.connect().await?;
    let mut tx = connection.begin_with(dialect::begin_write(location.dialect())).await?;
    for statement in location.creation_statements() {
        // The text is a constant of this crate.
        tx.execute(AssertSqlSafe(statement)).await?;
    }
    // The rows of dropped tables are still in the file's pages, so it is unclean.
    sqlx::query("INSERT INTO version (version, unclean) VALUES ($1, $2)")
        .bind(VERSION)
        .bind(clean::UNCLEAN)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    connection.close().await
}

/// Removes a database file with its log.
fn remove(path: &Path) -> io::Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        match std::fs::remove_file(database::beside(path, suffix)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// Converts a number to the databases' integer type.
fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a number of the database.
fn uint(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Replaces NUL characters, which PostgreSQL cannot store.
fn without_nul(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{2400}").into() } else { text.into() }
}
