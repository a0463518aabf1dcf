//! Views of the ledger: a session's timeline, its story, the evolution of its files.
//!
//! They are plain data, to be written as JSON or shown to people. Each comes in pages or shortened to a limit of
//! tokens.

pub mod address;
pub mod budget;
pub mod content;
mod event_text;
pub mod evolution;
pub mod sessions;
pub mod steps;
pub mod story;
pub mod timeline;

use scrubjay_core::shorten::shortened;
use serde::Serialize;
use thiserror::Error;

use crate::ledger::session::Session;
use crate::ledger::{LedgerConnection, LedgerError, session};

/// The most items of a page.
pub const PAGE_MAX: i64 = 1000;
/// A session's title is cut to this number of characters.
const TITLE_CHARS_MAX: usize = 200;
/// The user's message is cut to this number of characters.
const MESSAGE_CHARS_MAX: usize = 2000;

/// The name of the most recently active session.
pub const LATEST: &str = "latest";

/// A view cannot be made.
#[derive(Debug, Error)]
pub enum ViewError {
    /// No session has that name.
    #[error("no session is called \"{0}\"")]
    NoSession(String),
    /// Several sessions match the name.
    #[error("\"{0}\" matches several sessions ({1})")]
    Ambiguous(String, String),
    /// The session changed no such file.
    #[error("session {0} changed no file {1}")]
    NoFile(String, String),
    /// The file has no such state.
    #[error("{0} has no {1}")]
    NoRevision(String, content::StatePoint),
    /// The file did not exist before or after the revision.
    #[error("{path} did not exist {} revision {revision}", when(*.side))]
    NoContent {
        /// The file.
        path: String,
        /// The revision.
        revision: i64,
        /// Whether before or after it.
        side: address::Side,
    },
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl ViewError {
    /// Returns what to do instead.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoSession(_) => "`scrubjay session ls` and list_sessions list the sessions.",
            Self::Ambiguous(..) => "Give more characters.",
            Self::NoFile(..) => "The session's evolution lists the files it changed.",
            Self::NoRevision(..) | Self::NoContent { .. } => "The file's evolution lists its revisions.",
            Self::Ledger(error) => error.hint(),
        }
    }
}

fn when(side: address::Side) -> &'static str {
    match side {
        address::Side::After => "after",
        address::Side::Before => "before",
    }
}

/// What is shown of a session.
#[derive(Clone, Debug, Serialize)]
pub struct SessionView {
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
    /// active or closed.
    pub status: &'static str,
    /// What identified its conversation.
    pub told_by: String,
    /// The host's own id of the conversation.
    pub host_session: Option<String>,
    /// The session it was branched from.
    pub parent_session: Option<String>,
    /// The directory it works in.
    pub workspace: Option<String>,
    /// When it began.
    pub created: String,
    /// When something last happened in it.
    pub last_activity: String,
    /// When it ended.
    pub ended: Option<String>,
}

impl SessionView {
    /// Shows a session.
    #[must_use]
    pub fn new(session: &Session) -> Self {
        Self {
            id: session.id.clone(),
            project_id: session.project_id.clone(),
            title: shown(session.title.as_deref(), TITLE_CHARS_MAX),
            user_message: shown(session.user_message.as_deref(), MESSAGE_CHARS_MAX),
            agent: session.agent.clone(),
            status: if session.ended_ns.is_some() { "closed" } else { "active" },
            told_by: session.told_by.clone(),
            host_session: session.host_session.clone(),
            parent_session: session.parent_session.clone(),
            workspace: session.workspace.clone(),
            created: iso(session.created_ns),
            last_activity: iso(session.last_activity_ns),
            ended: session.ended_ns.map(iso),
        }
    }
}

fn shown(text: Option<&str>, chars_max: usize) -> Option<String> {
    text.map(|text| shortened(text, chars_max).into_owned())
}

/// Writes a time as ISO 8601, in UTC, to the millisecond.
#[must_use]
pub(crate) fn iso(at_ns: i64) -> String {
    let whole_ms = u64::try_from(at_ns).unwrap_or(0) / 1_000_000;
    scrubjay_core::export::iso_time(whole_ms * 1_000_000)
}

/// Finds a session by its id, a prefix of it, the host's own conversation id, or `latest`.
///
/// # Errors
/// No session matches, or several do.
pub async fn find_session(on: &mut impl LedgerConnection, name: &str) -> Result<Session, ViewError> {
    // An exact id first: a session may have an id that is also the beginning of another one, or the word `latest`.
    if let Some(session) = session::get(on, name).await? {
        return Ok(session);
    }
    let mut found = match name {
        "" => Vec::new(),
        LATEST => session::list(on, None, None, 1).await?,
        _ => {
            // A conversation that worked on several projects has a session in each; the most recently active is taken.
            let mut of_host = session::of_host(on, name, 1).await?;
            if of_host.is_empty() {
                // A few are enough to report that the name is ambiguous.
                of_host = session::find(on, name, 4).await?;
            }
            of_host
        }
    };
    match found.len() {
        0 => Err(ViewError::NoSession(name.to_owned())),
        1 => Ok(found.remove(0)),
        _ => {
            let ids: Vec<String> = found.into_iter().map(|session| session.id).collect();
            Err(ViewError::Ambiguous(name.to_owned(), ids.join(", ")))
        }
    }
}
