//! Changes of files: recorded first, then made. The intent log behind `file_op` and rewinding.
//!
//! Each path is changed by one process at a time. The intent is committed with the content before and after, then the
//! file is replaced, then the outcome is committed. A change whose outcome a crash left open is settled by reading the
//! file. A change made by others is recorded as observed before ours.

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
use crate::ledger::event::EventKind;
use crate::ledger::revision::{Revision, RevisionSource};
use crate::ledger::session::{Caller, SessionError};
use crate::ledger::{Ledger, LedgerError};
use crate::workspace::{Workspace, WorkspaceError};

pub use edit::{EditError, TextEdit};

/// The default limit on files that are read or written: 10 MiB; their contents go into the ledger.
pub const FILE_BYTES_MAX: u64 = 10 << 20;

/// The files of one workspace, whose changes are recorded in the ledger.
#[derive(Clone, Debug)]
pub struct Files {
    ledger: Ledger,
    workspace: Workspace,
    /// The directory of the locks that keep two processes from changing one file at once.
    locks: PathBuf,
    bytes_max: u64,
}

/// What to do with a file.
#[derive(Clone, Debug)]
pub enum Action {
    /// Create it.
    Create(NewContent),
    /// Replace the content of an existing file.
    Edit(NewContent),
    /// Delete it.
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

    fn event_kind(&self) -> EventKind {
        match self {
            Self::Create(_) => EventKind::FileCreate,
            Self::Edit(_) => EventKind::FileEdit,
            Self::Delete => EventKind::FileDelete,
        }
    }
}

/// New content.
#[derive(Clone, Debug)]
pub enum NewContent {
    /// The whole content, byte for byte.
    Bytes(Vec<u8>),
    /// The whole content as text; the file keeps its line endings.
    Text(String),
    /// Passages to replace.
    Edits(Vec<TextEdit>),
}

/// A change of a file, to be made.
#[derive(Clone, Debug)]
pub struct Change {
    /// The session to record it in; none for the caller's own.
    pub session: Option<String>,
    /// The path, as it was given.
    pub path: String,
    /// What to do.
    pub action: Action,
    /// The content that must be there now; none if any will do.
    pub expected: Option<Hash>,
    /// The permission bits to set; none to keep or default them.
    pub mode: Option<u32>,
    /// For a rewind, the event to which the file goes back.
    pub rewinds_to: Option<i64>,
}

/// A change that was made.
#[derive(Clone, Debug)]
pub struct AppliedChange {
    /// The session.
    pub session_id: String,
    /// The event that records it.
    pub event_id: i64,
    /// The revision; none if nothing changed.
    pub revision: Option<Revision>,
    /// The path in the workspace.
    pub path: String,
    /// The content's hash; none if the file is gone.
    pub hash: Option<Hash>,
    /// The content's size in bytes.
    pub size: i64,
    /// Whether someone else had changed the file since it was last recorded.
    pub observed: bool,
}

/// Why a change was not made.
#[derive(Debug, Error)]
pub enum FileError {
    /// It is not allowed. The refusal is recorded.
    #[error("{message}")]
    Refused {
        /// A stable name for programs.
        code: &'static str,
        /// What is wrong.
        message: String,
        /// What to do.
        hint: &'static str,
        /// The event that records it.
        event_id: Option<i64>,
        /// The hash of what the file holds, if there is one.
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
    /// The intent was recorded and the file was handled, but the outcome could not be recorded.
    #[error("{path} {outcome}, but the ledger could not note that: {source}")]
    Unsettled {
        /// Which file.
        path: String,
        /// What became of it.
        outcome: &'static str,
        /// Why.
        source: LedgerError,
    },
    /// The task that makes the change panicked.
    #[error("the change was interrupted, and its outcome is not known yet")]
    Interrupted,
}

impl FileError {
    /// Returns what to do about it; none for session errors, which have their own hint.
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
    /// Joins a workspace with the ledger.
    #[must_use]
    pub fn new(ledger: Ledger, workspace: Workspace, locks: PathBuf, bytes_max: u64) -> Self {
        Self { ledger, workspace, locks, bytes_max }
    }

    /// Returns the root of the workspace, as revisions name it.
    #[must_use]
    pub fn root(&self) -> String {
        self.workspace.root().to_string_lossy().into_owned()
    }

    /// Records a change, then makes it. Completes even if the caller stops waiting.
    ///
    /// # Errors
    /// It was refused, and that was recorded; or it failed.
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
    /// The path is not in the workspace, and that was recorded; or the ledger failed.
    pub async fn report(
        self: &Arc<Self>,
        caller: &Caller,
        report: ChangeReport,
    ) -> Result<AppliedChange, FileError> {
        let (files, caller) = (self.clone(), caller.clone());
        let recording = tokio::spawn(async move { files.record_report(&caller, report).await });
        recording.await.unwrap_or(Err(FileError::Interrupted))
    }
}

/// A change that an agent says it made.
#[derive(Clone, Debug)]
pub struct ChangeReport {
    /// The session to record it in; none for the caller's own.
    pub session: Option<String>,
    /// The path, as it was given.
    pub path: String,
    /// What the agent did.
    pub action: ReportedAction,
}

/// What an agent says it did.
#[derive(Clone, Debug)]
pub enum ReportedAction {
    /// It created a file with this content; none for the content that is there now.
    Create(Option<String>),
    /// It replaced the first content by the second; none for the last recorded content, and for the one there now.
    Edit(Option<String>, Option<String>),
    /// It deleted a file.
    Delete,
}

impl ReportedAction {
    fn name(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Edit(..) => "edit",
            Self::Delete => "delete",
        }
    }

    fn event_kind(&self) -> EventKind {
        match self {
            Self::Create(_) => EventKind::FileCreate,
            Self::Edit(..) => EventKind::FileEdit,
            Self::Delete => EventKind::FileDelete,
        }
    }
}

/// A revision to be added.
struct RevisionDraft<'a> {
    path: &'a str,
    source: RevisionSource,
    before: Option<&'a [u8]>,
    after: Option<&'a [u8]>,
    counted: LineCount,
    mode: Option<u32>,
}
