//! How a session ends: its agent ends it, its last connection closes, or the process that served it is gone.

use serde_json::json;
use sqlx::Row;

use super::begin::IN_PROJECT;
use super::{CONNECTION, Caller, HOST_PROCESS, Session, get, sessions, update};
use crate::ledger::event::{self, EventKind, NewEvent};
use crate::ledger::statement::{Key, change, select};
use crate::ledger::{CommitDurability, Ledger, LedgerConnection, LedgerError, Write};
use scrubjay_tape::claim::ClaimHolder;
use scrubjay_tape::clock;

/// A session without known connections ends after a day without an event: a person's pause overnight is shorter.
const SILENCE_MAX_NS: i64 = 24 * 3600 * 1_000_000_000;
/// How many silent sessions are ended in one transaction, so that it stays short.
const SILENT_MAX: i64 = 100;

/// Ends a session on its agent's request: its connections begin another one with their next call.
///
/// # Errors
/// The ledger failed.
pub async fn end(
    write: &mut Write,
    caller: &Caller,
    session: Session,
    summary: Option<&str>,
) -> Result<Session, LedgerError> {
    // Its connections must begin another session, and if it is resumed later, it starts without active records.
    for statement in
        ["DELETE FROM callers WHERE session_id = $1", "DELETE FROM record_actives WHERE session_id = $1"]
    {
        change(statement).bind(Key::known(&session.id)).execute(write).await?;
    }
    let event = NewEvent::new(EventKind::SessionClosed, summary.unwrap_or("session ended"));
    close(write, caller, session, event).await
}

/// Removes a closed connection from its sessions (one in each project it worked on), and ends those without other
/// connections. Returns the ended sessions.
///
/// # Errors
/// The ledger failed.
pub async fn leave(write: &mut Write, connection: &str, why: &str) -> Result<Vec<Session>, LedgerError> {
    let in_project = format!("{connection}{IN_PROJECT}");
    // The beginning is compared, and not with LIKE, because an id may contain `%` and `_`. `substr` counts characters
    // on both databases, and PostgreSQL's takes 32-bit numbers, hence the CAST.
    let rows = select(sessions!(
        "JOIN connections c ON c.session_id = s.id WHERE c.id = $1 OR substr(c.id, 1, CAST($2 AS INTEGER)) = $3"
    ))
    .bind(connection)
    .bind(in_project.chars().count() as i64)
    .bind(&in_project)
    .fetch_all(write.conn())
    .await?;
    let sessions = rows.iter().map(Session::of).collect::<Result<Vec<_>, _>>()?;
    change("DELETE FROM connections WHERE id = $1 OR substr(id, 1, CAST($2 AS INTEGER)) = $3")
        .bind(Key::known(connection))
        .bind(in_project.chars().count() as i64)
        .bind(Key::known(&in_project))
        .execute(write)
        .await?;
    let mut ended = Vec::new();
    for session in sessions {
        let others = select("SELECT 1 FROM connections WHERE session_id = $1 LIMIT 1")
            .bind(&session.id)
            .fetch_optional(write.conn())
            .await?;
        if others.is_none() && session.ended_ns.is_none() {
            ended.push(end_deserted(write, session, why).await?);
        }
    }
    Ok(ended)
}

/// Ends a session without connections. A conversation that its host can name may come back; then it is resumed.
async fn end_deserted(write: &mut Write, session: Session, why: &str) -> Result<Session, LedgerError> {
    // Nobody can come back to a conversation that only a process or a connection identified.
    if [HOST_PROCESS, CONNECTION].contains(&session.told_by.as_str()) {
        change("DELETE FROM callers WHERE session_id = $1")
            .bind(Key::known(&session.id))
            .execute(write)
            .await?;
    }
    // The event has no caller: nobody asked for this end.
    let nobody = Caller::alone("", &session.project_id);
    // Marked, so that views do not show the reason as the agent's closing summary.
    let event = NewEvent::new(EventKind::SessionClosed, why).with(json!({ "deserted": true }));
    close(write, &nobody, session, event).await
}

