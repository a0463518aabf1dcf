//! Checkpoints: a list of what all tapes of a data directory held at one moment, under one hash, the *root*.
//!
//! A checkpoint that is signed, or kept out of reach of those who can write in the data directory, proves that nothing
//! recorded before it was changed since: entries, headers, and footers of sealed tapes. Tapes may have grown, come,
//! been removed or imported again; each of these is reported. It says nothing about changes made before it.

use std::collections::HashMap;
use std::io;

use scrubjay_core::id::TapeId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::format::facts::{IMPORTED, NotedFacts};
use crate::format::header::Imported;
use crate::format::observe::{Observed, Observer};
use crate::format::reader::{OpenError, Tape, TapeState};
use crate::format::totals::TOTALS_VERSION;
use crate::home::{FindError, Home, TapeFile};
use crate::removed::Removed;

/// The version of the format that is written.
const VERSION: u32 = 2;
/// From this version on a checkpoint covers headers and footers. Earlier ones cover only what the entries' digest
/// covers.
const FACTS_VERSION: u32 = 2;
/// Prefix of the hashed bytes, so that a root is never mistaken for another hash.
const CONTEXT: &[u8] = b"scrubjay checkpoint\n";

/// What all tapes of a data directory held at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The version of this format.
    pub checkpoint: u32,
    /// When it was made, nanoseconds since the Unix epoch.
    pub made_wall_ns: u64,
    /// The tapes, by their ids.
    pub tapes: Vec<NotedTape>,
    /// The hash over all of the above, in hex.
    pub root: String,
    /// The signature of the root, if it was signed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub signature: Option<Signature>,
}

/// What one tape held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedTape {
    /// The tape.
    pub tape: TapeId,
    /// Whether it was sealed: nothing may be added to it.
    pub sealed: bool,
    /// How many entries it had.
    pub entries: u64,
    /// Their digest.
    pub digest: String,
    /// The distance between two marks, in entries.
    pub mark_step: u64,
    /// The first eight characters of the digest at each mark: they narrow down which entry was changed.
    pub marks: String,
    /// The facts of its header; none if it was damaged, and in checkpoints of version 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub header: Option<NotedFacts>,
    /// The facts of its footer; none if it was not sealed, or damaged.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub footer: Option<NotedFacts>,
}

/// An ed25519 signature of a root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// The key that proves it, in hex.
    pub public_key: String,
    /// The signature of [`Checkpoint::signed_bytes`], in hex.
    pub signature: String,
}

/// Why a checkpoint cannot be made, read or compared.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The tapes cannot be listed.
    #[error(transparent)]
    Tapes(#[from] FindError),
    /// A tape cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A tape, or the notes of removals, cannot be read.
    #[error("cannot read what is in the data directory: {0}")]
    Io(#[from] io::Error),
    /// The file is something else.
    #[error("not a checkpoint: {0}")]
    NotOne(serde_json::Error),
    /// Another version wrote it.
    #[error("the checkpoint is of version {0}, and this scrubjay reads up to {VERSION}: update scrubjay")]
    TooNew(u32),
    /// It does not have the root that it says.
    #[error("the checkpoint itself was changed: what it lists has the root {has}, and it says {says}")]
    Altered {
        /// The root of what it lists.
        has: String,
        /// The root that it says.
        says: String,
    },
}

/// How a tape differs from what a checkpoint says of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum TapeChange {
    /// Nothing changed.
    Same,
    /// It was live, and entries were appended.
    Grown {
        /// How many more.
        by: u64,
    },
    /// Entries were changed.
    Changed {
        /// The first that may be another.
        first: u64,
        /// The last entry that may be the first changed one.
        last: u64,
    },
    /// It was sealed, and has more entries now.
    Added {
        /// How many more.
        by: u64,
    },
    /// Its entries are unchanged, but its header or footer is not.
    FactsChanged {
        /// The names of the header facts that differ.
        header: Option<Vec<String>>,
        /// The names of the footer facts that differ.
        footer: Option<Vec<String>>,
    },
    /// Its entries are unchanged, and it was imported since.
    Imported {
        /// When and from what.
        note: Imported,
    },
    /// Entries are missing at its end.
    Shortened {
        /// How many there are.
        has: u64,
    },
    /// It was removed, and the removal was noted.
    Removed {
        /// When and by what.
        note: Removed,
    },
    /// It is not there, and there is no note of its removal.
    Missing,
    /// It cannot be read.
    Unreadable {
        /// Why.
        why: String,
    },
}

impl TapeChange {
    /// Tells whether this can happen without tampering.
    #[must_use]
    pub fn is_fine(&self) -> bool {
        matches!(self, Self::Same | Self::Grown { .. } | Self::Removed { .. } | Self::Imported { .. })
    }

