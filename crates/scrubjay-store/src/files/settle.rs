//! Finds out what became of changes that a crash left open, by looking at the files.

use super::{FileError, Files};
use crate::ledger::blob::Hash;
use crate::ledger::revision::{self, Revision, State};
use crate::ledger::session::{self, Caller};
use crate::ledger::{Survives, event};
use crate::workspace::WorkspaceError;

impl Files {
    /// Settles every open change of this workspace that nobody is making right now; returns how many. A file
    /// that cannot be looked at stays open, and does not keep the others from being settled.
    ///
    /// # Errors
    /// The ledger or the locks failed.
    pub async fn settle(&self, caller: &Caller) -> Result<usize, FileError> {
        let open = revision::pending(&mut self.ledger.read().await?, &self.root(), None).await?;
        let mut settled = 0;
        for path in
            open.iter().map(|revision| revision.path.as_str()).collect::<std::collections::BTreeSet<_>>()
        {
            // Whoever holds the lock is at work on it, or settles it.
            let Some(_lock) = self.try_hold(path)? else { continue };
            match self.settle_path(caller, path).await {
                Ok(count) => settled += count,
                Err(FileError::Workspace(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(settled)
    }

    /// Settles the open changes of a path; its lock is held, so whoever began them is gone.
    pub(super) async fn settle_path(&self, caller: &Caller, path: &str) -> Result<usize, FileError> {
        let open = revision::pending(&mut self.ledger.read().await?, &self.root(), Some(path)).await?;
        if open.is_empty() {
            return Ok(0);
        }
        let location = self.workspace.locate(path).map_err(|e| FileError::Workspace(e.into()))?;
        let found = match self.look(&location).await {
            Ok(found) => Some(found),
            // Something else stands there by now: a link, a directory, a file that is too large.
            Err(WorkspaceError::Refused(_)) => None,
            Err(error) => return Err(FileError::Workspace(error)),
        };
        let now = found.as_ref().map(|found| found.as_ref().map(|content| *content.hash.as_bytes()));
        let mut write = self.ledger.write(Survives::Power).await?;
        for revision in &open {
            revision::conclude(&mut write, revision.id, became(revision, now)).await?;
        }
        if let Some(found) = &found
            && let Some(changed) = open.iter().find(|revision| became(revision, now) == State::Changed)
            && let Some(told) = event::get(&mut write, changed.event_id).await?
            && let Some(session) = session::get(&mut write, &told.session_id).await?
        {
            self.observe(&mut write, caller, &session, &location, found.as_ref()).await?;
        }
        write.commit().await?;
        Ok(open.len())
    }
}

/// Says how a change ended by what is there now: a content, no file, or nothing that can be compared.
fn became(revision: &Revision, now: Option<Option<Hash>>) -> State {
    if now == Some(revision.after) {
        State::Done
    } else if now == Some(revision.before) {
        State::Failed
    } else {
        State::Changed
    }
}
