//! Activations: which session works with which record, and which version of it the session has seen.

use serde_json::json;
use sqlx::Row;

use super::collection::RecordCollection;
use super::scope::Scope;
use super::{RecordError, RecordId, RecordRef, row};
use crate::ledger::event::{EventKind, NewEvent};
use crate::ledger::statement::{Key, change, select};
use crate::ledger::{LedgerConnection, LedgerError, Write, project};

/// The most sessions that are listed for a record.
const SESSIONS_SHOWN_MAX: i64 = 50;

/// The version of a record that a session has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenVersion {
    /// The version.
    pub version: i64,
    /// The project's tick when it saw it.
    pub tick: i64,
}

/// A session that has a record activated and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveSession {
    /// The session.
    pub session_id: String,
    /// When something last happened in it.
    pub last_activity_ns: i64,
}

/// The result of an activation.
#[derive(Clone, Debug)]
pub struct Activation {
    /// The record.
    pub now: RecordRef,
    /// The version that the session had seen before, if any.
    pub before: Option<SeenVersion>,
    /// Other sessions that have it activated, the most recently active first.
    pub others: Vec<ActiveSession>,
    /// The project's tick.
    pub tick: i64,
}

/// Returns the version of a record that a session has seen, if it has it activated.
pub(super) async fn seen_version(
    on: &mut impl LedgerConnection,
    session: &str,
    id: RecordId,
) -> Result<Option<SeenVersion>, LedgerError> {
    let row = select("SELECT version, tick FROM record_actives WHERE session_id = $1 AND number = $2")
        .bind(session)
        .bind(id.0)
        .fetch_optional(on.conn())
        .await?;
    Ok(match row {
        Some(row) => Some(SeenVersion { version: row.try_get(0)?, tick: row.try_get(1)? }),
        None => None,
    })
}

/// Notes that the session has seen the current version of a record.
pub(super) async fn note_seen(
    write: &mut Write,
    scope: &Scope,
    now: &RecordRef,
    tick: i64,
) -> Result<(), LedgerError> {
    change(
        "INSERT INTO record_actives (session_id, number, book, version, tick) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (session_id, number) DO UPDATE SET version = excluded.version, tick = excluded.tick",
    )
    .bind(Key::known(&scope.session.id))
    .bind(now.id.0)
    .bind(scope.collection.id)
    .bind(now.version)
    .bind(tick)
    .execute(write)
    .await?;
    Ok(())
}

/// Activates a record in the session, or refreshes its activation.
///
/// # Errors
/// There is no such record, or the ledger failed.
pub async fn activate(
    write: &mut Write,
    scope: &Scope,
    id: RecordId,
    overridden: bool,
) -> Result<Activation, RecordError> {
    let now = row::require(write, &scope.collection, id).await?;
    // Read before `note_seen` replaces it.
    let before = seen_version(write, &scope.session.id, id).await?;
    let mut others = active_sessions(write, &scope.collection, id).await?;
    others.retain(|other| other.session_id != scope.session.id);
    let tick = project::get(write, &scope.collection.project).await?.map_or(0, |p| p.tick);
    note_seen(write, scope, &now, tick).await?;
    let mut details = json!({ "version": now.version, "tick": tick, "already_loaded": before.is_some() });
    if let Some(other) = others.first() {
        details["also_active_in"] = json!(other.session_id);
        details["override"] = json!(overridden);
    }
    let event = NewEvent::new(EventKind::Activation, format!("activated {id}: {}", now.title));
    scope.append(write, event.about(id.to_string()).with(details)).await?;
    Ok(Activation { now, before, others, tick })
}

/// Returns the sessions that have a record activated and have not ended, the most recently active first.
///
/// # Errors
/// The ledger failed.
pub async fn active_sessions(
    on: &mut impl LedgerConnection,
    collection: &RecordCollection,
    id: RecordId,
) -> Result<Vec<ActiveSession>, LedgerError> {
    let rows = select(
        "SELECT s.id, s.last_activity_ns FROM record_actives a JOIN sessions s ON s.id = a.session_id
         WHERE a.book = $1 AND a.number = $2 AND s.ended_ns IS NULL
         ORDER BY s.last_activity_ns DESC, s.id LIMIT $3",
    )
    .bind(collection.id)
    .bind(id.0)
    .bind(SESSIONS_SHOWN_MAX)
    .fetch_all(on.conn())
    .await?;
    rows.iter()
        .map(|row| Ok(ActiveSession { session_id: row.try_get(0)?, last_activity_ns: row.try_get(1)? }))
        .collect()
}

/// Returns the first `limit` records that a session has activated, and how many there are.
///
/// # Errors
/// The ledger failed.
pub async fn active(
    on: &mut impl LedgerConnection,
    session: &str,
    limit: i64,
) -> Result<(Vec<RecordId>, i64), LedgerError> {
    let rows = select("SELECT number FROM record_actives WHERE session_id = $1 ORDER BY number LIMIT $2")
        .bind(session)
        .bind(limit)
        .fetch_all(on.conn())
        .await?;
    let ids =
        rows.iter().map(|row| Ok(RecordId(row.try_get(0)?))).collect::<Result<Vec<_>, LedgerError>>()?;
    // A list that is not full is all there is, which saves the count.
    if (ids.len() as i64) < limit {
        let count = ids.len() as i64;
        return Ok((ids, count));
    }
    let row = select("SELECT count(*) FROM record_actives WHERE session_id = $1")
        .bind(session)
        .fetch_one(on.conn())
        .await?;
    Ok((ids, row.try_get(0)?))
}
