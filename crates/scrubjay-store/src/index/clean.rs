//! Takes what was forgotten out of the files.
//!
//! Deleted rows stay where they were until something else takes their place: in pages that are free, in the words of
//! full-text search, in the log beside the file. So after tapes were forgotten everything that is left is written
//! anew. How far that has come is kept in the index: what a crash or a busy reader leaves is finished by the next
//! who catches up.

use sqlx::{AnyConnection, Connection, Executor};

use super::dialect::{IndexPlace, begin_write, rewriting};
use super::{Index, IndexError};
use crate::ledger::dialect::Dialect;

/// Nothing of what was forgotten is left.
const CLEAN: i64 = 0;
/// Only the log beside the file may hold it.
const LOG_LEFT: i64 = 1;
/// Anything may hold it.
pub(super) const UNCLEAN: i64 = 2;

/// How long readers are waited for: searches take less, and what takes longer must not hold up a removal.
const READERS_PATIENCE: &str = "PRAGMA busy_timeout=2000";

/// Names that nothing bears any more: tools, backends and shapes of errors of tapes that are gone.
const FORGET_NAMES: &str = "DELETE FROM names WHERE id NOT IN (
    SELECT method FROM exchanges WHERE method IS NOT NULL UNION
    SELECT name FROM exchanges WHERE name IS NOT NULL UNION
    SELECT via FROM exchanges WHERE via IS NOT NULL UNION
    SELECT shape FROM exchanges WHERE shape IS NOT NULL UNION
    SELECT name FROM judged UNION
    SELECT tool FROM definitions UNION
    SELECT via FROM definitions WHERE via IS NOT NULL)";

/// Notes that something was deleted, in the transaction that deletes it.
pub(super) async fn note_unclean(connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
    set(connection, UNCLEAN).await
}

async fn set(connection: &mut AnyConnection, state: i64) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE version SET unclean = $1").bind(state).execute(connection).await.map(drop)
}

/// Tells whether something that was deleted may still be in a file.
pub(super) async fn is_unclean(connection: &mut AnyConnection) -> Result<bool, sqlx::Error> {
    Ok(state(connection).await? != CLEAN)
}

async fn state(connection: &mut AnyConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT unclean FROM version").fetch_one(connection).await
}

impl Index {
    /// Writes everything anew, where something was deleted. Whoever calls it holds the lease.
    pub(super) async fn clean(&self) -> Result<(), IndexError> {
        // A connection of its own: what is written meanwhile may be as large as the index, and belongs on a disk.
        let mut connection = self.place.connect().await?;
        if state(&mut connection).await? == UNCLEAN {
            let mut tx = connection.begin_with(begin_write(self.dialect())).await?;
            tx.execute(FORGET_NAMES).await?;
            if self.dialect() == Dialect::Sqlite {
                // Merges all words into one segment, without those of rows that are gone.
                tx.execute("INSERT INTO texts (texts) VALUES ('optimize')").await?;
            }
            tx.commit().await?;
            for statement in rewriting(self.dialect()) {
                connection.execute(*statement).await?;
            }
            set(&mut connection, LOG_LEFT).await?;
        }
        if empty_log(&self.place, &mut connection).await? {
            set(&mut connection, CLEAN).await?;
        }
        connection.close().await?;
        Ok(())
    }
}

/// Empties the log beside the file; tells whether it could: somebody may be reading from it for long.
async fn empty_log(place: &IndexPlace, connection: &mut AnyConnection) -> Result<bool, sqlx::Error> {
    let IndexPlace::File(_) = place else { return Ok(true) };
    connection.execute(READERS_PATIENCE).await?;
    let (busy, _, _): (i64, i64, i64) =
        sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(connection).await?;
    Ok(busy == 0)
}
