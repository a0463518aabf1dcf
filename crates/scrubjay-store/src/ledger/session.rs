//! Sessions: one agent's conversation each. Every caller has one, begun with its first call.
//!
//! A caller is a host conversation as the gateway tells it, whatever process it comes through; which session
//! it is in is remembered, so that a host's several servers share one.

use scrubjay_core::id::TapeId;
use serde::Serialize;
use serde_json::json;
use sqlx::Row;
use sqlx::any::AnyRow;
use thiserror::Error;

use super::event::{self, EventKind, NewEvent};
use super::{Conn, LedgerError, Write, project};

/// No session id is longer.
pub const ID_CHARS_MAX: usize = 100;
/// No title is longer.
pub const TITLE_CHARS_MAX: usize = 200;
/// No word of what the user asked for, or of what came of it, is longer.
pub const MESSAGE_CHARS_MAX: usize = 100_000;

/// Whoever makes a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The same for all connections of one host conversation.
    pub key: String,
    /// How that was told.
    pub told_by: String,
    /// What the client calls itself.
    pub agent: Option<String>,
    /// The tape on which the call is.
    pub tape: Option<TapeId>,
    /// Its entry there.
    pub entry: Option<i64>,
    /// The project it works on.
    pub project: String,
    /// The directory it works in.
    pub workspace: Option<String>,
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
    /// What the client calls itself.
    pub agent: Option<String>,
    /// The directory it works in.
    pub workspace: Option<String>,
    /// How its connections were told to belong together.
    pub told_by: String,
    /// The session it was branched from.
    pub parent_session: Option<String>,
    /// When it began.
    pub created_ns: i64,
    /// When something last happened in it.
    pub last_activity_ns: i64,
    /// When it ended, where it did.
    pub ended_ns: Option<i64>,
    /// The plan step it is at.
    pub current_step: Option<i64>,
    /// The project's tick when it last looked.
    pub last_sync_tick: i64,
    /// When it was last saved.
    pub last_save_ns: Option<i64>,
}

/// A session cannot be used.
#[derive(Debug, Error)]
pub enum SessionError {
    /// There is none with that id.
    #[error("no session has the id \"{0}\"")]
    NotFound(String),
    /// The id is not one.
    #[error("a session id has 1 to {ID_CHARS_MAX} characters and no control characters")]
    BadId,
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

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT s.id, s.project_id, s.title, s.user_message, s.agent, s.workspace, s.told_by, s.parent_session, \
             s.created_ns, s.last_activity_ns, s.ended_ns, s.current_step, s.last_sync_tick, s.last_save_ns \
             FROM sessions s ",
            $rest
        )
    };
}

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
        })
    }
}

/// Returns a session.
///
/// # Errors
/// The ledger failed.
pub async fn get(on: &mut impl Conn, id: &str) -> Result<Option<Session>, LedgerError> {
    let row = sqlx::query(select!("WHERE s.id = $1")).bind(id).fetch_optional(on.conn()).await?;
    Ok(row.as_ref().map(Session::of).transpose()?)
}

/// Returns the session a caller is in, where it has one.
///
/// # Errors
/// The ledger failed.
pub async fn of_caller(on: &mut impl Conn, caller: &Caller) -> Result<Option<Session>, LedgerError> {
    let row = sqlx::query(select!("JOIN callers c ON c.session_id = s.id WHERE c.caller = $1"))
        .bind(&caller.key)
        .fetch_optional(on.conn())
        .await?;
    Ok(row.as_ref().map(Session::of).transpose()?)
}

/// Returns the session to work in: the one named, or the caller's own, which begins where there is none.
///
/// # Errors
/// The named one does not exist, or the ledger failed.
pub async fn current(
    write: &mut Write,
    caller: &Caller,
    named: Option<&str>,
) -> Result<Session, SessionError> {
    if let Some(id) = named {
        return get(write, id).await?.ok_or_else(|| SessionError::NotFound(id.to_owned()));
    }
    match of_caller(write, caller).await? {
        Some(session) => Ok(session),
        None => Ok(begin(write, caller, Beginning::default()).await?),
    }
}

/// What is said of a session when it begins.
#[derive(Clone, Debug, Default)]
pub struct Beginning {
    /// Its id, where the agent chose one.
    pub id: Option<String>,
    /// What it is called.
    pub title: Option<String>,
    /// What the user asked for.
    pub user_message: Option<String>,
    /// The session it is branched from.
    pub parent_session: Option<String>,
}

