//! Saves and closes sessions. Every write is stored at once; a save is a mark in the history to compare with later.

use serde_json::json;
use sqlx::Row;

use super::scope::Scope;
use super::{RecordId, activation};
use crate::ledger::event::{EventKind, NewEvent};
use crate::ledger::session::{self, Session};
use crate::ledger::statement::{Key, change, select};
use crate::ledger::{LedgerConnection, LedgerError, Write};

/// The most records that are listed; all are counted.
const NAMED_MAX: i64 = 1_000;

/// The result of a save.
#[derive(Clone, Debug)]
pub struct SaveResult {
    /// The first of the records that this session changed since it was last saved.
    pub records: Vec<RecordId>,
    /// The number of all of them.
    pub count: i64,
    /// When it was saved.
    pub at_ns: i64,
    /// The project's tick.
    pub tick: i64,
}

/// The result of closing a session.
#[derive(Clone, Debug)]
pub struct CloseResult {
    /// The session as it is now.
    pub session: Session,
    /// The first of the records that it had activated.
    pub deactivated: Vec<RecordId>,
    /// The number of all of them.
    pub count: i64,
    /// The first of the records that it changed since it was last saved.
    pub unsaved: Vec<RecordId>,
    /// The number of all of them.
    pub unsaved_count: i64,
}

/// Returns the tick of a session's last save.
pub(super) async fn last(on: &mut impl LedgerConnection, session: &str) -> Result<Option<i64>, LedgerError> {
    let row = select("SELECT max(tick) FROM record_saves WHERE session_id = $1")
        .bind(session)
        .fetch_one(on.conn())
        .await?;
    Ok(row.try_get(0)?)
}

/// Marks a session as saved.
///
/// # Errors
/// The ledger failed.
pub async fn save(
    write: &mut Write,
    scope: &mut Scope,
    summary: Option<&str>,
) -> Result<SaveResult, LedgerError> {
    let (records, count) = unsaved(write, &scope.session.id).await?;
    // A save has a tick of its own, so that later changes are those with greater ticks.
    let tick = scope.tick(write).await?;
    let at_ns = write.at_ns();
    change("INSERT INTO record_saves (session_id, tick, at_ns) VALUES ($1, $2, $3)")
        .bind(Key::known(&scope.session.id))
        .bind(tick)
        .bind(at_ns)
        .execute(write)
        .await?;
    scope.session.last_save_ns = Some(at_ns);
    session::update(write, &scope.session).await?;
    let details = json!({ "tick": tick, "saved_records": records, "saved_count": count });
    let event = NewEvent::new(EventKind::SessionSaved, summary.unwrap_or("session saved")).with(details);
    scope.append(write, event).await?;
    Ok(SaveResult { records, count, at_ns, tick })
}

/// Ends a session.
///
/// # Errors
/// The ledger failed.
pub async fn close(
    write: &mut Write,
    scope: Scope,
    summary: Option<&str>,
) -> Result<CloseResult, LedgerError> {
    // Read first: the end of the session removes its activations.
    let (deactivated, count) = activation::active(write, &scope.session.id, NAMED_MAX).await?;
    let (unsaved, unsaved_count) = unsaved(write, &scope.session.id).await?;
    let session = session::end(write, &scope.caller, scope.session, summary).await?;
    Ok(CloseResult { session, deactivated, count, unsaved, unsaved_count })
}

async fn unsaved(write: &mut Write, session: &str) -> Result<(Vec<RecordId>, i64), LedgerError> {
    let since = last(write, session).await?.unwrap_or(0);
    let rows = select(
        "SELECT DISTINCT number FROM record_versions WHERE session_id = $1 AND tick > $2
         ORDER BY number LIMIT $3",
    )
    .bind(session)
    .bind(since)
    .bind(NAMED_MAX)
    .fetch_all(write.conn())
    .await?;
    let row =
        select("SELECT count(DISTINCT number) FROM record_versions WHERE session_id = $1 AND tick > $2")
            .bind(session)
            .bind(since)
            .fetch_one(write.conn())
            .await?;
    let ids = rows.iter().map(|row| Ok(RecordId(row.try_get(0)?))).collect::<Result<_, LedgerError>>()?;
    Ok((ids, row.try_get(0)?))
}
