//! Sessions: each is one agent's conversation. Every connection has one, which begins with its first call.
//!
//! A session has the id that is on the tapes of its conversation, unless the agent chose one. A connection is in the
//! session that it named, or else in the session of its host conversation, if that is known. `begin` has how a session
//! begins, `end` how it ends.

mod begin;
mod end;

use std::collections::{BTreeMap, BTreeSet};

use scrubjay_core::id::TapeId;
use serde::Serialize;
use sqlx::Row;
use sqlx::any::AnyRow;
use thiserror::Error;

use super::statement::{Key, change, select};
use super::{LedgerConnection, LedgerError, Write};

pub use begin::{SessionStart, StartOutcome, current, of_caller, start};
pub use end::{end, end_departed, leave};

/// The longest session id.
const ID_CHARS_MAX: usize = 100;
/// The longest title.
pub const TITLE_CHARS_MAX: usize = 200;
/// The longest user message or closing summary.
pub const MESSAGE_CHARS_MAX: usize = 100_000;

/// `told_by`: only the host's process identified the conversation.
const HOST_PROCESS: &str = "host_process";
/// `told_by`: the connection is a conversation of its own.
const CONNECTION: &str = "connection";
/// `told_by`: a person typed a command.
const COMMAND: &str = "command";

/// The caller of a tool, or of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its connection.
    pub connection: String,
    /// The session that its tape names; the same for all connections of one host conversation.
    pub conversation: String,
    /// What identified the conversation.
    pub told_by: String,
    /// The host's own id of the conversation.
    pub host_session: Option<String>,
    /// The claim of the process that serves the connection: a locked file, which shows whether the process is alive.
    pub process: Option<String>,
    /// The client's name for itself.
    pub agent: Option<String>,
    /// The tape of the call.
    pub tape: Option<TapeId>,
    /// Its entry there.
    pub entry: Option<i64>,
    /// The project it works on.
    pub project: String,
    /// The directory it works in.
    pub workspace: Option<String>,
}

impl Caller {
    /// Describes a caller whose connection is a conversation of its own.
    #[must_use]
    pub fn alone(connection: &str, project: &str) -> Self {
        Self {
            connection: connection.to_owned(),
            conversation: connection.to_owned(),
            told_by: CONNECTION.to_owned(),
            host_session: None,
            process: None,
            agent: None,
            tape: None,
            entry: None,
            project: project.to_owned(),
            workspace: None,
        }
    }

    /// Describes a person who typed a command. Such a caller may also change a session that has ended.
    #[must_use]
    pub fn command(name: &str, project: &str) -> Self {
        Self { told_by: COMMAND.to_owned(), agent: Some(name.to_owned()), ..Self::alone(name, project) }
    }
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Session {
    /// Its id.
    pub id: String,
    /// Its project.
    pub project_id: String,
    /// What it is called.
    pub title: Option<String>,
    /// What the user asked for.
    pub user_message: Option<String>,
    /// The client's name for itself.
    pub agent: Option<String>,
    /// The directory it works in.
    pub workspace: Option<String>,
    /// What identified its conversation.
    pub told_by: String,
    /// The host's own id of the conversation.
    pub host_session: Option<String>,
    /// The session it was branched from.
    pub parent_session: Option<String>,
    /// When it began.
    pub created_ns: i64,
    /// When something last happened in it.
    pub last_activity_ns: i64,
    /// When it ended, if it did.
    pub ended_ns: Option<i64>,
    /// The plan step it is at.
    pub current_step: Option<i64>,
    /// The project's tick when it last synced.
    pub last_sync_tick: i64,
    /// When it was last saved.
    pub last_save_ns: Option<i64>,
}

/// A session cannot be used.
#[derive(Debug, Error)]
pub enum SessionError {
    /// No session has that id.
    #[error("no session has the id \"{0}\"")]
    NotFound(String),
    /// The id is invalid.
    #[error("a session id has 1 to {ID_CHARS_MAX} characters, no control characters, and holds no secret")]
    BadId,
    /// It has ended.
    #[error("session \"{0}\" has ended")]
    Ended(String),
    /// It belongs to another project.
    #[error("session \"{0}\" belongs to project \"{1}\"")]
    OtherProject(String, String),
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl From<sqlx::Error> for SessionError {
    fn from(error: sqlx::Error) -> Self {
        Self::Ledger(error.into())
    }
}

/// Completes a query for sessions.
macro_rules! sessions {
    ($rest:literal) => {
        concat!(
            "SELECT s.id, s.project_id, s.title, s.user_message, s.agent, s.workspace, s.told_by, s.parent_session, \
             s.created_ns, s.last_activity_ns, s.ended_ns, s.current_step, s.last_sync_tick, s.last_save_ns, \
             s.host_session FROM sessions s ",
            $rest
        )
    };
}
use sessions;

impl Session {
    pub(crate) fn of(row: &AnyRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: row.try_get(0)?,
            project_id: row.try_get(1)?,
            title: row.try_get(2)?,
            user_message: row.try_get(3)?,
            agent: row.try_get(4)?,
            workspace: row.try_get(5)?,
            told_by: row.try_get(6)?,
            parent_session: row.try_get(7)?,
            created_ns: row.try_get(8)?,
            last_activity_ns: row.try_get(9)?,
            ended_ns: row.try_get(10)?,
            current_step: row.try_get(11)?,
            last_sync_tick: row.try_get(12)?,
            last_save_ns: row.try_get(13)?,
            host_session: row.try_get(14)?,
        })
    }
}

