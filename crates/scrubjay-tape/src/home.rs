//! The data directory: where its files are, and how tapes are listed, found, opened and sealed.
//!
//! Tapes are `<data>/tapes/<when>-<id>.live|.tape`; their names sort by time. Many processes share one directory. Each
//! writes only its own files, and takes over another's only when the lock on it is free.

use std::fs::{DirBuilder, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use scrubjay_core::id::TapeId;
use thiserror::Error;

use crate::catalog;
use crate::claim::{Claim, ClaimHolder};
use crate::format::reader::{OpenError, Tape};
use crate::format::seal::{SealError, seal_or_finish};
use crate::format::writer::{create_private, lock_abandoned};

/// Shorter prefixes of an id match too many tapes to be meant.
const SHORT_ID_MIN: usize = 3;

/// A data directory.
#[derive(Clone, Debug)]
pub struct Home {
    root: PathBuf,
}

/// A tape in the data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapeFile {
    /// Its id.
    pub id: TapeId,
    /// Its file: the sealed one if both exist.
    pub path: PathBuf,
}

/// Why a tape cannot be found by its name.
#[derive(Debug, Error)]
pub enum FindError {
    /// The data directory has no tapes.
    #[error("there are no tapes in {0} yet: record one with `scrubjay wrap -- COMMAND`")]
    NoTapes(PathBuf),
    /// The name is too short.
    #[error("\"{0}\" is too short to name a tape: give at least {SHORT_ID_MIN} characters")]
    TooShort(String),
    /// No tape or session has that name.
    #[error("no tape or session is called \"{0}\": `scrubjay tape ls` lists them")]
    Unknown(String),
    /// Several tapes match.
    #[error("\"{0}\" matches several tapes ({1}): give more characters")]
    Ambiguous(String, String),
    /// The directory cannot be read.
    #[error("cannot read {path}")]
    Io {
        /// Which directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Creates a directory of mode 0700, whatever the umask.
pub fn create_private_dir(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    std::fs::set_permissions(directory, Permissions::from_mode(0o700))
}

impl Home {
    /// Names a data directory; nothing is created.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Returns the directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directory of the tapes.
    #[must_use]
    pub fn tapes(&self) -> PathBuf {
        self.root.join("tapes")
    }

    /// Returns the directory of the locks of files that are being changed.
    #[must_use]
    pub fn locks(&self) -> PathBuf {
        self.root.join("locks")
    }

    /// Returns the directory that caches the lists of each backend.
    #[must_use]
    pub fn backends(&self) -> PathBuf {
        self.root.join("backends")
    }

    /// Returns the directory of tool definitions: those that backends sent, and those that a person approved.
    #[must_use]
    pub fn definitions(&self) -> PathBuf {
        self.root.join("definitions")
    }

    /// Returns the directory in which connections claim their conversation.
    #[must_use]
    pub fn conversations(&self) -> PathBuf {
        self.root.join("conversations")
    }

    /// Returns the directory in which processes claim that they live.
    #[must_use]
    pub fn processes(&self) -> PathBuf {
        self.root.join("processes")
    }

    /// Tells whether the process that claimed a name lives.
    #[must_use]
    pub fn process(&self, name: &str) -> ClaimHolder {
        // The name may come from a shared database: it must not lead out of the directory.
        match name.parse::<TapeId>() {
            Ok(id) => Claim::holder(&self.processes(), id.as_str()),
            Err(_) => ClaimHolder::Unknown,
        }
    }

    /// Removes the claims of processes that are gone. Call it once nothing refers to them.
    pub fn forget_gone_processes(&self) {
        let directory = self.processes();
        // The next process tries again what fails here.
        for name in file_names(&directory).unwrap_or_default() {
            if Claim::holder(&directory, &name) == ClaimHolder::Gone {
                let _ = std::fs::remove_file(directory.join(name));
            }
        }
    }

    /// Returns the directory of the debug endpoints' tokens.
    #[must_use]
    pub fn debug(&self) -> PathBuf {
        self.root.join("debug")
    }

    /// Returns the path of the ledger's SQLite file.
    #[must_use]
    pub fn ledger(&self) -> PathBuf {
        self.root.join("ledger.db")
    }

    /// Returns the path of the index's SQLite file.
    #[must_use]
    pub fn index(&self) -> PathBuf {
        self.root.join("index.db")
    }

    /// Returns the key for this directory's keyed hashes; creates it on first use.
    ///
    /// # Errors
    /// It cannot be made or read.
    pub fn hash_key(&self) -> io::Result<[u8; 32]> {
        let path = self.root.join("hash.key");
        if !path.exists() {
            self.create()?;
            let mut key = [0; 32];
            getrandom::fill(&mut key).map_err(io::Error::other)?;
            let mut name = [0; 8];
            getrandom::fill(&mut name).map_err(io::Error::other)?;
            let temporary = self.root.join(format!("hash.key.{:016x}", u64::from_le_bytes(name)));
            let mut file = create_private(&temporary)?;
            file.write_all(&key)?;
            // Before it gets its name, so that a crash leaves no empty key.
            file.sync_all()?;
            // Several processes may do this at once: a hard link does not replace a file, so the first one wins.
            let linked = std::fs::hard_link(&temporary, &path);
            std::fs::remove_file(&temporary)?;
            linked.or_else(|e| if e.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })?;
        }
        let key = std::fs::read(&path)?;
        key.try_into().map_err(|_| io::Error::other(format!("{} is not a key of 32 bytes", path.display())))
    }

    /// Creates the directories with mode 0700.
    ///
    /// # Errors
    /// They cannot be created.
    pub fn create(&self) -> io::Result<()> {
        for directory in [self.root.clone(), self.tapes()] {
            if !directory.is_dir() {
                create_private_dir(&directory)?;
            }
        }
        Ok(())
    }

    /// Returns the directories to sync so that the name of a new tape survives a loss of power: theirs, and their
    /// parents'.
    pub(crate) fn directories_to_sync(&self) -> Vec<PathBuf> {
        let outside = self.root.parent().filter(|parent| !parent.as_os_str().is_empty());
        [self.tapes(), self.root.clone()].into_iter().chain(outside.map(Path::to_owned)).collect()
    }

    /// Returns the path of a new live tape.
    #[must_use]
    pub fn live_path(&self, id: TapeId, started_wall_ns: u64) -> PathBuf {
        self.tapes().join(format!("{:013}-{id}.live", started_wall_ns / 1_000_000))
    }

    /// Lists all tapes, newest first.
    ///
    /// # Errors
    /// The directory cannot be read. A missing directory holds no tapes.
    pub fn list(&self) -> Result<Vec<TapeFile>, FindError> {
        let directory = self.tapes();
        let failed = |source| FindError::Io { path: directory.clone(), source };
        // A tape that is sealed while the directory is read may be missed under both names. Reading twice finds it,
        // because it changes its name only once.
        let mut names = match file_names(&directory).and_then(|once| Ok((once, file_names(&directory)?))) {
            Ok((once, again)) => [once, again].concat(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed(e)),
        };
        // Of the two names of one tape ".tape" sorts behind ".live", so it comes first in this order.
        names.sort_unstable_by(|a, b| b.cmp(a));
        let mut tapes: Vec<TapeFile> = Vec::with_capacity(names.len());
        for name in names {
            if let Some(id) = tape_id(&name)
                && tapes.last().is_none_or(|last| last.id != id)
            {
                tapes.push(TapeFile { id, path: directory.join(&name) });
            }
        }
        Ok(tapes)
    }

    /// Finds a tape by its id, a prefix of it, its session, or `latest`: the newest conversation of a client.
    ///
    /// # Errors
    /// No tape matches, or several do.
    pub fn find(&self, name: &str) -> Result<TapeFile, FindError> {
        let tapes = self.list()?;
        if name == "latest" {
            return catalog::latest(self, tapes).ok_or_else(|| FindError::NoTapes(self.root.clone()));
        }
        if name.len() < SHORT_ID_MIN {
            return Err(FindError::TooShort(name.to_owned()));
        }
        let found: Vec<&TapeFile> = tapes.iter().filter(|t| t.id.as_str().starts_with(name)).collect();
        match found.as_slice() {
            [one] => Ok((*one).clone()),
            [] => catalog::newest_of_session(self, &tapes, name)
                .ok_or_else(|| FindError::Unknown(name.to_owned())),
            several => {
                let ids: Vec<&str> = several.iter().map(|t| t.id.as_str()).collect();
                Err(FindError::Ambiguous(name.to_owned(), ids.join(", ")))
            }
        }
    }

    /// Opens a tape, also if it is being sealed at this moment and changes its name.
    ///
    /// # Errors
    /// The file cannot be read or is damaged beyond opening.
    pub fn open(&self, file: &TapeFile) -> Result<Tape, OpenError> {
        // A file that another user put into the data directory is not our recording. (A file that a user names by its
        // path is opened by `Tape::open`.)
        if let Ok(facts) = std::fs::metadata(&file.path)
            && facts.uid() != rustix::process::geteuid().as_raw()
        {
            let source = io::Error::other(format!("it belongs to another user (uid {})", facts.uid()));
            return Err(OpenError::Io { path: file.path.clone(), source });
        }
        match Tape::open(&file.path) {
            Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Tape::open(&file.path.with_extension("tape"))
            }
            opened => opened,
        }
    }

