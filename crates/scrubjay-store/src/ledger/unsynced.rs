//! Handles failed syncs of SQLite's write-ahead log: after one, nothing more is committed to that log.
//!
//! After a failed sync the kernel forgets which bytes did not reach the disk, and the next sync succeeds without them.
//! A log with such a hole ends there after a loss of power, so everything committed later would be lost. Therefore all
//! content of the log is moved into the database, which is synced, and the log is started again; until that works,
//! every change is refused. Older connections are closed, because their file descriptors may still report the failure.
//! PostgreSQL handles this itself.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use sqlx::{AnyConnection, AnyPool, Connection};

use super::dialect::{self, Dialect};
use super::{Ledger, LedgerError};
use crate::database::{self, Renewal};

/// SQLite's code of a failed read, write or sync.
const IO_FAILED: u32 = 10;

/// After this number of commits a process checks the length of the log. It also checks when it opens the ledger,
/// because most processes make fewer commits than this.
const COMMITS_BETWEEN: u32 = 16;
/// A log of this many pages is moved into the database: SQLite's own default. With our pages that is 16 MB, which small
/// commits reach rarely.
const LOG_PAGES_MAX: i64 = 1000;

/// Whether a sync failed, and the number of commits since the length of the log was checked.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    is_failing: AtomicBool,
    /// Commits since the length of the log was checked.
    commits: AtomicU32,
    /// Closes the ledger's older connections after a failed sync.
    pub(super) renewal: Renewal,
}

impl Unsynced {
    /// Notes a failed commit; every I/O error may have been a failed sync.
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

    /// Checks the length of the log after every [`COMMITS_BETWEEN`] commits.
    pub(super) async fn keep_log_short(&self, pool: &AnyPool, dialect: Dialect) {
        let commits = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        if dialect != Dialect::Sqlite || commits < COMMITS_BETWEEN {
            return;
        }
        // Waiting for a connection would delay the caller's commit; if all are in use, the next commit checks.
        let Some(mut connection) = pool.try_acquire() else { return };
        self.shorten_log(&mut connection).await;
    }

    /// Moves a long log into the database. SQLite's automatic checkpoint would not report a failed sync.
    pub(super) async fn shorten_log(&self, connection: &mut AnyConnection) {
        self.commits.store(0, Ordering::Relaxed);
        // NOOP moves nothing, and only reports the lengths.
        let log: Result<(i64, i64, i64), _> =
            sqlx::query_as("PRAGMA wal_checkpoint(NOOP)").fetch_one(&mut *connection).await;
        if log.is_ok_and(|(_, pages, moved)| pages - moved >= LOG_PAGES_MAX) {
            // PASSIVE moves as much as it can without waiting for readers.
            let moved: Result<(i64, i64, i64), _> =
                sqlx::query_as("PRAGMA wal_checkpoint(PASSIVE)").fetch_one(connection).await;
            if let Err(error) = moved {
                self.note(&error);
            }
        }
    }
}

/// Moves the whole log into the database and truncates it. The caller holds the write lock.
pub(super) async fn checkpoint_all(ledger: &Ledger) -> Result<(), LedgerError> {
    if ledger.dialect == Dialect::Sqlite {
        // Not from the pool: the file descriptors of its connections may still report the failed sync.
        let mut connection = database::connect(&ledger.location.1).await?;
        ledger.dialect.configure(&mut connection).await?;
        // TRUNCATE waits for readers of the log, up to the busy timeout, and then starts it again: nothing of the old
        // one is left.
        let moved: Result<(i64, i64, i64), _> =
            sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(&mut connection).await;
        let closed = connection.close().await;
        // The first column is 1 if readers kept SQLite from moving all of the log.
        if moved?.0 != 0 {
            return Err(LedgerError::Unsynced);
        }
        closed?;
    }
    ledger.unsynced.is_failing.store(false, Ordering::SeqCst);
    Ok(())
}
