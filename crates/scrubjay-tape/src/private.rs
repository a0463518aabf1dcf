//! Looks whether others may change or read the data directory, before anything in it is believed.
//!
//! What is ours and merely too open is closed, and the caller says so. What belongs to somebody else, or can be
//! replaced by somebody else, is refused and left as it is: a ledger, a list of trusted files or a tape that others
//! may write proves nothing. No database that is opened is closed again: that would drop SQLite's locks on it.

use std::fs::{Metadata, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::home::Home;

/// Everything that others may do.
const OTHERS: u32 = 0o077;
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;
/// With it, entries of a directory can be replaced by their owners alone.
const STICKY: u32 = 0o1000;
/// Directories within directories: conversations are the deepest, with two.
const DEPTH_MAX: usize = 4;

/// Names at the top of a data directory. One that is not here is not ours to change, and keeps the directory from
/// being taken for one that holds nothing else.
const NAMES: [&str; 13] = [
    "tapes",
    "locks",
    "backends",
    "definitions",
    "conversations",
    "processes",
    "debug",
    "checkpoints",
    "clock.json",
    "ends",
    "removed.jsonl",
    "trust.json",
    "hash.key",
];
/// Beginnings of such names: databases with what lies beside them, and temporary files.
const BEGINNINGS: [&str; 5] = ["ledger.", "index.", "hash.key.", ".tmp", "checkpoint"];

/// The ledger. Another file may have been given its name; one in the place of the index is written over in any case.
const LEDGER: &str = "ledger.db";
/// How every SQLite file begins.
const DATABASE_MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Something that was open to others and is no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedPath {
    /// What.
    pub path: PathBuf,
    /// Its mode before.
    pub was: u32,
    /// Its mode now.
    pub now: u32,
}

impl std::fmt::Display for ClosedPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, was, now } = self;
        let who = if was & 0o022 == 0 { "read" } else { "write" };
        write!(f, "others could {who} {}: its mode was {was:04o} and is {now:04o} now", path.display())?;
        if was & 0o022 != 0 {
            write!(f, ". Check what is in it if you do not trust everyone on this machine")?;
        }
        Ok(())
    }
}

/// Why a data directory is not used. It was not touched.
#[derive(Debug, Error)]
pub enum NotPrivate {
    /// It is somebody else's, or has something of somebody else's in it.
    #[error(
        "{path} belongs to another user (uid {uid}), so nothing in it can be believed. Name a directory of your own with --data, \
         or have its owner give it to you (chown)"
    )]
    OtherOwner {
        /// What.
        path: PathBuf,
        /// Whose.
        uid: u32,
    },
    /// Somebody else can put another one in its place.
    #[error(
        "{path} can be written by others (its mode is {mode:04o}), who could put something else in the place of {below}. \
         Run `chmod go-w {path}`, or name a directory elsewhere with --data"
    )]
    Replaceable {
        /// The directory above.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// What it leads to.
        below: PathBuf,
    },
    /// Others may write it, and closing it would lock them out of what is theirs.
    #[error(
        "{path} can be written by others (its mode is {mode:04o}) and is not there for Scrubjay alone. Name a directory of \
         its own with --data, or run `chmod go-w {path}`"
    )]
    Shared {
        /// Which directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It cannot be looked at.
    #[error("cannot look at {path}: {source}")]
    Io {
        /// What.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// How much of a data directory is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckDepth {
    /// The directory and what is at its top: what every command can afford. If a directory was open, everything.
    Top,
    /// Everything in it.
    All,
}

impl Home {
    /// Makes sure that only its owner can read or write the data directory; returns what had to be closed for that.
    ///
    /// # Errors
    /// Something in it is another user's, or others could replace it.
    pub fn make_private(&self, depth: CheckDepth) -> Result<Vec<ClosedPath>, NotPrivate> {
        let root = self.root();
        check_above(root)?;
        // What else stands there is not a data directory, as its reader will find.
        let Some(facts) = facts_of(root)?.filter(Metadata::is_dir) else { return Ok(Vec::new()) };
        let user = CurrentUser::now();
        let mut found = OpenPaths::default();
        // First all that forbids its use, then changes: what is refused is left as it was.
        inspect_root(root, &facts, &user, depth, &mut found)?;
        if depth == CheckDepth::Top && !found.open_directories.is_empty() {
            found = OpenPaths::default();
            inspect_root(root, &facts, &user, CheckDepth::All, &mut found)?;
        }
        let mut closed = Vec::new();
        // The outermost first: once that is closed, nobody can exchange what is in it.
        for (path, was) in found.open_directories {
            closed.extend(close(path, was, 0o700)?);
        }
        for (path, was) in found.open_files {
            closed.extend(close(path, was, 0o600)?);
        }
        Ok(closed)
    }
}

/// Checks that nobody else can put something else in the place of a path, links on its way included.
///
/// # Errors
/// Somebody can.
pub fn check_above(path: &Path) -> Result<(), NotPrivate> {
    check_above_as(path, &CurrentUser::now())
}

/// As [`check_above`], for a file that somebody chose to go by: whoever owns it may own what it lies in.
///
/// # Errors
/// Somebody else can put another file in its place.
pub fn check_above_file(path: &Path, owner: u32) -> Result<(), NotPrivate> {
    check_above_as(path, &CurrentUser { also_trusted: Some(owner), ..CurrentUser::now() })
}

fn check_above_as(path: &Path, user: &CurrentUser) -> Result<(), NotPrivate> {
    check_each_above(path, user)?;
    // Where links lead, the same holds.
    let existing = path.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    match existing {
        Some((part, real)) if real == part => Ok(()),
        Some((part, real)) if part == path => check_each_above(&real, user),
        // What is not there yet is made in what is.
        Some((_, real)) => check_each_above(&real.join("new"), user),
        None => Ok(()),
    }
}

fn check_each_above(path: &Path, user: &CurrentUser) -> Result<(), NotPrivate> {
    if let Ok(facts) = path.symlink_metadata()
        && facts.is_symlink()
        && !user.trusts(facts.uid())
    {
        return Err(NotPrivate::OtherOwner { path: path.to_owned(), uid: facts.uid() });
    }
    for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
        let facts = match above.symlink_metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            facts => facts.map_err(|source| NotPrivate::Io { path: above.to_owned(), source })?,
        };
        if !user.trusts(facts.uid()) {
            return Err(NotPrivate::OtherOwner { path: above.to_owned(), uid: facts.uid() });
        }
        // The mode of a link says nothing.
        if facts.is_dir() && facts.mode() & STICKY == 0 && user.others_write(&facts) {
            let (mode, below) = (facts.mode() & 0o7777, path.to_owned());
            return Err(NotPrivate::Replaceable { path: above.to_owned(), mode, below });
        }
    }
    Ok(())
}

