//! Events: what happened in sessions, in order. They are never changed or removed.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::session::{Caller, Session};
use super::statement::{Key, change, select};
use super::{LedgerConnection, LedgerError, Write};

/// What kind of event it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A session began.
    SessionStarted,
    /// A session got a name.
    SessionNamed,
    /// A session was resumed.
    SessionResumed,
    /// A session was saved.
    SessionSaved,
    /// A session ended.
    SessionClosed,
    /// A session was branched from another.
    SessionBranched,
    /// A step was added to the plan.
    PlanStep,
    /// A step of the plan got another status.
    PlanStepStatus,
    /// A file was created.
    FileCreate,
    /// A file was changed.
    FileEdit,
    /// A file was deleted.
    FileDelete,
    /// A file operation was refused.
    FileRefused,
    /// A file was found changed by someone else.
    FileObserved,
    /// The outcome of a file change that a crash had left open was determined.
    FileSettled,
    /// A workspace moved to another directory.
    WorkspaceMoved,
    /// An agent noted a decision, a milestone or a result.
    Deliverable,
    /// A progress entry.
    Progress,
    /// A record was created.
    RecordCreated,
    /// A record was changed.
    RecordUpdated,
    /// A record changed its state.
    StateTransition,
    /// A record was activated.
    Activation,
    /// Two sessions changed the same record.
    ConflictDetected,
    /// A session's version replaced that of another.
    ConflictResolved,
}

impl EventKind {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> String {
        // Through serde, so that the name in the table is the one in answers.
        match serde_json::to_value(self) {
            Ok(Value::String(name)) => name,
            _ => unreachable!("a unit variant is a string"),
        }
    }

    /// Returns the kind with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        serde_json::from_value(Value::String(name.to_owned())).ok()
    }
}

/// An event to be appended.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// Its kind.
    pub kind: EventKind,
    /// What it is about: a path, the id of a record or an entry.
    pub subject: Option<String>,
    /// One line for people.
    pub summary: String,
    /// Further facts, by kind.
    pub details: Value,
}

impl NewEvent {
    /// Makes an event without subject and details.
    #[must_use]
    pub fn new(kind: EventKind, summary: impl Into<String>) -> Self {
        Self { kind, subject: None, summary: summary.into(), details: Value::Object(Default::default()) }
    }

    /// Sets the subject.
    #[must_use]
    pub fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Sets the details.
    #[must_use]
    pub fn with(mut self, details: Value) -> Self {
        self.details = details;
        self
    }
}

/// A stored event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Its number; later events have greater ones.
    pub id: i64,
    /// Its project.
    pub project_id: String,
    /// Its session.
    pub session_id: String,
    /// When it happened, nanoseconds since the Unix epoch.
    pub at_ns: i64,
    /// Its kind.
    pub kind: EventKind,
    /// The plan step it belongs to.
    pub step: Option<i64>,
    /// What it is about.
    pub subject: Option<String>,
    /// One line for people.
    pub summary: String,
    /// Further facts, by kind.
    pub details: Value,
    /// The tape of the call that caused it.
    pub tape: Option<String>,
    /// The entry of that call.
    pub entry: Option<i64>,
}

/// Completes a query for events.
macro_rules! events {
    ($rest:literal) => {
        concat!(
            "SELECT id, project_id, session_id, at_ns, kind, step, subject, summary, details, tape, entry FROM events ",
            $rest
        )
    };
}
pub(super) use events;

pub(crate) fn of_row(row: &AnyRow) -> Result<Event, LedgerError> {
    let (kind, details): (String, String) = (row.try_get(4)?, row.try_get(8)?);
    let damaged = |what: String| LedgerError::Damaged(what);
    Ok(Event {
        id: row.try_get(0)?,
        project_id: row.try_get(1)?,
        session_id: row.try_get(2)?,
        at_ns: row.try_get(3)?,
        kind: EventKind::from_name(&kind).ok_or_else(|| damaged(format!("unknown event \"{kind}\"")))?,
        step: row.try_get(5)?,
        subject: row.try_get(6)?,
        summary: row.try_get(7)?,
        details: serde_json::from_str(&details).map_err(|e| damaged(format!("an event's details: {e}")))?,
        tape: row.try_get(9)?,
        entry: row.try_get(10)?,
    })
}

