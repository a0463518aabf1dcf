//! Notes which tapes were removed, when and by what, to tell a removed tape from a missing one.
//!
//! `<data>/removed.jsonl` has a line for each tape, written before the tape is removed. It is a note and no proof:
//! anybody who can write in the data directory can write here, too.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};
use scrubjay_core::id::TapeId;
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::format::writer::{create_private, is_at};
use crate::home::{Home, TapeFile};

/// When the file is longer than 16 MiB the older half is dropped. That half names about 50,000 tapes.
const NOTES_BYTES_MAX: u64 = 16 << 20;

/// What removed a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemovedBy {
    /// The configured retention.
    Retention,
    /// A person, with `tape rm`.
    Person,
}

impl RemovedBy {
    /// Returns the words for a sentence: "removed by …".
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Retention => "by the configured retention",
            Self::Person => "with `tape rm`",
        }
    }
}

/// The note of one removal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Which tape.
    pub tape: TapeId,
    /// When it was removed, nanoseconds since the Unix epoch.
    pub removed_wall_ns: u64,
    /// What removed it.
    pub by: RemovedBy,
    /// The digest of its entries, if it was sealed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub digest: Option<String>,
}

impl Home {
    pub(crate) fn removed_path(&self) -> PathBuf {
        self.root().join("removed.jsonl")
    }

    /// Returns the notes of removed tapes; the last note of each counts. Lines that cannot be read are skipped.
    ///
    /// # Errors
    /// The notes cannot be read.
    pub fn removed(&self) -> io::Result<HashMap<TapeId, Removed>> {
        let text = match std::fs::read(self.removed_path()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(HashMap::new()),
            text => text?,
        };
        let notes = text.split(|byte| *byte == b'\n');
        let notes = notes.filter_map(|line| serde_json::from_slice::<Removed>(line).ok());
        Ok(notes.map(|note| (note.tape, note)).collect())
    }

    /// Removes a tape, and notes the removal.
    ///
    /// # Errors
    /// A file cannot be removed, or the removal cannot be noted.
    pub fn remove(&self, tape: &TapeFile, by: RemovedBy) -> io::Result<()> {
        let digest = self.open(tape).ok().and_then(|open| open.footer().and_then(|f| f.digest.clone()));
        let note = Removed { tape: tape.id, removed_wall_ns: clock::now().wall_ns, by, digest };
        let noted = self.note_removed(&note);
        self.remove_files(tape)?;
        // On a full disk the note fails before the removal, and may succeed after it.
        noted.or_else(|_| self.note_removed(&note))
    }

    fn note_removed(&self, note: &Removed) -> io::Result<()> {
        let mut line = serde_json::to_vec(note)?;
        line.push(b'\n');
        let mut file = self.open_removed()?;
        if file.metadata()?.len() > NOTES_BYTES_MAX {
            file = self.halve_removed()?;
        }
        file.write_all(&line)
    }

    /// Opens the file for one writer at a time; closing it frees the lock.
    fn open_removed(&self) -> io::Result<File> {
        let path = self.removed_path();
        loop {
            let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
            flock(&file, FlockOperation::LockExclusive)?;
            // The previous holder of the lock may have replaced the file.
            if is_at(&file, &path)? {
                return Ok(file);
            }
        }
    }

    fn halve_removed(&self) -> io::Result<File> {
        let path = self.removed_path();
        let text = std::fs::read(&path)?;
        let half = text.len() / 2;
        let from = text[half..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| half + at + 1);
        let temporary = path.with_extension("new");
        let mut file = create_private(&temporary)?;
        flock(&file, FlockOperation::LockExclusive)?;
        file.write_all(&text[from..])?;
        std::fs::rename(&temporary, &path)?;
        Ok(file)
    }
}