/// What is open to others, directories from the outside in.
#[derive(Default)]
struct OpenPaths {
    open_directories: Vec<(PathBuf, u32)>,
    open_files: Vec<(PathBuf, u32)>,
}

/// Looks at the top of a data directory, and at everything below where that is wanted.
fn inspect_root(
    root: &Path,
    facts: &Metadata,
    user: &CurrentUser,
    depth: CheckDepth,
    found: &mut OpenPaths,
) -> Result<(), NotPrivate> {
    user.owns(root, facts)?;
    let mode = facts.mode() & 0o7777;
    let names = names_in(root);
    let (ours, others): (Vec<String>, Vec<String>) = names.into_iter().partition(|name| is_ours(name));
    if mode & OTHERS != 0 {
        if others.is_empty() && mode & STICKY == 0 {
            found.open_directories.push((root.to_owned(), mode));
        } else if mode & (GROUP_WRITES | ALL_WRITE) != 0 {
            return Err(NotPrivate::Shared { path: root.to_owned(), mode });
        }
    }
    for name in ours {
        // Temporary files of ours may be gone by now.
        let is_ledger = name == LEDGER;
        let path = root.join(name);
        let Some(facts) = facts_of(&path)? else { continue };
        if is_ledger
            && facts.uid() == user.uid
            && facts.mode() & OTHERS != 0
            && !may_be_database(&path, &facts)
        {
            // Not ours to close: who wants to use it says what is wrong with it.
            continue;
        }
        if let (true, Ok(real)) = (path.is_symlink(), path.canonicalize()) {
            check_each_above(&real, user)?;
        }
        inspect_path(&path, &facts, user, if depth == CheckDepth::All { DEPTH_MAX } else { 0 }, found)?;
    }
    Ok(())
}

fn inspect_path(
    path: &Path,
    facts: &Metadata,
    user: &CurrentUser,
    depth: usize,
    found: &mut OpenPaths,
) -> Result<(), NotPrivate> {
    user.owns(path, facts)?;
    let mode = facts.mode() & 0o7777;
    let open = if facts.is_dir() { &mut found.open_directories } else { &mut found.open_files };
    if mode & OTHERS != 0 {
        open.push((path.to_owned(), mode));
    }
    if !facts.is_dir() || depth == 0 {
        return Ok(());
    }
    for name in names_in(path) {
        let path = path.join(name);
        // A link within is followed by nobody who reads tapes; it is not ours to judge.
        match path.symlink_metadata() {
            Ok(facts) if !facts.is_symlink() => inspect_path(&path, &facts, user, depth - 1, found)?,
            _ => {}
        }
    }
    Ok(())
}

