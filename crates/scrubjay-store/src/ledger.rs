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
pub mod revision;
mod schema;
pub mod session;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use scrubjay_core::redact::Redactor;
use sqlx::any::AnyPoolOptions;
use sqlx::{Any, AnyConnection, AnyPool, Transaction};
use thiserror::Error;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::clock;
use dialect::Dialect;

/// How long anyone waits for a turn or a connection.
const PATIENCE: Duration = Duration::from_secs(30);
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
    #[error("cannot use {path} as the ledger: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It was written by a later version.
    #[error(
        "the ledger has schema {found}, and this version of Scrubjay knows schemas up to {known}: use the \
         version that wrote it, or a newer one"
    )]
    Newer {
        /// What it has.
        found: i64,
        /// What we know.
        known: i64,
    },
    /// The database failed.
    #[error("the ledger failed: {0}")]
    Database(#[from] sqlx::Error),
    /// What was stored does not make sense.
    #[error("the ledger is damaged: {0}")]
    Damaged(String),
}

/// The ledger. Cheap to clone; all clones share their connections.
#[derive(Clone, Debug)]
pub struct Ledger {
    pool: AnyPool,
    dialect: Dialect,
    turn: Arc<Mutex<()>>,
    redactor: Arc<Redactor>,
}

/// What a committed mutation must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survives {
    /// The loss of power.
    Power,
    /// The end of any process; after a loss of power it can be found out again.
    Process,
}

impl Ledger {
    /// Opens the ledger, and creates or migrates it where needed. No text reaches it but through the redactor.
    ///
    /// # Errors
    /// It cannot be reached, or a later version wrote it.
    pub async fn open(storage: &Storage, redactor: Arc<Redactor>) -> Result<Self, LedgerError> {
        let dialect = Dialect::of(storage);
        let place = storage.clone();
        // Waiting for another process to open it must not hold up this one's other work.
        let prepared = tokio::task::spawn_blocking(move || dialect::prepare(&place)).await;
        let (url, opening) = prepared.map_err(|e| LedgerError::Damaged(e.to_string()))??;
        let pool = AnyPoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .acquire_timeout(PATIENCE)
            .after_connect(move |connection, _| Box::pin(dialect.greet(connection)))
            .connect_lazy(&url)?;
        let ledger = Self { pool, dialect, turn: Arc::default(), redactor };
        ledger.migrate().await?;
        drop(opening);
        Ok(ledger)
    }

    /// Begins a mutation: waits for its turn, then has the ledger for itself.
    ///
    /// # Errors
    /// The turn did not come in time, or the database is gone.
    pub async fn write(&self, survives: Survives) -> Result<Write, LedgerError> {
        let turn = self.turn.clone().lock_owned().await;
        let mut tx = self.pool.begin_with(self.dialect.begin_write(survives)).await?;
        self.dialect.take_turn(&mut tx).await?;
        let at_ns = i64::try_from(clock::now().wall_ns).unwrap_or(i64::MAX);
        Ok(Write { tx, dialect: self.dialect, at_ns, redactor: self.redactor.clone(), _turn: turn })
    }

    /// Begins to read: everything read is of one moment.
    ///
    /// # Errors
    /// The database is gone.
    pub async fn read(&self) -> Result<Read, LedgerError> {
        let tx = self.pool.begin_with(self.dialect.begin_read()).await?;
        Ok(Read { tx, dialect: self.dialect })
    }

    /// Closes all connections; what was committed stays.
    pub async fn close(&self) {
        self.pool.close().await;
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
    _turn: OwnedMutexGuard<()>,
}

impl Write {
    /// Makes it permanent.
    ///
    /// # Errors
    /// It may or may not have happened; read to find out.
    pub async fn commit(self) -> Result<(), LedgerError> {
        self.tx.commit().await?;
        Ok(())
    }

    /// Returns a text as it may be stored: without secrets, and without NUL, which PostgreSQL cannot hold.
    #[must_use]
    pub fn clean(&self, text: &str) -> String {
        let text = self.redactor.redact_text(text);
        if text.contains('\0') { text.replace('\0', "\u{2400}") } else { text.into_owned() }
    }

    /// Returns a value as it may be stored: its texts without secrets.
    #[must_use]
    pub fn clean_json(&self, value: &serde_json::Value) -> String {
        let text = value.to_string();
        String::from_utf8_lossy(self.redactor.redact(text.as_bytes()).as_bytes()).into_owned()
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