    /// Describes the difference in a sentence; `had` is what the checkpoint says of the tape.
    #[must_use]
    pub fn words(&self, had: &NotedTape) -> String {
        match self {
            Self::Same => format!("as it was, {} entries", had.entries),
            Self::Grown { by } => format!("as it was, and {by} entries more"),
            Self::Changed { first: 0, last: 0 } => {
                "CHANGED: its header or entry 0 is not what it was".to_owned()
            }
            Self::Changed { first, last } if first == last => {
                format!("CHANGED: entry {first} is not what it was")
            }
            Self::Changed { first, last } => {
                format!("CHANGED: the first entry that is not what it was is one of {first} to {last}")
            }
            Self::Added { by } => format!("CHANGED: it was closed, and {by} entries were added"),
            Self::FactsChanged { header, footer } => {
                let named =
                    |part: &str, facts: &[String]| format!("its {part} is not ({})", facts.join(", "));
                let header = header.iter().map(|facts| named("header", facts));
                let parts: Vec<String> =
                    header.chain(footer.iter().map(|facts| named("footer", facts))).collect();
                format!("CHANGED: its entries are what they were, but {}", parts.join(" and "))
            }
            Self::Imported { note } => {
                format!(
                    "its {} entries are as they were; it was imported since, from {}",
                    had.entries, note.format
                )
            }
            Self::Shortened { has } => {
                format!("SHORTENED: it has {has} of {} entries; entry {has} is missing", had.entries)
            }
            Self::Removed { note } => format!("removed {}", note.by.words()),
            Self::Missing => "MISSING: there is no note of its removal".to_owned(),
            Self::Unreadable { why } => format!("UNREADABLE: {why}"),
        }
    }
}

/// How all tapes differ from a checkpoint.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Each tape of the checkpoint.
    pub tapes: Vec<ComparedTape>,
    /// Tapes that are not in the checkpoint.
    pub new_tapes: Vec<TapeId>,
    /// Whether the checkpoint covers headers and footers. One of version 1 covers only the facts that identify a tape.
    pub covers_facts: bool,
}

/// How one tape differs from a checkpoint.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedTape {
    /// The tape.
    pub tape: TapeId,
    /// The difference.
    #[serde(flatten)]
    pub change: TapeChange,
    /// The same as a sentence.
    pub words: String,
}

impl Comparison {
    /// Tells whether no tape shows tampering.
    #[must_use]
    pub fn is_fine(&self) -> bool {
        self.tapes.iter().all(|tape| tape.change.is_fine())
    }
}

impl Checkpoint {
    /// Makes a checkpoint of all tapes. A live tape counts with the entries it has now.
    ///
    /// # Errors
    /// A tape cannot be read. A damaged tape is no error: it counts with what can be read of it.
    pub fn make(home: &Home, made_wall_ns: u64) -> Result<Self, CheckpointError> {
        let mut files = home.list()?;
        // By id, so that the root does not depend on the order of the list.
        files.sort_by_key(|file| file.id);
        let mut tapes = Vec::with_capacity(files.len());
        for file in &files {
            let tape = home.open(file)?;
            let sealed = tape.state() == TapeState::Sealed;
            let observed = observe(&tape, Vec::new(), 0)?;
            tapes.push(NotedTape {
                tape: file.id,
                sealed,
                entries: observed.entries,
                mark_step: observed.mark_step,
                marks: hex(&observed.marks),
                digest: observed.digest,
                header: tape.header_facts()?,
                footer: tape.footer_facts()?,
            });
        }
        let mut checkpoint =
            Self { checkpoint: VERSION, made_wall_ns, tapes, root: String::new(), signature: None };
        checkpoint.root = checkpoint.computed_root();
        Ok(checkpoint)
    }

    /// Reads a checkpoint, and checks that its root matches its content. The caller checks the signature.
    ///
    /// # Errors
    /// The text is no checkpoint, is of a later version, or was altered.
    pub fn parse(text: &[u8]) -> Result<Self, CheckpointError> {
        #[derive(Deserialize)]
        struct Versioned {
            checkpoint: u32,
        }
        // The version first, because a later one may have other members.
        let Versioned { checkpoint } = serde_json::from_slice(text).map_err(CheckpointError::NotOne)?;
        if !(1..=VERSION).contains(&checkpoint) {
            return Err(CheckpointError::TooNew(checkpoint));
        }
        let read: Self = serde_json::from_slice(text).map_err(CheckpointError::NotOne)?;
        let has = read.computed_root();
        if has == read.root { Ok(read) } else { Err(CheckpointError::Altered { has, says: read.root }) }
    }

    fn computed_root(&self) -> String {
        let listed = (self.checkpoint, self.made_wall_ns, &self.tapes);
        let mut hasher = blake3::Hasher::new();
        hasher.update(CONTEXT).update(&serde_json::to_vec(&listed).expect("facts are plain data"));
        hasher.finalize().to_hex().to_string()
    }

