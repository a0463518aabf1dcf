//! Stores the definitions of tools, prompts and instructions from run to run: a change is noticed, and can be held
//! back until a person has approved it.
//!
//! Each server has a file in `<data>/definitions/`, readable by its owner alone. A server is identified by its id and
//! its command or address, so another program under the same id is another server. Texts are redacted; hashes are
//! keyed, and made of the original text. Several gateways and `scrubjay trust` write the same files, under one lock.

mod server;
mod spelling;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use scrubjay_core::redact::{RedactionFinding, Redactor, cut};
use thiserror::Error;

pub use server::{
    Approver, DefinitionChange, DefinitionHistory, DefinitionKind, DefinitionText, HeldReason,
    ObservedDefinition, PendingDefinition, ServerDefinitions,
};
pub use spelling::spelled;

use crate::config::BackendLink;

/// A larger file counts as damaged: the limits on what is stored of a server keep its file below that.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// How many redacted stretches of a definition are listed one by one; the rest are summed up in one line.
const STRETCHES_MAX: usize = 64;
/// How many characters of the place of each are kept.
const PLACE_CHARS_MAX: usize = 200;

/// The name of a server's file, and its content or why it cannot be read.
pub type StoredServer = (String, Result<ServerDefinitions, DefinitionsError>);

/// The directory of definitions.
pub struct Definitions {
    directory: PathBuf,
    redactor: Arc<Redactor>,
    /// The key of all hashes. Definitions and command lines may hold secrets, which could be guessed from plain hashes.
    key: [u8; 32],
}

/// Identifies the version of a file, to find out whether it has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    bytes: u64,
    changed_ns: i128,
}

/// Why the definitions of a server cannot be used.
#[derive(Debug, Error)]
pub enum DefinitionsError {
    /// It cannot be read or written.
    #[error("cannot use {path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It does not contain what was written.
    #[error(
        "{path} is damaged: look at your backends, then remove it; they are seen for the first time again"
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
    },
}

impl Definitions {
    /// Uses a directory, which is made at the first write.
    #[must_use]
    pub fn new(directory: PathBuf, redactor: Arc<Redactor>, key: [u8; 32]) -> Self {
        Self { directory, redactor, key }
    }

    /// Returns the keyed hash of a text.
    pub(crate) fn hash(&self, text: &str) -> String {
        blake3::keyed_hash(&self.key, text.as_bytes()).to_hex()[..32].to_owned()
    }

    pub(crate) fn redacted(&self, text: &str) -> String {
        String::from_utf8_lossy(self.redactor.redact(text.as_bytes()).as_bytes()).into_owned()
    }

    /// Redacts a definition; also returns a line for each redacted stretch. It shows a person when the stretch has
    /// changed, but not what it was.
    pub(crate) fn without_secrets(&self, text: &str) -> (String, Vec<String>) {
        let redacted = self.redacted(text);
        if redacted == text {
            return (redacted, Vec::new());
        }
        let (_, findings) = self.redactor.explain(text.as_bytes());
        let stretch = |finding: &RedactionFinding| &text.as_bytes()[finding.range.clone()];
        let short = |bytes: &[u8]| blake3::keyed_hash(&self.key, bytes).to_hex()[..8].to_owned();
        let (named, others) = findings.split_at(findings.len().min(STRETCHES_MAX));
        let line = |finding: &RedactionFinding| {
            let (rule, place, hash) =
                (&finding.rule, cut(&finding.place, PLACE_CHARS_MAX), short(stretch(finding)));
            format!("{rule} at {place}, {} bytes, #{hash}", finding.bytes)
        };
        let mut lines: Vec<String> = named.iter().map(line).collect();
        if !others.is_empty() {
            let all: Vec<&[u8]> = others.iter().map(stretch).collect();
            let bytes: usize = others.iter().map(|other| other.bytes).sum();
            lines.push(format!("{} more, {bytes} bytes, #{}", others.len(), short(&all.join(&b'\n'))));
        }
        (redacted, lines)
    }

    /// Returns the name of a server's file, and a description of the server for people.
    pub(crate) fn name(&self, id: &str, link: &BackendLink) -> (String, String) {
        let name = format!("{}-{}.json", self.redacted(id), &self.hash(&link.identity())[..16]);
        (name, self.redacted(&link.described()))
    }

