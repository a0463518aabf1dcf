//! Locks paths, so that one change is made at a time: files in the data directory, locked while a change is made.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::{FileError, Files};
use scrubjay_tape::home::create_private_dir;

/// The number of lock files, which are never removed. Two paths may share one; then their changes wait for each other.
const LOCKS: u16 = 1024;
/// How often, and at what interval, a lock is tried: 20 seconds in all.
const LOCK_TRIES: u32 = 10_000;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

impl Files {
    /// Waits for the lock of a path. It is held until the returned file is dropped.
    pub(super) async fn lock_path(&self, path: &str) -> Result<File, FileError> {
        // Polled, because each blocking lock would occupy a thread.
        for _ in 0..LOCK_TRIES {
            if let Some(lock) = self.try_lock_path(path)? {
                return Ok(lock);
            }
            tokio::time::sleep(LOCK_PAUSE).await;
        }
        Err(FileError::Busy(path.to_owned()))
    }

    /// Takes the lock of a path if it is free.
    pub(super) fn try_lock_path(&self, path: &str) -> Result<Option<File>, FileError> {
        // The root belongs to it: two workspaces have files of the same path.
        let name = blake3::hash(format!("{}\0{path}", self.root()).as_bytes());
        // 65,536 is a multiple of `LOCKS`, so all numbers are equally likely.
        let number = u16::from_le_bytes([name.as_bytes()[0], name.as_bytes()[1]]) % LOCKS;
        let file_path = self.locks.join(format!("{number:03x}.lock"));
        let failed = |source| FileError::Lock { path: file_path.clone(), source };
        let file = open(&self.locks, &file_path).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(failed(e.into())),
        }
    }
}

fn open(directory: &Path, file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    match options.open(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            // The first change in this data directory.
            create_private_dir(directory)?;
            options.open(file)
        }
        other => other,
    }
}
