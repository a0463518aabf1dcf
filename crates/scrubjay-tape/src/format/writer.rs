//! Appends to a live tape: one `write(2)` for all entries that arrived together.
//!
//! A failed write is truncated away, so a tape always consists of whole batches plus, after a crash, at most one torn
//! one. The writer holds a lock on the file: a process that can take the lock knows that the tape is abandoned.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::FlockOperation;
use scrubjay_core::entry::Entry;
use scrubjay_core::redact::Payload;

use super::frame::{self, PAYLOAD_BYTES_MAX};
use super::header::{self, Header, Layout};

/// Payloads from this size on are written from where they are: copying them would cost more than a slice for `pwritev`.
const LARGE_BYTES: usize = 32 * 1024;
/// Linux takes at most 1024 slices in one call.
const SLICES_MAX: usize = 1024;
/// How often creating a tape is tried while another process sweeps it away.
const CREATE_TRIES_MAX: u32 = 100;

/// The writer of one live tape.
#[derive(Debug)]
pub struct Writer {
    file: File,
    path: PathBuf,
    header: Header,
    /// The offset of the first entry.
    body: u64,
    started: Instant,
    /// The offset behind the last whole batch.
    bytes: u64,
    entries: u64,
    /// Whether bytes of a failed append may lie beyond the end.
    torn: bool,
    /// How many bytes and entries are synced.
    synced: (u64, u64),
    /// Whether the file's name was synced.
    is_named: bool,
    buffer: Vec<u8>,
}

impl Writer {
    /// Creates the live file of a tape.
    ///
    /// # Errors
    /// The file cannot be created, locked or written.
    pub fn create(path: PathBuf, header: Header, started: Instant) -> io::Result<Self> {
        let header = header.fitted();
        let bytes = header::encode(&header, Layout::Live);
        let mut tries = 0;
        let file = loop {
            tries += 1;
            match create_locked(&path, &bytes) {
                // Another process that clears up saw the file before it was locked, and removed it as abandoned.
                Err(e) if tries < CREATE_TRIES_MAX && is_swept(&e) => {}
                made => break made?,
            }
        };
        Ok(Self {
            file,
            path,
            header,
            body: bytes.len() as u64,
            started,
            bytes: bytes.len() as u64,
            entries: 0,
            torn: false,
            synced: (bytes.len() as u64, 0),
            is_named: false,
            buffer: Vec::new(),
        })
    }

    /// Appends entries with one system call; on an error none of them is on the tape. Takes redacted payloads only: no
    /// other type fits.
    ///
    /// # Errors
    /// The write failed: no space, a file-size limit, a failing disk; or a payload is too long for a tape.
    pub fn append<'a>(&mut self, entries: impl Iterator<Item = Entry<'a, Payload<'a>>>) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let mut large: Vec<(usize, &'a [u8])> = Vec::new();
        let mut number = self.entries;
        for entry in entries.map(|entry| entry.with_payload(entry.payload.as_bytes())) {
            if entry.payload.len() > PAYLOAD_BYTES_MAX {
                let what = format!("a message of {} bytes is too long for a tape", entry.payload.len());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            frame::encode_head(number, &entry, &mut buffer);
            // Beyond the limit of slices large payloads are copied too, so that a batch is always one call.
            if entry.payload.len() < LARGE_BYTES || large.len() * 2 + 1 >= SLICES_MAX {
                buffer.extend_from_slice(entry.payload);
            } else {
                large.push((buffer.len(), entry.payload));
            }
            number += 1;
        }
        let written = self.write(&buffer, &large);
        self.buffer = buffer;
        self.bytes += written?;
        self.entries = number;
        Ok(())
    }

    fn write(&mut self, small: &[u8], large: &[(usize, &[u8])]) -> io::Result<u64> {
        // Frames of a failed batch that stay behind a shorter new one could be read as entries.
        if self.torn {
            self.file.set_len(self.bytes)?;
            self.torn = false;
        }
        let written = if large.is_empty() {
            self.file.write_all_at(small, self.bytes).map(|()| small.len() as u64)
        } else {
            self.write_slices(small, large)
        };
        if written.is_err() {
            self.torn = self.file.set_len(self.bytes).is_err();
        }
        written
    }

    fn write_slices(&self, small: &[u8], large: &[(usize, &[u8])]) -> io::Result<u64> {
        let mut slices = Vec::with_capacity(large.len() * 2 + 1);
        let mut from = 0;
        for (at, payload) in large {
            slices.push(IoSlice::new(&small[from..*at]));
            slices.push(IoSlice::new(payload));
            from = *at;
        }
        slices.push(IoSlice::new(&small[from..]));
        let mut rest = slices.as_mut_slice();
        let mut written = 0;
        // Drops empty slices at the front: a write of nothing but these returns 0, which would be taken for a
        // failure.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match rustix::io::pwritev(&self.file, rest, self.bytes + written) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    written += n as u64;
                    IoSlice::advance_slices(&mut rest, n);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(written)
    }

    /// Returns a second handle on the file, by which another thread can sync it.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn sync_handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Tells whether the file's name was synced.
    pub(crate) fn is_named(&self) -> bool {
        self.is_named
    }

    /// Notes that the first `bytes` bytes and `entries` entries, and the file's name, are synced.
    pub(crate) fn note_synced(&mut self, bytes: u64, entries: u64) {
        self.synced = self.synced.max((bytes, entries));
        self.is_named = true;
    }

    /// Truncates all entries that are not synced.
    ///
    /// # Errors
    /// They are still on the tape.
    pub(crate) fn take_back_unsynced(&mut self) -> io::Result<()> {
        let (bytes, entries) = self.synced;
        self.file.set_len(bytes)?;
        (self.bytes, self.entries, self.torn) = (bytes, entries, false);
        Ok(())
    }

    /// Returns the tape's header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns when the tape began.
    #[must_use]
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Returns the offset of the first entry in the live file.
    pub(crate) fn body(&self) -> u64 {
        self.body
    }

    /// Returns how many bytes the live file has.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns how many entries are on the tape.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns the path of the live file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Creates a live file. It gets its name only when it is locked and has its header, so that no process takes it for
/// abandoned.
fn create_locked(path: &Path, header: &[u8]) -> io::Result<File> {
    let temporary = path.with_extension("new");
    let file = create_private(&temporary)?;
    let made = lock(&file)
        .and_then(|()| file.write_all_at(header, 0))
        .and_then(|()| std::fs::rename(&temporary, path));
    if let Err(e) = made {
        // The caller gets the error above; the next start removes a `.new` file that stays.
        let _ = std::fs::remove_file(&temporary);
        return Err(e);
    }
    Ok(file)
}

fn is_swept(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::WouldBlock)
}

/// Creates or truncates a file of mode 0600, whatever the umask.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

fn lock(file: &File) -> io::Result<()> {
    Ok(rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)?)
}

/// Takes the lock of an abandoned file; `None` while its owner lives, and if another process has removed or sealed it
/// meanwhile.
pub(crate) fn lock_abandoned(path: &Path) -> io::Result<Option<File>> {
    let file = File::open(path)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        // The previous holder of the lock may have removed the file since it was opened here.
        Ok(()) => Ok(is_at(&file, path)?.then_some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Tells whether a path still leads to an open file.
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(there) => {
            let here = file.metadata()?;
            Ok((here.dev(), here.ino()) == (there.dev(), there.ino()))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}
