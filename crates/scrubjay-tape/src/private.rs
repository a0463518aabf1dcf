//! Checks that nobody else can read or write the data directory, before anything in it is trusted.
//!
//! Files of ours whose mode is too open are closed to others, and the caller reports it. Files that belong to another
//! user, or that another user can replace, are refused and left alone: a ledger, a list of trusted files or a tape that
//! others can write proves nothing. A database file opened here is never closed, because that would drop the POSIX
//! locks that SQLite holds on it in this process.

use std::fs::{Metadata, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::home::Home;

/// The permission bits of group and others.
const OTHERS: u32 = 0o077;
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;
/// In a sticky directory only its owner can replace a file.
const STICKY: u32 = 0o1000;
/// How deep directories are searched; the deepest of ours, `conversations/<process>/<claim>`, needs two levels.
const DEPTH_MAX: usize = 4;

/// The names of our files at the top of a data directory. A file with another name is not changed, and means that the
/// directory is not Scrubjay's alone.
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
/// Prefixes of such names: databases with their logs and locks, and temporary files.
const BEGINNINGS: [&str; 5] = ["ledger.", "index.", "hash.key.", ".tmp", "checkpoint"];

/// The ledger. Another program's file may have this name, so its content is checked before its mode is changed.
const LEDGER: &str = "ledger.db";
/// The first bytes of every SQLite file.
const DATABASE_MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// A file or directory that was open to others and has been closed to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedPath {
    /// Its path.
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

/// Why a data directory is refused. It was not changed.
#[derive(Debug, Error)]
pub enum NotPrivate {
    /// It belongs to another user, or contains a file that does.
    #[error(
        "{path} belongs to another user (uid {uid}), so its content cannot be trusted. Name a directory of your own with --data, \
         or have its owner give it to you (chown)"
    )]
    OtherOwner {
        /// The file or directory.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// Another user can replace it.
    #[error(
        "{path} can be written by others (its mode is {mode:04o}), who could replace {below}. \
         Run `chmod go-w {path}`, or name a directory elsewhere with --data"
    )]
    Replaceable {
        /// The directory above it that others can write.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// The path that could be replaced.
        below: PathBuf,
    },
    /// Others can write it, and it holds files that are not ours: closing it would lock their owners out.
    #[error(
        "{path} can be written by others (its mode is {mode:04o}) and is not there for Scrubjay alone. Name a directory of \
         its own with --data, or run `chmod go-w {path}`"
    )]
    Shared {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Its metadata cannot be read.
    #[error("cannot look at {path}: {source}")]
    Io {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// How much of a data directory is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckDepth {
    /// The directory and its direct entries, which every command can afford; everything, if one of them was open.
    Top,
    /// Everything in it.
    All,
}

impl Home {
    /// Makes sure that only its owner can read or write the data directory; returns the paths whose mode was changed.
    ///
    /// # Errors
    /// A file in it belongs to another user, or others could replace it.
    pub fn make_private(&self, depth: CheckDepth) -> Result<Vec<ClosedPath>, NotPrivate> {
        let root = self.root();
        check_above(root)?;
        // If it is no directory, opening it reports that.
        let Some(facts) = facts_of(root)?.filter(Metadata::is_dir) else { return Ok(Vec::new()) };
        let user = CurrentUser::now();
        let mut found = OpenPaths::default();
        // All checks come before the first change: a refused directory is left as it was.
        inspect_root(root, &facts, &user, depth, &mut found)?;
        if depth == CheckDepth::Top && !found.open_directories.is_empty() {
            found = OpenPaths::default();
            inspect_root(root, &facts, &user, CheckDepth::All, &mut found)?;
        }
        let mut closed = Vec::new();
        // The outermost first: once it is closed, nobody can replace what is in it.
        for (path, was) in found.open_directories {
            closed.extend(close(path, was, 0o700)?);
        }
        for (path, was) in found.open_files {
            closed.extend(close(path, was, 0o600)?);
        }
        Ok(closed)
    }
}

/// Checks that nobody else can replace what a path leads to, following links on the way.
///
/// # Errors
/// Another user can.
pub fn check_above(path: &Path) -> Result<(), NotPrivate> {
    check_above_as(path, &CurrentUser::now())
}

/// Like [`check_above`], for a file that the user chose to trust: its owner may also own the directories above it.
///
/// # Errors
/// A third user can replace it.
pub fn check_above_file(path: &Path, owner: u32) -> Result<(), NotPrivate> {
    check_above_as(path, &CurrentUser { also_trusted: Some(owner), ..CurrentUser::now() })
}

fn check_above_as(path: &Path, user: &CurrentUser) -> Result<(), NotPrivate> {
    check_each_above(path, user)?;
    // The same must hold for the real path behind links.
    let existing = path.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    match existing {
        Some((part, real)) if real == part => Ok(()),
        Some((part, real)) if part == path => check_each_above(&real, user),
        // A path that does not exist yet will be created in the nearest directory that does.
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
        // A symbolic link has no mode of its own.
        if facts.is_dir() && facts.mode() & STICKY == 0 && user.others_write(&facts) {
            let (mode, below) = (facts.mode() & 0o7777, path.to_owned());
            return Err(NotPrivate::Replaceable { path: above.to_owned(), mode, below });
        }
    }
    Ok(())
}

/// Paths that are open to others; directories from the outside in.
#[derive(Default)]
struct OpenPaths {
    open_directories: Vec<(PathBuf, u32)>,
    open_files: Vec<(PathBuf, u32)>,
}

/// Checks the direct entries of a data directory, and everything below them if `depth` says so.
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
        // A temporary file may be gone by now.
        let is_ledger = name == LEDGER;
        let path = root.join(name);
        let Some(facts) = facts_of(&path)? else { continue };
        if is_ledger
            && facts.uid() == user.uid
            && facts.mode() & OTHERS != 0
            && !may_be_database(&path, &facts)
        {
            // Another program's file. Opening it as the ledger reports that.
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
        // Nothing that reads the data directory follows a link in it.
        match path.symlink_metadata() {
            Ok(facts) if !facts.is_symlink() => inspect_path(&path, &facts, user, depth - 1, found)?,
            _ => {}
        }
    }
    Ok(())
}

