//! A user's workspace: the only code that reads and writes its files on an agent's behalf.
//!
//! A path is parsed by its text alone, then opened beneath the handle of the root in one step; after that only
//! handles count. Changes are compared with what was expected and put in place whole. What is recorded of
//! them, when, and in which order is the ledger's affair: there is no SQL, tokio or clock here.

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

/// What a change that was made survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The end of the process.
    Process,
    /// The end of power: files and directories are synced.
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
    /// It must not be.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The system failed; nothing was changed.
    #[error("cannot {action} {}", shown(.path))]
    Io {
        /// What was tried.
        action: &'static str,
        /// The path in the workspace, or the root.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The change was made, but may not survive a loss of power.
    #[error("{} was changed, but the disk did not confirm it: check the disk, and read the file again", shown(.path))]
    Unsynced {
        /// The path in the workspace.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// Someone else changed the file in the moment it was being changed, and their file could not be put back.
    #[error("{} was changed by someone else in the same moment: their file is {temporary}, beside it", shown(.path))]
    Stranded {
        /// The path in the workspace.
        path: String,
        /// The name under which the other's file lies in the same directory.
        temporary: String,
        /// What the system said.
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
    /// Says that a file is missing, or that everything is.
    fn missing(&self, path: &str) -> WorkspaceError {
        match self.is_gone() {
            true => WorkspaceError::Gone(self.given.clone()),
            false => Refusal::Missing { path: path.to_owned() }.into(),
        }
    }
}

impl Workspace {
    /// Opens a workspace. The directory is held from now on, wherever it is moved.
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

    /// Opens names one beneath the other, as is done on a kernel that cannot resolve a path in one step.
    #[must_use]
    pub fn step_by_step(mut self) -> Self {
        if let Some(root) = Arc::get_mut(&mut self.root) {
            root.walk_only();
        }
        self
    }

    /// Returns where the workspace was when it was opened.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root.canonical
    }

    /// Finds the normal form of a path: relative to the root, or absolute and below it.
    ///
    /// # Errors
    /// It is no path of a file, leads outside, or is protected.
    pub fn locate(&self, path: &str) -> Result<FilePath, Refusal> {
        path::parse(path, &[&self.root.given, &self.root.canonical], self.allow_vcs)
    }

    /// Reads a file; `None` if there is none.
    ///
    /// # Errors
    /// It is not a regular file, is too large, or cannot be read.
    pub fn read(&self, path: &FilePath, bytes_max: u64) -> Result<Option<FileSnapshot>, WorkspaceError> {
        let shown = path.as_str();
        for flags in [content::LOOK, content::READ] {
            let Some(handle) = content::opened(self.root.open_beneath(shown, flags), shown)? else { break };
            let stat = content::regular(&handle, shown)?;
            if flags == content::READ {
                return content::read(handle, &stat, shown, bytes_max).map(Some);
            }
        }
        match self.root.is_gone() {
            true => Err(WorkspaceError::Gone(self.root.given.clone())),
            false => Ok(None),
        }
    }

    /// Writes new content beside a file, making its directories; [`Staged::commit`] puts it in place.
    ///
    /// The mode is the one given, else that of the file replaced, else what the umask leaves of 0666; bits
    /// that let a file run as someone else are not kept. Owner and group are kept, or the change is refused.
    /// A file with several names (hard links) is replaced under this one alone, as git does it: writing
    /// through to the others could change a file outside the workspace.
    ///
    /// # Errors
    /// Something else stands there or on the way, or it cannot be written; nothing is left behind.
    pub fn stage(&self, path: &FilePath, bytes: &[u8], mode: Option<u32>) -> Result<Staged, WorkspaceError> {
        Staged::write(self.root.clone(), path.clone(), self.durability, bytes, mode)
    }

    /// Removes a file of the expected content.
    ///
    /// # Errors
    /// It is missing, changed or not a regular file, or cannot be removed.
    pub fn remove(&self, path: &FilePath, expected: Hash) -> Result<(), WorkspaceError> {
        staged::remove(&self.root, path, self.durability, expected)
    }

    /// Makes sure that a change which was found to be made survives what changes survive here.
    ///
    /// # Errors
    /// It is not known whether it does.
    pub fn confirm(&self, path: &FilePath) -> Result<(), WorkspaceError> {
        match self.durability {
            Durability::Power => staged::sync_as_it_stands(&self.root, path),
            Durability::Process => Ok(()),
        }
    }

    /// Removes the temporary files that a crash left beside a file, if no process holds them and their content
    /// is known; another may hold what someone else wrote in the last moment. Returns how many.
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
            // What is no directory of the workspace any more holds nothing of ours.
            Ok(None) | Err(WorkspaceError::Refused(_)) => return Ok(0),
            Err(e) => return Err(e),
        };
        staged::lock(&self.root, &directory, path)?;
        temporary::sweep(&directory, bytes_max, is_known)
            .map_err(|e| WorkspaceError::io("clear up in", name, e))
    }
}
