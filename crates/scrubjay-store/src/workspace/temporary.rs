//! Names of temporary files, and the removal of those that a crash left.
//!
//! A temporary file has a random name, so it is not mistaken for a user's file, and its writer keeps it locked, so it
//! is not mistaken for an abandoned one.

use std::ffi::CStr;
use std::fs::File;
use std::io::Read;

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, unlinkat};
use rustix::io::Errno;

use super::resolve::Directory;

const PREFIX: &str = ".scrubjay-";
const SUFFIX: &str = ".tmp";
const RANDOM_BYTES: usize = 16;

/// Makes a random name for a temporary file.
pub(super) fn name() -> std::io::Result<String> {
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(std::io::Error::other)?;
    Ok(format!("{PREFIX}{:032x}{SUFFIX}", u128::from_be_bytes(random)))
}

/// Tells whether a folded name looks like that of a temporary file.
pub(super) fn looks_like_ours(folded: &str) -> bool {
    folded.starts_with(PREFIX) && folded.ends_with(SUFFIX)
}

fn is_ours(name: &[u8]) -> bool {
    // Exactly our form, unlike `looks_like_ours`, because a file with such a name may be deleted.
    let random = name.strip_prefix(PREFIX.as_bytes()).and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
    random.is_some_and(|r| r.len() == 2 * RANDOM_BYTES && r.iter().all(u8::is_ascii_hexdigit))
}

/// Removes abandoned temporary files with known content from a directory; returns how many.
///
/// The caller holds the directory's lock, so no change is in progress there.
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

/// Returns the content of a regular file that no process has locked; `None` if that cannot be found out.
fn abandoned(directory: &Directory, name: &CStr, bytes_max: u64) -> Option<Vec<u8>> {
    // Without following or blocking, because anybody can give a link or a pipe such a name.
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
