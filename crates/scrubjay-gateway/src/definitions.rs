//! What servers said of their tools, prompts and themselves, kept from run to run: who changes one is noticed, and can be
//! held back until a person has looked.
//!
//! A file for each server in `<data>/definitions/`, its owner's alone. A server is its id and what is started or reached
//! under it, so another program under the same id is another server. Texts are redacted; hashes are keyed and made
//! of the text as it came. Many gateways and `scrubjay trust` write the same files, under one lock.

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

/// A larger file is not read: no server has that many tools, and it would be read again and again.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// How many redacted stretches of one definition are listed; the rest count as one.
const STRETCHES_MAX: usize = 64;
/// How many characters are kept of where each of them was.
const PLACE_CHARS_MAX: usize = 200;

/// The name of a server's file, and what it says or why it cannot be read.
pub type StoredServer = (String, Result<ServerDefinitions, DefinitionsError>);

/// Where definitions are kept.
pub struct Definitions {
    directory: PathBuf,
    redactor: Arc<Redactor>,
    /// Keys the hashes, of definitions and of command lines: both may hold secrets.
    key: [u8; 32],
}

/// What a file looked like when it was read: another look tells whether it changed since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    bytes: u64,
    changed_ns: i128,
}

/// Why what is kept of a server cannot be used.
#[derive(Debug, Error)]
pub enum DefinitionsError {
    /// It cannot be read or written.
    #[error("cannot use {path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not what was written.
    #[error(
        "{path} is damaged: look at your backends, then remove it; they are seen for the first time again"
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
    },
}

impl Definitions {
    /// Keeps them in a directory, which is made when something is first kept.
    #[must_use]
    pub fn new(directory: PathBuf, redactor: Arc<Redactor>, key: [u8; 32]) -> Self {
        Self { directory, redactor, key }
    }

    /// Returns what stands for a text.
    pub(crate) fn hash(&self, text: &str) -> String {
        blake3::keyed_hash(&self.key, text.as_bytes()).to_hex()[..32].to_owned()
    }

    pub(crate) fn redacted(&self, text: &str) -> String {
        String::from_utf8_lossy(self.redactor.redact(text.as_bytes()).as_bytes()).into_owned()
    }

    /// Takes the secrets out of a definition; also returns a line for each stretch that went, by which a person can tell
    /// that another is there now. Nobody can tell from it what it was.
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

    /// Returns the name of a server's file, and what people know it by.
    pub(crate) fn name(&self, id: &str, link: &BackendLink) -> (String, String) {
        let name = format!("{}-{}.json", self.redacted(id), &self.hash(&link.identity())[..16]);
        (name, self.redacted(&link.described()))
    }

    /// Returns the name that a definition is kept under: its own unless that holds a secret, and then another for each
    /// secret, so that two tools are still two.
    pub(crate) fn kept_name(&self, name: &str) -> String {
        let redacted = self.redacted(name);
        if redacted == name { redacted } else { format!("{redacted}#{}", &self.hash(name)[..8]) }
    }

    /// Lists all servers that were seen, with the names of their files; what cannot be read is left out with a reason.
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
            names.filter(|name| name.ends_with(".json") && !name.starts_with('.')).collect();
        names.sort_unstable();
        let read = |name: String| {
            let server = self.load(&name).map(|(server, _)| server.unwrap_or_default());
            (name, server)
        };
        Ok(names.into_iter().map(read).collect())
    }

    /// Changes what is kept of a server, under the lock, and returns what the change returns.
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

    /// As `update`, with what is kept now and what its file looks like.
    pub(crate) fn update_stamped<T>(
        &self,
        name: &str,
        change: impl FnOnce(&mut ServerDefinitions) -> T,
    ) -> Result<(T, ServerDefinitions, Stamp), DefinitionsError> {
        let path = self.directory.join(name);
        let _lock = self.lock().map_err(|source| failed(&self.directory, source))?;
        let (before, stamp) = self.load(name)?;
        let mut server = before.clone().unwrap_or_default();
        let returned = change(&mut server);
        server.forget_unused_texts();
        if before.as_ref() == Some(&server) {
            return Ok((returned, server, stamp));
        }
        let text = serde_json::to_string(&server).map_err(|e| failed(&path, e.into()))?;
        let new = self.directory.join(format!(".{name}.new"));
        let written = write_private(&new, text.as_bytes()).and_then(|()| fs::rename(&new, &path));
        written
            .and_then(|()| File::open(&self.directory)?.sync_all())
            .map_err(|source| failed(&path, source))?;
        Ok((returned, server, self.stamp(name)))
    }

    /// Reads what is kept of a server.
    pub(crate) fn load(&self, name: &str) -> Result<(Option<ServerDefinitions>, Stamp), DefinitionsError> {
        let path = self.directory.join(name);
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

    /// Keeps other processes from changing anything meanwhile.
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
