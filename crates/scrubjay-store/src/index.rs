//! The index: tables by which tapes are searched and compared, in a database file of its own, or in a schema of
//! its own where the ledger is in PostgreSQL.
//!
//! Derived from tapes and disposable: whatever is wrong with it, it is made anew. It is filled by *catching
//! up*: whoever is about to ask takes the lease and reads what tapes have grown by, live ones too. Nothing here is
//! on the way of a message, and no lock of the ledger is touched. `catch_up.rs` says what is to be read,
//! `tape_reading.rs` reads tapes, `fill.rs` writes rows, `search.rs` and `tape_calls.rs` ask; only `dialect.rs` knows which
//! database it is.

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
use dialect::IndexPlace;
use lease::Lease;
use scrubjay_tape::home::{FindError, Home};
use tape_reading::OpenTapes;

pub use catch_up::{CaughtUp, Progress};
pub use keeper::KeeperLock;
pub use search::{Facet, Facets, SearchResults, TapeHit, WhyBounded};
pub use snippet::Snippet;

/// What the tables and the text in them are like; another number makes the index anew.
const VERSION: i64 = 4;
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
    /// Something that is not ours stands in its place, and was left as it is.
    #[error("cannot use {} as the index: {why}", .path.display())]
    NotUsable {
        /// Where.
        path: PathBuf,
        /// What it is.
        why: NotUsable,
    },
    /// The database failed.
    #[error("the index failed: {0} (`scrubjay index rebuild` makes it anew from the tapes)")]
    Database(#[from] sqlx::Error),
    /// The database is not there.
    #[error("cannot reach the database that `storage` names, which holds the index too: {0}")]
    Unreachable(sqlx::Error),
    /// The tapes cannot be listed.
    #[error(transparent)]
    Tapes(#[from] FindError),
    /// Another process is at it.
    #[error("another process has been filling the index for longer than {0:?}: try again later")]
    Busy(Duration),
}

/// Whether the index holds everything that is on the tapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It holds every entry that was on the tapes when it was asked for.
    Current,
    /// Another process is still filling it: what that process has not read yet cannot be found.
    Behind,
}

/// The index of a data directory. Cheap to clone; all clones share their connections.
#[derive(Clone, Debug)]
pub struct Index {
    home: Home,
    place: IndexPlace,
    pool: AnyPool,
    renewal: Renewal,
    /// Live tapes that were read here, to go on with.
    open_tapes: Arc<Mutex<OpenTapes>>,
    frequent_max: usize,
}

impl Index {
    /// Opens the index; makes it where there is none that this version can use.
    ///
    /// It is a file beside the tapes, or, where the ledger is in PostgreSQL, a schema beside the ledger's.
    ///
    /// # Errors
    /// It cannot be made.
    pub async fn open(home: &Home, storage: &Storage) -> Result<Self, IndexError> {
        let place = Self::place(home, storage).await?;
        if let Some(index) = Self::open_existing(home, &place).await? {
            return Ok(index);
        }
        let lease = Lease::take(home, &place, PATIENCE).await?;
        // Somebody else may have made it meanwhile.
        if let Some(index) = Self::open_existing(home, &place).await? {
            return Ok(index);
        }
        Self::make(home, place, &lease).await
    }

    /// Makes the index anew from the tapes.
    ///
    /// # Errors
    /// It cannot be made, or the tapes cannot be listed.
    pub async fn rebuild(
        home: &Home,
        storage: &Storage,
        tell: impl FnMut(Progress),
    ) -> Result<(Self, CaughtUp), IndexError> {
        let place = Self::place(home, storage).await?;
        let lease = Lease::take(home, &place, PATIENCE).await?;
        let index = Self::make(home, place, &lease).await?;
        let caught_up = index.catch_up_with(&lease, tell).await?;
        Ok((index, caught_up))
    }

    /// Sets how many exchanges may hold a text before only those that were indexed last are looked at.
    #[must_use]
    pub fn frequent_after(self, exchanges: usize) -> Self {
        Self { frequent_max: exchanges, ..self }
    }

    /// Reads what tapes have grown by since the last time, and forgets those that are gone.
    ///
    /// # Errors
    /// The tapes cannot be listed, or the index cannot be written; [`IndexError::Busy`] where another process
    /// is at it and takes long: what it has so far can be asked for.
    pub async fn catch_up(&self, mut tell: impl FnMut(Progress)) -> Result<CaughtUp, IndexError> {
        match self.catch_up_once(&mut tell).await {
            Err(IndexError::Database(e)) if database::is_read_only(&e) => {
                self.renewal.renew();
                self.catch_up_once(tell).await
            }
            caught_up => caught_up,
        }
    }

    /// Opens the index and reads what the tapes have grown by since the last time.
    ///
    /// # Errors
    /// The index cannot be opened or filled. Another process that is filling it is no error: see [`Freshness::Behind`].
    pub async fn open_current(
        home: &Home,
        storage: &Storage,
        report: impl FnMut(Progress),
    ) -> Result<(Self, Freshness), IndexError> {
        let index = Self::open(home, storage).await?;
        let freshness = index.refresh(report).await?;
        Ok((index, freshness))
    }

    /// Catches up like [`Index::catch_up`], but leaves it to another process that has been at it for long.
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

