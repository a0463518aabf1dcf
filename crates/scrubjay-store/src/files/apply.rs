//! Makes one change of a file: records the intent, changes the file, records the outcome.

use scrubjay_core::diff;
use serde_json::json;

use super::refuse::RefusedChange;
use super::{Action, AppliedChange, Change, FileError, Files, RevisionDraft, edit};
use crate::ledger::blob::{self, Hash, hex};
use crate::ledger::event::{self, EventKind, NewEvent};
use crate::ledger::revision::{self, Revision, RevisionSource, RevisionState};
use crate::ledger::session::{self, Caller, Session};
use crate::ledger::{CommitDurability, LedgerError, Write};
use crate::workspace::{ExpectedContent, FilePath, FileSnapshot, WorkspaceError};

/// A change that is about to be recorded: the path, the content before and after, and the mode.
struct ChangeIntent {
    path: FilePath,
    before: Option<FileSnapshot>,
    after: Option<Vec<u8>>,
    mode: Option<u32>,
}

impl Files {
    pub(super) async fn apply(&self, caller: &Caller, change: Change) -> Result<AppliedChange, FileError> {
        let path = match self.workspace.locate(&change.path) {
            Ok(path) => path,
            Err(refusal) => return Err(self.refuse(caller, change.attempt(), refusal.into()).await?),
        };
        if let Some(refused) = self.secret_in(&path) {
            return Err(self.refuse(caller, change.attempt(), refused).await?);
        }
        // Before the file is read: the content that is checked and recorded must be the one that is replaced.
        let lock = self.lock_path(path.as_str()).await?;
        let before = match self.read_current(&path).await {
            Ok(before) => before,
            Err(error) => return Err(self.refuse_or_fail(caller, change.attempt(), error).await?),
        };
        let after = match new_content(&change, before.as_ref()) {
            Ok(after) => after,
            Err(refused) => return Err(self.refuse(caller, change.attempt(), refused).await?),
        };
        // Checked again: `read_current` limits what is there now, and edits can make it longer.
        if after.as_ref().is_some_and(|bytes| bytes.len() as u64 > self.bytes_max) {
            let refused = too_large(&change.path, after.as_ref().map_or(0, Vec::len), self.bytes_max);
            return Err(self.refuse(caller, change.attempt(), refused).await?);
        }
        let mode = change.mode.or(before.as_ref().map(|b| b.mode));
        let intent = ChangeIntent { path, before, after, mode };
        let made = match self.record_intent(caller, &change, &intent).await? {
            Some(made) => made,
            None => {
                // We hold the lock of the path, so the process that began the earlier changes is gone.
                self.settle_path(caller, intent.path.as_str()).await?;
                self.record_intent(caller, &change, &intent).await?.ok_or(FileError::Interrupted)?
            }
        };
        let Some(revision) = made.revision.clone() else { return Ok(made) };
        // From here on a crash leaves a pending revision. `settle` compares the file with both contents, so the instant
        // of the crash does not matter.
        let outcome = self.change_file(intent).await;
        let state = match &outcome {
            Ok(()) => RevisionState::Done,
            Err(WorkspaceError::Refused(_) | WorkspaceError::Io { .. } | WorkspaceError::Gone(_)) => {
                RevisionState::Failed
            }
            // The outcome is not known. The change is settled when its file or session is next read.
            Err(WorkspaceError::Unsynced { .. } | WorkspaceError::Stranded { .. }) => RevisionState::Pending,
        };
        self.conclude(&made.path, revision.id, state).await?;
        // Held until the outcome is committed: others would take the pending change for that of a dead process.
        drop(lock);
        match outcome {
            Ok(()) => Ok(AppliedChange { revision: Some(Revision { state, ..revision }), ..made }),
            Err(error) => Err(self.refuse_or_fail(caller, change.attempt(), error).await?),
        }
    }

    /// Reads the current content, on a blocking thread.
    pub(super) async fn read_current(&self, path: &FilePath) -> Result<Option<FileSnapshot>, WorkspaceError> {
        let (workspace, path, bytes_max) = (self.workspace.clone(), path.clone(), self.bytes_max);
        let reading = tokio::task::spawn_blocking(move || workspace.read(&path, bytes_max));
        reading.await.unwrap_or_else(|e| {
            Err(WorkspaceError::Io { action: "read", path: String::new(), source: std::io::Error::other(e) })
        })
    }

