//! The ledger: the database of projects, sessions, events, file revisions, progress and records.
//!
//! It is a SQLite file by default, or a PostgreSQL database; every statement is written once, with `$n` binds.
//! A mutation is one [`Write`]: it changes state and appends the event that records the change, or does neither.
//! Writers of all processes take turns, so that the order of events is the order of commits.

pub mod blob;
pub mod dialect;
pub mod event;
pub(crate) mod full_text;
pub(crate) mod moves;
mod names;
pub mod narrative;
pub mod plan;
pub mod progress;
pub mod project;
pub mod records;
pub mod redacted;
pub mod revision;
mod schema;
pub mod session;
pub(crate) mod statement;
mod unsynced;
pub mod words;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use scrubjay_core::redact::{RedactedText, Redactor};
use sqlx::{Any, AnyConnection, AnyPool, Transaction};
use thiserror::Error;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::database::{self, NotUsable};
use dialect::Dialect;
use scrubjay_tape::clock;
use unsynced::Unsynced;

/// How long a caller waits for a connection: as long as `dialect.rs` lets the database wait for other writers.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);
/// After this time without a connection, a probe finds out whether the database can be reached at all. With the
/// probe's own `CONNECT_TIMEOUT`, an error reaches the user within two seconds.
const PROBE_AFTER: Duration = Duration::from_millis(400);
/// The most connections of one process. A few are enough, because only one of them can write at a time.
const CONNECTIONS_MAX: u32 = 4;

/// Where the ledger is.
#[derive(Clone, PartialEq, Eq)]
pub enum Storage {
    /// A SQLite file.
    File(PathBuf),
    /// A PostgreSQL database, by its URL, which may hold a password.
    Postgres(String),
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            // The URL may hold a password, and debug output may reach a log.
            Self::Postgres(_) => f.write_str("Postgres(***)"),
        }
    }
}

/// The ledger cannot be opened, read or written.
#[derive(Debug, Error)]
pub enum LedgerError {
    /// Its file or directory cannot be created.
    #[error("cannot use {} as the ledger: {source}", .path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file at its path must not or cannot be used. It was not changed.
    #[error("cannot use {} as the ledger: {why}", .path.display())]
    NotUsable {
        /// The path.
        path: PathBuf,
        /// What is wrong with the file.
        why: NotUsable,
    },
    /// The database does not answer, or cannot be used.
    #[error("cannot open the ledger, {location}: {}", database::cause(.source))]
    Unreachable {
        /// Where it is, without a password.
        location: String,
        /// The error of the database.
        source: sqlx::Error,
    },
    /// It was written by a later version.
    #[error("the ledger has schema {found}, and this version of Scrubjay knows schemas up to {known}")]
    Newer {
        /// Its schema.
        found: i64,
        /// The newest schema that this version knows.
        known: i64,
    },
    /// The database failed.
    #[error("the ledger failed: {}", database::cause(.0))]
    Database(#[from] sqlx::Error),
    /// The connection to the database broke during a commit.
    #[error("the connection to the ledger was lost while a change was committed: {}", database::cause(.0))]
    Uncertain(sqlx::Error),
    /// A sync failed, and the data that is still in memory cannot be written again yet.
    #[error(
        "the ledger takes no changes: the disk failed to sync earlier ones, and another process is still reading its log"
    )]
    Unsynced,
    /// The id that a caller chose for a new row contains a secret.
    #[error("the id of a {0} must not hold a secret: ids are stored as they are")]
    SecretId(&'static str),
    /// Stored data is invalid.
    #[error("the ledger is damaged: {0}")]
    Damaged(String),
}

impl LedgerError {
    /// Returns what the user can do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotUsable { why: NotUsable::Directory { .. }, .. } | Self::File { .. } => {
                "Make its directory writable, or name another path in `storage`."
            }
            Self::NotUsable { why: NotUsable::Damaged(_), .. } => {
                "Restore it from a copy, or name another path in `storage`."
            }
            Self::NotUsable { .. } => {
                "It was left as it is. Name another path in `storage`; a new file is made there."
            }
            Self::Unreachable { source: sqlx::Error::Database(error), .. } if is_damage(&**error) => {
                "Restore it from a copy, or name another path in `storage`."
            }
            Self::Unreachable { .. } => {
                "Check `storage` and that the database runs; it is used again as soon as it answers."
            }
            Self::Newer { .. } => "Use the version of Scrubjay that wrote it, or a newer one.",
            Self::Database(_) => {
                "Nothing was changed. Try again; if it happens again, check what `storage` names."
            }
            Self::Uncertain(_) => {
                "The change may have been committed. Read what is there before you try again."
            }
            Self::Unsynced => {
                "Nothing was changed. Try again in a moment; check the disk that `storage` names."
            }
            Self::SecretId(_) => "Choose an id without it.",
            Self::Damaged(_) => "Restore the database that `storage` names from a copy.",
        }
    }
}

