//! The ledger: the database of projects, sessions, events, file revisions, progress and records.
//!
//! SQLite in a file of its own by default, or PostgreSQL; every statement is written once, with `$n` binds.
//! A mutation is one [`Write`]: it changes state and appends the event that tells of it, or does neither.
//! Writers take turns, whichever process they are in, so that the order of events is the order of commits.

pub mod blob;
pub mod dialect;
pub mod event;
pub mod moves;
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

/// How long anyone waits for a turn or a connection.
const PATIENCE: Duration = Duration::from_secs(30);
/// A database that is there gives a connection within this; after it we look whether it is.
const AT_ONCE: Duration = Duration::from_millis(400);
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
    /// Its file or directory cannot be made.
    #[error("cannot use {} as the ledger: {source}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Its path leads to something that must not or cannot be used, and that was left as it is.
    #[error("cannot use {} as the ledger: {why}", .path.display())]
    NotUsable {
        /// Which.
        path: PathBuf,
        /// What it is.
        why: NotUsable,
    },
    /// The database does not answer, or cannot be used.
    #[error("cannot open the ledger, {place}: {}", database::cause(.source))]
    Unreachable {
        /// Where it is, without a password.
        place: String,
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
    /// The database was lost while it committed.
    #[error("the ledger was lost while a change was committed: {}", database::cause(.0))]
    Uncertain(sqlx::Error),
    /// The disk refused to keep what was written, and what is in memory cannot be written anew yet.
    #[error(
        "the ledger takes no changes: the disk failed to keep earlier ones, and others are still reading them"
    )]
    Unsynced,
    /// An id that somebody chose for something new holds a secret.
    #[error("the id of a {0} must not hold a secret: it is written wherever the {0} is named")]
    SecretId(&'static str),
    /// What was stored does not make sense.
    #[error("the ledger is damaged: {0}")]
    Damaged(String),
}

impl LedgerError {
    /// Returns what a person can do about it.
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

/// Tells whether SQLite says that a file is damaged, or none of its own.
fn is_damage(error: &dyn sqlx::error::DatabaseError) -> bool {
    matches!(dialect::sqlite_code(error), Some(11 | 26))
}

/// The ledger. Cheap to clone; all clones share their connections.
#[derive(Clone)]
pub struct Ledger {
    pool: AnyPool,
    dialect: Dialect,
    turn: Arc<Mutex<()>>,
    /// What is known of syncs that failed.
    unsynced: Arc<Unsynced>,
    redactor: Arc<Redactor>,
    on_move: Arc<OnceLock<OnMove>>,
    /// Where it is, and the URL it is reached by.
    place: Arc<(Storage, String)>,
}

/// Hears that a connection is in another session than its conversation's, once that is committed: by their ids.
type OnMove = Box<dyn Fn(&str, &str) + Send + Sync>;

/// What a committed mutation must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survives {
    /// The loss of power.
    Power,
    /// The end of any process; after a loss of power it can be found out again.
    Process,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ledger").field(&self.place.0).finish()
    }
}

impl Ledger {
    /// Looks whether the storage can be a ledger, as far as that shows without touching it or asking a server.
    ///
    /// # Errors
    /// It is a file that is not ours, or one that cannot be made.
    pub async fn look(storage: &Storage) -> Result<(), LedgerError> {
        dialect::look(storage).await
    }

    /// Opens the ledger, and creates or migrates it where needed. No text reaches it but through the redactor.
    ///
    /// # Errors
    /// It cannot be reached, or a later version wrote it.
    pub async fn open(storage: &Storage, redactor: Arc<Redactor>) -> Result<Self, LedgerError> {
        let dialect = Dialect::of(storage);
        let (url, opening) = dialect::prepare(storage).await?;
        let unsynced = Arc::new(Unsynced::default());
        dialect::reach(storage, &url, &unsynced).await?;
        let pool = database::pool(CONNECTIONS_MAX, PATIENCE, &unsynced.renewal)
            .after_connect(move |connection, _| Box::pin(dialect.greet(connection)))
            .connect_lazy(&url)?;
        let (turn, place, on_move) = (Arc::default(), Arc::new((storage.clone(), url)), Arc::default());
        let ledger = Self { pool, dialect, turn, unsynced, redactor, on_move, place };
        ledger.migrate().await?;
        drop(opening);
        Ok(ledger)
    }

