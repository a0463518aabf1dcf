//! Refusals of a workspace, each with a stable code and a hint.
//!
//! A refusal is a decision of policy, which is recorded and returned to the agent; a failure of the system is an I/O
//! error instead. Paths in messages are inert and shortened, because they come from an agent.

use rustix::fs::FileType;
use scrubjay_core::shorten::shortened_inert;
use thiserror::Error;

/// The most characters of a path in a message: enough to recognise it.
const SHOWN_MAX: usize = 200;

/// What was found instead of a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFileKind {
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character or block device.
    Device,
    /// Something else.
    Other,
}

impl NotFileKind {
    /// Returns the kind; `None` for a regular file.
    pub(super) fn of(file_type: FileType) -> Option<Self> {
        match file_type {
            FileType::RegularFile => None,
            FileType::Directory => Some(Self::Directory),
            FileType::Symlink => Some(Self::Symlink),
            FileType::Fifo => Some(Self::Fifo),
            FileType::Socket => Some(Self::Socket),
            FileType::CharacterDevice | FileType::BlockDevice => Some(Self::Device),
            FileType::Unknown => Some(Self::Other),
        }
    }

    /// Returns its name in a sentence.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Directory => "a directory",
            Self::Symlink => "a symbolic link",
            Self::Fifo => "a named pipe",
            Self::Socket => "a socket",
            Self::Device => "a device",
            Self::Other => "something else",
        }
    }
}

/// Why a workspace refuses an operation.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// The text is not the path of a file.
    #[error("\"{}\" is not a path of a file: {reason}", shown(.path))]
    BadPath {
        /// As it was given.
        path: String,
        /// What is wrong.
        reason: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// It leads out of the workspace.
    #[error("\"{}\" is outside the workspace", shown(.path))]
    Outside {
        /// As it was given.
        path: String,
    },
    /// It belongs to a version control system, or to Scrubjay.
    #[error("\"{}\" is protected: {reason}", shown(.path))]
    Protected {
        /// As it was given.
        path: String,
        /// Whose it is.
        reason: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// It is, or leads through, a symbolic link.
    #[error("\"{}\" is, or leads through, a symbolic link", shown(.path))]
    Symlink {
        /// The path in the workspace.
        path: String,
    },
    /// It exists, but is not a regular file.
    #[error("\"{}\" is {}, not a regular file", shown(.path), .kind.as_str())]
    NotAFile {
        /// The path in the workspace.
        path: String,
        /// What it is.
        kind: NotFileKind,
    },
    /// A directory of the path is a file.
    #[error("\"{}\" leads through something that is not a directory", shown(.path))]
    NotADirectory {
        /// The path in the workspace.
        path: String,
    },
    /// It is over the limit.
    #[error("\"{}\" has {bytes} bytes or more; at most {bytes_max} are accepted", shown(.path))]
    TooLarge {
        /// The path in the workspace.
        path: String,
        /// How large it is at least.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// It was to be created, and exists.
    #[error("\"{}\" exists already", shown(.path))]
    Exists {
        /// The path in the workspace.
        path: String,
    },
    /// It was to be changed, and does not exist.
    #[error("\"{}\" does not exist", shown(.path))]
    Missing {
        /// The path in the workspace.
        path: String,
    },
    /// It is not as expected any more.
    #[error("\"{}\" was changed by someone else", shown(.path))]
    Changed {
        /// The path in the workspace.
        path: String,
    },
    /// Another program holds the directory's lock.
    #[error("the directory of \"{}\" is locked by another program", shown(.path))]
    Busy {
        /// The path in the workspace.
        path: String,
    },
    /// Replacing it would change its owner or group.
    #[error(
        "\"{}\" belongs to another user or group, which this change could not keep",
        shown(.path)
    )]
    OtherOwner {
        /// The path in the workspace.
        path: String,
    },
}

impl Refusal {
    /// Returns the stable code of the reason.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::BadPath { .. } => "bad_path",
            Self::Outside { .. } => "outside_workspace",
            Self::Protected { .. } => "protected_path",
            Self::Symlink { .. } => "symlink",
            Self::NotAFile { .. } => "not_a_regular_file",
            Self::NotADirectory { .. } => "not_a_directory",
            Self::TooLarge { .. } => "too_large",
            Self::Exists { .. } => "exists",
            Self::Missing { .. } => "missing",
            Self::Changed { .. } => "changed",
            Self::Busy { .. } => "busy",
            Self::OtherOwner { .. } => "other_owner",
        }
    }

    /// Returns what to do instead.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::BadPath { hint, .. } | Self::Protected { hint, .. } => hint,
            Self::Outside { .. } => "Give a path relative to the workspace's root.",
            Self::Symlink { .. } => "Name the file it points to.",
            Self::NotAFile { .. } => "Name a file.",
            Self::NotADirectory { .. } => "Check the path.",
            Self::TooLarge { .. } => "Nothing was changed. Write it by other means, or in smaller files.",
            Self::Exists { .. } => "Read it, and change it with action edit instead.",
            Self::Missing { .. } => "Check the path, or create it with action create.",
            Self::Changed { .. } => "Read it again, and repeat the change.",
            Self::Busy { .. } => "Try again.",
            Self::OtherOwner { .. } => "Change its owner first.",
        }
    }
}

/// Returns a path for messages: inert, and shortened.
pub(super) fn shown(path: &str) -> String {
    shortened_inert(path, SHOWN_MAX)
}