/// Returns a session.
///
/// # Errors
/// The ledger failed.
pub async fn get(on: &mut impl LedgerConnection, id: &str) -> Result<Option<Session>, LedgerError> {
    let row = select(sessions!("WHERE s.id = $1")).bind(id).fetch_optional(on.conn()).await?;
    Ok(row.as_ref().map(Session::of).transpose()?)
}

/// Stores the fields of a session that can change.
pub(super) async fn update(write: &mut Write, session: &Session) -> Result<(), LedgerError> {
    change(
        "UPDATE sessions SET title = $2, user_message = $3, ended_ns = $4, current_step = $5,
             last_sync_tick = $6, last_save_ns = $7, last_activity_ns = $8 WHERE id = $1",
    )
    .bind(Key::known(&session.id))
    .bind(session.title.as_deref().map(|text| write.clean(text)))
    .bind(session.user_message.as_deref().map(|text| write.clean(text)))
    .bind(session.ended_ns)
    .bind(session.current_step)
    .bind(session.last_sync_tick)
    .bind(session.last_save_ns)
    .bind(write.at_ns)
    .execute(write)
    .await?;
    Ok(())
}

/// Returns a page of sessions, the most recently active first; `before` names the last one of the previous page.
///
/// # Errors
/// The ledger failed.
pub async fn list(
    on: &mut impl LedgerConnection,
    project: Option<&str>,
    before: Option<(i64, &str)>,
    limit: i64,
) -> Result<Vec<Session>, LedgerError> {
    // The id breaks ties, so that no session is lost or repeated between two pages.
    let (before_ns, before_id) = before.unwrap_or((i64::MAX, ""));
    let rows = select(sessions!(
        "WHERE ($1 = '' OR s.project_id = $1)
           AND (s.last_activity_ns < $2 OR (s.last_activity_ns = $2 AND s.id > $3))
         ORDER BY s.last_activity_ns DESC, s.id LIMIT $4"
    ))
    .bind(project.unwrap_or_default())
    .bind(before_ns)
    .bind(before_id)
    .bind(limit)
    .fetch_all(on.conn())
    .await?;
    Ok(rows.iter().map(Session::of).collect::<Result<_, _>>()?)
}

/// Returns how many sessions there are.
///
/// # Errors
/// The ledger failed.
pub async fn count(on: &mut impl LedgerConnection) -> Result<i64, LedgerError> {
    Ok(select("SELECT count(*) FROM sessions").fetch_one(on.conn()).await?.try_get(0)?)
}

/// Returns the sessions whose id begins with a text.
// `substr`, because LIKE would take `%` and `_` in an id as wildcards, and ignores case on SQLite.
pub(crate) async fn find(
    on: &mut impl LedgerConnection,
    start: &str,
    limit: i64,
) -> Result<Vec<Session>, LedgerError> {
    let rows = select(sessions!("WHERE substr(s.id, 1, CAST($2 AS INTEGER)) = $1 ORDER BY s.id LIMIT $3"))
        .bind(start)
        .bind(start.chars().count() as i64)
        .bind(limit)
        .fetch_all(on.conn())
        .await?;
    Ok(rows.iter().map(Session::of).collect::<Result<_, _>>()?)
}

/// Returns the sessions with a host's own conversation id, the most recently active first.
pub(crate) async fn of_host(
    on: &mut impl LedgerConnection,
    host_session: &str,
    limit: i64,
) -> Result<Vec<Session>, LedgerError> {
    let rows = select(sessions!("WHERE s.host_session = $1 ORDER BY s.last_activity_ns DESC, s.id LIMIT $2"))
        .bind(host_session)
        .bind(limit)
        .fetch_all(on.conn())
        .await?;
    Ok(rows.iter().map(Session::of).collect::<Result<_, _>>()?)
}

/// Returns the hosts' own conversation ids of sessions that have one.
///
/// # Errors
/// The ledger failed.
pub async fn host_ids(
    on: &mut impl LedgerConnection,
    sessions: impl IntoIterator<Item = &str>,
) -> Result<BTreeMap<String, String>, LedgerError> {
    let mut found = BTreeMap::new();
    let sessions: BTreeSet<&str> = sessions.into_iter().collect();
    for id in sessions {
        if let Some(host_session) = get(on, id).await?.and_then(|session| session.host_session) {
            found.insert(id.to_owned(), host_session);
        }
    }
    Ok(found)
}
