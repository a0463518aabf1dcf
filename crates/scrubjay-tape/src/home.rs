//! The data directory: which files are where, and who may read them.
//!
//! `<data>/tapes/<when>-<id>.live|.tape`. Names sort by time. Many processes share one directory; each
//! writes only files of its own, and takes over another's only when its lock is free.

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

/// Fewer characters than this name no tape.
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
    /// Its file: the sealed one where both are there.
    pub path: PathBuf,
}

/// Why a name leads to no tape.
#[derive(Debug, Error)]
pub enum FindError {
    /// There are none at all.
    #[error("there are no tapes in {0} yet: record one with `scrubjay wrap -- COMMAND`")]
    NoTapes(PathBuf),
    /// It could be almost any.
    #[error("\"{0}\" is too short to name a tape: give at least {SHORT_ID_MIN} characters")]
    TooShort(String),
    /// None has that id.
    #[error("no tape or session is called \"{0}\": `scrubjay tape ls` lists them")]
    Unknown(String),
    /// Several have it.
    #[error("\"{0}\" fits several tapes ({1}): give more characters")]
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

/// Creates a directory that its owner alone may enter, whatever the umask.
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

    /// Returns where it is kept what backends offered the last time.
    #[must_use]
    pub fn backends(&self) -> PathBuf {
        self.root.join("backends")
    }

    /// Returns where it is kept what backends said of their tools, and what of it a person approved.
    #[must_use]
    pub fn definitions(&self) -> PathBuf {
        self.root.join("definitions")
    }

    /// Returns the directory in which connections show which conversation they belong to.
    #[must_use]
    pub fn conversations(&self) -> PathBuf {
        self.root.join("conversations")
    }

    /// Returns the directory in which processes show that they live.
    #[must_use]
    pub fn processes(&self) -> PathBuf {
        self.root.join("processes")
    }

    /// Tells whether a process lives that claimed a name here.
    #[must_use]
    pub fn process(&self, name: &str) -> ClaimHolder {
        // A name from a shared database must not lead out of the directory.
        match name.parse::<TapeId>() {
            Ok(id) => Claim::holder(&self.processes(), id.as_str()),
            Err(_) => ClaimHolder::Unknown,
        }
    }

    /// Removes what processes that are gone left to show that they live; to be called once nothing refers to it.
    pub fn forget_gone_processes(&self) {
        let directory = self.processes();
        // What stays is looked at again by the next process.
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

    /// Returns the file of the ledger, where it is a file.
    #[must_use]
    pub fn ledger(&self) -> PathBuf {
        self.root.join("ledger.db")
    }

    /// Returns the file of the index.
    #[must_use]
    pub fn index(&self) -> PathBuf {
        self.root.join("index.db")
    }

    /// Returns the key of this directory's hashes; makes it when first asked.
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
            let nascent = self.root.join(format!("hash.key.{:016x}", u64::from_le_bytes(name)));
            let mut file = create_private(&nascent)?;
            file.write_all(&key)?;
            file.sync_all()?;
            // Of several who make one at once the first wins; a link replaces nothing.
            let linked = std::fs::hard_link(&nascent, &path);
            std::fs::remove_file(&nascent)?;
            linked.or_else(|e| if e.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })?;
        }
        let key = std::fs::read(&path)?;
        key.try_into().map_err(|_| io::Error::other(format!("{} is not a key of 32 bytes", path.display())))
    }

    /// Creates the directories, readable by their owner alone.
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

    /// Returns the directories that hold the name of a new tape, and the names of those directories.
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
    /// The directory cannot be read; one that is not there holds no tapes.
    pub fn list(&self) -> Result<Vec<TapeFile>, FindError> {
        let directory = self.tapes();
        let failed = |source| FindError::Io { path: directory.clone(), source };
        // A tape that is sealed while the directory is read may be passed by under both names. Read twice, it is
        // met once: it changes its name only once.
        let mut names = match file_names(&directory).and_then(|once| Ok((once, file_names(&directory)?))) {
            Ok((once, again)) => [once, again].concat(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed(e)),
        };
        // Of two names of one tape, ".tape" sorts behind ".live": newest first meets it first.
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

    /// Finds a tape by its id, the beginning of it, or `latest`: the newest conversation of a client.
    ///
    /// # Errors
    /// No tape fits, or several do.
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

    /// Opens a tape; one that is sealed at this moment is found under its new name.
    ///
    /// # Errors
    /// The file cannot be read or is damaged beyond opening.
    pub fn open(&self, file: &TapeFile) -> Result<Tape, OpenError> {
        // What somebody else put here is nobody's recording. A file that was named by its path is another matter.
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

    /// Seals every tape that a crash left behind, and clears what an interrupted sealing left.
    ///
    /// Returns how each went. A tape whose writer lives is not touched.
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
                // Never had a name: nothing was recorded on it.
                let _ = std::fs::remove_file(&path);
            } else {
                let sealed = seal_or_finish(&path);
                if let Ok(sealed) = &sealed {
                    // Without the note a later connection names no tape before it, which harms nothing else.
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

/// Returns when a tape began, as its file's name says.
pub(crate) fn started_wall_ms(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.split('-').next()?.parse().ok()
}
