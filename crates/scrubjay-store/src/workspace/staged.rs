//! A staged change: written to a temporary file beside its target, then swapped with it if the target is as expected.
//!
//! Everything happens on one directory handle, by names without a slash. The commit exchanges the two files, then
//! checks the one that was replaced, so that a change that another program made at the last moment is put back and not
//! lost. Dropping a staged change removes its temporary file.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use blake3::Hash;
use rustix::fs::{
    AtFlags, FlockOperation, Gid, Mode, OFlags, RenameFlags, Stat, Uid, fchmod, fchown, flock, fstat, fsync,
    linkat, openat, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;

use super::content::{hash, open_regular, opened};
use super::path::FilePath;
use super::refusal::Refusal;
use super::resolve::{CreatedDirectory, Directory, Root};
use super::{Durability, WorkspaceError, temporary};

/// How often preparing is tried if another program keeps removing the directory.
const PREPARE_TRIES: usize = 8;
/// The bits of a mode that are set: an agent must not create setuid or setgid files.
const MODE_KEPT: u32 = 0o777;

/// What a change expects of its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedContent {
    /// It does not exist.
    Missing,
    /// It is a regular file with this content.
    Content(Hash),
}

/// New content in a temporary file beside its target, written and synced.
#[derive(Debug)]
#[must_use = "a change that is not committed is undone"]
pub struct Staged {
    root: Arc<Root>,
    path: FilePath,
    durability: Durability,
    directory: Directory,
    created: Vec<CreatedDirectory>,
    temporary: String,
    file: File,
    /// The mode to set: the given one, or that of the replaced file.
    mode: Option<u32>,
    /// Whether the target existed: then the temporary file is private until it gets the target's mode, because the
    /// target may be.
    private: bool,
    committed: bool,
}

impl Staged {
    pub(super) fn write(
        root: Arc<Root>,
        path: FilePath,
        durability: Durability,
        bytes: &[u8],
        mode: Option<u32>,
    ) -> Result<Self, WorkspaceError> {
        let mut staged = Self::prepare(root, path, durability, mode)?;
        let failed = |e: std::io::Error, path: &FilePath| WorkspaceError::io("write", path.as_str(), e);
        staged.file.write_all(bytes).map_err(|e| failed(e, &staged.path))?;
        // Before it replaces the target: otherwise the target may be empty after a loss of power.
        if durability == Durability::Power {
            staged.file.sync_all().map_err(|e| failed(e, &staged.path))?;
        }
        Ok(staged)
    }

    /// Opens the directory, creating it if needed, and creates a temporary file in it.
    fn prepare(
        root: Arc<Root>,
        path: FilePath,
        durability: Durability,
        mode: Option<u32>,
    ) -> Result<Self, WorkspaceError> {
        let gone = || root.missing(path.as_str());
        for _ in 0..PREPARE_TRIES {
            let mut created = Vec::new();
            let outcome = opened(root.make_directory(path.directory(), &mut created), path.as_str());
            let prepared = outcome.and_then(|directory| {
                let Some(directory) = directory else { return Ok(None) };
                let private = open_regular(&directory, path.name(), path.as_str())?.is_some();
                // Private at first also if a mode is given: it may be stricter than the default.
                let file = create_temporary(&directory, private || mode.is_some(), path.as_str())?;
                Ok(file.map(|(temporary, file)| (directory, temporary, file, private)))
            });
            match prepared {
                Ok(Some((directory, temporary, file, private))) => {
                    let committed = false;
                    return Ok(Self {
                        root,
                        path,
                        durability,
                        directory,
                        created,
                        temporary,
                        file,
                        mode,
                        private,
                        committed,
                    });
                }
                // Another program removed the directory just now.
                Ok(None) if !root.is_gone() => remove_created(&created),
                Ok(None) => return Err(gone()),
                Err(e) => {
                    remove_created(&created);
                    return Err(e);
                }
            }
        }
        Err(gone())
    }

    /// Returns the path that will change.
    #[must_use]
    pub fn path(&self) -> &FilePath {
        &self.path
    }

    /// Replaces the target, if it is as expected.
    ///
    /// # Errors
    /// The change was refused or failed. Then nothing was changed, with two exceptions: after [`WorkspaceError::Unsynced`]
    /// the change was made, and after [`WorkspaceError::Stranded`] it could not be undone.
    pub fn commit(mut self, expected: ExpectedContent) -> Result<(), WorkspaceError> {
        let path = self.path.clone();
        // The lock excludes our own processes. Changes of other programs are noticed by the check after the swap.
        lock(&self.root, &self.directory, &path)?;
        let outcome = match expected {
            ExpectedContent::Missing => self.create(),
            ExpectedContent::Content(hash) => self.replace(hash),
        };
        // The stranded file is another program's version: do not remove it.
        self.committed = matches!(outcome, Ok(()) | Err(WorkspaceError::Stranded { .. }));
        outcome?;
        if self.durability == Durability::Power {
            // Created directories last, from the inside out: a directory's name is durable once its parent is synced.
            let directories =
                std::iter::once(&self.directory).chain(self.created.iter().rev().map(|m| &m.parent));
            for directory in directories {
                sync(directory, &path)?;
            }
        }
        Ok(())
    }

