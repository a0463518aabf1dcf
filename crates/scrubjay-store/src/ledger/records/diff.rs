//! Two versions of a record, found by time, tick, number or the last save.

use sqlx::Row;

use super::book::Book;
use super::{Record, RecordError, RecordId, row, saving};
use crate::ledger::Conn;
use crate::ledger::statement::select;

/// Which version is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Point {
    /// The newest.
    Current,
    /// The one with that number.
    Version(i64),
    /// The one at that tick of the project.
    Tick(i64),
    /// The one at that time, nanoseconds since the Unix epoch.
    Time(i64),
    /// The one when that session was last saved.
    LastSave {
        /// The session, where there is one.
        session: Option<String>,
    },
}

impl Point {
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

/// Returns a record as it was.
///
/// # Errors
/// There is no such record, or it was not there yet.
pub async fn at(on: &mut impl Conn, book: &Book, id: RecordId, point: &Point) -> Result<Record, RecordError> {
    row::require(on, book, id).await?;
    let missing = || RecordError::NoVersion { id, wanted: point.wanted() };
    let (tick, time) = match point {
        Point::Current => return row::full(on, book, id, None).await,
        Point::Version(n) if *n > 0 => return row::full(on, book, id, Some(*n)).await,
        Point::Version(_) => return Err(missing()),
        Point::Tick(tick) => (*tick, i64::MAX),
        Point::Time(time) => (i64::MAX, *time),
        Point::LastSave { session } => {
            let session = session.as_deref().ok_or_else(missing)?;
            (saving::last(on, session).await?.ok_or_else(missing)?, i64::MAX)
        }
    };
    let found = select(
        "SELECT max(version) FROM record_versions
         WHERE book = $1 AND number = $2 AND tick <= $3 AND at_ns <= $4",
    )
    .bind(book.id)
    .bind(id.0)
    .bind(tick)
    .bind(time)
    .fetch_one(on.conn())
    .await?;
    let version: Option<i64> = found.try_get(0)?;
    row::full(on, book, id, Some(version.ok_or_else(missing)?)).await
}