/// Tells whether a file is a SQLite database, or empty and may become one.
fn may_be_database(path: &Path, facts: &Metadata) -> bool {
    if !facts.is_file() || facts.len() == 0 {
        return facts.is_file();
    }
    let Ok(mut file) = std::fs::File::open(path) else { return false };
    let mut start = [0; DATABASE_MAGIC.len()];
    let is_database = file.read_exact(&mut start).is_ok() && start == *DATABASE_MAGIC;
    if is_database {
        // Never closed: closing any descriptor of the file drops the POSIX locks that SQLite may hold on it. This leaks
        // one descriptor at most, because afterwards the file is closed to others and this is not reached again.
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

/// Returns the metadata of what a path leads to; `None` if there is nothing.
fn facts_of(path: &Path) -> Result<Option<Metadata>, NotPrivate> {
    match std::fs::metadata(path) {
        Ok(facts) => Ok(Some(facts)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(source) => Err(NotPrivate::Io { path: path.to_owned(), source }),
    }
}

/// Lists a directory. What cannot be listed holds nothing that we could read.
fn names_in(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect()
}

fn is_ours(name: &str) -> bool {
    NAMES.contains(&name) || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// The user this process runs as, and other users that it trusts.
struct CurrentUser {
    uid: u32,
    gid: u32,
    /// Another user whom the user chose to trust.
    also_trusted: Option<u32>,
    /// Whether the id `nobody` is mapped to a real user. In a user namespace that maps few users it stands for all
    /// others, root and the owners of system directories among them.
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

    /// Tells whether that user may own a directory above ours.
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

    /// Tells whether others can write a directory above ours. Write access of our own group or of root's group is
    /// accepted: those groups usually have one member.
    fn others_write(&self, facts: &Metadata) -> bool {
        let of_strangers = facts.gid() != self.gid && facts.gid() != 0;
        facts.mode() & ALL_WRITE != 0 || (facts.mode() & GROUP_WRITES != 0 && of_strangers)
    }
}

/// Tells whether a `uid_map` of the kernel maps an id.
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
    fn a_uid_map_shows_whether_the_user_nobody_is_mapped() {
        assert!(maps("         0          0 4294967295\n", NOBODY));
        assert!(!maps("      1000       1000          1\n", NOBODY));
        assert!(maps("0 100000 65536\n", NOBODY));
        assert!(!maps("", NOBODY));
    }

    #[test]
    fn only_our_own_file_names_are_recognised() {
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
