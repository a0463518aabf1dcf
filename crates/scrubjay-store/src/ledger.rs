//! The ledger: the database of projects, sessions, events, file revisions, progress and records.
//!
//! It is a SQLite file by default, or a PostgreSQL database; every statement is written once, with `$n` binds.
//! A mutation is one [`Write`]: it changes state and appends the event that records the change, or does neither.
//! Writers of all processes take turns, so that the order of events is the order of commits.

pub mod blob;
pub mod dialect;
pub mod event;
pub(crate) mod full_text;
pub mod moves;
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

/// How long to wait for a turn or a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a reachable database takes to give a connection. After this it is checked whether it can be reached.
const PROBE_AFTER: Duration = Duration::from_millis(400);
/// How many connections one process opens.
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
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file at its path must not or cannot be used, and was left alone.
    #[error("cannot use {} as the ledger: {why}", .path.display())]
    NotUsable {
        /// Which.
        path: PathBuf,
        /// What it is.
        why: NotUsable,
    },
    /// The database does not answer, or cannot be used.
    #[error("cannot open the ledger, {location}: {}", database::cause(.source))]
    Unreachable {
        /// Where it is, without a password.
        location: String,
        /// What it said.
        source: sqlx::Error,
    },
    /// It was written by a later version.
    #[error("the ledger has schema {found}, and this version of Scrubjay knows schemas up to {known}")]
    Newer {
        /// What it has.
        found: i64,
        /// What we know.
        known: i64,
    },
    /// The database failed.
    #[error("the ledger failed: {}", database::cause(.0))]
    Database(#[from] sqlx::Error),
    /// The connection to the database broke during a commit.
    #[error("the ledger was lost while a change was committed: {}", database::cause(.0))]
    Uncertain(sqlx::Error),
    /// A sync failed, and the data that is still in memory cannot be written again yet.
    #[error(
        "the ledger takes no changes: the disk failed to keep earlier ones, and others are still reading them"
    )]
    Unsynced,
    /// The id that a caller chose for a new row contains a secret.
    #[error("the id of a {0} must not hold a secret: it is written wherever the {0} is named")]
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
            Self::Database(_) => "Nothing was changed. Try again; if it stays, check what `storage` names.",
            Self::Uncertain(_) => "It may have been changed all the same. Look before you try again.",
            Self::Unsynced => {
                "Nothing was changed. Try again in a moment; check the disk that `storage` names."
            }
            Self::SecretId(_) => "Choose an id without it.",
            Self::Damaged(_) => "Restore the database that `storage` names from a copy.",
        }
    }
}

/// Tells whether SQLite reports a damaged file (11), or one that is no database (26).
fn is_damage(error: &dyn sqlx::error::DatabaseError) -> bool {
    matches!(dialect::sqlite_code(error), Some(11 | 26))
}

/// The ledger. Cheap to clone; all clones share their connections.
#[derive(Clone)]
pub struct Ledger {
    pool: AnyPool,
    dialect: Dialect,
    write_lock: Arc<Mutex<()>>,
    /// Whether a sync failed.
    unsynced: Arc<Unsynced>,
    redactor: Arc<Redactor>,
    on_move: Arc<OnceLock<OnMove>>,
    /// Where it is, and the URL it is reached by.
    location: Arc<(Storage, String)>,
}

/// Called with the ids of a connection and of its new session, after the connection moved to another session than its
/// conversation's and that was committed.
type OnMove = Box<dyn Fn(&str, &str) + Send + Sync>;