/// Tells whether SQLite reports a damaged file (11), or one that is not a database (26).
fn is_damage(error: &dyn sqlx::error::DatabaseError) -> bool {
    matches!(dialect::sqlite_code(error), Some(11 | 26))
}

/// The ledger. Cheap to clone; all clones share their connections.
#[derive(Clone)]
pub struct Ledger {
    pool: AnyPool,
    dialect: Dialect,
    /// Held by the one writer of this process.
    write_lock: Arc<Mutex<()>>,
    /// Whether a sync failed.
    unsynced: Arc<Unsynced>,
    redactor: Arc<Redactor>,
    on_move: Arc<OnceLock<OnMove>>,
    /// Where it is, and its URL.
    location: Arc<(Storage, String)>,
}

/// Called with the ids of a connection and of its session, when a committed change has moved the connection to another
/// session than its conversation's.
type OnMove = Box<dyn Fn(&str, &str) + Send + Sync>;

/// What a committed mutation must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitDurability {
    /// The loss of power.
    Power,
    /// The end of the process. A loss of power may undo the mutation, which can then be derived again.
    Process,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ledger").field(&self.location.0).finish()
    }
}

impl Ledger {
    /// Checks whether the storage can be a ledger, without changing a file or connecting to a server.
    ///
    /// # Errors
    /// It is another program's file, or one that cannot be created.
    pub async fn inspect(storage: &Storage) -> Result<(), LedgerError> {
        dialect::inspect(storage).await
    }

    /// Opens the ledger, and creates or migrates it if needed. Every text that is written passes the redactor.
    ///
    /// # Errors
    /// It cannot be reached, or a later version wrote it.
    pub async fn open(storage: &Storage, redactor: Arc<Redactor>) -> Result<Self, LedgerError> {
        let dialect = Dialect::of(storage);
        let (url, lock) = dialect::prepare(storage).await?;
        let unsynced = Arc::new(Unsynced::default());
        // Not by the pool: it would retry for `ACQUIRE_TIMEOUT` and then only report that no connection was free.
        dialect::reach(storage, &url, &unsynced).await?;
        let pool = database::pool(CONNECTIONS_MAX, ACQUIRE_TIMEOUT, &unsynced.renewal)
            // Pragmas and `SET` apply to one connection only, so each new one is configured.
            .after_connect(move |connection, _| Box::pin(dialect.configure(connection)))
            .connect_lazy(&url)?;
        let (write_lock, location, on_move) =
            (Arc::default(), Arc::new((storage.clone(), url)), Arc::default());
        let ledger = Self { pool, dialect, write_lock, unsynced, redactor, on_move, location };
        ledger.migrate().await?;
        // Held until here, because two processes that create the same database at once make each other fail.
        drop(lock);
        Ok(ledger)
    }

    /// Sets the callback for connections that move to another session. Only the first call counts.
    pub fn on_move(&self, callback: impl Fn(&str, &str) + Send + Sync + 'static) {
        let _ = self.on_move.set(Box::new(callback));
    }

    /// Begins a mutation, after waiting until nobody else writes.
    ///
    /// # Errors
    /// Other writers took too long, or the database cannot be reached.
    pub async fn write(&self, durability: CommitDurability) -> Result<Write, LedgerError> {
        // Taken before a connection: writers that wait would otherwise hold the connections that readers need.
        let write_lock = self.write_lock.clone().lock_owned().await;
        // Before `BEGIN IMMEDIATE`: to truncate the log, the checkpoint needs SQLite's write lock itself.
        if self.unsynced.is_failing() {
            unsynced::checkpoint_all(self).await?;
        }
        let mut tx = self.begin(self.dialect.begin_write(durability)).await?;
        self.dialect.lock_writers(&mut tx).await?;
        // Read after the lock was taken: otherwise a writer that waited would date its events before those already
        // committed.
        let at_ns = i64::try_from(clock::now().wall_ns).unwrap_or(i64::MAX);
        let (redactor, on_move) = (self.redactor.clone(), self.on_move.clone());
        let (dialect, unsynced, pool) = (self.dialect, self.unsynced.clone(), self.pool.clone());
        Ok(Write {
            tx,
            dialect,
            at_ns,
            redactor,
            moved: Vec::new(),
            on_move,
            unsynced,
            pool,
            _write_lock: write_lock,
        })
    }

