//! How a session begins: with a connection's first call, by name, or by being resumed.

use scrubjay_core::redact::RedactedText;
use serde_json::json;

use super::end::was_deserted;
use super::{COMMAND, Caller, HOST_PROCESS, ID_CHARS_MAX, Session, SessionError, get, sessions, update};
use crate::ledger::event::{self, EventKind, NewEvent};
use crate::ledger::statement::{Key, change, select};
use crate::ledger::{LedgerConnection, LedgerError, Write, project};
use scrubjay_tape::conversation::random_id;

/// Separates a conversation's key from the project, for a conversation that works on several projects. No id of a
/// session contains it, because control characters are refused.
pub(in crate::ledger) const IN_PROJECT: char = '\u{1f}';

impl Caller {
    /// Returns the same caller in another project, where it has another session.
    pub(in crate::ledger) fn within(&self, project: &str) -> Self {
        let within = |key: &str| format!("{key}{IN_PROJECT}{project}");
        Self {
            connection: within(&self.connection),
            conversation: within(&self.conversation),
            project: project.to_owned(),
            ..self.clone()
        }
    }

    /// Tells whether only the host's process identified its conversation.
    fn is_guessed(&self) -> bool {
        self.told_by == HOST_PROCESS
    }
}

/// Returns the session of a caller, if it has one: that of its connection, or else that of its conversation.
///
/// # Errors
/// The ledger failed.
pub async fn of_caller(
    on: &mut impl LedgerConnection,
    caller: &Caller,
) -> Result<Option<Session>, LedgerError> {
    match of_connection(on, caller).await? {
        Some(session) => Ok(Some(session)),
        None => of_conversation(on, caller).await,
    }
}

async fn of_connection(
    on: &mut impl LedgerConnection,
    caller: &Caller,
) -> Result<Option<Session>, LedgerError> {
    let row = select(sessions!("JOIN connections c ON c.session_id = s.id WHERE c.id = $1"))
        .bind(&caller.connection)
        .fetch_optional(on.conn())
        .await?;
    Ok(row.as_ref().map(Session::of).transpose()?)
}

async fn of_conversation(
    on: &mut impl LedgerConnection,
    caller: &Caller,
) -> Result<Option<Session>, LedgerError> {
    let row = select(sessions!("JOIN callers c ON c.session_id = s.id WHERE c.caller = $1"))
        .bind(&caller.conversation)
        .fetch_optional(on.conn())
        .await?;
    let session = row.as_ref().map(Session::of).transpose()?;
    // One host process may run several agents, and agents with different names are in different conversations.
    Ok(session.filter(|session| !caller.is_guessed() || session.agent == caller.agent))
}

/// Returns the session to work in: the named one, or the caller's own, which is created if needed, and resumed if it
/// ended.
///
/// # Errors
/// The named one does not exist or has ended, or the ledger failed.
pub async fn current(
    write: &mut Write,
    caller: &Caller,
    named: Option<&str>,
) -> Result<Session, SessionError> {
    if let Some(id) = named {
        let session = get(write, id).await?.ok_or_else(|| SessionError::NotFound(id.to_owned()))?;
        // A command such as rewind records its changes in an ended session without resuming it.
        if session.ended_ns.is_none() || caller.told_by == COMMAND {
            return Ok(session);
        }
        // A deserted session is resumed when a caller names it; a session that its agent ended is not.
        if !was_deserted(write, &session.id).await? {
            return Err(SessionError::Ended(session.id));
        }
        // A connection that is in a session already stays there: naming another one applies to this call.
        let is_free = of_connection(write, caller).await?.is_none();
        let session = reopen(write, caller, session, &SessionStart::default()).await?;
        if is_free {
            assign_connection(write, caller, &session.id).await?;
        }
        return Ok(session);
    }
    // It has not ended, because an ended session has no connections.
    if let Some(session) = of_connection(write, caller).await? {
        return Ok(session);
    }
    match of_conversation(write, caller).await? {
        Some(session) if session.ended_ns.is_some() => {
            Ok(resume(write, caller, session, &SessionStart::default()).await?)
        }
        Some(session) => {
            assign_connection(write, caller, &session.id).await?;
            Ok(session)
        }
        None => Ok(begin(write, caller, SessionStart::default()).await?),
    }
}

/// What a caller states about a session that it starts.
#[derive(Clone, Debug, Default)]
pub struct SessionStart {
    /// Its id, if the agent chose one.
    pub id: Option<String>,
    /// Its title.
    pub title: Option<String>,
    /// What the user asked for.
    pub user_message: Option<String>,
    /// The session it is branched from.
    pub parent_session: Option<String>,
}

/// How a session was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartOutcome {
    /// It is new.
    New,
    /// It was resumed.
    Resumed,
    /// The session that had begun implicitly got a name.
    Named,
}

