//! A user's workspace. Only this code reads and writes its files on an agent's behalf.
//!
//! A path is parsed from its text, then opened beneath the root's handle in one step; afterwards only handles are used.
//! A change is made only if the file has the expected content, and replaces the file as a whole. `files.rs` records
//! changes: here is no SQL, tokio or clock.

mod content;
mod path;
mod refusal;
mod resolve;
mod staged;
mod temporary;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blake3::Hash;
use thiserror::Error;

pub use self::content::FileSnapshot;
pub use self::path::FilePath;
pub use self::refusal::{NotFileKind, Refusal};
pub use self::staged::{ExpectedContent, Staged};

use self::refusal::shown;
use self::resolve::Root;

/// What a completed change survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The end of the process.
    Process,
    /// A loss of power: files and directories are synced.
    #[default]
    Power,
}

/// A directory beneath which files are read and written.
#[derive(Clone, Debug)]
pub struct Workspace {
    root: Arc<Root>,
    allow_vcs: bool,
    durability: Durability,
}

/// Why a file was not read or changed.
#[derive(Debug, Error)]
pub enum WorkspaceError {
    /// The operation is not allowed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The system failed; nothing was changed.
    #[error("cannot {action} {}", shown(.path))]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The path in the workspace, or the root.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The change was made, but may not survive a loss of power.
    #[error("{} was changed, but the disk did not confirm it: check the disk, and read the file again", shown(.path))]
    Unsynced {
        /// The path in the workspace.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
    /// Another program changed the file at the same moment, and its version could not be put back.
    #[error("{} was changed by another program at the same time: its version is beside it, in {temporary}", shown(.path))]
    Stranded {
        /// The path in the workspace.
        path: String,
        /// The name of the other program's version, in the same directory.
        temporary: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The directory was removed, or replaced by another of its name.
    #[error("the workspace {} was removed since it was opened: start again in the new one", shown(&.0.to_string_lossy()))]
    Gone(PathBuf),
}

impl WorkspaceError {
    fn io(action: &'static str, path: &str, source: impl Into<io::Error>) -> Self {
        Self::Io { action, path: path.to_owned(), source: source.into() }
    }
}

impl Root {
    /// Returns the error that a file, or the whole workspace, is missing.
    fn missing(&self, path: &str) -> WorkspaceError {
        match self.is_gone() {
            true => WorkspaceError::Gone(self.given.clone()),
            false => Refusal::Missing { path: path.to_owned() }.into(),
        }
    }
}

impl Workspace {
    /// Opens a workspace. Its handle stays valid if the directory is moved.
    ///
    /// # Errors
    /// There is no such directory, or it cannot be opened.
    pub fn open(root: &Path) -> Result<Self, WorkspaceError> {
        let opened = Root::open(root);
        let root =
            opened.map_err(|e| WorkspaceError::io("open the workspace", &root.to_string_lossy(), e))?;
        Ok(Self { root: Arc::new(root), allow_vcs: false, durability: Durability::default() })
    }

    /// Sets whether files of version control systems may be read and written.
    #[must_use]
    pub fn allow_vcs(self, allow_vcs: bool) -> Self {
        Self { allow_vcs, ..self }
    }

    /// Sets what a change survives.
    #[must_use]
    pub fn durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// Opens paths name by name, as on a kernel without `openat2`. For tests.
    #[must_use]
    pub fn step_by_step(mut self) -> Self {
        if let Some(root) = Arc::get_mut(&mut self.root) {
            root.open_by_name();
        }
        self
    }

    /// Returns the path of the workspace when it was opened.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root.canonical
    }

    /// Normalizes a path that is relative to the root, or absolute and below it.
    ///
    /// # Errors
    /// It is not the path of a file, leads outside, or is protected.
    pub fn locate(&self, path: &str) -> Result<FilePath, Refusal> {
        // Agents use the root as the user gave it, or with its links resolved.
        path::parse(path, &[&self.root.given, &self.root.canonical], self.allow_vcs)
    }

    /// Reads a file; `None` if it does not exist.
    ///
    /// # Errors
    /// It is not a regular file, is too large, or cannot be read.
    pub fn read(&self, path: &FilePath, bytes_max: u64) -> Result<Option<FileSnapshot>, WorkspaceError> {
        let shown = path.as_str();
        // Opened with O_PATH and checked first, because opening a pipe or a device can block or have effects.
        for flags in [content::INSPECT, content::READ] {
            let Some(handle) = content::opened(self.root.open_beneath(shown, flags), shown)? else { break };
            let stat = content::regular(&handle, shown)?;
            if flags == content::READ {
                return content::read(handle, &stat, shown, bytes_max).map(Some);
            }
        }
        // A missing file and a removed workspace fail with the same ENOENT.
        match self.root.is_gone() {
            true => Err(WorkspaceError::Gone(self.root.given.clone())),
            false => Ok(None),
        }
    }

    /// Writes new content to a temporary file beside the target, creating directories; [`Staged::commit`] replaces the
    /// target.
    ///
    /// The mode is `mode`, else that of the replaced file, else 0666 without the umask; setuid, setgid and sticky bits
    /// are dropped. If owner and group cannot be kept, the change is refused. A file with hard links is replaced under
    /// this name only, as git does: writing through to the others could change a file outside the workspace.
    ///
    /// # Errors
    /// The path names or leads through something else, or the file cannot be written; nothing is left behind.
    pub fn stage(&self, path: &FilePath, bytes: &[u8], mode: Option<u32>) -> Result<Staged, WorkspaceError> {
        Staged::write(self.root.clone(), path.clone(), self.durability, bytes, mode)
    }

    /// Removes a file if it has the expected content.
    ///
    /// # Errors
    /// It is missing, changed or not a regular file, or cannot be removed.
    pub fn remove(&self, path: &FilePath, expected: Hash) -> Result<(), WorkspaceError> {
        staged::remove(&self.root, path, self.durability, expected)
    }

    /// Makes a change that was found in the file as durable as one that was made here.
    ///
    /// # Errors
    /// The sync failed.
    pub fn confirm(&self, path: &FilePath) -> Result<(), WorkspaceError> {
        match self.durability {
            Durability::Power => staged::sync_current(&self.root, path),
            Durability::Process => Ok(()),
        }
    }

    /// Removes temporary files that a crash left beside a file, if no process has locked them and the ledger knows
    /// their content: an unknown one may be what another program wrote at the last moment. Returns how many were
    /// removed.
    ///
    /// # Errors
    /// The directory is locked or cannot be read.
    pub fn sweep_temporaries(
        &self,
        path: &FilePath,
        bytes_max: u64,
        is_known: &dyn Fn(&[u8]) -> bool,
    ) -> Result<usize, WorkspaceError> {
        let name = path.directory();
        let directory = match content::opened(self.root.directory(name), name) {
            Ok(Some(directory)) => directory,
            // It is not a directory of the workspace any more, so no temporary file of ours is in it.
            Ok(None) | Err(WorkspaceError::Refused(_)) => return Ok(0),
            Err(e) => return Err(e),
        };
        // While it is held, no change of ours is between its exchange and its check, when the temporary name is the
        // user's file.
        staged::lock(&self.root, &directory, path)?;
        temporary::sweep(&directory, bytes_max, is_known)
            .map_err(|e| WorkspaceError::io("clear up in", name, e))
    }
}
