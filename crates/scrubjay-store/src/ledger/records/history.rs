//! The history of a record: its versions, the newest first.

use sqlx::Row;

use super::collection::RecordCollection;
use super::row::{VERSION, VERSION_COLUMNS, sql};
use super::{RecordContent, RecordError, RecordId, row};
use crate::ledger::statement::select;
use crate::ledger::{LedgerConnection, LedgerError};

pub use super::content::VersionChange;

/// A version, with who created it and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its number.
    pub version: i64,
    /// When it was written.
    pub at_ns: i64,
    /// The project's tick.
    pub tick: i64,
    /// The session that wrote it.
    pub session_id: String,
    /// The kind of change that created it.
    pub change: VersionChange,
    /// The reason that was given.
    pub reason: Option<String>,
    /// Its content.
    pub content: RecordContent,
}

impl Version {
    /// Reads the columns of a version and the four that follow: tick, session, change, reason.
    pub(super) fn of(row: &sqlx::any::AnyRow) -> Result<Self, LedgerError> {
        let change: String = row.try_get(VERSION_COLUMNS + 2)?;
        Ok(Self {
            version: row.try_get(0)?,
            at_ns: row.try_get(1)?,
            content: RecordContent::of(row, 0)?,
            tick: row.try_get(VERSION_COLUMNS)?,
            session_id: row.try_get(VERSION_COLUMNS + 1)?,
            change: VersionChange::from_name(&change)?,
            reason: row.try_get(VERSION_COLUMNS + 3)?,
        })
    }
}

/// The columns that follow a version's own: who wrote it, when and why.
pub(super) const VERSION_ORIGIN: &str = ", v.tick, v.session_id, v.change, v.reason";

/// Returns `limit` versions of a record, the newest first, with numbers below `before` and written since `since_ns`.
///
/// # Errors
/// There is no such record, or the ledger failed.
pub async fn versions(
    on: &mut impl LedgerConnection,
    collection: &RecordCollection,
    id: RecordId,
    since_ns: i64,
    before: i64,
    limit: i64,
) -> Result<Vec<Version>, RecordError> {
    // Otherwise an unknown record would look like one without versions in this range.
    row::require(on, collection, id).await?;
    let rows = select(sql!(
        "SELECT ",
        VERSION,
        VERSION_ORIGIN,
        " FROM record_versions v
         WHERE v.book = $1 AND v.number = $2 AND v.version < $3 AND v.at_ns >= $4
         ORDER BY v.version DESC LIMIT $5",
    ))
    .bind(collection.id)
    .bind(id.0)
    .bind(before)
    .bind(since_ns)
    .bind(limit)
    .fetch_all(on.conn())
    .await?;
    Ok(rows.iter().map(Version::of).collect::<Result<_, _>>()?)
}

/// Returns the session that wrote a version.
///
/// # Errors
/// The ledger failed.
pub async fn author(
    on: &mut impl LedgerConnection,
    collection: &RecordCollection,
    id: RecordId,
    version: i64,
) -> Result<String, LedgerError> {
    let row =
        select("SELECT session_id FROM record_versions WHERE book = $1 AND number = $2 AND version = $3")
            .bind(collection.id)
            .bind(id.0)
            .bind(version)
            .fetch_one(on.conn())
            .await?;
    Ok(row.try_get(0)?)
}
