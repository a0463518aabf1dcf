//! Reads a file of a workspace: checks it with O_PATH, opens it with O_NONBLOCK, checks it again.
//!
//! Opening a pipe, a device or a socket can block or have effects, so only a regular file is opened; and without
//! blocking, in case something else has just replaced it.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use blake3::Hash;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::io::{Errno, retry_on_intr};

use super::WorkspaceError;
use super::refusal::{NotFileKind, Refusal};

/// A file's content and metadata when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSnapshot {
    /// The whole content.
    pub bytes: Vec<u8>,
    /// Its permission bits.
    pub mode: u32,
    /// The BLAKE3 hash of the bytes.
    pub hash: Hash,
    /// How many hard links it has. With more than one, replacing the file leaves the old content under the other names.
    pub links: u64,
    /// Whether it belongs to the user of this process.
    pub owned: bool,
}

/// To check what a name is, without opening it.
pub(super) const INSPECT: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// To read a regular file: never blocks, even if a pipe has just replaced it.
pub(super) const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Converts the result of an open: `None` if nothing is there, a refusal if the path leads through a link or outside.
pub(super) fn opened<T>(outcome: rustix::io::Result<T>, path: &str) -> Result<Option<T>, WorkspaceError> {
    let path = path.to_owned();
    match outcome {
        Ok(handle) => Ok(Some(handle)),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::LOOP) => Err(Refusal::Symlink { path }.into()),
        Err(Errno::NOTDIR) => Err(Refusal::NotADirectory { path }.into()),
        Err(Errno::XDEV) => Err(Refusal::Outside { path }.into()),
        // A socket, or a device without a driver.
        Err(Errno::NXIO | Errno::NODEV) => Err(Refusal::NotAFile { path, kind: NotFileKind::Other }.into()),
        Err(Errno::NAMETOOLONG) => {
            let reason = "a name in it is too long for this file system";
            Err(Refusal::BadPath { path, reason, hint: "Choose a shorter name." }.into())
        }
        Err(e) => Err(WorkspaceError::io("open", &path, e)),
    }
}

/// Returns the status of a regular file; anything else is refused.
pub(super) fn regular(handle: impl AsFd, path: &str) -> Result<Stat, WorkspaceError> {
    let stat = fstat(handle).map_err(|e| WorkspaceError::io("look at", path, e))?;
    match NotFileKind::of(FileType::from_raw_mode(stat.st_mode)) {
        None => Ok(stat),
        Some(NotFileKind::Symlink) => Err(Refusal::Symlink { path: path.to_owned() }.into()),
        Some(kind) => Err(Refusal::NotAFile { path: path.to_owned(), kind }.into()),
    }
}

/// Opens a regular file by its name in a directory; `None` if nothing is there.
pub(super) fn open_regular(
    directory: impl AsFd,
    name: &str,
    path: &str,
) -> Result<Option<(OwnedFd, Stat)>, WorkspaceError> {
    for flags in [INSPECT, READ] {
        let outcome = retry_on_intr(|| openat(&directory, name, flags, Mode::empty()));
        let Some(handle) = opened(outcome, path)? else { return Ok(None) };
        // Also after the second open: the name may have got another file since the first.
        let stat = regular(&handle, path)?;
        if flags == READ {
            return Ok(Some((handle, stat)));
        }
    }
    Ok(None)
}

/// Reads an opened file to its end, and refuses one that is over the limit.
pub(super) fn read(
    handle: OwnedFd,
    stat: &Stat,
    path: &str,
    bytes_max: u64,
) -> Result<FileSnapshot, WorkspaceError> {
    let too_large = |bytes| Refusal::TooLarge { path: path.to_owned(), bytes, bytes_max };
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if size > bytes_max {
        return Err(too_large(size).into());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    // One byte more than allowed, because the file may grow while it is read.
    let taken = File::from(handle).take(bytes_max.saturating_add(1)).read_to_end(&mut bytes);
    let taken = taken.map_err(|e| WorkspaceError::io("read", path, e))? as u64;
    if taken > bytes_max {
        return Err(too_large(taken).into());
    }
    let hash = blake3::hash(&bytes);
    let owned = stat.st_uid == rustix::process::geteuid().as_raw();
    Ok(FileSnapshot { bytes, mode: stat.st_mode & 0o7777, hash, links: stat.st_nlink, owned })
}

/// Hashes an opened file of any size.
pub(super) fn hash(handle: OwnedFd, path: &str) -> Result<Hash, WorkspaceError> {
    let mut hasher = blake3::Hasher::new();
    let mut file = File::from(handle);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finalize()),
            Ok(length) => hasher.update(&buffer[..length]),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(WorkspaceError::io("read", path, e)),
        };
    }
}