/// How a session was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// It is new.
    New,
    /// It went on.
    Resumed,
    /// The one the caller had begun by itself got its name.
    Named,
}

/// Starts a session for a caller: a new one, or one that goes on.
///
/// # Errors
/// The id is not one, the parent does not exist, or the ledger failed.
pub async fn start(
    write: &mut Write,
    caller: &Caller,
    beginning: Beginning,
) -> Result<(Session, Started), SessionError> {
    if let Some(id) = &beginning.id {
        if id.is_empty() || id.chars().count() > ID_CHARS_MAX || id.chars().any(char::is_control) {
            return Err(SessionError::BadId);
        }
        if let Some(session) = get(write, id).await? {
            if session.project_id != caller.project {
                return Err(SessionError::OtherProject(id.clone(), session.project_id));
            }
            return Ok((resume(write, caller, session, &beginning).await?, Started::Resumed));
        }
    }
    if let Some(parent) = &beginning.parent_session
        && get(write, parent).await?.is_none()
    {
        return Err(SessionError::NotFound(parent.clone()));
    }
    if beginning.id.is_none()
        && beginning.parent_session.is_none()
        && let Some(session) = of_caller(write, caller).await?
        && session.title.is_none()
        && session.ended_ns.is_none()
    {
        return Ok((name(write, caller, session, &beginning).await?, Started::Named));
    }
    Ok((begin(write, caller, beginning).await?, Started::New))
}

/// Begins a session, and puts the caller in it.
async fn begin(write: &mut Write, caller: &Caller, beginning: Beginning) -> Result<Session, LedgerError> {
    project::ensure(write, &caller.project).await?;
    let tick = project::get(write, &caller.project).await?.map_or(0, |p| p.tick);
    let session = Session {
        id: beginning.id.unwrap_or_else(random_id),
        project_id: caller.project.clone(),
        title: kept(write, beginning.title.as_deref()),
        user_message: kept(write, beginning.user_message.as_deref()),
        agent: kept(write, caller.agent.as_deref()),
        workspace: caller.workspace.clone(),
        told_by: caller.told_by.clone(),
        parent_session: beginning.parent_session,
        created_ns: write.at_ns,
        last_activity_ns: write.at_ns,
        ended_ns: None,
        current_step: None,
        last_sync_tick: tick,
        last_save_ns: None,
    };
    insert(write, &session).await?;
    put_in(write, caller, &session.id).await?;
    let event = match &session.parent_session {
        Some(parent) => NewEvent::new(EventKind::SessionBranched, format!("branched from session {parent}")),
        None => NewEvent::new(
            EventKind::SessionStarted,
            session.title.clone().unwrap_or_else(|| "session started".to_owned()),
        ),
    };
    let details = json!({
        "title": session.title, "user_message": session.user_message, "agent": session.agent,
        "parent_session": session.parent_session, "told_by": session.told_by,
    });
    event::append(write, &session, caller, event.with(details)).await?;
    Ok(session)
}

async fn insert(write: &mut Write, session: &Session) -> Result<(), LedgerError> {
    sqlx::query(
        "INSERT INTO sessions (id, project_id, title, user_message, agent, workspace, told_by, parent_session,
             created_ns, last_activity_ns, last_sync_tick) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10)",
    )
    .bind(&session.id)
    .bind(&session.project_id)
    .bind(session.title.as_deref())
    .bind(session.user_message.as_deref())
    .bind(session.agent.as_deref())
    .bind(session.workspace.as_deref())
    .bind(&session.told_by)
    .bind(session.parent_session.as_deref())
    .bind(session.created_ns)
    .bind(session.last_sync_tick)
    .execute(write.conn())
    .await?;
    Ok(())
}

async fn put_in(write: &mut Write, caller: &Caller, session: &str) -> Result<(), LedgerError> {
    sqlx::query(
        "INSERT INTO callers (caller, session_id) VALUES ($1, $2)
         ON CONFLICT (caller) DO UPDATE SET session_id = excluded.session_id",
    )
    .bind(&caller.key)
    .bind(session)
    .execute(write.conn())
    .await?;
    Ok(())
}