/// Tells whether a file is a database, or is empty and may become one.
fn may_be_database(path: &Path, facts: &Metadata) -> bool {
    if !facts.is_file() || facts.len() == 0 {
        return facts.is_file();
    }
    let Ok(mut file) = std::fs::File::open(path) else { return false };
    let mut start = [0; DATABASE_MAGIC.len()];
    let is_database = file.read_exact(&mut start).is_ok() && start == *DATABASE_MAGIC;
    if is_database {
        // Never closed: that would drop the locks that SQLite may hold on it in this process. A database is looked at
        // once, because then it is open to others no more.
        std::mem::forget(file);
    }
    is_database
}

fn close(path: PathBuf, was: u32, now: u32) -> Result<Option<ClosedPath>, NotPrivate> {
    match std::fs::set_permissions(&path, Permissions::from_mode(now)) {
        Ok(()) => Ok(Some(ClosedPath { path, was, now })),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(NotPrivate::Io { path, source }),
    }
}

/// Returns what a path leads to; `None` where there is nothing.
fn facts_of(path: &Path) -> Result<Option<Metadata>, NotPrivate> {
    match std::fs::metadata(path) {
        Ok(facts) => Ok(Some(facts)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(source) => Err(NotPrivate::Io { path: path.to_owned(), source }),
    }
}

/// Lists a directory; what is no directory, or cannot be listed by us, holds nothing that we read.
fn names_in(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect()
}

fn is_ours(name: &str) -> bool {
    NAMES.contains(&name) || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// Who we are, and whom we believe.
struct CurrentUser {
    uid: u32,
    gid: u32,
    /// Somebody else whom the user believes.
    also_trusted: Option<u32>,
    /// Whether the id of unknown users is a user's own. In a namespace that maps few users, it stands for all others,
    /// the system's own directories among them.
    nobody_is_mapped: bool,
}

const NOBODY: u32 = 65534;

impl CurrentUser {
    fn now() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            also_trusted: None,
            nobody_is_mapped: std::fs::read_to_string("/proc/self/uid_map")
                .map_or(true, |map| maps(&map, NOBODY)),
        }
    }

    /// Tells whether a directory of that owner may stand above ours.
    fn trusts(&self, uid: u32) -> bool {
        uid == self.uid
            || uid == 0
            || self.also_trusted == Some(uid)
            || (uid == NOBODY && !self.nobody_is_mapped)
    }

    fn owns(&self, path: &Path, facts: &Metadata) -> Result<(), NotPrivate> {
        if facts.uid() == self.uid {
            return Ok(());
        }
        Err(NotPrivate::OtherOwner { path: path.to_owned(), uid: facts.uid() })
    }

    /// Tells whether others may write a directory above ours. Our own group is usually ours alone, and root's is root's.
    fn others_write(&self, facts: &Metadata) -> bool {
        let of_strangers = facts.gid() != self.gid && facts.gid() != 0;
        facts.mode() & ALL_WRITE != 0 || (facts.mode() & GROUP_WRITES != 0 && of_strangers)
    }
}

/// Tells whether a map of users, as the kernel writes it, has an id.
fn maps(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(|n| n.parse::<u64>().unwrap_or(0));
        let (first, count) = (numbers.next().unwrap_or(0), numbers.nth(1).unwrap_or(0));
        (first..first + count).contains(&u64::from(id))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_of_users_tells_whether_nobody_is_somebody() {
        assert!(maps("         0          0 4294967295\n", NOBODY));
        assert!(!maps("      1000       1000          1\n", NOBODY));
        assert!(maps("0 100000 65536\n", NOBODY));
        assert!(!maps("", NOBODY));
    }

    #[test]
    fn only_our_names_are_ours() {
        for name in [
            "tapes",
            "ledger.db",
            "ledger.db-wal",
            "index.db",
            "index.lock",
            "index.keeper",
            "trust.json",
            ".tmpAb1",
        ] {
            assert!(is_ours(name), "{name}");
        }
        for name in ["notes.txt", ".git", "ledger", "Desktop", "lost+found"] {
            assert!(!is_ours(name), "{name}");
        }
    }
}
