//! Checks modes and owners of the files in the data directory, and free disk space.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use scrubjay_core::units;

use super::{Findings, Installation};

/// 200 MiB: a live tape grows to 100 MB by default, and sealing it writes a second file.
const ROOM_BYTES_MIN: u64 = 200 << 20;
/// 2 GiB: room for some 20 tapes of the default size. Less is a note, not yet an error.
const ROOM_BYTES_LOW: u64 = 2 << 30;
/// How many files are named; the others are counted, so that a message stays readable.
const NAMED_MAX: usize = 5;

/// Checks owner and mode of everything in the data directory.
pub(super) fn check_modes(installation: &Installation, findings: &mut Findings) {
    let root = installation.home.root();
    let facts = match std::fs::symlink_metadata(root) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return findings
                .ok(format!("{} does not exist yet: the first recording creates it", root.display()));
        }
        Err(e) => {
            let what = format!("cannot examine {}: {e}", root.display());
            return findings.wrong(what, "make it accessible, or use another directory with --data");
        }
        Ok(facts) => facts,
    };
    if !facts.is_dir() && !root.is_dir() {
        let what = format!("{} is not a directory", root.display());
        return findings.wrong(what, "move it away, or use another directory with --data");
    }
    let me = rustix::process::geteuid().as_raw();
    let mut open = Vec::new();
    let mut foreign = Vec::new();
    for (path, mode, owner) in everything_in(root) {
        if owner != me {
            foreign.push(path);
        } else if mode & 0o077 != 0 {
            open.push(path);
        }
    }
    if !foreign.is_empty() {
        let what = format!("{} to another user: {}", belongs(foreign.len()), list(&foreign));
        findings.wrong(what, format!("sudo chown -R \"$(id -un)\" '{}'", root.display()));
    }
    if !open.is_empty() {
        let what = format!("others may read or change {}", list(&open));
        findings.wrong(what, format!("chmod -R go-rwx '{}'", root.display()));
    }
    if findings.is_empty() {
        findings.ok(format!("only you can read {}", root.display()));
    }
}

fn belongs(count: usize) -> String {
    if count == 1 { "a file belongs".to_owned() } else { format!("{count} files belong") }
}

/// Checks the tokens of debug endpoints and the key of hashes: with them others see more than one recording.
pub(super) fn check_tokens(installation: &Installation, findings: &mut Findings) {
    let debug = std::fs::read_dir(installation.home.debug()).into_iter().flatten().flatten();
    let mut secret: Vec<PathBuf> = debug.map(|entry| entry.path()).collect();
    secret.push(installation.home.root().join("hash.key"));
    let is_open =
        |path: &PathBuf| std::fs::symlink_metadata(path).is_ok_and(|facts| facts.mode() & 0o077 != 0);
    let open: Vec<PathBuf> = secret.into_iter().filter(is_open).collect();
    if open.is_empty() {
        findings.ok("only you can read them");
    } else {
        let what = format!("others may read {}", list(&open));
        findings.wrong(
            what,
            "chmod 600 them, then restart the gateways that made them: others may know the tokens",
        );
    }
}

/// Checks how much disk space is left for recordings.
pub(super) fn check_room(installation: &Installation, findings: &mut Findings) {
    let root = installation.home.root();
    // The data directory may not exist yet; its file system is then that of the nearest directory above.
    let Some(there) = root.ancestors().find(|path| path.is_dir()) else { return };
    let room = match rustix::fs::statvfs(there) {
        Ok(facts) => facts.f_bavail.saturating_mul(facts.f_frsize),
        Err(e) => {
            return findings.note(format!("cannot find out how much is free: {e}"), "check with df");
        }
    };
    let what = format!("{} free at {}", units::size(room), there.display());
    let fix =
        "`scrubjay tape du` shows what takes how much; `scrubjay tape rm --older-than 30d` removes old tapes";
    match room {
        0..ROOM_BYTES_MIN => findings.wrong(what, fix),
        ROOM_BYTES_MIN..ROOM_BYTES_LOW => findings.note(what, fix),
        _ => findings.ok(what),
    }
}

/// Lists a directory and everything in it, with mode and owner, without following links.
fn everything_in(root: &Path) -> Vec<(PathBuf, u32, u32)> {
    let mut waiting = vec![root.to_owned()];
    let mut all = Vec::new();
    while let Some(path) = waiting.pop() {
        // The mode of a link means nothing, so links are left out. Only the data directory itself may be one.
        let facts = if path == root { std::fs::metadata(&path) } else { std::fs::symlink_metadata(&path) };
        // A file may have been removed since its directory was listed.
        let Ok(facts) = facts else { continue };
        if facts.is_dir() {
            waiting
                .extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
        if !facts.is_symlink() {
            all.push((path, facts.mode() & 0o777, facts.uid()));
        }
    }
    all
}

fn list(paths: &[PathBuf]) -> String {
    let first: Vec<String> = paths.iter().take(NAMED_MAX).map(|path| path.display().to_string()).collect();
    let more = paths.len().saturating_sub(NAMED_MAX);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", first.join(", "))
}