    async fn catch_up_once(&self, tell: impl FnMut(Progress)) -> Result<CaughtUp, IndexError> {
        if self.is_current().await? {
            return Ok(CaughtUp::default());
        }
        let lease = Lease::take(&self.home, &self.place, CATCHING_UP_MAX).await?;
        self.catch_up_with(&lease, tell).await
    }

    /// Takes tapes that are gone out of the index, where there is one; tells how many.
    ///
    /// Nothing of them is left in its files then. An index that this version cannot use is emptied.
    ///
    /// # Errors
    /// The tapes cannot be listed, or the index cannot be written; [`IndexError::Busy`] where another process is at
    /// it and takes long: it does this too, before it is done.
    pub async fn forget_removed(home: &Home, storage: &Storage) -> Result<u64, IndexError> {
        let place = Self::place(home, storage).await?;
        if matches!(&place, IndexPlace::File(path) if !path.exists()) {
            return Ok(0);
        }
        let lease = Lease::take(home, &place, CATCHING_UP_MAX).await?;
        let index = match Self::open_existing(home, &place).await? {
            Some(index) => index,
            None => Self::make(home, place, &lease).await?,
        };
        let removed = index.forget_with(&lease).await;
        index.close().await;
        removed
    }

    /// Returns how large it is, where it is a file.
    #[must_use]
    pub fn file_bytes(&self) -> Option<u64> {
        match &self.place {
            IndexPlace::File(path) => std::fs::metadata(path).ok().map(|facts| facts.len()),
            IndexPlace::Schema { .. } => None,
        }
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    async fn place(home: &Home, storage: &Storage) -> Result<IndexPlace, IndexError> {
        let (home, storage) = (home.clone(), storage.clone());
        let place = tokio::task::spawn_blocking(move || IndexPlace::of(&home, &storage)).await;
        let place = place.map_err(|e| IndexError::Database(sqlx::Error::Configuration(e.into())))??;
        if let IndexPlace::File(path) = &place {
            match database::inspect(path, database::INDEX).await {
                // Whatever else is wrong with it, it is made anew.
                Ok(_) | Err(NotUsable::NotADatabase | NotUsable::Damaged(_)) => {}
                Err(why) => return Err(IndexError::NotUsable { path: path.clone(), why }),
            }
        }
        Ok(place)
    }

    fn new(home: &Home, place: IndexPlace) -> Result<Self, IndexError> {
        let renewal = Renewal::default();
        let pool = place.pool(&renewal)?;
        let frequent_max = dialect::frequent_max(place.dialect());
        Ok(Self { home: home.clone(), place, pool, renewal, open_tapes: Arc::default(), frequent_max })
    }

    async fn open_existing(home: &Home, place: &IndexPlace) -> Result<Option<Self>, IndexError> {
        if matches!(place, IndexPlace::File(path) if !path.exists()) {
            return Ok(None);
        }
        let version = async {
            let mut connection = place.connect().await?;
            let version = sqlx::query_scalar("SELECT version FROM version").fetch_one(&mut connection).await;
            connection.close().await?;
            version
        };
        match version.await {
            Ok(VERSION) => Self::new(home, place.clone()).map(Some),
            // Another version's, half made, or no database at all.
            _ => Ok(None),
        }
    }

    /// Makes an empty one in place of whatever is there.
    async fn make(home: &Home, place: IndexPlace, _lease: &Lease) -> Result<Self, IndexError> {
        if let IndexPlace::File(path) = &place {
            let failed = |source| IndexError::File { path: path.clone(), source };
            // What SQLite puts beside it follows its mode.
            let create =
                || OpenOptions::new().create(true).append(true).mode(0o600).open(path).map_err(failed);
            create()?;
            // In place, so that whoever has it open goes on with the new one.
            match empty(&place).await {
                Ok(()) => {}
                // Another file would find no more room, and no better disk.
                Err(e) if dialect::is_of_disk(&e) => return Err(e.into()),
                // No database, or a broken one.
                Err(_) => {
                    remove(path).map_err(failed)?;
                    create()?;
                    empty(&place).await?;
                }
            }
        } else {
            empty(&place).await?;
        }
        Self::new(home, place)
    }

    fn dialect(&self) -> Dialect {
        self.place.dialect()
    }

    /// Begins to read: everything read is of one moment.
    async fn read(&self) -> Result<Transaction<'static, Any>, sqlx::Error> {
        self.pool.begin_with(self.dialect().begin_read()).await
    }
}

/// Throws everything away and makes the tables, at once.
async fn empty(place: &IndexPlace) -> Result<(), sqlx::Error> {
    let mut connection = place.connect().await?;
    let mut tx = connection.begin_with(dialect::begin_write(place.dialect())).await?;
    for statement in place.making() {
        // The text is one of ours.
        tx.execute(AssertSqlSafe(statement)).await?;
    }
    // What was there before is still in the pages of the file.
    sqlx::query("INSERT INTO version (version, unclean) VALUES ($1, $2)")
        .bind(VERSION)
        .bind(clean::UNCLEAN)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    connection.close().await
}

/// Removes a database file, and what SQLite puts beside it.
fn remove(path: &Path) -> io::Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.to_owned().into_os_string();
        name.push(suffix);
        match std::fs::remove_file(Path::new(&name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// Returns a number as the database holds it.
fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns a number of the database.
fn uint(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Returns a text as both databases can hold it: PostgreSQL knows no NUL.
fn without_nul(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{2400}").into() } else { text.into() }
}