    /// Returns the name under which a definition is stored: its own, or redacted with a hash, so that two tools whose
    /// names differ only in a secret stay two.
    pub(crate) fn stored_name(&self, name: &str) -> String {
        let redacted = self.redacted(name);
        if redacted == name { redacted } else { format!("{redacted}#{}", &self.hash(name)[..8]) }
    }

    /// Lists all servers with the names of their files, and for a file that cannot be read the reason.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list(&self) -> Result<Vec<StoredServer>, DefinitionsError> {
        let names = match fs::read_dir(&self.directory) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            names => names.map_err(|source| failed(&self.directory, source))?,
        };
        let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> =
            // The lock and files that are being written begin with a dot.
            names.filter(|name| name.ends_with(".json") && !name.starts_with('.')).collect();
        names.sort_unstable();
        let read = |name: String| {
            let server = self.load(&name).map(|(server, _)| server.unwrap_or_default());
            (name, server)
        };
        Ok(names.into_iter().map(read).collect())
    }

    /// Changes the definitions of a server under the lock, and returns what `change` returns.
    ///
    /// # Errors
    /// It cannot be read or written; a damaged file stays as it is.
    pub fn update<T>(
        &self,
        name: &str,
        change: impl FnOnce(&mut ServerDefinitions) -> T,
    ) -> Result<T, DefinitionsError> {
        self.update_stamped(name, change).map(|(returned, ..)| returned)
    }

    /// Like `update`; also returns the new definitions and the stamp of their file.
    pub(crate) fn update_stamped<T>(
        &self,
        name: &str,
        change: impl FnOnce(&mut ServerDefinitions) -> T,
    ) -> Result<(T, ServerDefinitions, Stamp), DefinitionsError> {
        let path = self.directory.join(name);
        // Read again under the lock: another gateway or `scrubjay trust` may have written it since.
        let _lock = self.lock().map_err(|source| failed(&self.directory, source))?;
        let (before, stamp) = self.load(name)?;
        let mut server = before.clone().unwrap_or_default();
        let returned = change(&mut server);
        server.forget_unused_texts();
        // Most lists are the same as in the last run: they cost no write and no sync.
        if before.as_ref() == Some(&server) {
            return Ok((returned, server, stamp));
        }
        let text = serde_json::to_string(&server).map_err(|e| failed(&path, e.into()))?;
        // Synced before and after the rename: a loss of power leaves the old file or the new one.
        let new = self.directory.join(format!(".{name}.new"));
        let written = write_private(&new, text.as_bytes()).and_then(|()| fs::rename(&new, &path));
        written
            .and_then(|()| File::open(&self.directory)?.sync_all())
            .map_err(|source| failed(&path, source))?;
        Ok((returned, server, self.stamp(name)))
    }

    /// Reads the definitions of a server.
    pub(crate) fn load(&self, name: &str) -> Result<(Option<ServerDefinitions>, Stamp), DefinitionsError> {
        let path = self.directory.join(name);
        // Taken before the file is read: a change in between then shows as a change.
        let stamp = self.stamp(name);
        if stamp.bytes > FILE_BYTES_MAX {
            return Err(DefinitionsError::Damaged { path });
        }
        let bytes = match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((None, Stamp::default())),
            bytes => bytes.map_err(|source| failed(&path, source))?,
        };
        let server: ServerDefinitions =
            serde_json::from_slice(&bytes).map_err(|_| DefinitionsError::Damaged { path })?;
        Ok((Some(server), stamp))
    }

    pub(crate) fn stamp(&self, name: &str) -> Stamp {
        let Ok(facts) = fs::metadata(self.directory.join(name)) else { return Stamp::default() };
        let changed_ns = i128::from(facts.mtime()) * 1_000_000_000 + i128::from(facts.mtime_nsec());
        Stamp { inode: facts.ino(), bytes: facts.len(), changed_ns }
    }

    /// Locks the directory against changes by other processes, until the file is dropped.
    fn lock(&self) -> io::Result<File> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let mut options = fs::OpenOptions::new();
        let file = options.create(true).append(true).mode(0o600).open(self.directory.join(".lock"))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
        Ok(file)
    }
}

fn failed(path: &Path, source: io::Error) -> DefinitionsError {
    DefinitionsError::Io { path: path.to_owned(), source }
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests;
