//! Rewinds files to their state after an event. A rewind is made of new changes, so it can be undone.

use std::collections::BTreeSet;
use std::sync::Arc;

use thiserror::Error;

use super::{Action, AppliedChange, Change, FileError, Files, NewContent};
use crate::ledger::LedgerError;
use crate::ledger::blob::{self, Hash};
use crate::ledger::revision::{self, Revision, TouchedFile};
use crate::ledger::session::Caller;
use crate::ledger::{event, moves};

/// The rewind of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewindStep {
    /// The path in the workspace.
    pub path: String,
    /// The current content.
    pub now: Option<Vec<u8>>,
    /// The content to go back to.
    pub then: Option<Vec<u8>>,
    /// The permission bits that it had then.
    pub mode: Option<u32>,
    /// Whether the current content is not recorded, because someone else changed the file.
    pub unrecorded: bool,
}

impl RewindStep {
    /// Tells whether the contents differ.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.now != self.then
    }
}

/// Why files cannot be rewound.
#[derive(Debug, Error)]
pub enum RewindError {
    /// The event is not one of the session.
    #[error("session {session} has no event {event}")]
    NoEvent {
        /// The session.
        session: String,
        /// The event.
        event: i64,
    },
    /// The session changed no such file here.
    #[error("session {session} changed no file {path} in this workspace")]
    NoFile {
        /// The session.
        session: String,
        /// The file.
        path: String,
    },
    /// Unrecorded changes would be overwritten.
    #[error("{} changed since it was last recorded", .0.join(", "))]
    Unrecorded(Vec<String>),
    /// A file cannot be read or changed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl RewindError {
    /// Returns what to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoEvent { session, .. } => {
                Some(format!("`scrubjay session timeline {session}` lists its events."))
            }
            Self::NoFile { session, .. } => {
                Some(format!("`scrubjay session evolution {session}` lists the files it changed."))
            }
            Self::Unrecorded(_) => Some("Look at the difference, then use --force.".to_owned()),
            Self::File(error) => error.hint().map(str::to_owned),
            Self::Ledger(error) => Some(error.hint().to_owned()),
        }
    }
}

impl Files {
    /// Computes the state of a session's files, or of one of them, after an event.
    ///
    /// # Errors
    /// There is no such event or file, or a file cannot be read.
    pub async fn plan_rewind(
        &self,
        session: &str,
        to_event: i64,
        only: Option<&str>,
    ) -> Result<Vec<RewindStep>, RewindError> {
        let mut read = self.ledger.read().await?;
        // Event 0 stands for the state before the first event.
        let event = event::get(&mut read, to_event).await?;
        if to_event != 0 && event.is_none_or(|event| event.session_id != session) {
            return Err(RewindError::NoEvent { session: session.to_owned(), event: to_event });
        }
        let only = match only {
            Some(path) => Some(self.workspace.locate(path).map_err(|e| FileError::Workspace(e.into()))?),
            None => None,
        };
        let root = self.root();
        let roots = moves::roots(&mut read, &root).await?;
        let is_here =
            |t: &TouchedFile| roots.iter().any(|root| root.root == t.workspace && t.first <= root.up_to);
        let wanted = revision::touched(&mut read, session).await?.into_iter().filter(is_here);
        let paths: BTreeSet<String> =
            wanted.map(|t| t.path).filter(|p| only.as_ref().is_none_or(|only| only.as_str() == p)).collect();
        if let (Some(path), true) = (&only, paths.is_empty()) {
            let (session, path) = (session.to_owned(), path.as_str().to_owned());
            return Err(RewindError::NoFile { session, path });
        }
        let mut steps = Vec::new();
        for path in paths {
            let then = revision::as_of(&mut read, &root, &path, to_event).await?;
            let first = revision::first(&mut read, &root, &path).await?;
            let last = revision::latest(&mut read, &root, &path).await?;
            let (hash, mode) = state_at(then.as_ref(), first.as_ref());
            let then = blob::get_optional(&mut read, hash.as_ref()).await?;
            let location = self.workspace.locate(&path).map_err(|e| FileError::Workspace(e.into()))?;
            let now = self.read_current(&location).await.map_err(FileError::Workspace)?;
            let now_hash = now.as_ref().map(|content| *content.hash.as_bytes());
            let unrecorded = last.is_none_or(|last| last.after != now_hash);
            let now = now.map(|content| content.bytes);
            steps.push(RewindStep { path, now, then, mode, unrecorded });
        }
        Ok(steps)
    }

    /// Makes the changes, and records each in the session.
    ///
    /// # Errors
    /// Unrecorded changes would be overwritten and `force` is not set, or a change failed; those before it
    /// were made.
    pub async fn rewind(
        self: &Arc<Self>,
        caller: &Caller,
        session: &str,
        to_event: i64,
        steps: Vec<RewindStep>,
        force: bool,
    ) -> Result<Vec<AppliedChange>, RewindError> {
        let lost: Vec<String> =
            steps.iter().filter(|s| s.unrecorded && s.changes()).map(|s| s.path.clone()).collect();
        if !lost.is_empty() && !force {
            return Err(RewindError::Unrecorded(lost));
        }
        // One change for each file and not all or nothing: a failure leaves the earlier ones made and recorded.
        let mut made = Vec::new();
        for step in steps.into_iter().filter(RewindStep::changes) {
            let action = match (&step.now, step.then) {
                (None, Some(then)) => Action::Create(NewContent::Bytes(then)),
                (Some(_), Some(then)) => Action::Edit(NewContent::Bytes(then)),
                (_, None) => Action::Delete,
            };
            let change = Change {
                session: Some(session.to_owned()),
                path: step.path,
                action,
                // The change is refused if the file has changed since the rewind was planned.
                expected: step.now.as_deref().map(blob::hash),
                mode: step.mode,
                rewinds_to: Some(to_event),
            };
            made.push(self.change(caller, change).await?);
        }
        Ok(made)
    }
}

/// Returns a file's content and mode at that time: its last state by then, or that before its first recorded change.
fn state_at(then: Option<&Revision>, first: Option<&Revision>) -> (Option<Hash>, Option<u32>) {
    let mode = |revision: &Revision| revision.mode.and_then(|mode| u32::try_from(mode).ok());
    match (then, first) {
        (Some(then), _) => (then.after, mode(then)),
        (None, Some(first)) => (first.before, first.before.and_then(|_| mode(first))),
        (None, None) => (None, None),
    }
}