/// Appends an event to a session; returns the event's number.
///
/// # Errors
/// The ledger failed.
pub async fn append(
    write: &mut Write,
    session: &Session,
    caller: &Caller,
    event: NewEvent,
) -> Result<i64, LedgerError> {
    let row = change(
        "INSERT INTO events (project_id, session_id, at_ns, kind, step, subject, summary, details, tape, entry)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING id",
    )
    .bind(Key::known(&session.project_id))
    .bind(Key::known(&session.id))
    .bind(write.at_ns)
    .bind(Key::known(&event.kind.name()))
    // Stored with the event, because the session moves on to other steps.
    .bind(session.current_step)
    .bind(event.subject.as_deref().map(|subject| write.clean(subject)))
    .bind(write.clean(&event.summary))
    .bind(write.clean_json(&event.details))
    .bind(caller.tape.as_ref().map(|tape| Key::known(tape.as_str())))
    .bind(caller.entry)
    .fetch_one(write)
    .await?;
    // Stored with the session, because lists of sessions are ordered by it.
    change("UPDATE sessions SET last_activity_ns = $2 WHERE id = $1")
        .bind(Key::known(&session.id))
        .bind(write.at_ns)
        .execute(write)
        .await?;
    Ok(row.try_get(0)?)
}

/// A page of a session's events.
#[derive(Clone, Copy, Debug)]
pub struct EventPage<'a> {
    /// The session.
    pub session: &'a str,
    /// The event after which to begin.
    pub after: i64,
    /// The most events to return.
    pub limit: i64,
}

/// Returns events of a session in order.
///
/// # Errors
/// The ledger failed.
pub async fn page(on: &mut impl LedgerConnection, page: EventPage<'_>) -> Result<Vec<Event>, LedgerError> {
    let rows = select(events!("WHERE session_id = $1 AND id > $2 ORDER BY id LIMIT $3"))
        .bind(page.session)
        .bind(page.after)
        .bind(page.limit)
        .fetch_all(on.conn())
        .await?;
    rows.iter().map(of_row).collect()
}

/// Returns one event.
pub(crate) async fn get(on: &mut impl LedgerConnection, id: i64) -> Result<Option<Event>, LedgerError> {
    let row = select(events!("WHERE id = $1")).bind(id).fetch_optional(on.conn()).await?;
    row.as_ref().map(of_row).transpose()
}

/// Returns the number of the last event, of a session or of all.
///
/// # Errors
/// The ledger failed.
pub async fn last(on: &mut impl LedgerConnection, session: Option<&str>) -> Result<i64, LedgerError> {
    let query = match session {
        Some(session) => select("SELECT max(id) FROM events WHERE session_id = $1").bind(session),
        None => select("SELECT max(id) FROM events"),
    };
    let row = query.fetch_one(on.conn()).await?;
    Ok(row.try_get::<Option<i64>, _>(0)?.unwrap_or(0))
}

/// Returns the number of the last event up to a time, nanoseconds since the Unix epoch.
pub(crate) async fn last_at(on: &mut impl LedgerConnection, at_ns: i64) -> Result<i64, LedgerError> {
    // Times have no index. From the newest id back, a recent time is found after a few rows; and ids, unlike times,
    // stay in order when the clock is set back.
    let row = select("SELECT id FROM events WHERE at_ns <= $1 ORDER BY id DESC LIMIT 1")
        .bind(at_ns)
        .fetch_optional(on.conn())
        .await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?.unwrap_or(0))
}

/// Returns how many events a session has.
///
/// # Errors
/// The ledger failed.
pub async fn count(on: &mut impl LedgerConnection, session: &str) -> Result<i64, LedgerError> {
    let row = select("SELECT count(*) FROM events WHERE session_id = $1")
        .bind(session)
        .fetch_one(on.conn())
        .await?;
    Ok(row.try_get(0)?)
}
