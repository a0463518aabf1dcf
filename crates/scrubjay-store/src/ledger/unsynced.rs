//! What follows when the disk refuses to keep what SQLite wrote: nothing more is committed to that log.
//!
//! After a sync that failed the system forgets which bytes did not reach the disk: the next sync succeeds without
//! them. A log with such a hole ends there after a loss of power, and with it everything that was committed later. So
//! all that is in the log is moved into the database, which is synced, and the log begins anew; until that works,
//! every change is refused. Connections from before are closed: their files have the failure still to come.
//! PostgreSQL sees to this itself.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use sqlx::{AnyConnection, AnyPool, Connection};

use super::dialect::{self, Dialect};
use super::{Ledger, LedgerError};
use crate::database::{self, Renewal};

/// SQLite's code of input and output that failed, whichever it was.
const IO_FAILED: u32 = 10;

/// So often a process asks for the length of the log: after that many of its commits. It asks when it opens the ledger,
/// too: most processes end before they have made that many.
const COMMITS_BETWEEN: u32 = 16;
/// With so many pages, 16 MB, the log is moved into the database: rarely among small commits.
const LOG_PAGES_MAX: i64 = 1000;

/// What is known of syncs that failed.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    is_failing: AtomicBool,
    /// How many commits were made since the length of the log was asked for.
    commits: AtomicU32,
    /// Of the ledger's connections.
    pub(super) renewal: Renewal,
}

impl Unsynced {
    /// Takes note of a failure that may have been of a sync.
    pub(super) fn note(&self, error: &sqlx::Error) {
        let sqlx::Error::Database(error) = error else { return };
        if dialect::sqlite_code(&**error) == Some(IO_FAILED) {
            self.is_failing.store(true, Ordering::SeqCst);
            self.renewal.renew();
        }
    }

    pub(super) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::SeqCst)
    }

    /// Looks at the log after a commit, once in a while.
    pub(super) async fn keep_log_short(&self, pool: &AnyPool, dialect: Dialect) {
        let commits = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        if dialect != Dialect::Sqlite || commits < COMMITS_BETWEEN {
            return;
        }
        // The connection that made the commit goes back to the pool in a moment; where all are in use the next commit
        // looks.
        let Some(mut connection) = pool.try_acquire() else { return };
        self.shorten_log(&mut connection).await;
    }

    /// Moves a long log into the database. SQLite would do so by itself, and keep to itself that a sync failed.
    pub(super) async fn shorten_log(&self, connection: &mut AnyConnection) {
        self.commits.store(0, Ordering::Relaxed);
        let log: Result<(i64, i64, i64), _> =
            sqlx::query_as("PRAGMA wal_checkpoint(NOOP)").fetch_one(&mut *connection).await;
        if log.is_ok_and(|(_, pages, moved)| pages - moved >= LOG_PAGES_MAX) {
            let moved: Result<(i64, i64, i64), _> =
                sqlx::query_as("PRAGMA wal_checkpoint(PASSIVE)").fetch_one(connection).await;
            if let Err(error) = moved {
                self.note(&error);
            }
        }
    }
}

/// Moves what the log holds into the database and begins the log anew; the caller has the turn.
pub(super) async fn write_anew(ledger: &Ledger) -> Result<(), LedgerError> {
    if ledger.dialect == Dialect::Sqlite {
        let mut connection = database::connect(&ledger.place.1).await?;
        ledger.dialect.greet(&mut connection).await?;
        let moved: Result<(i64, i64, i64), _> =
            sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(&mut connection).await;
        let closed = connection.close().await;
        if moved?.0 != 0 {
            return Err(LedgerError::Unsynced);
        }
        closed?;
    }
    ledger.unsynced.is_failing.store(false, Ordering::SeqCst);
    Ok(())
}
