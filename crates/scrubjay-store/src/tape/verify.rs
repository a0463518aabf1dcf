//! Checks a tape byte by byte: checksums, hash chain, footer, trailer.
//!
//! Names the first entry that cannot be trusted. A live or abandoned tape has no chain yet: its frames are
//! checked, and an unfinished last entry is reported, which is what a crash leaves and no damage.

use std::io;

use serde::Serialize;

use super::frame::{self, Decoded};
use super::header::{self, HEADER_BYTES_MAX, Layout};
use super::reader::{Damage, Tape};
use super::sealed::{self, BlockKind, HEAD, TRAILER};

/// What a check found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// How many entries are sound.
    pub entries: u64,
    /// What is not, first things first.
    pub damage: Vec<Damage>,
    /// The end of the hash chain, in hex: note it down, and no later alteration goes unseen.
    pub head: Option<String>,
    /// Bytes of an entry that a crash cut off.
    pub unfinished_bytes: u64,
}

impl Report {
    /// Returns whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty()
    }

    /// Returns the first entry that is not sound.
    #[must_use]
    pub fn first_bad_entry(&self) -> Option<u64> {
        self.damage.iter().filter_map(|d| d.entry).min()
    }

    fn note(&mut self, entry: Option<u64>, offset: u64, what: impl Into<String>) {
        self.damage.push(Damage { entry, offset, what: what.into() });
    }
}

/// Checks a tape.
///
/// # Errors
/// The file cannot be read; damage is not an error but in the report.
pub fn verify(tape: &Tape) -> io::Result<Report> {
    match tape.layout() {
        Layout::Live => verify_live(tape),
        Layout::Sealed => verify_sealed(tape),
    }
}

fn verify_live(tape: &Tape) -> io::Result<Report> {
    let mut entries = tape.entries()?;
    let mut count = 0;
    while entries.next()?.is_some() {
        count += 1;
    }
    Ok(Report {
        entries: count,
        damage: entries.damage().to_vec(),
        head: None,
        unfinished_bytes: entries.unfinished_bytes() as u64,
    })
}

fn verify_sealed(tape: &Tape) -> io::Result<Report> {
    let file = tape.file();
    let mut report = Report { entries: 0, damage: Vec::new(), head: None, unfinished_bytes: 0 };
    let mut start = vec![0; HEADER_BYTES_MAX];
    let present = sealed::read_at_most(file, &mut start, 0)?;
    let mut chain = match header::decode(&start[..present]) {
        Ok((.., length)) => sealed::chain_start(&start[..length]),
        Err(e) => {
            report.note(None, 0, e.to_string());
            return verify_unchained(tape, report);
        }
    };
    let (mut at, mut next) = (tape.body(), 0);
    let (mut stored, mut plain) = (Vec::new(), Vec::new());
    loop {
        let Some(head) = sealed::read_head(file, at)? else {
            report.note(Some(next), at, format!("the block that should begin with entry {next} is damaged"));
            return verify_unchained(tape, report);
        };
        sealed::read_stored(file, &head.block, &mut stored)?;
        chain = sealed::chain_next(&chain, &head.chained, &stored);
        let whole = sealed::decompress(&stored, head.block.plain_bytes, &mut plain);
        if head.kind == BlockKind::Footer {
            verify_end(tape, &mut report, at, whole && chain == head.chain, &chain)?;
            return Ok(report);
        }
        let sound = sound_frames(head.block.first_entry, &plain);
        let expected = u64::from(head.block.entries);
        report.entries += sound.min(expected);
        if !whole || sound != expected || chain != head.chain || head.block.first_entry != next {
            let first = next + if sound < expected { sound } else { 0 };
            report.note(Some(first), at, format!("entry {first} cannot be trusted: its block was altered"));
            // Go on from what this block claims, to tell further damage from this one's consequences.
            chain = head.chain;
        }
        next = head.block.first_entry + expected;
        at += (HEAD + stored.len()) as u64;
    }
}

/// Counts what is readable when the chain cannot be followed.
fn verify_unchained(tape: &Tape, mut report: Report) -> io::Result<Report> {
    let mut entries = tape.entries()?;
    report.entries = 0;
    while entries.next()?.is_some() {
        report.entries += 1;
    }
    for damage in entries.damage() {
        if !report.damage.iter().any(|d| d.entry == damage.entry) {
            report.damage.push(damage.clone());
        }
    }
    Ok(report)
}

fn verify_end(
    tape: &Tape,
    report: &mut Report,
    at: u64,
    block_is_sound: bool,
    chain: &[u8; 32],
) -> io::Result<()> {
    let length = tape.file_bytes()?;
    let footer = sealed::read_footer(tape.file())?;
    match sealed::read_trailer(tape.file())? {
        _ if !block_is_sound => report.note(None, at, "the footer is damaged; the entries are not"),
        Some((offset, head)) if offset == at && head == *chain && footer.is_some() => {
            report.head = Some(blake3::Hash::from_bytes(*chain).to_hex().to_string());
        }
        _ => report.note(
            None,
            length.saturating_sub(TRAILER as u64),
            "the tape's last bytes are damaged; the entries are not",
        ),
    }
    // Damage from before the sealing is part of the truth about this tape.
    if let Some(footer) = footer {
        report.damage.extend(footer.damage);
    }
    Ok(())
}

fn sound_frames(first_entry: u64, mut plain: &[u8]) -> u64 {
    let mut count = 0;
    while let Decoded::Frame(_, length) = frame::decode(first_entry.saturating_add(count), plain) {
        count += 1;
        plain = &plain[length..];
    }
    count
}
