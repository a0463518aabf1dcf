//! Stores what is known of backends from one run to the next: a small file for each, redacted, readable by its owner
//! alone.
//!
//! Disposable: a file that is missing, damaged or too large is ignored. `backend/profile.rs` knows what a file holds.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use scrubjay_core::redact::Redactor;
use serde_json::Value;

/// A larger file is neither written nor read, because every start reads it.
const FILE_BYTES_MAX: usize = 4 << 20;

/// A directory of profiles.
pub struct ProfileStore {
    directory: PathBuf,
    redactor: Arc<Redactor>,
    /// The key of the hashes in file names, which are made of command lines: those may hold secrets.
    key: [u8; 32],
}

impl ProfileStore {
    /// Uses a directory, which is made at the first write.
    #[must_use]
    pub fn new(directory: PathBuf, redactor: Arc<Redactor>, key: [u8; 32]) -> Self {
        Self { directory, redactor, key }
    }

    /// Returns the name of the file for a backend with this id and description.
    #[must_use]
    pub fn name(&self, id: &str, described: &str) -> String {
        let hash = blake3::keyed_hash(&self.key, described.as_bytes()).to_hex();
        format!("{}-{}.json", self.redactor.text(id), &hash[..16])
    }

    /// Reads a file.
    #[must_use]
    pub fn load(&self, name: &str) -> Option<Value> {
        let path = self.directory.join(name);
        let is_small = fs::metadata(&path).ok()?.len() <= FILE_BYTES_MAX as u64;
        is_small.then(|| fs::read(&path).ok()).flatten().and_then(|bytes| serde_json::from_slice(&bytes).ok())
    }

    /// Writes a file on a thread of its own, so that no request waits for the disk.
    pub fn save(self: &Arc<Self>, name: &str, facts: &Value) {
        let text = facts.to_string();
        if text.len() > FILE_BYTES_MAX {
            return;
        }
        let (memory, name) = (self.clone(), name.to_owned());
        let write = move || {
            if let Err(e) = memory.write(&name, &text) {
                tracing::debug!(error = %e, "the profile of a backend cannot be stored");
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(write)),
            Err(_) => write(),
        }
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let redacted = self.redactor.redact(text.as_bytes());
        // Written under another name first: other gateways read this file, and may write it at the same time.
        let new = self.directory.join(format!(".{name}.{}.new", std::process::id()));
        let written = write_private(&new, redacted.as_bytes());
        written.and_then(|()| fs::rename(&new, self.directory.join(name))).inspect_err(|_| {
            // If it cannot be removed, the next write replaces it.
            let _ = fs::remove_file(&new);
        })
    }
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_kept_is_private_and_redacted() {
        let directory = tempfile::tempdir().expect("there is a temporary directory");
        let kept = directory.path().join("backends");
        let memory = Arc::new(ProfileStore::new(kept.clone(), Arc::new(Redactor::standard()), [7; 32]));
        let name = memory.name("files", "npx server --key hunter2");
        assert!(name.starts_with("files-") && !name.contains("hunter2"));
        assert_ne!(name, memory.name("files", "npx server --key other"));
        assert!(!memory.name("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "x").contains("ghp_"));
        assert_eq!(memory.load(&name), None);
        let secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
        memory.save(&name, &json!({ "instructions": format!("use {secret}"), "n": 1 }));
        let read = memory.load(&name).expect("it was kept");
        assert_eq!(read["n"], 1);
        assert!(!read.to_string().contains(secret), "{read}");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&kept), mode(&kept.join(&name))), (0o700, 0o600));
        fs::write(kept.join(&name), "{").unwrap();
        assert_eq!(memory.load(&name), None);
    }
}