/// What a committed mutation must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survives {
    /// The loss of power.
    Power,
    /// The end of the process. It may be lost with the power, and can be derived again.
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
        let (url, opening) = dialect::prepare(storage).await?;
        let unsynced = Arc::new(Unsynced::default());
        dialect::reach(storage, &url, &unsynced).await?;
        let pool = database::pool(CONNECTIONS_MAX, ACQUIRE_TIMEOUT, &unsynced.renewal)
            .after_connect(move |connection, _| Box::pin(dialect.configure(connection)))
            .connect_lazy(&url)?;
        let (write_lock, location, on_move) =
            (Arc::default(), Arc::new((storage.clone(), url)), Arc::default());
        let ledger = Self { pool, dialect, write_lock, unsynced, redactor, on_move, location };
        ledger.migrate().await?;
        drop(opening);
        Ok(ledger)
    }

    /// Sets the callback for connections that move to another session. Only the first call counts.
    pub fn on_move(&self, callback: impl Fn(&str, &str) + Send + Sync + 'static) {
        let _ = self.on_move.set(Box::new(callback));
    }

    /// Begins a mutation: waits until no other process writes.
    ///
    /// # Errors
    /// Other writers took too long, or the database cannot be reached.
    pub async fn write(&self, survives: Survives) -> Result<Write, LedgerError> {
        let write_lock = self.write_lock.clone().lock_owned().await;
        if self.unsynced.is_failing() {
            unsynced::checkpoint_all(self).await?;
        }
        let mut tx = self.begin(self.dialect.begin_write(survives)).await?;
        self.dialect.lock_writers(&mut tx).await?;
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

    /// Begins a read transaction: everything it reads is of one moment.
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

    /// Begins a transaction. The pool would retry for 30 seconds if the database is gone. So after a moment this checks why
    /// it has to wait, and fails at once if waiting does not help.
    async fn begin(&self, statement: &'static str) -> Result<Transaction<'static, Any>, LedgerError> {
        match self.begin_once(statement).await {
            Err(LedgerError::Database(e)) if database::is_read_only(&e) => {
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
        let (storage, url) = &*self.location;
        match dialect::reach(storage, url, &self.unsynced).await {
            Err(e) if !dialect::is_transient(&e) => Err(e),
            _ => Ok(beginning.await?),
        }
    }

    async fn migrate(&self) -> Result<(), LedgerError> {
        let mut write = self.write(Survives::Power).await?;
        schema::migrate(&mut write).await?;
        write.commit().await
    }
}

/// A mutation under way; dropped without [`Write::commit`], it never happened.
pub struct Write {
    tx: Transaction<'static, Any>,
    dialect: Dialect,
    at_ns: i64,
    redactor: Arc<Redactor>,
    /// Connections that moved to another session in this mutation.
    moved: Vec<(String, String)>,
    on_move: Arc<OnceLock<OnMove>>,
    unsynced: Arc<Unsynced>,
    pool: AnyPool,
    _write_lock: OwnedMutexGuard<()>,
}

impl Write {
    /// Commits the mutation.
    ///
    /// # Errors
    /// After [`LedgerError::Uncertain`] it may or may not have happened; read to find out.
    pub async fn commit(self) -> Result<(), LedgerError> {
        if let Err(error) = self.tx.commit().await {
            self.unsynced.note(&error);
            return Err(match error {
                // The database reported the error, so it rolled back.
                sqlx::Error::Database(_) => LedgerError::Database(error),
                lost => LedgerError::Uncertain(lost),
            });
        }
        self.unsynced.keep_log_short(&self.pool, self.dialect).await;
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
    pub fn clean(&self, text: &str) -> RedactedText {
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

    /// Redacts the texts of a value for storing.
    #[must_use]
    pub(crate) fn clean_json(&self, value: &serde_json::Value) -> RedactedText {
        let text = value.to_string();
        let clean = self.redactor.text(&text);
        if clean.as_str() != text {
            redacted::note(&text);
        }
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
pub trait Conn {
    /// Returns the connection.
    fn conn(&mut self) -> &mut AnyConnection;
    /// Returns which database it is.
    fn dialect(&self) -> Dialect;
}

impl Conn for Write {
    fn conn(&mut self) -> &mut AnyConnection {
        &mut self.tx
    }

    fn dialect(&self) -> Dialect {
        self.dialect
    }
}

impl Conn for Read {
    fn conn(&mut self) -> &mut AnyConnection {
        &mut self.tx
    }

    fn dialect(&self) -> Dialect {
        self.dialect
    }
}
