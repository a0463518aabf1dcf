//! Opens paths of a workspace beneath the handle of its root, in one step (`openat2`).
//!
//! No symbolic link is followed, and no path is checked before it is opened: checks use the opened handle. On a kernel
//! without `openat2` paths are opened name by name.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat, flock, fstat, mkdirat, openat,
    openat2, statat,
};
use rustix::io::{Errno, Result, retry_on_intr};

/// How often an open is tried: the kernel gives up (EAGAIN) if directories are moved during it.
const OPEN_TRIES: usize = 16;
/// How often, and at what interval, a directory's lock is tried: five seconds in all. Polled, because a blocking
/// `flock` has no timeout.
const LOCK_TRIES: usize = 500;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The root of a workspace: a handle of its directory, and the paths that lead to it.
#[derive(Debug)]
pub(super) struct Root {
    handle: OwnedFd,
    /// The path as it was given, made absolute.
    pub(super) given: PathBuf,
    /// The path with every symbolic link resolved.
    pub(super) canonical: PathBuf,
    /// Whether the kernel resolves paths beneath a handle in one step.
    one_step: bool,
}

impl Root {
    pub(super) fn open(path: &Path) -> std::io::Result<Self> {
        let given = std::path::absolute(path)?;
        // Without NOFOLLOW: the user chose the root, and links on the way to it are theirs.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = openat(CWD, &given, flags, Mode::empty())?;
        // From the handle and not from the path, which may lead elsewhere by now.
        let canonical =
            std::fs::read_link(format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(&handle)))
                .unwrap_or_else(|_| given.clone());
        let mut root = Self { handle, given, canonical, one_step: true };
        // Finds out whether the kernel has `openat2`.
        match root.open_beneath(".", flags) {
            Ok(_) => {}
            // An old kernel, or a container whose seccomp filter refuses `openat2`.
            Err(Errno::NOSYS | Errno::PERM) => root.one_step = false,
            Err(e) => return Err(e.into()),
        }
        Ok(root)
    }

    /// Opens paths name by name, as on a kernel without `openat2`.
    pub(super) fn open_by_name(&mut self) {
        self.one_step = false;
    }

    /// Tells whether the directory was removed; then nothing can be opened beneath its handle any more.
    pub(super) fn is_gone(&self) -> bool {
        // The last link of a directory is removed with it.
        fstat(&self.handle).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Opens what a normalized path names.
    pub(super) fn open_beneath(&self, path: &str, flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if !self.one_step {
            return self.walk(path, flags);
        }
        // `openat2` with BENEATH follows no link anyway. Without NOFOLLOW its error tells a link (LOOP) from a file
        // (NOTDIR).
        let flags = if flags.contains(OFlags::DIRECTORY) { flags - OFlags::NOFOLLOW } else { flags };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        let mut tries = OPEN_TRIES;
        loop {
            tries -= 1;
            match retry_on_intr(|| openat2(&self.handle, path, flags, Mode::empty(), resolve)) {
                Err(Errno::AGAIN) if tries > 0 => {}
                opened => return opened,
            }
        }
    }

    fn walk(&self, path: &str, flags: OFlags) -> Result<OwnedFd> {
        // O_PATH needs no read permission, as `openat2` needs none for the directories that it passes through.
        let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut names = path.split('/').peekable();
        let mut at: Option<OwnedFd> = None;
        while let Some(name) = names.next() {
            let here = at.as_ref().map_or(self.handle.as_fd(), AsFd::as_fd);
            let last = names.peek().is_none();
            at = Some(step(here, name, if last { flags } else { through })?);
        }
        at.ok_or(Errno::NOENT)
    }

    /// Opens the directory of a path.
    pub(super) fn directory(&self, path: &str) -> Result<Directory> {
        Ok(Directory { handle: self.open_beneath(path, DIRECTORY)? })
    }

    /// Opens the directory of a path, and creates missing ones, which are added to `created`.
    pub(super) fn make_directory(
        &self,
        path: &str,
        created: &mut Vec<CreatedDirectory>,
    ) -> Result<Directory> {
        match self.directory(path) {
            Err(Errno::NOENT) if path != "." => {}
            opened => return opened,
        }
        let mut at = self.directory(".")?;
        for name in path.split('/') {
            let next = match step(at.as_fd(), name, DIRECTORY) {
                Err(Errno::NOENT) => {
                    // 0777 without the umask: the mode that mkdir(1) would give.
                    let new = match mkdirat(&at, name, Mode::from_raw_mode(0o777)) {
                        // Another process created it just now, so it is not ours to remove.
                        Err(Errno::EXIST) => false,
                        result => result.map(|()| true)?,
                    };
                    let next = step(at.as_fd(), name, DIRECTORY)?;
                    if new {
                        created.push(CreatedDirectory { parent: at, name: name.to_owned() });
                    }
                    next
                }
                opened => opened?,
            };
            at = Directory { handle: next };
        }
        Ok(at)
    }
}

/// Opens one name in a directory; the error distinguishes a symbolic link (LOOP) from other things that are not a
/// directory (NOTDIR).
fn step(here: BorrowedFd<'_>, name: &str, flags: OFlags) -> Result<OwnedFd> {
    match retry_on_intr(|| openat(here, name, flags, Mode::empty())) {
        Err(Errno::NOTDIR) => match statat(here, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => Err(Errno::LOOP),
            _ => Err(Errno::NOTDIR),
        },
        opened => opened,
    }
}

/// A directory that was created for a file.
#[derive(Debug)]
pub(super) struct CreatedDirectory {
    pub(super) parent: Directory,
    pub(super) name: String,
}

/// A directory of the workspace, opened.
#[derive(Debug)]
pub(super) struct Directory {
    handle: OwnedFd,
}

impl Directory {
    /// Tells whether both are handles of the same directory.
    pub(super) fn is_same(&self, other: &Self) -> Result<bool> {
        let id = |stat: Stat| (stat.st_dev, stat.st_ino);
        Ok(id(fstat(&self.handle)?) == id(fstat(&other.handle)?))
    }

    /// Locks the directory against other Scrubjay processes until it is dropped; returns false if another keeps the
    /// lock.
    ///
    /// On a file system without locks nothing is locked: our own changes are also ordered by `files/lock.rs`, whose
    /// files are in the data directory.
    pub(super) fn lock(&self) -> Result<bool> {
        for _ in 0..LOCK_TRIES {
            match retry_on_intr(|| flock(&self.handle, FlockOperation::NonBlockingLockExclusive)) {
                Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
                Err(Errno::BADF | Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => {
                    return Ok(true);
                }
                locked => return locked.map(|()| true),
            }
        }
        Ok(false)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}
