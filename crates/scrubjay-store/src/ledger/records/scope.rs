//! The scope of a call: its session, project and collection of records.

use super::RecordError;
use super::collection::{self, RecordCollection};
use crate::ledger::event::{self, NewEvent};
use crate::ledger::project::{self, Project};
use crate::ledger::session::{self, Caller, Session, SessionError};
use crate::ledger::{LedgerConnection, LedgerError, Write};

/// The scope of a mutation.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The caller in this project, which need not be its own.
    pub caller: Caller,
    /// The session.
    pub session: Session,
    /// The project's records.
    pub collection: RecordCollection,
}

/// Returns the named project, or the caller's own, which may not exist yet.
///
/// # Errors
/// The named project does not exist, or the ledger failed.
pub async fn project(
    on: &mut impl LedgerConnection,
    caller: &Caller,
    named: Option<&str>,
) -> Result<Option<Project>, RecordError> {
    let found = project::get(on, named.unwrap_or(&caller.project)).await?;
    match (&found, named) {
        (None, Some(id)) if id != caller.project => Err(RecordError::NoProject(id.to_owned())),
        _ => Ok(found),
    }
}

/// Returns the scope of a mutation: in the named session, or else in the caller's session of the project, created if
/// needed.
///
/// # Errors
/// The named session or project does not exist, or the session is closed or belongs to another project.
pub async fn enter(
    write: &mut Write,
    caller: &Caller,
    project: Option<&str>,
    session: Option<&str>,
) -> Result<Scope, RecordError> {
    let mut caller = caller.clone();
    let session = match session {
        Some(id) => {
            let found = session::current(write, &caller, Some(id)).await?;
            if let Some(other) = project.filter(|project| *project != found.project_id) {
                // An unknown project is the better explanation, so it is reported first.
                self::project(write, &caller, Some(other)).await?;
                return Err(SessionError::OtherProject(found.id, found.project_id).into());
            }
            caller.project.clone_from(&found.project_id);
            found
        }
        None => {
            self::project(write, &caller, project).await?;
            own_session(write, &mut caller, project).await?
        }
    };
    let collection = collection::begin(write, &session.project_id).await?;
    Ok(Scope { caller, session, collection })
}

/// Returns the caller's session in a project, if it has one.
///
/// # Errors
/// The ledger failed.
pub async fn current(
    on: &mut impl LedgerConnection,
    caller: &Caller,
    project: &str,
) -> Result<Option<Session>, LedgerError> {
    match session::of_caller(on, caller).await? {
        Some(session) if session.project_id == project => Ok(Some(session)),
        _ => session::of_caller(on, &caller.within(project)).await,
    }
}

/// Returns the caller's session in a project. A session belongs to one project, so a caller has one in each.
async fn own_session(
    write: &mut Write,
    caller: &mut Caller,
    project: Option<&str>,
) -> Result<Session, RecordError> {
    let home = caller.project.clone();
    if let Some(project) = project {
        project.clone_into(&mut caller.project);
    }
    let known = session::of_caller(write, caller).await?;
    let elsewhere = match &known {
        Some(session) => session.project_id != caller.project,
        None => caller.project != home,
    };
    if elsewhere {
        // Under keys of its own, so that the connection stays in the session of its first project.
        *caller = caller.within(&caller.project);
    }
    Ok(session::current(write, caller, None).await?)
}

impl Scope {
    /// Increments the project's logical clock. A session that was up to date stays so, because it knows its own write.
    pub(super) async fn tick(&mut self, write: &mut Write) -> Result<i64, LedgerError> {
        let tick = project::tick(write, &self.collection.project).await?;
        // A session that is behind stays behind: others wrote between its last sync and this write.
        if self.session.last_sync_tick == tick - 1 {
            self.session.last_sync_tick = tick;
            session::update(write, &self.session).await?;
        }
        Ok(tick)
    }

    /// Appends an event to the scope's session.
    pub(super) async fn append(&self, write: &mut Write, event: NewEvent) -> Result<(), LedgerError> {
        event::append(write, &self.session, &self.caller, event).await.map(drop)
    }
}