    fn create(&self) -> Result<(), WorkspaceError> {
        let path = self.path.as_str();
        if open_regular(&self.directory, self.path.name(), path)?.is_some() {
            return Err(Refusal::Exists { path: path.to_owned() }.into());
        }
        // Before the file gets its name, so that nobody can open it with another mode.
        match self.mode {
            Some(mode) => self.set_mode(mode)?,
            // The target existed when this was written and is gone now, so its mode is not known.
            None if self.private => return Err(Refusal::Changed { path: path.to_owned() }.into()),
            None => {}
        }
        match self.rename(RenameFlags::NOREPLACE) {
            // A hard link fails if the name exists, too, and so does not replace what another program just created.
            Err(e) if is_unsupported(e) => self.link(),
            outcome => outcome,
        }
        .map_err(|e| match e {
            Errno::EXIST => Refusal::Exists { path: path.to_owned() }.into(),
            e => WorkspaceError::io("create", path, e),
        })
    }

    fn link(&self) -> rustix::io::Result<()> {
        let (directory, temporary) = (&self.directory, &self.temporary);
        linkat(directory, temporary, directory, self.path.name(), AtFlags::empty())?;
        // The file is in place under its name. If the temporary name stays, a later sweep removes it.
        let _ = unlinkat(directory, temporary, AtFlags::empty());
        Ok(())
    }

    fn replace(&self, expected: Hash) -> Result<(), WorkspaceError> {
        let path = self.path.as_str();
        let failed = |e| WorkspaceError::io("replace", path, e);
        // The usual refusal, before anything is changed. The check after the exchange is for changes during it.
        let before = check(&self.directory, self.path.name(), path, expected)?;
        self.keep_owner(&before)?;
        self.set_mode(self.mode.unwrap_or(before.st_mode))?;
        match self.rename(RenameFlags::EXCHANGE) {
            Ok(()) => {}
            Err(e) if is_unsupported(e) => {
                // This file system cannot exchange two files. A change that another program makes between the check
                // above and this is lost.
                let (directory, name) = (&self.directory, self.path.name());
                return renameat(directory, &self.temporary, directory, name).map_err(failed);
            }
            Err(Errno::NOENT) => return Err(Refusal::Changed { path: path.to_owned() }.into()),
            Err(e) => return Err(failed(e)),
        }
        if let Err(e) = check(&self.directory, &self.temporary, path, expected) {
            self.rename(RenameFlags::EXCHANGE).map_err(|e| stranded(e, path, &self.temporary))?;
            return Err(changed_by_now(e, path));
        }
        // The change is made. If the old file stays, a later sweep removes it.
        let _ = unlinkat(&self.directory, &self.temporary, AtFlags::empty());
        Ok(())
    }

    fn rename(&self, flags: RenameFlags) -> rustix::io::Result<()> {
        renameat_with(&self.directory, &self.temporary, &self.directory, self.path.name(), flags)
    }

    fn set_mode(&self, mode: u32) -> Result<(), WorkspaceError> {
        let mode = Mode::from_raw_mode(mode & MODE_KEPT);
        fchmod(&self.file, mode).map_err(|e| WorkspaceError::io("set the mode of", self.path.as_str(), e))
    }