/// Tells whether a session ended only because it had no connections any more.
pub(super) async fn was_deserted(on: &mut impl LedgerConnection, session: &str) -> Result<bool, LedgerError> {
    let row = select(
        "SELECT details FROM events WHERE session_id = $1 AND kind = 'session_closed' ORDER BY id DESC LIMIT 1",
    )
    .bind(session)
    .fetch_optional(on.conn())
    .await?;
    let details: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
    let details: Option<serde_json::Value> = details.and_then(|text| serde_json::from_str(&text).ok());
    Ok(details.is_some_and(|details| details["deserted"] == true))
}

async fn close(
    write: &mut Write,
    caller: &Caller,
    mut session: Session,
    event: NewEvent,
) -> Result<Session, LedgerError> {
    session.ended_ns = Some(write.at_ns);
    update(write, &session).await?;
    // Its current step was begun, and nobody reported it as done.
    for statement in [
        "DELETE FROM connections WHERE session_id = $1",
        "UPDATE plan_steps SET status = 'left' WHERE session_id = $1 AND status = 'current'",
    ] {
        change(statement).bind(Key::known(&session.id)).execute(write).await?;
    }
    event::append(write, &session, caller, event).await?;
    Ok(session)
}

/// Ends the sessions of processes that are gone, and sessions without known connections in which nothing happened for a
/// day. Returns how many.
///
/// # Errors
/// The ledger failed.
pub async fn end_departed(
    ledger: &Ledger,
    holder: impl Fn(&str) -> ClaimHolder,
) -> Result<usize, LedgerError> {
    // Usually no process is gone, so a read transaction checks first, without waiting for other writers.
    let mut read = ledger.read().await?;
    let now_ns = i64::try_from(clock::now().wall_ns).unwrap_or(i64::MAX);
    let silent_ns = now_ns.saturating_sub(SILENCE_MAX_NS);
    let mut departed = Vec::new();
    for process in processes(&mut read).await? {
        match holder(&process) {
            ClaimHolder::Alive => {}
            ClaimHolder::Gone => departed.extend(connections(&mut read, &process, i64::MAX).await?),
            // The process may use another data directory with the same ledger, so only silence is a reason.
            ClaimHolder::Unknown => departed.extend(connections(&mut read, &process, silent_ns).await?),
        }
    }
    let silent = silent(&mut read, silent_ns).await?;
    drop(read);
    if departed.is_empty() && silent.is_empty() {
        return Ok(0);
    }
    let mut write = ledger.write(CommitDurability::Power).await?;
    let mut ended = 0;
    for connection in &departed {
        ended += leave(&mut write, connection, "the process that served it is gone").await?.len();
    }
    for id in &silent {
        // It may have become active since the read above.
        let session = get(&mut write, id).await?;
        let is_silent = |s: &Session| s.ended_ns.is_none() && s.last_activity_ns < silent_ns;
        if let Some(session) = session.filter(is_silent) {
            end_deserted(&mut write, session, "nothing happened in it for a day").await?;
            ended += 1;
        }
    }
    write.commit().await?;
    Ok(ended)
}

async fn processes(on: &mut impl LedgerConnection) -> Result<Vec<String>, LedgerError> {
    let rows = select("SELECT DISTINCT process FROM connections WHERE process IS NOT NULL")
        .fetch_all(on.conn())
        .await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Returns the connections of a process whose sessions were last active before a time.
async fn connections(
    on: &mut impl LedgerConnection,
    process: &str,
    before_ns: i64,
) -> Result<Vec<String>, LedgerError> {
    let rows = select(
        "SELECT c.id FROM connections c JOIN sessions s ON s.id = c.session_id
         WHERE c.process = $1 AND s.last_activity_ns < $2 ORDER BY c.id",
    )
    .bind(process)
    .bind(before_ns)
    .fetch_all(on.conn())
    .await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Returns open sessions in which nothing happened since a time and that no process serves: those of commands, and
/// those that earlier versions left open.
async fn silent(on: &mut impl LedgerConnection, before_ns: i64) -> Result<Vec<String>, LedgerError> {
    let rows = select(
        "SELECT s.id FROM sessions s WHERE s.ended_ns IS NULL AND s.last_activity_ns < $1
             AND NOT EXISTS (SELECT 1 FROM connections c WHERE c.session_id = s.id AND c.process IS NOT NULL)
         ORDER BY s.last_activity_ns LIMIT $2",
    )
    .bind(before_ns)
    .bind(SILENT_MAX)
    .fetch_all(on.conn())
    .await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}
