//! The file with the token of the debug endpoints, which exists as long as they do.
//!
//! It is `<data>/debug/<port>.token`, readable by its owner alone and locked while its process lives: an unlocked file was
//! left by a crash.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use scrubjay_gateway::config::Secret;
use scrubjay_gateway::debug::new_token;

/// The token's file; dropping this removes it.
pub(super) struct TokenFile {
    path: PathBuf,
    _lock: File,
}

impl TokenFile {
    /// Makes a token and its file.
    pub(super) fn create(directory: &Path, port: u16) -> io::Result<(Secret, Self)> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        clear_abandoned(directory);
        let token = new_token();
        // A temporary file is readable by its owner alone. It gets its name when it is complete and locked, so that
        // nobody reads half a token or removes the file as abandoned.
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(format!("{}\n", token.reveal()).as_bytes())?;
        flock(file.as_file(), FlockOperation::NonBlockingLockExclusive)?;
        let path = directory.join(format!("{port}.token"));
        let lock = file.persist(&path)?;
        Ok((token, Self { path, _lock: lock }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        // If this fails, the next start removes the file, because it is not locked any more.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Removes the files of processes that are gone.
fn clear_abandoned(directory: &Path) {
    let files = std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    for path in files.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "token"))
    {
        let is_free = |file: File| flock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if File::open(&path).is_ok_and(is_free) {
            // It fails if another process, which starts at the same time, removed the file first.
            let _ = std::fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_its_owner_can_read_it_and_it_is_removed_with_its_process() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("debug");
        let (token, file) = TokenFile::create(&place, 7).unwrap();
        assert!(token.reveal().len() >= 32);
        assert_eq!(std::fs::read_to_string(file.path()).unwrap().trim_end(), token.reveal());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(file.path()), mode(&place)), (0o600, 0o700));
        std::fs::write(place.join("9.token"), "left behind").unwrap();
        let (other, second) = TokenFile::create(&place, 8).unwrap();
        assert_ne!(token.reveal(), other.reveal());
        assert!(file.path().exists() && !place.join("9.token").exists());
        drop((file, second));
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);
    }
}
