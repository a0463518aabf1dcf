//! Changes of files: recorded first, then made. The intent log behind `file_op` and rewinding.
//!
//! One change at a time for each path, whichever process makes it: the intent is committed with what was there
//! and what will be, the file is put in place, the outcome is committed. What a crash leaves open is settled
//! by looking at the file. A change made behind our back is recorded as observed before ours.

mod apply;
mod edit;
mod lock;
pub mod moved;
mod refuse;
mod report;
pub mod rewind;
mod settle;

use std::path::PathBuf;
use std::sync::Arc;

use scrubjay_core::diff::LineCount;
use thiserror::Error;

use crate::ledger::blob::Hash;
use crate::ledger::revision::{Revision, RevisionSource};
use crate::ledger::session::{Caller, SessionError};
use crate::ledger::{Ledger, LedgerError};
use crate::workspace::{Workspace, WorkspaceError};

pub use edit::{EditError, TextEdit};

/// The largest file that is read or written, where nobody says otherwise.
pub const FILE_BYTES_MAX: u64 = 10 << 20;

/// The files of one workspace, as the ledger knows them.
#[derive(Clone, Debug)]
pub struct Files {
    ledger: Ledger,
    workspace: Workspace,
    /// The directory of the locks that keep two processes from changing one file at once.
    locks: PathBuf,
    bytes_max: u64,
}

/// What is to become of a file.
#[derive(Clone, Debug)]
pub enum Action {
    /// A new file.
    Create(NewContent),
    /// New content for a file that is there.
    Edit(NewContent),
    /// No file.
    Delete,
}

impl Action {
    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Edit(_) => "edit",
            Self::Delete => "delete",
        }
    }
}

/// New content.
#[derive(Clone, Debug)]
pub enum NewContent {
    /// All of it, byte for byte.
    Bytes(Vec<u8>),
    /// All of it; the file keeps its line endings.
    Text(String),
    /// What to replace.
    Edits(Vec<TextEdit>),
}

/// A change that is wanted.
#[derive(Clone, Debug)]
pub struct Change {
    /// The session, where it is named.
    pub session: Option<String>,
    /// Where.
    pub path: String,
    /// What.
    pub action: Action,
    /// What must be there now, where that matters.
    pub expected: Option<Hash>,
    /// The permission bits it gets, where they are known.
    pub mode: Option<u32>,
    /// The event to which the file goes back, where it does.
    pub rewinds_to: Option<i64>,
}

/// A change that was made.
#[derive(Clone, Debug)]
pub struct AppliedChange {
    /// In which session.
    pub session_id: String,
    /// The event that tells of it.
    pub event_id: i64,
    /// The revision; none where nothing changed.
    pub revision: Option<Revision>,
    /// The path in the workspace.
    pub path: String,
    /// What is there now.
    pub hash: Option<Hash>,
    /// How many bytes that has.
    pub size: i64,
    /// Whether someone else had changed the file since it was last seen.
    pub observed: bool,
}

/// Why a change was not made.
#[derive(Debug, Error)]
pub enum FileError {
    /// It must not be made. The refusal is recorded.
    #[error("{message}")]
    Refused {
        /// A name programs can rely on.
        code: &'static str,
        /// What is wrong.
        message: String,
        /// What to do.
        hint: &'static str,
        /// The event that tells of it.
        event_id: Option<i64>,
        /// What the file holds, where that helps.
        found: Option<Hash>,
    },
    /// The session cannot be used.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The system failed.
    #[error("{0}")]
    Workspace(#[source] WorkspaceError),
    /// Another process has been changing the same file for too long.
    #[error("another process is changing {0}")]
    Busy(String),
    /// The locks cannot be used.
    #[error("cannot use the lock {path}: {source}")]
    Lock {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The change was recorded and the file dealt with, but the ledger took no note of how it went.
    #[error("{path} {became}, but the ledger could not note that: {source}")]
    Unsettled {
        /// Which file.
        path: String,
        /// What became of it.
        became: &'static str,
        /// Why.
        source: LedgerError,
    },
    /// The task that makes changes died.
    #[error("the change was interrupted, and its outcome is not known yet")]
    Interrupted,
}

impl FileError {
    /// Returns what to do about it; nothing where its session says that.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Refused { hint, .. } => Some(hint),
            Self::Session(_) => None,
            Self::Workspace(_) => Some("Read the file to see what it holds, then try again."),
            Self::Busy(_) => Some("Try again."),
            Self::Lock { .. } => Some("Check that the data directory can be written."),
            Self::Ledger(error) => Some(error.hint()),
            Self::Unsettled { .. } => {
                Some("It is noted when the file or its session is next looked at. Read the file, then go on.")
            }
            Self::Interrupted => Some("Read the file, then try again."),
        }
    }
}

impl Files {
    /// Puts a workspace under the ledger's eyes.
    #[must_use]
    pub fn new(ledger: Ledger, workspace: Workspace, locks: PathBuf, bytes_max: u64) -> Self {
        Self { ledger, workspace, locks, bytes_max }
    }

    /// Returns the root of the workspace, as revisions name it.
    #[must_use]
    pub fn root(&self) -> String {
        self.workspace.root().to_string_lossy().into_owned()
    }

    /// Makes a change: recorded, then done. Goes on to its end even if the caller does not wait for it.
    ///
    /// # Errors
    /// It was refused, which is recorded, or it failed.
    pub async fn change(
        self: &Arc<Self>,
        caller: &Caller,
        change: Change,
    ) -> Result<AppliedChange, FileError> {
        let (files, caller) = (self.clone(), caller.clone());
        let making = tokio::spawn(async move { files.apply(&caller, change).await });
        making.await.unwrap_or(Err(FileError::Interrupted))
    }

    /// Records a change that an agent says it made by other means.
    ///
    /// # Errors
    /// The path is none of the workspace, which is recorded, or the ledger failed.
    pub async fn report(
        self: &Arc<Self>,
        caller: &Caller,
        report: ChangeReport,
    ) -> Result<AppliedChange, FileError> {
        let (files, caller) = (self.clone(), caller.clone());
        let telling = tokio::spawn(async move { files.record_report(&caller, report).await });
        telling.await.unwrap_or(Err(FileError::Interrupted))
    }
}

/// A change that an agent says it made.
#[derive(Clone, Debug)]
pub struct ChangeReport {
    /// The session, where it is named.
    pub session: Option<String>,
    /// Where.
    pub path: String,
    /// create, edit or delete.
    pub action: ReportedAction,
}

/// What an agent says it did.
#[derive(Clone, Debug)]
pub enum ReportedAction {
    /// It created a file of this content, or of the one that is there now.
    Create(Option<String>),
    /// It replaced the first content by the second; where it does not say them, those known and found.
    Edit(Option<String>, Option<String>),
    /// It deleted a file.
    Delete,
}

/// What a revision is made of.
struct RevisionDraft<'a> {
    path: &'a str,
    source: RevisionSource,
    before: Option<&'a [u8]>,
    after: Option<&'a [u8]>,
    counted: LineCount,
    mode: Option<u32>,
}