    /// Records the intent before the file is touched; `None` if earlier changes of the path are unsettled.
    async fn record_intent(
        &self,
        caller: &Caller,
        change: &Change,
        intent: &ChangeIntent,
    ) -> Result<Option<AppliedChange>, FileError> {
        let before = intent.before.as_ref().map(|b| b.bytes.as_slice());
        // Counted before the write transaction begins, because other writers wait while it is open.
        let counted = diff::count(before.unwrap_or_default(), intent.after.as_deref().unwrap_or_default());
        let mut write = self.ledger.write(CommitDurability::Power).await?;
        // In the same transaction as the intent, so that no change comes between.
        if !revision::pending(&mut write, &self.root(), Some(intent.path.as_str())).await?.is_empty() {
            return Ok(None);
        }
        let session = session::current(&mut write, caller, change.session.as_deref()).await?;
        // Recorded before our own event: the revisions of a file are in the order in which it had the contents.
        let observed =
            self.observe(&mut write, caller, &session, &intent.path, intent.before.as_ref()).await?;
        let (path, after) = (intent.path.as_str(), intent.after.as_deref());
        let unchanged = before == after;
        let mut details = json!({
            "path": path, "action": change.action.name(),
            "before": before.map(|b| hex(&blob::hash(b))), "after": after.map(|a| hex(&blob::hash(a))),
            "added": counted.added, "removed": counted.removed,
        });
        if unchanged {
            details["unchanged"] = true.into();
            // No revision is added; the event names the one that holds this content.
            let same = revision::latest(&mut write, &self.root(), path).await?;
            details["revision"] = same.map(|revision| revision.id).into();
        }
        if let Some(event) = change.rewinds_to {
            details["rewinds_to"] = event.into();
        }
        let summary =
            format!("{} {path}{}", change.action.name(), if unchanged { " (unchanged)" } else { "" });
        let event = NewEvent::new(change.action.event_kind(), summary).about(path).with(details);
        let event_id = event::append(&mut write, &session, caller, event).await?;
        let revision = match unchanged {
            true => None,
            false => {
                let draft = RevisionDraft {
                    path,
                    source: RevisionSource::Enforced,
                    before,
                    after,
                    counted,
                    mode: intent.mode,
                };
                Some(self.add_revision(&mut write, event_id, RevisionState::Pending, draft).await?)
            }
        };
        let (hash, size) = (after.map(blob::hash), after.map_or(0, |after| after.len() as i64));
        write.commit().await?;
        let (session_id, path) = (session.id, path.to_owned());
        Ok(Some(AppliedChange { session_id, event_id, revision, path, hash, size, observed }))
    }

    /// Records that someone else changed a file since it was last recorded; returns whether they did.
    pub(super) async fn observe(
        &self,
        write: &mut Write,
        caller: &Caller,
        session: &Session,
        path: &FilePath,
        found: Option<&FileSnapshot>,
    ) -> Result<bool, LedgerError> {
        let known = revision::latest(write, &self.root(), path.as_str()).await?;
        let found_hash = found.map(|content| *content.hash.as_bytes());
        let first_seen = known.is_none();
        if known.as_ref().map_or(found_hash.is_none(), |known| known.after == found_hash) {
            return Ok(false);
        }
        let known_hash = known.as_ref().and_then(|known| known.after.as_ref());
        let known_bytes = blob::get_optional(write, known_hash).await?;
        let found_bytes = found.map(|content| content.bytes.as_slice());
        // A file that is seen for the first time is recorded as unchanged: what it was before is not known.
        let before = if first_seen { found_bytes } else { known_bytes.as_deref() };
        let what = match (first_seen, found_bytes) {
            (true, _) => "first seen",
            (false, Some(_)) => "changed by someone else",
            (false, None) => "deleted by someone else",
        };
        let details = json!({
            "path": path.as_str(), "first_seen": first_seen,
            "before": before.map(|b| hex(&blob::hash(b))), "after": found_hash.as_ref().map(hex),
        });
        let event = NewEvent::new(EventKind::FileObserved, format!("{what}: {}", path.as_str()));
        let event = event.about(path.as_str()).with(details);
        let event_id = event::append(write, session, caller, event).await?;
        let mode = found.map(|content| content.mode);
        let counted = diff::count(before.unwrap_or_default(), found_bytes.unwrap_or_default());
        let (path, source) = (path.as_str(), RevisionSource::Observed);
        let draft = RevisionDraft { path, source, before, after: found_bytes, counted, mode };
        self.add_revision(write, event_id, RevisionState::Done, draft).await?;
        Ok(!first_seen)
    }