    /// Begins a read transaction: it sees one snapshot of the ledger.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn read(&self) -> Result<Read, LedgerError> {
        let tx = self.begin(self.dialect.begin_read()).await?;
        Ok(Read { tx, dialect: self.dialect })
    }

    /// Tells whether a text contains no secret.
    #[must_use]
    pub(crate) fn is_clean(&self, text: &str) -> bool {
        self.redactor.text(text).as_str() == text
    }

    /// Closes all connections; what was committed stays.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// Begins a transaction. If the database is gone, the pool would retry for 30 seconds; so after a moment a probe
    /// finds out the reason, and this fails at once if waiting cannot help.
    async fn begin(&self, statement: &'static str) -> Result<Transaction<'static, Any>, LedgerError> {
        match self.begin_once(statement).await {
            Err(LedgerError::Database(e)) if database::is_read_only(&e) => {
                // SQLite opened this connection read-only, so only a new one can write.
                self.unsynced.renewal.renew();
                self.begin_once(statement).await
            }
            begun => begun,
        }
    }

    async fn begin_once(&self, statement: &'static str) -> Result<Transaction<'static, Any>, LedgerError> {
        let mut beginning = std::pin::pin!(self.pool.begin_with(statement));
        if let Ok(begun) = tokio::time::timeout(PROBE_AFTER, &mut beginning).await {
            return Ok(begun?);
        }
        // `beginning` stays pinned and keeps its place in the queue of the pool while the probe runs.
        let (storage, url) = &*self.location;
        match dialect::reach(storage, url, &self.unsynced).await {
            Err(e) if !dialect::is_transient(&e) => Err(e),
            _ => Ok(beginning.await?),
        }
    }

    async fn migrate(&self) -> Result<(), LedgerError> {
        let mut write = self.write(CommitDurability::Power).await?;
        schema::migrate(&mut write).await?;
        write.commit().await
    }
}

/// A mutation in progress. It is rolled back if it is dropped without [`Write::commit`].
pub struct Write {
    tx: Transaction<'static, Any>,
    dialect: Dialect,
    at_ns: i64,
    redactor: Arc<Redactor>,
    /// The connections that this mutation moved to another session, each with that session.
    moved: Vec<(String, String)>,
    on_move: Arc<OnceLock<OnMove>>,
    unsynced: Arc<Unsynced>,
    pool: AnyPool,
    /// The last field, because fields are dropped in order: `tx` begins its rollback before another writer may begin.
    _write_lock: OwnedMutexGuard<()>,
}

impl Write {
    /// Commits the mutation.
    ///
    /// # Errors
    /// After [`LedgerError::Uncertain`] it may or may not be committed; only reading shows which.
    pub async fn commit(self) -> Result<(), LedgerError> {
        if let Err(error) = self.tx.commit().await {
            // After a failed sync nothing more may be committed to the log.
            self.unsynced.note(&error);
            return Err(match error {
                // The database itself reports the error, so it has rolled back.
                sqlx::Error::Database(_) => LedgerError::Database(error),
                lost => LedgerError::Uncertain(lost),
            });
        }
        self.unsynced.keep_log_short(&self.pool, self.dialect).await;
        // Only now: a move that is rolled back must not be announced.
        if let Some(callback) = self.on_move.get() {
            self.moved.iter().for_each(|(connection, session)| callback(connection, session));
        }
        Ok(())
    }

    /// Notes that a connection moved to another session than the one its tape names.
    fn note_move(&mut self, connection: &str, session: &str) {
        self.moved.push((connection.to_owned(), session.to_owned()));
    }

    /// Redacts a text for storing, and replaces NUL characters, which PostgreSQL cannot store.
    #[must_use]
    pub(crate) fn clean(&self, text: &str) -> RedactedText {
        let clean = self.redactor.text(text);
        if clean.as_str() != text {
            redacted::note(text);
        }
        clean.without_nul()
    }

    /// Tells whether a text contains no secret.
    #[must_use]
    pub(crate) fn is_clean(&self, text: &str) -> bool {
        self.redactor.text(text).as_str() == text
    }

    /// Redacts the texts of a JSON value for storing.
    #[must_use]
    pub(crate) fn clean_json(&self, value: &serde_json::Value) -> RedactedText {
        // As one JSON text and not value by value: a member such as `password` is a secret because of its name.
        let text = value.to_string();
        let clean = self.redactor.text(&text);
        if clean.as_str() != text {
            redacted::note(&text);
        }
        // JSON escapes NUL, so there is none to replace.
        clean
    }

    /// Returns the time of the mutation, nanoseconds since the Unix epoch.
    #[must_use]
    pub fn at_ns(&self) -> i64 {
        self.at_ns
    }
}

/// A read transaction.
pub struct Read {
    tx: Transaction<'static, Any>,
    dialect: Dialect,
}

/// A transaction that statements run on: a [`Read`] or a [`Write`].
pub trait LedgerConnection {
    /// Returns the connection.
    fn conn(&mut self) -> &mut AnyConnection;
    /// Returns the kind of database.
    fn dialect(&self) -> Dialect;
}

impl LedgerConnection for Write {
    fn conn(&mut self) -> &mut AnyConnection {
        &mut self.tx
    }

    fn dialect(&self) -> Dialect {
        self.dialect
    }
}

impl LedgerConnection for Read {
    fn conn(&mut self) -> &mut AnyConnection {
        &mut self.tx
    }

    fn dialect(&self) -> Dialect {
        self.dialect
    }
}
