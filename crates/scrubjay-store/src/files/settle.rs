//! Settles changes whose outcome a crash left open, by reading the files.

use serde_json::json;

use super::{FileError, Files};
use crate::ledger::blob::{self, Hash, hex};
use crate::ledger::event::{self, EventKind, NewEvent};
use crate::ledger::revision::{self, Revision, RevisionState};
use crate::ledger::session::{self, Caller, Session};
use crate::ledger::{LedgerError, Survives, Write};
use crate::workspace::{FilePath, WorkspaceError};

impl Files {
    /// Settles every open change of this workspace that no process is making right now; returns how many. A file that
    /// cannot be read stays open, and does not keep the others from being settled.
    ///
    /// # Errors
    /// The ledger or the locks failed.
    pub async fn settle(&self, caller: &Caller) -> Result<usize, FileError> {
        let open = revision::pending(&mut self.ledger.read().await?, &self.root(), None).await?;
        let mut settled = 0;
        for path in
            open.iter().map(|revision| revision.path.as_str()).collect::<std::collections::BTreeSet<_>>()
        {
            // The holder of the lock is making the change, or settling it.
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
            // It is something else by now: a link, a directory, a file that is too large.
            Err(WorkspaceError::Refused(_)) => None,
            Err(error) => return Err(FileError::Workspace(error)),
        };
        let now = found.as_ref().map(|found| found.as_ref().map(|content| *content.hash.as_bytes()));
        if open.iter().any(|revision| settled_state(revision, now) == RevisionState::Done) {
            // A change that is only in the page cache is not done yet.
            let (workspace, location) = (self.workspace.clone(), location.clone());
            let confirming = tokio::task::spawn_blocking(move || workspace.confirm(&location));
            confirming.await.map_err(|_| FileError::Interrupted)?.map_err(FileError::Workspace)?;
        }
        let mut write = self.ledger.write(Survives::Power).await?;
        for revision in &open {
            let state = settled_state(revision, now);
            revision::conclude(&mut write, revision.id, state).await?;
            record_outcome(&mut write, caller, revision, state, now).await?;
        }
        if let Some(found) = &found
            && let Some(changed) =
                open.iter().find(|revision| settled_state(revision, now) == RevisionState::Changed)
            && let Some(told) = event::get(&mut write, changed.event_id).await?
            && let Some(session) = session::get(&mut write, &told.session_id).await?
        {
            self.observe(&mut write, caller, &session, &location, found.as_ref()).await?;
        }
        let left = temporary_contents(&mut write, &open).await?;
        write.commit().await?;
        self.sweep(location, left).await;
        Ok(open.len())
    }

    /// Notes how a change ended that was just made. A failure that has passed is over on another connection.
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

    /// A loss of power before this is on disk leaves a pending revision, which is settled by reading.
    async fn conclude_once(&self, revision: i64, state: RevisionState) -> Result<(), LedgerError> {
        let mut write = self.ledger.write(Survives::Process).await?;
        revision::conclude(&mut write, revision, state).await?;
        write.commit().await
    }

    /// Clears away what the changes left beside the file; what cannot be cleared away stays, and harms nothing.
    async fn sweep(&self, path: FilePath, left: Vec<Vec<u8>>) {
        let (workspace, bytes_max) = (self.workspace.clone(), self.bytes_max);
        let sweeping = tokio::task::spawn_blocking(move || {
            // A killed process has written all of it, or a beginning.
            let is_known = |content: &[u8]| left.iter().any(|known| known.starts_with(content));
            workspace.sweep_temporaries(&path, bytes_max, &is_known)
        });
        // Only a panic there is an error here, and it has been reported.
        let _ = sweeping.await;
    }
}

/// Says in the session of the change what became of it, and what was found.
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
        _ if now.is_none() => "something that is no readable file stands there",
        _ if now == Some(None) => "the file is gone",
        _ => "the file was changed by someone else",
    };
    let details = json!({
        "path": revision.path, "settles": revision.event_id, "revision": revision.id, "outcome": state.name(),
        "found": now.flatten().as_ref().map(hex),
    });
    let summary = format!("settled after a crash: {}: {found}", intended.summary);
    let event = NewEvent::new(EventKind::FileSettled, summary).about(&revision.path).with(details);
    // It belongs to the step in which the change was intended, wherever the session is by now.
    let at_step = Session { current_step: intended.step, ..session };
    event::append(write, &at_step, caller, event).await.map(|_| ())
}

/// Returns what a change may have left in a temporary file: what it wrote, or what it took away.
async fn temporary_contents(write: &mut Write, open: &[Revision]) -> Result<Vec<Vec<u8>>, LedgerError> {
    let mut contents = Vec::new();
    for revision in open {
        for hash in [revision.before, revision.after].into_iter().flatten() {
            contents.push(blob::get(write, &hash).await?);
        }
    }
    Ok(contents)
}

/// Says how a change ended by what is there now: a content, no file, or nothing that can be compared.
fn settled_state(revision: &Revision, now: Option<Option<Hash>>) -> RevisionState {
    if now == Some(revision.after) {
        RevisionState::Done
    } else if now == Some(revision.before) {
        RevisionState::Failed
    } else {
        RevisionState::Changed
    }
}