/// Starts or resumes a session for the caller's connection only.
///
/// # Errors
/// The id is invalid, the parent does not exist, or the ledger failed.
pub async fn start(
    write: &mut Write,
    caller: &Caller,
    beginning: SessionStart,
) -> Result<(Session, StartOutcome), SessionError> {
    if let Some(id) = &beginning.id {
        // Ids are written unredacted, so one that contains a secret is refused.
        let is_invalid =
            id.is_empty() || id.chars().count() > ID_CHARS_MAX || id.chars().any(char::is_control);
        if is_invalid || !write.is_clean(id) {
            return Err(SessionError::BadId);
        }
        if let Some(session) = get(write, id).await? {
            // A session belongs to one project for ever: its events, plan and records are filed under it.
            if session.project_id != caller.project {
                return Err(SessionError::OtherProject(id.clone(), session.project_id));
            }
            return Ok((resume(write, caller, session, &beginning).await?, StartOutcome::Resumed));
        }
    }
    if let Some(parent) = &beginning.parent_session
        && get(write, parent).await?.is_none()
    {
        return Err(SessionError::NotFound(parent.clone()));
    }
    // A session that began implicitly gets the name, unless other connections are in it only because they have the same
    // host process: those never said that they belong together.
    if beginning.id.is_none()
        && beginning.parent_session.is_none()
        && let Some(session) = of_caller(write, caller).await?
        && session.title.is_none()
        && session.ended_ns.is_none()
        && !(caller.is_guessed() && is_shared(write, caller, &session).await?)
    {
        return Ok((give_name(write, caller, session, &beginning).await?, StartOutcome::Named));
    }
    let session = begin(write, caller, beginning).await?;
    Ok((session, StartOutcome::New))
}

/// Tells whether other connections are in the session.
async fn is_shared(write: &mut Write, caller: &Caller, session: &Session) -> Result<bool, LedgerError> {
    let row = select("SELECT 1 FROM connections WHERE session_id = $1 AND id <> $2 LIMIT 1")
        .bind(&session.id)
        .bind(&caller.connection)
        .fetch_optional(write.conn())
        .await?;
    Ok(row.is_some())
}

/// Begins a session, and assigns the caller's connection to it.
async fn begin(write: &mut Write, caller: &Caller, beginning: SessionStart) -> Result<Session, LedgerError> {
    project::ensure(write, &caller.project).await?;
    // A new session is up to date: a sync lists only what others write from now on.
    let tick = project::get(write, &caller.project).await?.map_or(0, |p| p.tick);
    let is_implicit = beginning.id.is_none() && beginning.parent_session.is_none();
    let id = match beginning.id {
        Some(id) => id,
        None => new_id(write, caller).await?,
    };
    let session = Session {
        id,
        project_id: caller.project.clone(),
        title: clean_string(write, beginning.title.as_deref()),
        user_message: clean_string(write, beginning.user_message.as_deref()),
        agent: clean_string(write, caller.agent.as_deref()),
        workspace: clean_string(write, caller.workspace.as_deref()),
        told_by: caller.told_by.clone(),
        host_session: clean_string(write, caller.host_session.as_deref()),
        parent_session: beginning.parent_session,
        created_ns: write.at_ns,
        last_activity_ns: write.at_ns,
        ended_ns: None,
        current_step: None,
        // What was written before a session began is not news to it.
        last_sync_tick: tick,
        last_save_ns: None,
    };
    insert(write, &session).await?;
    assign_connection(write, caller, &session.id).await?;
    // A session with a chosen id or a parent is only for the connection that began it, and so is a titled one if the
    // conversation is a guess.
    if is_implicit && (session.title.is_none() || !caller.is_guessed()) {
        share_with_conversation(write, caller, &session.id).await?;
    }
    let event = match &session.parent_session {
        Some(parent) => NewEvent::new(EventKind::SessionBranched, format!("branched from session {parent}")),
        None => NewEvent::new(
            EventKind::SessionStarted,
            session.title.clone().unwrap_or_else(|| "session started".to_owned()),
        ),
    };
    let details = json!({
        "title": session.title, "user_message": session.user_message, "agent": session.agent,
        "parent_session": session.parent_session, "told_by": session.told_by, "host_session": session.host_session,
    });
    event::append(write, &session, caller, event.with(details)).await?;
    Ok(session)
}

/// Returns the id for an implicit session: the one on its conversation's tapes, unless it is taken.
async fn new_id(write: &mut Write, caller: &Caller) -> Result<String, LedgerError> {
    let id = &caller.conversation;
    // A conversation in a second project has the project in its key: the id of its tapes is that of its first session.
    let is_free = !id.is_empty() && !id.contains(IN_PROJECT) && get(write, id).await?.is_none();
    Ok(if is_free { id.clone() } else { random_id() })
}

