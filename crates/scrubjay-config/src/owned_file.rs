//! Opens files that only their owner may control: configurations, tokens and keys. Each must belong to us or to root, and no
//! other user may write it, replace it or, if it holds a secret, read it.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use scrubjay_tape::private::{NotPrivate, check_above_file};
use thiserror::Error;

use crate::yaml::FILE_BYTES_MAX;

/// The mode bits of group and others: a file with a secret has none of them.
const OTHERS: u32 = 0o077;

/// Why a file is not used.
#[derive(Debug, Error)]
pub enum OwnedFileError {
    /// The file system refused it.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Its owner can write it under any mode.
    #[error("it belongs to another user (uid {uid}): look at it, then copy it or `chown {me}` it")]
    OtherOwner {
        /// The owner.
        uid: u32,
        /// The user that we run as.
        me: u32,
    },
    /// Others may write it.
    #[error("others may write it (its mode is {0:04o}): run `chmod go-w` on it")]
    Writable(u32),
    /// Others may read it, and know its secret.
    #[error(
        "others may use it (its mode is {mode:04o}): run `chmod 600 {}`, and use another secret if anyone may have read \
         this one",
        quoted(.path)
    )]
    Readable {
        /// Its mode.
        mode: u32,
        /// Where it is.
        path: PathBuf,
    },
    /// Others may write a directory that leads to it.
    #[error("others could put another file in its place: {}", replaced_in(.0))]
    Replaceable(NotPrivate),
}

/// Opens a configuration that no other user may write.
pub(crate) fn open_config(path: &Path) -> Result<File, OwnedFileError> {
    open(path, |facts| {
        // Usually we are the only member of our own group, and root of root's.
        let of_strangers = facts.gid() != rustix::process::getegid().as_raw() && facts.gid() != 0;
        let is_open = facts.mode() & 0o002 != 0 || (facts.mode() & 0o020 != 0 && of_strangers);
        // The mode of a pipe or device says nothing about who wrote what comes out of it.
        if facts.is_file() && is_open { Err(OwnedFileError::Writable(facts.mode() & 0o7777)) } else { Ok(()) }
    })
}

/// Reads a configuration that no other user may write.
pub(crate) fn read_config(path: &Path) -> Result<Vec<u8>, OwnedFileError> {
    Ok(read(open_config(path)?)?)
}

/// Reads a file that only its owner may read.
///
/// # Errors
/// It cannot be read, belongs to another user, is open to others or could be replaced by them. The message says how to
/// correct that.
pub fn read_secret(path: &Path) -> Result<Vec<u8>, OwnedFileError> {
    let file = open(path, |facts| match facts.mode() & 0o7777 {
        mode if mode & OTHERS == 0 => Ok(()),
        mode => Err(OwnedFileError::Readable { mode, path: path.to_owned() }),
    })?;
    Ok(read(file)?)
}

fn open(
    path: &Path,
    check: impl Fn(&Metadata) -> Result<(), OwnedFileError>,
) -> Result<File, OwnedFileError> {
    let file = File::open(path)?;
    // Of the open file, so that it cannot be swapped between the check and the reading.
    let facts = file.metadata()?;
    let me = rustix::process::geteuid().as_raw();
    if !may_own(facts.uid(), me) {
        return Err(OwnedFileError::OtherOwner { uid: facts.uid(), me });
    }
    check(&facts)?;
    // Only of a file: a pipe, for example, was opened by the process that started us.
    if facts.is_file() {
        check_above_file(path, facts.uid()).map_err(OwnedFileError::Replaceable)?;
    }
    Ok(file)
}

/// Reads a file up to the limit for configuration files.
pub(crate) fn read(file: File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other("it is longer than 1 MiB"));
    }
    Ok(content)
}

/// Tells whether we trust a file of this owner. Root can write every file anyway.
pub(crate) fn may_own(owner: u32, me: u32) -> bool {
    owner == me || owner == 0
}

fn replaced_in(directory: &NotPrivate) -> String {
    match directory {
        NotPrivate::Replaceable { path, mode, .. } => format!(
            "{} can be written by others (its mode is {mode:04o}): run `chmod go-w` on that directory",
            path.display()
        ),
        NotPrivate::OtherOwner { path, uid } => {
            format!("{} belongs to another user (uid {uid}): keep it elsewhere", path.display())
        }
        other => other.to_string(),
    }
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("my token");
        std::fs::write(&path, "t0p-s3cret").unwrap();
        for mode in [0o644, 0o640, 0o604, 0o660, 0o602, 0o777] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let message = read_secret(&path).unwrap_err().to_string();
            assert!(message.contains(&format!("{mode:04o}")) && !message.contains("s3cret"), "{message}");
            assert!(message.contains(&format!("`chmod 600 '{}'`", path.display())), "{message}");
        }
        for mode in [0o600, 0o400] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_secret(&path).unwrap(), b"t0p-s3cret");
        }
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let message = read_secret(&path).unwrap_err().to_string();
        assert!(message.contains("others could put another file in its place"), "{message}");
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            assert!(read_secret(&path).unwrap_err().to_string().contains("another user (uid 65534)"));
        }
    }
}
