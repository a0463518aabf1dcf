//! The project files that their owner approved, by path and content, as direnv does.
//!
//! `<data>/trust.json` lists them. It is replaced as a whole, under a lock, and only its owner may read it. A file that
//! changed by a byte, or was moved, is not trusted any more.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use scrubjay_tape::home::Home;
use serde::{Deserialize, Serialize};

use crate::project::ProjectFile;

/// The list of trusted files.
pub struct TrustStore {
    home: Home,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Trusted {
    version: u32,
    /// One entry for each path: its newest approval.
    files: Vec<TrustedFile>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct TrustedFile {
    path: PathBuf,
    fingerprint: String,
}

const VERSION: u32 = 1;

/// Returns the hash of a file's path and content.
fn fingerprint(file: &ProjectFile) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(file.path.as_os_str().as_bytes());
    // No path contains this byte, so bytes cannot pass from the content to the path under the same hash.
    hasher.update(&[0]);
    hasher.update(&file.content);
    hasher.finalize().to_hex().to_string()
}

impl TrustStore {
    pub(crate) fn new(home: Home) -> Self {
        Self { home }
    }

    /// Returns the path of the list.
    pub fn path(&self) -> PathBuf {
        self.home.root().join("trust.json")
    }

    /// Tells whether a file is trusted with this content.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn trusts(&self, file: &ProjectFile) -> anyhow::Result<bool> {
        let fingerprint = fingerprint(file);
        Ok(self.load()?.files.iter().any(|t| t.path == file.path && t.fingerprint == fingerprint))
    }

    /// Trusts a file with the content that was read.
    ///
    /// # Errors
    /// The list cannot be read or written.
    pub fn trust(&self, file: &ProjectFile) -> anyhow::Result<()> {
        self.change(|trusted| {
            trusted.files.retain(|t| t.path != file.path);
            trusted.files.push(TrustedFile { path: file.path.clone(), fingerprint: fingerprint(file) });
        })
    }

    /// Ends the trust in a file; returns whether it was trusted.
    ///
    /// # Errors
    /// The list cannot be read or written.
    pub fn revoke(&self, path: &Path) -> anyhow::Result<bool> {
        let mut was = false;
        self.change(|trusted| {
            was = trusted.files.iter().any(|t| t.path == path);
            trusted.files.retain(|t| t.path != path);
        })?;
        Ok(was)
    }

    fn load(&self) -> anyhow::Result<Trusted> {
        let path = self.path();
        let text = match std::fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Ok(Trusted { version: VERSION, files: Vec::new() });
            }
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let trusted: Trusted = serde_json::from_slice(&text).with_context(|| {
            format!("{} is damaged: remove it and trust your files again", path.display())
        })?;
        // Nothing of a list that we do not understand is trusted, and `change` does not write over it.
        anyhow::ensure!(trusted.version == VERSION, "{} is of a newer Scrubjay", path.display());
        Ok(trusted)
    }

    fn change(&self, change: impl FnOnce(&mut Trusted)) -> anyhow::Result<()> {
        self.home.create().with_context(|| format!("cannot create {}", self.home.root().display()))?;
        let path = self.path();
        let write = |trusted: &Trusted| -> io::Result<()> {
            // A temporary file has mode 0600 under any umask.
            let mut file = tempfile::NamedTempFile::new_in(self.home.root())?;
            serde_json::to_writer_pretty(&mut file, trusted)?;
            file.flush()?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            // The directory too, so that the new name survives a loss of power.
            File::open(self.home.root())?.sync_all()
        };
        let _lock = self.lock().with_context(|| format!("cannot lock {}", self.home.root().display()))?;
        // Read under the lock, so that an approval that another process writes now is not lost.
        let mut trusted = self.load()?;
        change(&mut trusted);
        write(&trusted).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Locks the list against other processes.
    fn lock(&self) -> io::Result<File> {
        // Of the directory: the list itself is replaced, and with it a lock on it.
        let directory = File::open(self.home.root())?;
        rustix::fs::flock(&directory, rustix::fs::FlockOperation::LockExclusive)?;
        Ok(directory)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(path: &str, content: &str) -> ProjectFile {
        ProjectFile { path: path.into(), content: content.into() }
    }

    fn store(directory: &tempfile::TempDir) -> TrustStore {
        TrustStore::new(Home::new(directory.path().join("data")))
    }

    #[test]
    fn trust_applies_to_one_path_and_content() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(&directory);
        let original = file("/p/scrubjay.yaml", "log_level: info\n");
        assert!(!store.trusts(&original).unwrap());
        store.trust(&original).unwrap();
        assert!(store.trusts(&original).unwrap());
        assert!(!store.trusts(&file("/p/scrubjay.yaml", "log_level: info\r")).unwrap());
        assert!(!store.trusts(&file("/q/scrubjay.yaml", "log_level: info\n")).unwrap());
        assert!(!store.trusts(&file("/p/scrubjay.yam", "llog_level: info\n")).unwrap());
    }

    #[test]
    fn a_new_approval_ends_the_old_one_and_revoking_ends_all() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(&directory);
        let (old, new) = (file("/p/c", "a"), file("/p/c", "b"));
        store.trust(&old).unwrap();
        store.trust(&file("/q/c", "a")).unwrap();
        store.trust(&new).unwrap();
        assert!(store.trusts(&new).unwrap() && !store.trusts(&old).unwrap());
        assert!(store.revoke(Path::new("/p/c")).unwrap());
        assert!(!store.revoke(Path::new("/p/c")).unwrap());
        assert!(!store.trusts(&new).unwrap());
        assert!(store.trusts(&file("/q/c", "a")).unwrap());
    }

    #[test]
    fn the_trust_list_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(&directory);
        store.trust(&file("/p/c", "a")).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&store.path()), 0o600);
        assert_eq!(mode(store.home.root()), 0o700);
    }

    #[test]
    fn a_damaged_list_trusts_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(&directory);
        store.trust(&file("/p/c", "a")).unwrap();
        for damage in ["", "{", r#"{"version":2,"files":[]}"#, r#"{"version":1,"files":[],"all":true}"#] {
            std::fs::write(store.path(), damage).unwrap();
            assert!(store.trusts(&file("/p/c", "a")).is_err(), "{damage}");
            assert!(store.trust(&file("/p/c", "a")).is_err(), "{damage}");
        }
    }

    #[test]
    fn simultaneous_approvals_are_all_kept() {
        let directory = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for i in 0..8 {
                let store = store(&directory);
                scope.spawn(move || store.trust(&file(&format!("/p/{i}"), "a")).unwrap());
            }
        });
        assert_eq!(store(&directory).load().unwrap().files.len(), 8);
    }
}