async fn resume(
    write: &mut Write,
    caller: &Caller,
    mut session: Session,
    beginning: &Beginning,
) -> Result<Session, LedgerError> {
    let ended = session.ended_ns.take().is_some();
    let tick = project::get(write, &session.project_id).await?.map_or(0, |p| p.tick);
    if ended {
        // One that had ended starts fresh: it has seen nothing since.
        session.last_sync_tick = tick;
        session.current_step = None;
    }
    describe(write, &mut session, beginning);
    update(write, &session).await?;
    put_in(write, caller, &session.id).await?;
    let summary = if ended { "resumed after its end" } else { "resumed" };
    event::append(write, &session, caller, NewEvent::new(EventKind::SessionResumed, summary)).await?;
    Ok(session)
}

async fn name(
    write: &mut Write,
    caller: &Caller,
    mut session: Session,
    beginning: &Beginning,
) -> Result<Session, LedgerError> {
    describe(write, &mut session, beginning);
    update(write, &session).await?;
    let summary = session.title.clone().unwrap_or_else(|| "session started".to_owned());
    let details = json!({ "title": session.title, "user_message": session.user_message });
    event::append(write, &session, caller, NewEvent::new(EventKind::SessionNamed, summary).with(details))
        .await?;
    Ok(session)
}

fn describe(write: &Write, session: &mut Session, beginning: &Beginning) {
    session.title = kept(write, beginning.title.as_deref()).or_else(|| session.title.take());
    session.user_message =
        kept(write, beginning.user_message.as_deref()).or_else(|| session.user_message.take());
}

fn kept(write: &Write, text: Option<&str>) -> Option<String> {
    text.map(|text| write.clean(text))
}

/// Stores what may change in a session.
///
/// # Errors
/// The ledger failed.
pub async fn update(write: &mut Write, session: &Session) -> Result<(), LedgerError> {
    sqlx::query(
        "UPDATE sessions SET title = $2, user_message = $3, ended_ns = $4, current_step = $5,
             last_sync_tick = $6, last_save_ns = $7, last_activity_ns = $8 WHERE id = $1",
    )
    .bind(&session.id)
    .bind(session.title.as_deref())
    .bind(session.user_message.as_deref())
    .bind(session.ended_ns)
    .bind(session.current_step)
    .bind(session.last_sync_tick)
    .bind(session.last_save_ns)
    .bind(write.at_ns)
    .execute(write.conn())
    .await?;
    Ok(())
}

/// Ends a session: its callers begin another with their next call.
///
/// # Errors
/// The ledger failed.
pub async fn end(
    write: &mut Write,
    caller: &Caller,
    mut session: Session,
    summary: Option<&str>,
) -> Result<Session, LedgerError> {
    session.ended_ns = Some(write.at_ns);
    update(write, &session).await?;
    sqlx::query("DELETE FROM callers WHERE session_id = $1").bind(&session.id).execute(write.conn()).await?;
    // It holds no records any more, and starts fresh should it be resumed.
    sqlx::query("DELETE FROM record_actives WHERE session_id = $1")
        .bind(&session.id)
        .execute(write.conn())
        .await?;
    let event = NewEvent::new(EventKind::SessionClosed, summary.unwrap_or("session ended"));
    event::append(write, &session, caller, event).await?;
    Ok(session)
}

/// Returns sessions, the most recently active first; `before` is the last activity of the last one seen.
///
/// # Errors
/// The ledger failed.
pub async fn list(
    on: &mut impl Conn,
    project: Option<&str>,
    before: Option<(i64, &str)>,
    limit: i64,
) -> Result<Vec<Session>, LedgerError> {
    let (before_ns, before_id) = before.unwrap_or((i64::MAX, ""));
    let rows = sqlx::query(select!(
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
pub async fn count(on: &mut impl Conn) -> Result<i64, LedgerError> {
    Ok(sqlx::query("SELECT count(*) FROM sessions").fetch_one(on.conn()).await?.try_get(0)?)
}

/// Returns the sessions whose id begins with a text.
///
/// # Errors
/// The ledger failed.
pub async fn find(on: &mut impl Conn, start: &str, limit: i64) -> Result<Vec<Session>, LedgerError> {
    let rows = sqlx::query(select!("WHERE substr(s.id, 1, $2) = $1 ORDER BY s.id LIMIT $3"))
        .bind(start)
        .bind(start.chars().count() as i64)
        .bind(limit)
        .fetch_all(on.conn())
        .await?;
    Ok(rows.iter().map(Session::of).collect::<Result<_, _>>()?)
}

fn random_id() -> String {
    let mut random = [0; 10];
    getrandom::fill(&mut random).expect("the system has a source of randomness");
    TapeId::from_random(random).to_string()
}
