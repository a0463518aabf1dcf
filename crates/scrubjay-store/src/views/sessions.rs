//! Lists all sessions: those in the ledger, and conversations that have only tapes.

use std::collections::HashMap;

use serde::Serialize;

use super::steps::StepTotals;
use super::{SessionView, iso};
use crate::ledger::session::Session;
use crate::ledger::{LedgerConnection, LedgerError};
use scrubjay_tape::catalog::Overview;
use scrubjay_tape::format::reader::TapeState;

/// A session, from the ledger and the tapes.
#[derive(Clone, Debug, Serialize)]
pub struct SessionSummary {
    /// Its id.
    pub id: String,
    /// The host's own id of the conversation.
    pub host_session: Option<String>,
    /// Its project; `None` if it has only tapes.
    pub project_id: Option<String>,
    /// What it is called.
    pub title: Option<String>,
    /// The client's name for itself.
    pub agent: Option<String>,
    /// active or closed.
    pub status: &'static str,
    /// What identified its conversation.
    pub told_by: String,
    /// The directory it works in.
    pub workspace: Option<String>,
    /// When it began.
    pub created: String,
    /// When something last happened in it.
    pub last_activity: String,
    /// When it ended.
    pub ended: Option<String>,
    /// How many tapes it has: one for each server that its host started.
    pub tapes: u64,
    /// How many messages are on them.
    pub messages: u64,
    /// How many of them are failures.
    pub errors: u64,
    /// How many steps its plans have, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<StepTotals>,
    /// The names of its tapes, each once.
    pub servers: Vec<String>,
    /// When something last happened, nanoseconds since the Unix epoch.
    #[serde(skip)]
    pub last_activity_ns: i64,
}

/// Lists the sessions of a ledger and of tapes, the most recently active first.
#[must_use]
pub fn list(sessions: &[Session], tapes: &[Overview]) -> Vec<SessionSummary> {
    let mut all: HashMap<String, SessionSummary> =
        sessions.iter().map(|s| (s.id.clone(), of_ledger(s))).collect();
    // The oldest tape first, because a conversation begins with it.
    for tape in tapes.iter().rev().filter(|tape| tape.is_conversation()) {
        let session = tape.session();
        if session.id.is_empty() {
            continue;
        }
        all.entry(session.id.clone()).or_insert_with(|| of_tape(tape)).add(tape);
    }
    let mut all: Vec<SessionSummary> = all.into_values().collect();
    // By id among equals: the order of a HashMap differs from run to run.
    all.sort_by(|a, b| (b.last_activity_ns, &a.id).cmp(&(a.last_activity_ns, &b.id)));
    all
}

/// Adds the step counts of sessions.
///
/// # Errors
/// The ledger failed.
pub async fn count_steps(
    on: &mut impl LedgerConnection,
    sessions: &mut [SessionSummary],
) -> Result<(), LedgerError> {
    for session in sessions.iter_mut().filter(|session| session.project_id.is_some()) {
        let steps = StepTotals::read(on, &session.id).await?;
        session.steps = Some(steps).filter(|steps| steps.total > 0);
    }
    Ok(())
}

fn of_ledger(session: &Session) -> SessionSummary {
    let view = SessionView::new(session);
    SessionSummary {
        id: view.id,
        host_session: view.host_session,
        project_id: Some(view.project_id),
        title: view.title,
        agent: view.agent,
        status: view.status,
        told_by: view.told_by,
        workspace: view.workspace,
        created: view.created,
        last_activity: view.last_activity,
        ended: view.ended,
        tapes: 0,
        messages: 0,
        errors: 0,
        steps: None,
        servers: Vec::new(),
        last_activity_ns: session.last_activity_ns,
    }
}

/// Makes the summary of a session that has only tapes.
fn of_tape(tape: &Overview) -> SessionSummary {
    let session = tape.session();
    let told_by = serde_json::to_value(session.told_by).ok().and_then(|name| Some(name.as_str()?.to_owned()));
    SessionSummary {
        id: session.id,
        host_session: tape.host_session().map(str::to_owned),
        project_id: None,
        title: None,
        agent: None,
        status: "closed",
        told_by: told_by.unwrap_or_default(),
        workspace: tape.header.as_ref().and_then(|header| header.workspace.clone()),
        created: iso(signed(tape.started_wall_ns())),
        last_activity: String::new(),
        ended: None,
        tapes: 0,
        messages: 0,
        errors: 0,
        steps: None,
        servers: Vec::new(),
        last_activity_ns: 0,
    }
}

impl SessionSummary {
    fn add(&mut self, tape: &Overview) {
        self.tapes += 1;
        self.messages += tape.metadata.total_messages;
        self.errors += tape.metadata.total_errors;
        if let Some(name) = tape.header.as_ref().map(|header| &header.name)
            && !self.servers.contains(name)
        {
            self.servers.push(name.clone());
        }
        if let Some(info) = tape.metadata.client_info.as_ref().filter(|_| self.agent.is_none()) {
            let words = [&info["name"], &info["version"]].map(|word| word.as_str().unwrap_or_default());
            self.agent = Some(words.join(" ").trim().to_owned()).filter(|agent| !agent.is_empty());
        }
        let ended_ns = signed(tape.ended_wall_ns());
        if ended_ns > self.last_activity_ns {
            self.last_activity_ns = ended_ns;
            self.last_activity = iso(ended_ns);
        }
        // The ledger knows whether its sessions ended; of the others only the tapes say anything.
        if self.project_id.is_none() {
            // A session without a ledger row is open while one of its tapes is live.
            let is_open = tape.state == TapeState::Live || self.status == "active";
            self.status = if is_open { "active" } else { "closed" };
            self.ended = (!is_open).then(|| self.last_activity.clone());
        }
    }
}

fn signed(wall_ns: u64) -> i64 {
    i64::try_from(wall_ns).unwrap_or(i64::MAX)
}
