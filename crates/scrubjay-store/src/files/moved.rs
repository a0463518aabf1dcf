//! Recognises a workspace that was moved here, by the contents of its files, and continues its revisions.

use std::path::Path;

use scrubjay_core::units::counted;
use thiserror::Error;

use super::{FileError, Files};
use crate::ledger::revision::TouchedFile;
use crate::ledger::session::{self, Caller};
use crate::ledger::{CommitDurability, LedgerConnection, LedgerError, moves, revision};

/// The most files that are compared if the user named the workspace.
const COMPARED_MAX: i64 = 1000;
/// The most files that are compared with each candidate, and the most candidates, if the user named none: the first
/// change of a file waits for this.
const COMPARED_UNNAMED_MAX: i64 = 100;
const CANDIDATES_MAX: usize = 10;

/// How many files here match those that were recorded of another workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceMatch {
    /// Files of the other workspace, as last recorded.
    pub files: usize,
    /// Of these, files that are here with their last recorded content.
    pub same: usize,
    /// Of these, files that are here with an earlier recorded content.
    pub earlier: usize,
}

/// Why a directory is not accepted as a moved workspace.
#[derive(Debug, Error)]
pub enum MoveError {
    /// The session changed no files, so there is nothing that could have moved.
    #[error("session {0} changed no files: there is nothing to go back to")]
    NothingRecorded(String),
    /// The workspace is still where it was.
    #[error("the workspace is still at {old}: what is at {new} is a copy, with a history of its own")]
    StillThere {
        /// Where it is.
        old: String,
        /// The directory that was named.
        new: String,
    },
    /// No file in the directory matches.
    #[error(
        "{new} does not hold what was recorded in {old}: none of {} is there with a recorded content; \
         name the directory to which it moved", counted(*.files, "file")
    )]
    NoMatch {
        /// Where the workspace was.
        old: String,
        /// The directory that was named.
        new: String,
        /// How many files were compared.
        files: usize,
    },
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Returns the current root of the workspace in which a session last changed a file.
///
/// # Errors
/// The ledger failed.
pub async fn workspace_of(
    on: &mut impl LedgerConnection,
    session: &str,
) -> Result<Option<String>, LedgerError> {
    let touched = revision::touched(on, session).await?;
    match touched.into_iter().max_by_key(|t: &TouchedFile| t.last) {
        Some(touched) => moves::current_root(on, &touched.workspace, touched.last).await.map(Some),
        None => Ok(None),
    }
}

impl Files {
    /// Records that a session's workspace was moved here, if its old root is gone and files of it are here. Returns the
    /// old root; `None` if the workspace is known to be here.
    ///
    /// # Errors
    /// The workspace is still where it was, none of its files is here, or the ledger failed.
    pub async fn adopt_move(&self, caller: &Caller, session: &str) -> Result<Option<String>, MoveError> {
        let old = workspace_of(&mut self.ledger.read().await?, session).await?;
        let old = old.ok_or_else(|| MoveError::NothingRecorded(session.to_owned()))?;
        let new = self.root();
        if old == new {
            return Ok(None);
        }
        if Path::new(&old).is_dir() {
            return Err(MoveError::StillThere { old, new });
        }
        let matched = self.compare_with(&old, COMPARED_MAX).await?;
        if matched.same + matched.earlier == 0 {
            return Err(MoveError::NoMatch { old, new, files: matched.files });
        }
        self.record_move(caller, session, &old).await?;
        Ok(Some(old))
    }

    /// Finds a workspace of this project that is gone from its root and whose files are here, and records the move.
    /// Because the user did not name it, more is required: nothing is recorded of this root yet, and most files have
    /// their last recorded content. Returns the old root.
    ///
    /// # Errors
    /// The ledger failed.
    pub async fn detect_move(&self, caller: &Caller) -> Result<Option<String>, MoveError> {
        let (root, mut read) = (self.root(), self.ledger.read().await?);
        if moves::roots(&mut read, &root).await?.len() > 1
            || !revision::paths(&mut read, &root, 1).await?.is_empty()
        {
            return Ok(None);
        }
        let known = moves::of_project(&mut read, &caller.project).await?;
        // `compare_with` takes a connection of its own. Holding one while waiting for another could use up the pool.
        drop(read);
        // A workspace that is still there was copied, and the copy has a history of its own.
        let gone = known.into_iter().filter(|(old, _)| !Path::new(old).exists());
        for (old, session) in gone.take(CANDIDATES_MAX) {
            let matched = self.compare_with(&old, COMPARED_UNNAMED_MAX).await?;
            if matched.same > 0 && matched.same * 2 > matched.files {
                self.record_move(caller, &session, &old).await?;
                return Ok(Some(old));
            }
        }
        Ok(None)
    }

    async fn record_move(&self, caller: &Caller, session_id: &str, old: &str) -> Result<(), LedgerError> {
        let mut write = self.ledger.write(CommitDurability::Power).await?;
        let session = session::get(&mut write, session_id).await?;
        let session = session.ok_or_else(|| LedgerError::Damaged(format!("no session {session_id}")))?;
        moves::record(&mut write, &session, caller, old, &self.root()).await?;
        write.commit().await
    }

    /// Compares the last recorded files of another workspace with the files here.
    async fn compare_with(&self, old: &str, files_max: i64) -> Result<WorkspaceMatch, MoveError> {
        let mut read = self.ledger.read().await?;
        let mut matched = WorkspaceMatch::default();
        for path in revision::paths(&mut read, old, files_max).await? {
            let Some(last) = revision::latest(&mut read, old, &path).await? else { continue };
            let Some(hash) = last.after else { continue };
            matched.files += 1;
            // A file that cannot be read does not count as a match, nor does an empty one, which any workspace may
            // have.
            let Ok(location) = self.workspace.locate(&path) else { continue };
            let Ok(Some(here)) = self.read_current(&location).await else { continue };
            let now = *here.hash.as_bytes();
            if here.bytes.is_empty() {
                continue;
            }
            if now == hash {
                matched.same += 1;
            } else if revision::page(&mut read, old, &path, 0, i64::MAX >> 1)
                .await?
                .iter()
                .any(|r| r.after == Some(now))
            {
                matched.earlier += 1;
            }
        }
        Ok(matched)
    }
}
