//! The latest events of a project about records and sessions, and its open sessions.

use sqlx::Row;

use super::RecordId;
use crate::ledger::event::{self, Event, EventKind};
use crate::ledger::statement::select;
use crate::ledger::{LedgerConnection, LedgerError};

/// The kinds of events about records and sessions.
pub const KINDS: [EventKind; 10] = [
    EventKind::RecordCreated,
    EventKind::RecordUpdated,
    EventKind::StateTransition,
    EventKind::SessionStarted,
    EventKind::SessionSaved,
    EventKind::SessionClosed,
    EventKind::SessionBranched,
    EventKind::Activation,
    EventKind::ConflictDetected,
    EventKind::ConflictResolved,
];

/// Which events to return.
#[derive(Clone, Debug, Default)]
pub struct ActivityFilter {
    /// The kinds; if empty, all [`KINDS`].
    pub kinds: Vec<EventKind>,
    /// The earliest time, nanoseconds since the Unix epoch.
    pub since_ns: i64,
    /// The record that they are about; `None` for any.
    pub record: Option<RecordId>,
    /// The most events to return.
    pub limit: i64,
}

/// Returns the latest events of a project, the newest first.
///
/// # Errors
/// The ledger failed.
pub async fn recent(
    on: &mut impl LedgerConnection,
    project: &str,
    filter: &ActivityFilter,
) -> Result<Vec<Event>, LedgerError> {
    let kinds = if filter.kinds.is_empty() { &KINDS[..] } else { &filter.kinds };
    let kinds: Vec<_> = kinds.iter().map(|kind| format!("'{}'", kind.name())).collect();
    // `$2` is used either way, because PostgreSQL refuses a bind that the statement does not use.
    let about = if filter.record.is_some() { "subject = $2" } else { "$2 = ''" };
    // The two texts that are filled in are constants.
    let text = format!(
        event::events!(
            "WHERE project_id = $1 AND {} AND at_ns >= $3 AND kind IN ({}) ORDER BY id DESC LIMIT $4"
        ),
        about,
        kinds.join(", ")
    );
    let rows = select(sqlx::AssertSqlSafe(text))
        .bind(project)
        .bind(filter.record.map(|id| id.to_string()).unwrap_or_default())
        .bind(filter.since_ns)
        .bind(filter.limit)
        .fetch_all(on.conn())
        .await?;
    rows.iter().map(event::of_row).collect()
}

/// A session that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSession {
    /// Its id.
    pub id: String,
    /// What it is called.
    pub title: Option<String>,
    /// The project's tick when it last synced.
    pub last_sync_tick: i64,
    /// When something last happened in it.
    pub last_activity_ns: i64,
}

/// Returns the sessions of a project that have not ended, the most recently active first.
///
/// # Errors
/// The ledger failed.
pub async fn open_sessions(
    on: &mut impl LedgerConnection,
    project: &str,
    limit: i64,
) -> Result<Vec<OpenSession>, LedgerError> {
    let rows = select(
        "SELECT id, title, last_sync_tick, last_activity_ns FROM sessions
         WHERE project_id = $1 AND ended_ns IS NULL ORDER BY last_activity_ns DESC LIMIT $2",
    )
    .bind(project)
    .bind(limit)
    .fetch_all(on.conn())
    .await?;
    let session = |row: &sqlx::any::AnyRow| {
        Ok(OpenSession {
            id: row.try_get(0)?,
            title: row.try_get(1)?,
            last_sync_tick: row.try_get(2)?,
            last_activity_ns: row.try_get(3)?,
        })
    };
    rows.iter().map(session).collect()
}

/// Returns how many sessions of a project have not ended.
///
/// # Errors
/// The ledger failed.
pub async fn count_open_sessions(on: &mut impl LedgerConnection, project: &str) -> Result<i64, LedgerError> {
    let row = select("SELECT count(*) FROM sessions WHERE project_id = $1 AND ended_ns IS NULL")
        .bind(project)
        .fetch_one(on.conn())
        .await?;
    Ok(row.try_get(0)?)
}
