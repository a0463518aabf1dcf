//! Temporary files: what they are called, and clearing away those that a crash left.
//!
//! A temporary is locked by who writes it, and named by chance, so it is never mistaken for a user's file or
//! for one in use.

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, OFlags, flock, fstat, openat, unlinkat};
use rustix::io::Errno;

use super::resolve::Directory;

const BEFORE: &str = ".scrubjay-";
const BEHIND: &str = ".tmp";
const RANDOM_BYTES: usize = 16;

/// Names a new temporary file.
pub(super) fn name() -> std::io::Result<String> {
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(std::io::Error::other)?;
    Ok(format!("{BEFORE}{:032x}{BEHIND}", u128::from_be_bytes(random)))
}

/// Tells a folded name that could be taken for one of ours.
pub(super) fn looks_like_ours(folded: &str) -> bool {
    folded.starts_with(BEFORE) && folded.ends_with(BEHIND)
}

fn is_ours(name: &[u8]) -> bool {
    let random = name.strip_prefix(BEFORE.as_bytes()).and_then(|rest| rest.strip_suffix(BEHIND.as_bytes()));
    random.is_some_and(|r| r.len() == 2 * RANDOM_BYTES && r.iter().all(u8::is_ascii_hexdigit))
}

/// Removes the abandoned ones of a directory that were last written before the given time; returns how many.
///
/// The directory is locked by the caller: a change in progress there has its lock.
pub(super) fn sweep(directory: &Directory, before_wall_ns: u64) -> rustix::io::Result<usize> {
    let mut removed = 0;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if is_ours(name.to_bytes()) && is_abandoned(directory, name, before_wall_ns) {
            match unlinkat(directory, name, AtFlags::empty()) {
                Ok(()) => removed += 1,
                Err(Errno::NOENT) => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(removed)
}

/// Tells a regular file that nobody holds and that is old enough; what cannot be told is left.
fn is_abandoned(directory: &Directory, name: &std::ffi::CStr, before_wall_ns: u64) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(file) = openat(directory, name, flags, rustix::fs::Mode::empty()) else { return false };
    let Ok(stat) = fstat(&file) else { return false };
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && seconds.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec) < before_wall_ns
        && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
}
