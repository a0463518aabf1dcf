//! Files that show that a process lives: locked by it, free as soon as it is gone, however it went.
//!
//! A lock goes with its process, also after `kill -9`, so no other process ever has to guess from a pid or a clock.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::format::writer::{is_at, lock_abandoned};
use crate::home::create_private_dir;

/// A file that this process holds; it is removed when dropped.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    /// Holds the lock.
    _file: File,
}

/// Who holds a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimHolder {
    /// A process that lives.
    Alive,
    /// A process that is gone.
    Gone,
    /// No such file here: released, or of another data directory.
    Unknown,
}

impl Claim {
    /// Claims a name in a directory; `None` where another process holds it.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn take(directory: &Path, name: &str, content: &str) -> io::Result<Option<Self>> {
        create_private_dir(directory)?;
        let path = directory.join(name);
        loop {
            let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Its holder may have removed it after it was opened here.
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

    /// Tells who holds a name in a directory.
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
        // Removed before the lock goes: whoever takes the name next makes a file of its own. One that stays is free.
        let _ = std::fs::remove_file(&self.path);
    }
}