    /// Seals every tape that a crash left behind, and removes what an interrupted sealing left.
    ///
    /// Returns the outcome for each. A tape whose writer lives is not touched.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn seal_abandoned(&self) -> io::Result<Vec<Result<PathBuf, SealError>>> {
        let directory = self.tapes();
        let names = match file_names(&directory) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            names => names?,
        };
        let mut outcomes = Vec::new();
        for name in names.iter().filter(|name| name.ends_with(".live") || name.ends_with(".new")) {
            let path = directory.join(name);
            // The lock is held while sealing, so that two processes never seal the same tape.
            let Ok(Some(_lock)) = lock_abandoned(&path) else { continue };
            if name.ends_with(".new") {
                // It was never renamed to `.live`, so nothing was recorded on it.
                let _ = std::fs::remove_file(&path);
            } else {
                let sealed = seal_or_finish(&path);
                if let Ok(sealed) = &sealed {
                    // Without the note a later connection only names no tape before it.
                    let _ = self.note_session_end(sealed);
                }
                outcomes.push(sealed);
            }
        }
        Ok(outcomes)
    }

    /// Removes the files of a tape.
    pub(crate) fn remove_files(&self, tape: &TapeFile) -> io::Result<()> {
        for extension in ["live", "tape", "damaged", "sealing"] {
            match std::fs::remove_file(tape.path.with_extension(extension)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }
}

fn file_names(directory: &Path) -> io::Result<Vec<String>> {
    std::fs::read_dir(directory)?
        .filter_map(|entry| entry.map(|e| e.file_name().into_string().ok()).transpose())
        .collect()
}

fn tape_id(name: &str) -> Option<TapeId> {
    let stem = name.strip_suffix(".tape").or_else(|| name.strip_suffix(".live"))?;
    stem.rsplit('-').next()?.parse().ok()
}

/// Returns when a tape began, according to its file's name.
pub(crate) fn started_wall_ms(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.split('-').next()?.parse().ok()
}