    /// Says who is to hear of connections that move to another session; once.
    pub fn on_move(&self, hear: impl Fn(&str, &str) + Send + Sync + 'static) {
        let _ = self.on_move.set(Box::new(hear));
    }

    /// Begins a mutation: waits for its turn, then has the ledger for itself.
    ///
    /// # Errors
    /// The turn did not come in time, or the database is gone.
    pub async fn write(&self, survives: Survives) -> Result<Write, LedgerError> {
        let turn = self.turn.clone().lock_owned().await;
        if self.unsynced.is_failing() {
            unsynced::write_anew(self).await?;
        }
        let mut tx = self.begin(self.dialect.begin_write(survives)).await?;
        self.dialect.take_turn(&mut tx).await?;
        let at_ns = i64::try_from(clock::now().wall_ns).unwrap_or(i64::MAX);
        let (redactor, on_move) = (self.redactor.clone(), self.on_move.clone());
        let (dialect, unsynced, pool) = (self.dialect, self.unsynced.clone(), self.pool.clone());
        Ok(Write { tx, dialect, at_ns, redactor, moved: Vec::new(), on_move, unsynced, pool, _turn: turn })
    }

    /// Begins to read: everything read is of one moment.
    ///
    /// # Errors
    /// The database is gone.
    pub async fn read(&self) -> Result<Read, LedgerError> {
        let tx = self.begin(self.dialect.begin_read()).await?;
        Ok(Read { tx, dialect: self.dialect })
    }

    /// Tells whether a text holds nothing that must not be stored.
    #[must_use]
    pub fn is_clean(&self, text: &str) -> bool {
        self.redactor.text(text).as_str() == text
    }

    /// Closes all connections; what was committed stays.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// Begins a transaction. The pool tries for as long as it may to reach a database that is gone; this one finds
    /// out after a moment why it has to wait, and says so where waiting does not help.
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
        if let Ok(begun) = tokio::time::timeout(AT_ONCE, &mut beginning).await {
            return Ok(begun?);
        }
        let (storage, url) = &*self.place;
        match dialect::reach(storage, url, &self.unsynced).await {
            Err(e) if !dialect::is_passing(&e) => Err(e),
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
    /// The connections that are in another session from now on.
    moved: Vec<(String, String)>,
    on_move: Arc<OnceLock<OnMove>>,
    unsynced: Arc<Unsynced>,
    pool: AnyPool,
    _turn: OwnedMutexGuard<()>,
}

impl Write {
    /// Makes it permanent.
    ///
    /// # Errors
    /// It may or may not have happened; read to find out.
    pub async fn commit(self) -> Result<(), LedgerError> {
        if let Err(error) = self.tx.commit().await {
            self.unsynced.note(&error);
            return Err(match error {
                // The database said so: it was taken back.
                sqlx::Error::Database(_) => LedgerError::Database(error),
                lost => LedgerError::Uncertain(lost),
            });
        }
        self.unsynced.keep_log_short(&self.pool, self.dialect).await;
        if let Some(hear) = self.on_move.get() {
            self.moved.iter().for_each(|(connection, session)| hear(connection, session));
        }
        Ok(())
    }

    /// Notes that a connection is in another session than the one its tape names.
    fn note_move(&mut self, connection: &str, session: &str) {
        self.moved.push((connection.to_owned(), session.to_owned()));
    }

    /// Returns a text as it may be stored: without secrets, and without NUL, which PostgreSQL cannot hold.
    #[must_use]
    pub fn clean(&self, text: &str) -> RedactedText {
        let clean = self.redactor.text(text);
        if clean.as_str() != text {
            redacted::note(text);
        }
        clean.without_nul()
    }

    /// Tells whether a text holds nothing that must not be stored.
    #[must_use]
    pub fn is_clean(&self, text: &str) -> bool {
        self.redactor.text(text).as_str() == text
    }

    /// Returns a value as it may be stored: its texts without secrets.
    #[must_use]
    pub(crate) fn clean_json(&self, value: &serde_json::Value) -> RedactedText {
        let text = value.to_string();
        let clean = self.redactor.text(&text);
        if clean.as_str() != text {
            redacted::note(&text);
        }
        clean
    }

    /// Returns when it happens, nanoseconds since the Unix epoch.
    #[must_use]
    pub fn at_ns(&self) -> i64 {
        self.at_ns
    }
}

/// Reading of one moment.
pub struct Read {
    tx: Transaction<'static, Any>,
    dialect: Dialect,
}

/// Whatever statements run on: a reading or a mutation under way.
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