    /// Adds a revision, and stores those of its contents that the ledger does not have yet.
    pub(super) async fn add_revision(
        &self,
        write: &mut Write,
        event_id: i64,
        state: RevisionState,
        draft: RevisionDraft<'_>,
    ) -> Result<Revision, LedgerError> {
        let mut revision = Revision {
            id: 0,
            workspace: self.root(),
            path: draft.path.to_owned(),
            event_id,
            source: draft.source,
            state,
            before: match draft.source {
                // The ledger has this content already: it is the last state, or was just observed.
                RevisionSource::Enforced => draft.before.map(blob::hash),
                RevisionSource::Reported | RevisionSource::Observed => {
                    store_content(write, draft.before).await?
                }
            },
            after: store_content(write, draft.after).await?,
            size: draft.after.map_or(0, |after| after.len() as i64),
            lines: draft.after.map_or(0, |after| diff::lines(after) as i64),
            added: draft.counted.added as i64,
            removed: draft.counted.removed as i64,
            mode: draft.mode.map(i64::from),
        };
        revision.id = revision::insert(write, &revision).await?;
        Ok(revision)
    }

    /// Makes the intended change, if the file still has the content that was read.
    async fn change_file(&self, intent: ChangeIntent) -> Result<(), WorkspaceError> {
        let workspace = self.workspace.clone();
        // On a blocking thread, because it writes and syncs files.
        let changing = tokio::task::spawn_blocking(move || {
            let ChangeIntent { path, before, after, mode } = intent;
            // The content that was read and recorded: if another program has changed the file since, `commit` refuses.
            let expected =
                before.map_or(ExpectedContent::Missing, |before| ExpectedContent::Content(before.hash));
            match (after, expected) {
                (Some(after), expected) => workspace.stage(&path, &after, mode)?.commit(expected),
                (None, ExpectedContent::Content(hash)) => workspace.remove(&path, hash),
                // Not reached: `new_content` refuses to delete a file that is not there.
                (None, ExpectedContent::Missing) => Ok(()),
            }
        });
        changing.await.unwrap_or_else(|e| {
            Err(WorkspaceError::Io {
                action: "change",
                path: String::new(),
                source: std::io::Error::other(e),
            })
        })
    }
}

/// Stores a content in the ledger, where there is one.
async fn store_content(write: &mut Write, content: Option<&[u8]>) -> Result<Option<Hash>, LedgerError> {
    match content {
        Some(bytes) => blob::put(write, bytes).await.map(Some),
        None => Ok(None),
    }
}

/// Computes the new content, or the reason to refuse the change.
fn new_content(change: &Change, before: Option<&FileSnapshot>) -> Result<Option<Vec<u8>>, RefusedChange> {
    let path = &change.path;
    let found = before.map(|content| *content.hash.as_bytes());
    let refused = |code, message, hint| Err(RefusedChange { code, message, hint, found });
    match (&change.action, before) {
        (Action::Create(_), Some(_)) => {
            return refused("exists", format!("{path} exists already"), "Change it with action edit.");
        }
        (Action::Edit(_), None) => {
            return refused("missing", format!("{path} does not exist"), "Create it with action create.");
        }
        (Action::Delete, None) => {
            return refused("missing", format!("{path} does not exist"), "There is nothing to delete.");
        }
        _ => {}
    }
    if change.expected.is_some() && change.expected != found {
        let now = found.as_ref().map_or("missing".to_owned(), hex);
        return refused(
            "changed",
            format!("{path} is not as expected: its hash is {now}"),
            "Read it again before you change it.",
        );
    }
    let body = match &change.action {
        Action::Create(body) | Action::Edit(body) => body.clone(),
        Action::Delete => return Ok(None),
    };
    match edit::apply(before.map(|content| content.bytes.as_slice()), body) {
        Ok(after) => Ok(Some(after)),
        Err(error) => refused("edit_failed", error.to_string(), error.hint()),
    }
}

fn too_large(path: &str, size: usize, max: u64) -> RefusedChange {
    let message = format!("{path} would have {size} bytes, and {max} are allowed");
    RefusedChange { code: "too_large", message, hint: "Write it by other means.", found: None }
}