async fn insert(write: &mut Write, session: &Session) -> Result<(), LedgerError> {
    change(
        "INSERT INTO sessions (id, project_id, title, user_message, agent, workspace, told_by, parent_session,
             created_ns, last_activity_ns, last_sync_tick, host_session)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10, $11)",
    )
    .bind(Key::known(&session.id))
    .bind(Key::known(&session.project_id))
    .bind(clean(write, session.title.as_deref()))
    .bind(clean(write, session.user_message.as_deref()))
    .bind(clean(write, session.agent.as_deref()))
    .bind(clean(write, session.workspace.as_deref()))
    .bind(write.clean(&session.told_by))
    .bind(session.parent_session.as_deref().map(Key::known))
    .bind(session.created_ns)
    .bind(session.last_sync_tick)
    .bind(clean(write, session.host_session.as_deref()))
    .execute(write)
    .await?;
    Ok(())
}

/// Assigns a caller's connection to a session.
async fn assign_connection(write: &mut Write, caller: &Caller, session: &str) -> Result<(), LedgerError> {
    // A connection is in one session at a time: naming another one moves it.
    change(
        "INSERT INTO connections (id, session_id, process) VALUES ($1, $2, $3)
         ON CONFLICT (id) DO UPDATE SET session_id = excluded.session_id, process = excluded.process",
    )
    .bind(Key::known(&caller.connection))
    .bind(Key::known(session))
    .bind(caller.process.as_deref().map(Key::known))
    .execute(write)
    .await?;
    // Work on a second project has a session of its own, but the tape stays in the conversation's session.
    if caller.conversation != session && !caller.connection.contains(IN_PROJECT) {
        write.note_move(&caller.connection, session);
    }
    Ok(())
}

/// Makes a session the one of the caller's conversation, so that its other connections join it.
async fn share_with_conversation(
    write: &mut Write,
    caller: &Caller,
    session: &str,
) -> Result<(), LedgerError> {
    change(
        "INSERT INTO callers (caller, session_id) VALUES ($1, $2)
         ON CONFLICT (caller) DO UPDATE SET session_id = excluded.session_id",
    )
    .bind(Key::known(&caller.conversation))
    .bind(Key::known(session))
    .execute(write)
    .await?;
    Ok(())
}

/// Resumes a session, and assigns the caller's connection to it.
async fn resume(
    write: &mut Write,
    caller: &Caller,
    session: Session,
    beginning: &SessionStart,
) -> Result<Session, LedgerError> {
    assign_connection(write, caller, &session.id).await?;
    reopen(write, caller, session, beginning).await
}

async fn reopen(
    write: &mut Write,
    caller: &Caller,
    mut session: Session,
    beginning: &SessionStart,
) -> Result<Session, LedgerError> {
    let ended = session.ended_ns.take().is_some();
    let tick = project::get(write, &session.project_id).await?.map_or(0, |p| p.tick);
    if ended && was_deserted(write, &session.id).await? {
        // Its agent did not end it, so it continues at its step.
        change("UPDATE plan_steps SET status = 'current' WHERE id = $1 AND status = 'left'")
            .bind(session.current_step)
            .execute(write)
            .await?;
    } else if ended {
        // Its agent ended it, so it starts without a step, and with nothing to sync.
        session.last_sync_tick = tick;
        session.current_step = None;
    }
    describe(write, &mut session, beginning);
    update(write, &session).await?;
    let summary = if ended { "resumed after its end" } else { "resumed" };
    event::append(write, &session, caller, NewEvent::new(EventKind::SessionResumed, summary)).await?;
    Ok(session)
}

async fn give_name(
    write: &mut Write,
    caller: &Caller,
    mut session: Session,
    beginning: &SessionStart,
) -> Result<Session, LedgerError> {
    describe(write, &mut session, beginning);
    update(write, &session).await?;
    assign_connection(write, caller, &session.id).await?;
    if caller.is_guessed() {
        // A named session belongs to the connection that named it. Others must not join it only because they have the
        // same host process.
        change("DELETE FROM callers WHERE session_id = $1")
            .bind(Key::known(&session.id))
            .execute(write)
            .await?;
    }
    let summary = session.title.clone().unwrap_or_else(|| "session started".to_owned());
    let details = json!({ "title": session.title, "user_message": session.user_message });
    event::append(write, &session, caller, NewEvent::new(EventKind::SessionNamed, summary).with(details))
        .await?;
    Ok(session)
}

fn describe(write: &Write, session: &mut Session, beginning: &SessionStart) {
    session.title = clean_string(write, beginning.title.as_deref()).or_else(|| session.title.take());
    session.user_message =
        clean_string(write, beginning.user_message.as_deref()).or_else(|| session.user_message.take());
}

fn clean(write: &Write, text: Option<&str>) -> Option<RedactedText> {
    text.map(|text| write.clean(text))
}

fn clean_string(write: &Write, text: Option<&str>) -> Option<String> {
    clean(write, text).map(RedactedText::into_string)
}