    /// Returns the bytes that a signature signs.
    #[must_use]
    pub fn signed_bytes(&self) -> Vec<u8> {
        [CONTEXT, self.root.as_bytes()].concat()
    }

    /// Compares each tape with what the checkpoint says of it.
    ///
    /// # Errors
    /// The data directory cannot be read.
    pub fn compare(&self, home: &Home) -> Result<Comparison, CheckpointError> {
        let present: HashMap<TapeId, TapeFile> =
            home.list()?.into_iter().map(|file| (file.id, file)).collect();
        let removed = home.removed()?;
        let compared = |noted: &NotedTape| {
            let change = match (present.get(&noted.tape), removed.get(&noted.tape)) {
                // A tape that was removed may have been imported again.
                (Some(file), _) => compare_tape(home, file, noted)
                    .unwrap_or_else(|e| TapeChange::Unreadable { why: e.to_string() }),
                (None, Some(removed)) => TapeChange::Removed { note: removed.clone() },
                (None, None) => TapeChange::Missing,
            };
            ComparedTape { tape: noted.tape, words: change.words(noted), change }
        };
        let tapes = self.tapes.iter().map(compared).collect();
        let mut new_tapes: Vec<TapeId> =
            present.into_keys().filter(|id| self.tapes.iter().all(|noted| noted.tape != *id)).collect();
        new_tapes.sort_unstable();
        Ok(Comparison { tapes, new_tapes, covers_facts: self.checkpoint >= FACTS_VERSION })
    }
}

fn compare_tape(home: &Home, file: &TapeFile, noted: &NotedTape) -> Result<TapeChange, CheckpointError> {
    let tape = home.open(file)?;
    // With the same distance as then, so that the marks can be compared.
    let observed = observe(&tape, vec![noted.entries], noted.mark_step)?;
    let has = observed.entries;
    let is_same = observed.found.get(&noted.entries) == Some(&noted.digest);
    Ok(match has.checked_sub(noted.entries) {
        Some(by) if is_same && by > 0 && noted.sealed => TapeChange::Added { by },
        Some(by) if is_same => match compare_facts(&tape, noted)? {
            Some(change) => change,
            None if by == 0 => TapeChange::Same,
            None => TapeChange::Grown { by },
        },
        None if first_change(&observed, noted).is_none() => TapeChange::Shortened { has },
        _ => {
            let step = noted.mark_step.max(1);
            let marks = noted.marks.len() as u64 / 8;
            let at = first_change(&observed, noted).unwrap_or(marks);
            let first = at.saturating_mul(step);
            let last = first.saturating_add(step).min(noted.entries).saturating_sub(1).max(first);
            TapeChange::Changed { first, last }
        }
    })
}

/// Compares a tape's header and footer with what was noted of them; none if nothing differs.
fn compare_facts(tape: &Tape, noted: &NotedTape) -> io::Result<Option<TapeChange>> {
    let differing =
        |noted: &Option<NotedFacts>, is: Option<NotedFacts>| noted.as_ref()?.differing(is.as_ref());
    let header = differing(&noted.header, tape.header_facts()?);
    let footer = differing(&noted.footer, tape.footer_facts()?);
    let imported = tape.header().and_then(|header| header.links.imported.clone());
    // An import writes a new footer. `tape verify` checks a footer of this version against the entries anyway.
    let is_checked = tape.footer().is_some_and(|footer| footer.totals_version == Some(TOTALS_VERSION));
    if let Some(note) = imported
        && header.as_ref().is_some_and(|facts| facts == &[IMPORTED])
        && (footer.is_none() || is_checked)
    {
        return Ok(Some(TapeChange::Imported { note }));
    }
    let is_changed = header.is_some() || footer.is_some();
    Ok(is_changed.then_some(TapeChange::FactsChanged { header, footer }))
}

/// Returns the index of the first mark that differs.
fn first_change(observed: &Observed, noted: &NotedTape) -> Option<u64> {
    let (has, had) = (hex(&observed.marks), noted.marks.as_bytes().chunks(8));
    let differs = has.as_bytes().chunks(8).zip(had).position(|(has, had)| has != had);
    differs.map(|at| at as u64)
}

/// Reads all entries of a tape that can be read.
fn observe(tape: &Tape, wanted: Vec<u64>, mark_step: u64) -> io::Result<Observed> {
    let mut observer = Observer::new(tape.header(), wanted).with_marks(mark_step);
    let mut entries = tape.entries()?;
    while let Some((number, frame)) = entries.next_frame()? {
        observer.take(number, frame);
    }
    Ok(observer.finish())
}

fn hex(marks: &[[u8; 4]]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(marks.len() * 8);
    for mark in marks {
        // Writing to a string cannot fail.
        let _ = write!(text, "{:08x}", u32::from_be_bytes(*mark));
    }
    text
}