    fn keep_owner(&self, before: &Stat) -> Result<(), WorkspaceError> {
        let failed = |e| WorkspaceError::io("set the owner of", self.path.as_str(), e);
        let now = fstat(&self.file).map_err(failed)?;
        if (now.st_uid, now.st_gid) == (before.st_uid, before.st_gid) {
            return Ok(());
        }
        // The owner is set only if it differs: without privileges a process may set a group of its own, but no owner.
        let owner = (now.st_uid != before.st_uid).then(|| Uid::from_raw(before.st_uid));
        match fchown(&self.file, owner, Some(Gid::from_raw(before.st_gid))) {
            Err(Errno::PERM | Errno::INVAL) => {
                Err(Refusal::OtherOwner { path: self.path.as_str().to_owned() }.into())
            }
            outcome => outcome.map_err(failed),
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.committed {
            let _ = unlinkat(&self.directory, &self.temporary, AtFlags::empty());
            remove_created(&self.created);
        }
    }
}

/// Removes a file if it is as expected: renames it, checks it again, and only then deletes it, so that a change that
/// another program made at the last moment is put back.
pub(super) fn remove(
    root: &Root,
    path: &FilePath,
    durability: Durability,
    expected: Hash,
) -> Result<(), WorkspaceError> {
    let shown = path.as_str();
    let failed = |e| WorkspaceError::io("remove", shown, e);
    let directory =
        opened(root.directory(path.directory()), shown)?.ok_or_else(|| root.missing(path.as_str()))?;
    lock(root, &directory, path)?;
    check(&directory, path.name(), shown, expected)?;
    let aside = temporary::name().map_err(|e| WorkspaceError::io("remove", shown, e))?;
    match renameat_with(&directory, path.name(), &directory, &aside, RenameFlags::NOREPLACE) {
        Ok(()) => {
            let checked = check(&directory, &aside, shown, expected).map_err(|e| changed_by_now(e, shown));
            let removed =
                checked.and_then(|_| unlinkat(&directory, &aside, AtFlags::empty()).map_err(failed));
            if let Err(e) = removed {
                renameat_with(&directory, &aside, &directory, path.name(), RenameFlags::NOREPLACE)
                    .map_err(|e| stranded(e, shown, &aside))?;
                return Err(e);
            }
        }
        Err(e) if is_unsupported(e) => {
            unlinkat(&directory, path.name(), AtFlags::empty()).map_err(failed)?;
        }
        Err(Errno::NOENT) => return Err(Refusal::Changed { path: shown.to_owned() }.into()),
        Err(e) => return Err(failed(e)),
    }
    match durability {
        Durability::Power => sync(&directory, path),
        Durability::Process => Ok(()),
    }
}

/// Locks a directory, and checks that its path still leads to it.
pub(super) fn lock(root: &Root, directory: &Directory, path: &FilePath) -> Result<(), WorkspaceError> {
    let shown = path.as_str();
    let failed = |e| WorkspaceError::io("lock the directory of", shown, e);
    if !directory.lock().map_err(failed)? {
        return Err(Refusal::Busy { path: shown.to_owned() }.into());
    }
    // The directory may have been moved out of the workspace since it was opened.
    match opened(root.directory(path.directory()), shown)? {
        Some(there) if there.is_same(directory).map_err(failed)? => Ok(()),
        _ => Err(Refusal::Changed { path: shown.to_owned() }.into()),
    }
}

/// Checks that a name is a regular file with the expected content.
fn check(directory: &Directory, name: &str, path: &str, expected: Hash) -> Result<Stat, WorkspaceError> {
    let (handle, stat) = open_regular(directory, name, path)?
        .ok_or_else(|| WorkspaceError::from(Refusal::Missing { path: path.to_owned() }))?;
    match hash(handle, path)? == expected {
        true => Ok(stat),
        false => Err(Refusal::Changed { path: path.to_owned() }.into()),
    }
}

/// Turns a refusal into `Changed`: a moment ago the target was as expected, so someone else changed it.
fn changed_by_now(error: WorkspaceError, path: &str) -> WorkspaceError {
    match error {
        WorkspaceError::Refused(_) => Refusal::Changed { path: path.to_owned() }.into(),
        other => other,
    }
}

fn stranded(error: Errno, path: &str, temporary: &str) -> WorkspaceError {
    WorkspaceError::Stranded { path: path.to_owned(), temporary: temporary.to_owned(), source: error.into() }
}

/// Creates a temporary file; `None` if the directory is gone.
fn create_temporary(
    directory: &Directory,
    private: bool,
    path: &str,
) -> Result<Option<(String, File)>, WorkspaceError> {
    let failed = |e: std::io::Error| WorkspaceError::io("write beside", path, e);
    let name = temporary::name().map_err(failed)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(if private { 0o600 } else { 0o666 });
    match openat(directory, &name, flags, mode) {
        Ok(handle) => {
            // Keeps a sweep from removing it. On a file system without locks this fails, but there a sweep fails to
            // lock it, too, and leaves it.
            let _ = flock(&handle, FlockOperation::NonBlockingLockExclusive);
            Ok(Some((name, File::from(handle))))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(failed(e.into())),
    }
}

/// Removes created directories, except those that are not empty any more.
fn remove_created(created: &[CreatedDirectory]) {
    for CreatedDirectory { parent, name } in created.iter().rev() {
        let _ = unlinkat(parent, name, AtFlags::REMOVEDIR);
    }
}

/// Tells whether a file system or kernel does not know the flag of a rename.
fn is_unsupported(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// Syncs a file and its directory; for a missing file, the directory.
pub(super) fn sync_current(root: &Root, path: &FilePath) -> Result<(), WorkspaceError> {
    let shown = path.as_str();
    let Some(directory) = opened(root.directory(path.directory()), shown)? else { return Ok(()) };
    if let Some((file, _)) = open_regular(&directory, path.name(), shown)? {
        fsync(&file).map_err(|e| WorkspaceError::Unsynced { path: shown.to_owned(), source: e.into() })?;
    }
    sync(&directory, path)
}

fn sync(directory: &Directory, path: &FilePath) -> Result<(), WorkspaceError> {
    fsync(directory)
        .map_err(|e| WorkspaceError::Unsynced { path: path.as_str().to_owned(), source: e.into() })
}
