//! Finds a version of a record by time, tick, number or the session's last save.

use scrubjay_core::diff::unified;
use sqlx::Row;

use super::collection::RecordCollection;
use super::{Record, RecordContent, RecordError, RecordId, row, saving};
use crate::ledger::LedgerConnection;
use crate::ledger::statement::select;

/// Names a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionPoint {
    /// The newest.
    Current,
    /// The version with that number.
    Version(i64),
    /// The version at that tick of the project.
    Tick(i64),
    /// The version at that time, nanoseconds since the Unix epoch.
    Time(i64),
    /// The version when that session was last saved.
    LastSave {
        /// The session, if the caller has one.
        session: Option<String>,
    },
}

impl VersionPoint {
    fn wanted(&self) -> String {
        match self {
            Self::Current => "current".to_owned(),
            Self::Version(n) => format!("version {n}"),
            Self::Tick(n) => format!("tick {n}"),
            Self::Time(_) => "that time".to_owned(),
            Self::LastSave { .. } => "last_save".to_owned(),
        }
    }
}

/// Returns a record in the named version.
///
/// # Errors
/// There is no such record, or it did not exist yet.
pub async fn at(
    on: &mut impl LedgerConnection,
    collection: &RecordCollection,
    id: RecordId,
    point: &VersionPoint,
) -> Result<Record, RecordError> {
    row::require(on, collection, id).await?;
    let missing = || RecordError::NoVersion { id, wanted: point.wanted() };
    let (tick, time) = match point {
        VersionPoint::Current => return row::full(on, collection, id, None).await,
        VersionPoint::Version(n) if *n > 0 => return row::full(on, collection, id, Some(*n)).await,
        // `full` would take 0 for the newest version.
        VersionPoint::Version(_) => return Err(missing()),
        VersionPoint::Tick(tick) => (*tick, i64::MAX),
        VersionPoint::Time(time) => (i64::MAX, *time),
        VersionPoint::LastSave { session } => {
            let session = session.as_deref().ok_or_else(missing)?;
            (saving::last(on, session).await?.ok_or_else(missing)?, i64::MAX)
        }
    };
    // The limit that was not asked for is `i64::MAX`, so that one statement serves all points.
    let found = select(
        "SELECT max(version) FROM record_versions
         WHERE book = $1 AND number = $2 AND tick <= $3 AND at_ns <= $4",
    )
    .bind(collection.id)
    .bind(id.0)
    .bind(tick)
    .bind(time)
    .fetch_one(on.conn())
    .await?;
    let version: Option<i64> = found.try_get(0)?;
    row::full(on, collection, id, Some(version.ok_or_else(missing)?)).await
}

/// Returns the unified diff of the bodies of two versions, each given with its number.
#[must_use]
pub fn of_bodies(id: RecordId, old: (i64, &RecordContent), new: (i64, &RecordContent)) -> String {
    let [old_name, new_name] = [old.0, new.0].map(|version| format!("{id}@{version}"));
    unified(old.1.body.as_bytes(), new.1.body.as_bytes(), &old_name, &new_name)
}
