//! Settles changes whose outcome a crash left open, by reading the files.

use serde_json::json;

use super::{FileError, Files};
use crate::ledger::blob::{self, Hash, hex};
use crate::ledger::event::{self, EventKind, NewEvent};
use crate::ledger::revision::{self, Revision, RevisionState};
use crate::ledger::session::{self, Caller, Session};
use crate::ledger::{CommitDurability, LedgerError, Write};
use crate::workspace::{FilePath, WorkspaceError};

impl Files {
    /// Settles every open change of this workspace, except those that a process is making now; returns how many. The
    /// change of a file that cannot be read stays open, without keeping the others from being settled.
    ///
    /// # Errors
    /// The ledger or the locks failed.
    pub async fn settle(&self, caller: &Caller) -> Result<usize, FileError> {
        let open = revision::pending(&mut self.ledger.read().await?, &self.root(), None).await?;
        let mut settled = 0;
        for path in
            open.iter().map(|revision| revision.path.as_str()).collect::<std::collections::BTreeSet<_>>()
        {
            // The process that holds the lock is making the change, or settling it.
            let Some(_lock) = self.try_lock_path(path)? else { continue };
            match self.settle_path(caller, path).await {
                Ok(count) => settled += count,
                Err(FileError::Workspace(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(settled)
    }

    /// Settles the open changes of a path. The caller holds its lock, so the process that began them is gone.
    pub(super) async fn settle_path(&self, caller: &Caller, path: &str) -> Result<usize, FileError> {
        let open = revision::pending(&mut self.ledger.read().await?, &self.root(), Some(path)).await?;
        if open.is_empty() {
            return Ok(0);
        }
        let location = self.workspace.locate(path).map_err(|e| FileError::Workspace(e.into()))?;
        let found = match self.read_current(&location).await {
            Ok(found) => Some(found),
            // Something else is there now: a link, a directory, a file that is too large.
            Err(WorkspaceError::Refused(_)) => None,
            Err(error) => return Err(FileError::Workspace(error)),
        };
        let now = found.as_ref().map(|found| found.as_ref().map(|content| *content.hash.as_bytes()));
        if open.iter().any(|revision| settled_state(revision, now) == RevisionState::Done) {
            // The file may have its new content in the page cache only, which a loss of power would undo.
            let (workspace, location) = (self.workspace.clone(), location.clone());
            let confirming = tokio::task::spawn_blocking(move || workspace.confirm(&location));
            confirming.await.map_err(|_| FileError::Interrupted)?.map_err(FileError::Workspace)?;
        }
        let mut write = self.ledger.write(CommitDurability::Power).await?;
        for revision in &open {
            let state = settled_state(revision, now);
            revision::conclude(&mut write, revision.id, state).await?;
            record_outcome(&mut write, caller, revision, state, now).await?;
        }
        if let Some(found) = &found
            && let Some(changed) =
                open.iter().find(|revision| settled_state(revision, now) == RevisionState::Changed)
            && let Some(intended) = event::get(&mut write, changed.event_id).await?
            && let Some(session) = session::get(&mut write, &intended.session_id).await?
        {
            self.observe(&mut write, caller, &session, &location, found.as_ref()).await?;
        }
        // Files are swept after the commit, without the write lock: other writers would wait for the directory to be
        // read.
        let left = temporary_contents(&mut write, &open).await?;
        write.commit().await?;
        self.sweep(location, left).await;
        Ok(open.len())
    }

    /// Commits the outcome of a change that was just made. Tries twice, because another connection may succeed.
    pub(super) async fn conclude(
        &self,
        path: &str,
        revision: i64,
        state: RevisionState,
    ) -> Result<(), FileError> {
        let Err(_) = self.conclude_once(revision, state).await else { return Ok(()) };
        self.conclude_once(revision, state).await.map_err(|source| {
            let outcome = match state {
                RevisionState::Done => "was changed as recorded",
                RevisionState::Failed => "was not changed",
                _ => "may have been changed",
            };
            FileError::Unsettled { path: path.to_owned(), outcome, source }
        })
    }

    // `CommitDurability::Process` is enough: if a loss of power undoes this, the revision is pending again, and settled.
    async fn conclude_once(&self, revision: i64, state: RevisionState) -> Result<(), LedgerError> {
        let mut write = self.ledger.write(CommitDurability::Process).await?;
        revision::conclude(&mut write, revision, state).await?;
        write.commit().await
    }

    /// Removes temporary files that the changes left beside the file. One that cannot be removed is harmless, so errors
    /// are ignored.
    async fn sweep(&self, path: FilePath, left: Vec<Vec<u8>>) {
        let (workspace, bytes_max) = (self.workspace.clone(), self.bytes_max);
        let sweeping = tokio::task::spawn_blocking(move || {
            // A killed process left a whole content, or its beginning.
            let is_known = |content: &[u8]| left.iter().any(|known| known.starts_with(content));
            workspace.sweep_temporaries(&path, bytes_max, &is_known)
        });
        // The only error is a panic, which its thread has reported.
        let _ = sweeping.await;
    }
}

/// Records in the session of a change how it ended, and what was found.
async fn record_outcome(
    write: &mut Write,
    caller: &Caller,
    revision: &Revision,
    state: RevisionState,
    now: Option<Option<Hash>>,
) -> Result<(), LedgerError> {
    let Some(intended) = event::get(write, revision.event_id).await? else { return Ok(()) };
    let Some(session) = session::get(write, &intended.session_id).await? else { return Ok(()) };
    let found = match state {
        RevisionState::Done => "it was made",
        RevisionState::Failed => "it was not made",
        _ if now.is_none() => "something that is not a readable file is there",
        _ if now == Some(None) => "the file is gone",
        _ => "the file was changed by someone else",
    };
    let details = json!({
        "path": revision.path, "settles": revision.event_id, "revision": revision.id, "outcome": state.name(),
        "found": now.flatten().as_ref().map(hex),
    });
    let summary = format!("settled after a crash: {}: {found}", intended.summary);
    let event = NewEvent::new(EventKind::FileSettled, summary).about(&revision.path).with(details);
    // The event belongs to the step in which the change was intended; the session may be at another one by now.
    let at_step = Session { current_step: intended.step, ..session };
    event::append(write, &at_step, caller, event).await.map(|_| ())
}

/// Returns the contents that changes may have left in temporary files: those they wrote, and those they replaced.
async fn temporary_contents(write: &mut Write, open: &[Revision]) -> Result<Vec<Vec<u8>>, LedgerError> {
    let mut contents = Vec::new();
    for revision in open {
        for hash in [revision.before, revision.after].into_iter().flatten() {
            contents.push(blob::get(write, &hash).await?);
        }
    }
    Ok(contents)
}

/// Determines how a change ended by what is there now: a content, no file (`Some(None)`), or something that cannot be
/// compared (`None`).
fn settled_state(revision: &Revision, now: Option<Option<Hash>>) -> RevisionState {
    if now == Some(revision.after) {
        RevisionState::Done
    } else if now == Some(revision.before) {
        RevisionState::Failed
    } else {
        RevisionState::Changed
    }
}
