//! Temporary files: what they are called, and clearing away those that a crash left.
//!
//! A temporary is locked by who writes it, and named by chance, so it is never mistaken for a user's file or
//! for one in use.

use std::ffi::CStr;
use std::fs::File;
use std::io::Read;

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, unlinkat};
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

/// Removes the abandoned ones of a directory whose content is known; returns how many.
///
/// The directory is locked by the caller: a change in progress there has its lock.
pub(super) fn sweep(
    directory: &Directory,
    bytes_max: u64,
    is_known: &dyn Fn(&[u8]) -> bool,
) -> rustix::io::Result<usize> {
    let mut removed = 0;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let left = if is_ours(name.to_bytes()) { abandoned(directory, name, bytes_max) } else { None };
        if left.is_some_and(|content| is_known(&content)) {
            match unlinkat(directory, name, AtFlags::empty()) {
                Ok(()) => removed += 1,
                Err(Errno::NOENT) => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(removed)
}

/// Returns the content of a regular file that nobody holds; what cannot be told is left alone.
fn abandoned(directory: &Directory, name: &CStr, bytes_max: u64) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::empty()).ok()?;
    let stat = fstat(&file).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    let mut content = Vec::new();
    File::from(file).take(bytes_max).read_to_end(&mut content).ok()?;
    Some(content)
}
