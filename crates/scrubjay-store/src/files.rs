//! Changes of files are recorded first, then made: the intent log behind `file_op` and rewinding.
//!
//! One process at a time changes a path. The intent is committed with the content before and after, then the file is
//! replaced, then the outcome is committed. If a crash leaves the outcome open, the change is settled by reading the
//! file. A change that others made is recorded as observed, before ours.

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

/// The default size limit of files that are read or written: 10 MiB, because every content is stored in the ledger.
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
    /// The session to record it in; `None` for the caller's own.
    pub session: Option<String>,
    /// The path, as the caller gave it.
    pub path: String,
    /// What to do.
    pub action: Action,
    /// The hash that the file must have now; `None` for any content.
    pub expected: Option<Hash>,
    /// The permission bits to set; `None` to keep them, or for the default of a new file.
    pub mode: Option<u32>,
    /// In a rewind, the event to whose state the file goes back.
    pub rewinds_to: Option<i64>,
}

/// A change that was made.
#[derive(Clone, Debug)]
pub struct AppliedChange {
    /// The session.
    pub session_id: String,
    /// The event that records it.
    pub event_id: i64,
    /// The revision; `None` if nothing changed.
    pub revision: Option<Revision>,
    /// The path in the workspace.
    pub path: String,
    /// The content's hash; `None` if the file is gone.
    pub hash: Option<Hash>,
    /// The content's size in bytes.
    pub size: i64,
    /// Whether someone else had changed the file since it was last recorded.
    pub observed: bool,
}

/// Why a change was not made.
#[derive(Debug, Error)]
pub enum FileError {
    /// The change is not allowed. The refusal is recorded.
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
        /// The hash of the file's current content, if the file exists.
        found: Option<Hash>,
    },
    /// The session cannot be used.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The file could not be read or changed.
    #[error("{0}")]
    Workspace(#[source] WorkspaceError),
    /// Another process has been changing the same file for too long.
    #[error("another process is changing {0}")]
    Busy(String),
    /// A lock file cannot be created or locked.
    #[error("cannot use the lock {path}: {source}")]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The intent was recorded and the file was handled, but the outcome could not be recorded.
    #[error("{path} {outcome}, but the ledger could not record that: {source}")]
    Unsettled {
        /// The file.
        path: String,
        /// What happened to it.
        outcome: &'static str,
        /// The error of the ledger.
        source: LedgerError,
    },
    /// The task that makes the change panicked.
    #[error("the change was interrupted, and its outcome is not known yet")]
    Interrupted,
}

impl FileError {
    /// Returns what to do about it; `None` for session errors, which have their own hint.
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
                Some("It is recorded when the file or its session is next read. Read the file, then go on.")
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

    /// Records a change, then makes it.
    ///
    /// # Errors
    /// It was refused, and that was recorded; or it failed.
    pub async fn change(
        self: &Arc<Self>,
        caller: &Caller,
        change: Change,
    ) -> Result<AppliedChange, FileError> {
        let (files, caller) = (self.clone(), caller.clone());
        // In a task of its own, so that a change is completed even if the caller stops waiting for it.
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
        // As in `change`.
        let recording = tokio::spawn(async move { files.record_report(&caller, report).await });
        recording.await.unwrap_or(Err(FileError::Interrupted))
    }
}

/// A change that an agent says it made.
#[derive(Clone, Debug)]
pub struct ChangeReport {
    /// The session to record it in; `None` for the caller's own.
    pub session: Option<String>,
    /// The path, as the caller gave it.
    pub path: String,
    /// What the agent did.
    pub action: ReportedAction,
}

/// What an agent says it did.
#[derive(Clone, Debug)]
pub enum ReportedAction {
    /// It created a file with this content; `None` for the file's current content.
    Create(Option<String>),
    /// It replaced the first content by the second; `None` for the last recorded content, and for the file's current
    /// one.
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
