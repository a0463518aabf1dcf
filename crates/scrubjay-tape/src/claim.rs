//! Claim files: a process holds a lock on one for as long as it lives.
//!
//! The kernel frees the lock however the process ends, also after `kill -9`, so no other process ever has to guess from
//! a pid or a clock.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::format::writer::{is_at, lock_abandoned};
use crate::home::create_private_dir;

/// A claim file that this process holds; dropping it removes the file.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    /// Holds the lock.
    _file: File,
}

/// Whether the process that made a claim still lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimHolder {
    /// It lives.
    Alive,
    /// It has ended, and left its file behind.
    Gone,
    /// There is no such file: it was released, or the process uses another data directory.
    Unknown,
}

impl Claim {
    /// Claims a name in a directory; `None` if another process holds it.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn take(directory: &Path, name: &str, content: &str) -> io::Result<Option<Self>> {
        create_private_dir(directory)?;
        let path = directory.join(name);
        loop {
            // Not truncated before the lock is taken: the content belongs to a holder that may live.
            let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Its holder may have removed the file between the open and the lock.
                Ok(()) if !is_at(&file, &path)? => {}
                Ok(()) => {
                    file.set_len(0)?;
                    file.write_all(content.as_bytes())?;
                    return Ok(Some(Self { path, _file: file }));
                }
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Tells whether the holder of a name in a directory lives.
    #[must_use]
    pub fn holder(directory: &Path, name: &str) -> ClaimHolder {
        match lock_abandoned(&directory.join(name)) {
            Ok(Some(_)) => ClaimHolder::Gone,
            Ok(None) => ClaimHolder::Alive,
            Err(_) => ClaimHolder::Unknown,
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Removed before the lock is freed, so that the next claim makes a new file. A file that stays is unlocked,
        // which counts as gone.
        let _ = std::fs::remove_file(&self.path);
    }
}
