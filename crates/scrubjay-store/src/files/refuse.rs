//! Records a change that was refused or failed, and turns it into the error that the caller gets.

use scrubjay_core::redact::cut;
use serde_json::json;

use super::{Change, ChangeReport, FileError, Files};
use crate::ledger::CommitDurability;
use crate::ledger::blob::Hash;
use crate::ledger::event::{self, EventKind, NewEvent};
use crate::ledger::session::{self, Caller};
use crate::workspace::{FilePath, Refusal, WorkspaceError};

/// How much of a refused path is recorded: PATH_MAX, the longest path that Linux accepts.
const SHOWN_CHARS_MAX: usize = 4096;

/// What was attempted, as the event of its refusal names it.
#[derive(Clone, Copy)]
pub(super) struct Attempt<'a> {
    pub(super) session: Option<&'a str>,
    pub(super) path: &'a str,
    pub(super) action: &'static str,
}

impl Change {
    pub(super) fn attempt(&self) -> Attempt<'_> {
        Attempt { session: self.session.as_deref(), path: &self.path, action: self.action.name() }
    }
}

impl ChangeReport {
    pub(super) fn attempt(&self) -> Attempt<'_> {
        Attempt { session: self.session.as_deref(), path: &self.path, action: self.action.name() }
    }
}

/// A refusal that is not recorded yet.
pub(super) struct RefusedChange {
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) hint: &'static str,
    pub(super) found: Option<Hash>,
}

impl From<Refusal> for RefusedChange {
    fn from(refusal: Refusal) -> Self {
        let (code, hint) = (refusal.code(), refusal.hint());
        Self { code, message: refusal.to_string(), hint, found: None }
    }
}

impl Files {
    /// Records a change that was refused or failed, and returns the error.
    pub(super) async fn refuse_or_fail(
        &self,
        caller: &Caller,
        attempt: Attempt<'_>,
        error: WorkspaceError,
    ) -> Result<FileError, FileError> {
        match error {
            WorkspaceError::Refused(refusal) => self.refuse(caller, attempt, refusal.into()).await,
            other => {
                // Recorded like a refusal: without the event the timeline would not show that this was attempted.
                self.record_refusal(caller, attempt, "failed", &with_cause(&other)).await?;
                Ok(FileError::Workspace(other))
            }
        }
    }

    /// Records a refusal, and returns it.
    pub(super) async fn refuse(
        &self,
        caller: &Caller,
        attempt: Attempt<'_>,
        refused: RefusedChange,
    ) -> Result<FileError, FileError> {
        let RefusedChange { code, message, hint, found } = refused;
        let event_id = self.record_refusal(caller, attempt, code, &message).await?;
        Ok(FileError::Refused { code, message, hint, event_id: Some(event_id), found })
    }

    /// Records a refusal in the session; returns the event's number.
    async fn record_refusal(
        &self,
        caller: &Caller,
        attempt: Attempt<'_>,
        code: &str,
        message: &str,
    ) -> Result<i64, FileError> {
        let mut write = self.ledger.write(CommitDurability::Power).await?;
        let Attempt { session, path, action } = attempt;
        let session = session::current(&mut write, caller, session).await?;
        let shown = cut(path, SHOWN_CHARS_MAX);
        let details = json!({ "path": shown, "action": action, "code": code, "reason": message });
        let event = NewEvent::new(EventKind::FileRefused, format!("{action} {shown} refused: {code}"));
        let event_id = event::append(&mut write, &session, caller, event.about(shown).with(details)).await?;
        write.commit().await?;
        Ok(event_id)
    }

    /// Refuses a path that contains a secret: it cannot be redacted, because files are found by their recorded path.
    pub(super) fn secret_in(&self, path: &FilePath) -> Option<RefusedChange> {
        // The root too, because each revision stores it, and revisions are found by both.
        let what = if !self.ledger.is_clean(path.as_str()) {
            "the path"
        } else if !self.ledger.is_clean(&self.root()) {
            "the path of the workspace"
        } else {
            return None;
        };
        Some(RefusedChange {
            code: "secret_path",
            message: format!("{what} holds what looks like a secret, and secrets are never recorded"),
            hint: "Use a path without it, or change the files by other means.",
            found: None,
        })
    }
}

fn with_cause(error: &WorkspaceError) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{error}{cause}")
}
