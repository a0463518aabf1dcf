//! Removes deleted rows from the index's files.
//!
//! Deleted rows stay in the files until something overwrites them: in free pages, in the segments of full-text search,
//! in the log. So after tapes are forgotten, everything else is rewritten. The index stores how far this has come: if a
//! crash or a busy reader interrupts it, the next process that catches up completes it.

use sqlx::{AnyConnection, Connection, Executor};

use super::dialect::{IndexLocation, begin_write, rewrite_statements};
use super::{Index, IndexError};
use crate::ledger::dialect::Dialect;

/// The files contain no deleted row.
const CLEAN: i64 = 0;
/// Only the log may contain deleted rows.
const LOG_LEFT: i64 = 1;
/// Any part of the files may contain deleted rows.
pub(super) const UNCLEAN: i64 = 2;

/// How long to wait for readers: searches take less than 2 s, and a removal must not wait longer than for them.
const READERS_WAIT_MAX: &str = "PRAGMA busy_timeout=2000";

/// Deletes names that no row uses any more: methods, tools, backends, rules and error shapes of removed tapes. The
/// NULLs are left out, because `NOT IN` is never true if the list contains one.
const FORGET_NAMES: &str = "DELETE FROM names WHERE id NOT IN (
    SELECT method FROM exchanges WHERE method IS NOT NULL UNION
    SELECT name FROM exchanges WHERE name IS NOT NULL UNION
    SELECT via FROM exchanges WHERE via IS NOT NULL UNION
    SELECT shape FROM exchanges WHERE shape IS NOT NULL UNION
    SELECT name FROM judged UNION
    SELECT tool FROM definitions UNION
    SELECT via FROM definitions WHERE via IS NOT NULL)";

/// Notes that something is deleted. Belongs in the transaction that deletes it.
pub(super) async fn note_unclean(connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    set_state(connection, UNCLEAN).await
}

async fn set_state(connection: &mut AnyConnection, state: i64) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE version SET unclean = $1").bind(state).execute(connection).await.map(drop)
}

/// Tells whether deleted rows may still be in the files.
pub(super) async fn is_unclean(connection: &mut AnyConnection) -> Result<bool, sqlx::Error> {
    Ok(state(connection).await? != CLEAN)
}

async fn state(connection: &mut AnyConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT unclean FROM version").fetch_one(connection).await
}

impl Index {
    /// Rewrites everything, if something was deleted. The caller holds the lease.
    pub(super) async fn clean(&self) -> Result<(), IndexError> {
        // Not from the pool: VACUUM needs temporary files as large as the index, so this connection keeps them on disk.
        let mut connection = self.location.connect().await?;
        if state(&mut connection).await? == UNCLEAN {
            let mut tx = connection.begin_with(begin_write(self.dialect())).await?;
            tx.execute(FORGET_NAMES).await?;
            if self.dialect() == Dialect::Sqlite {
                // Merges all segments of full-text search into one, which drops the words of deleted rows.
                tx.execute("INSERT INTO texts (texts) VALUES ('optimize')").await?;
            }
            tx.commit().await?;
            // VACUUM does not run inside a transaction. A crash in between leaves the state at UNCLEAN, so all of this
            // is repeated.
            for statement in rewrite_statements(self.dialect()) {
                connection.execute(*statement).await?;
            }
            // VACUUM writes to the log: old pages are gone only when all of it was moved into the file.
            set_state(&mut connection, LOG_LEFT).await?;
        }
        if empty_log(&self.location, &mut connection).await? {
            set_state(&mut connection, CLEAN).await?;
        }
        connection.close().await?;
        Ok(())
    }
}

/// Truncates the write-ahead log; returns false if a reader kept it busy.
async fn empty_log(location: &IndexLocation, connection: &mut AnyConnection) -> Result<bool, sqlx::Error> {
    let IndexLocation::File(_) = location else { return Ok(true) };
    connection.execute(READERS_WAIT_MAX).await?;
    // TRUNCATE, because the other checkpoints leave the old frames in the log file until new ones overwrite them.
    let (busy, _, _): (i64, i64, i64) =
        sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(connection).await?;
    Ok(busy == 0)
}
