//! Checks every byte of a tape: checksums, hash chain, trailer, and whether the footer matches the entries.
//!
//! Names the first entry that cannot be trusted. A live or abandoned tape has no chain: its frames are checked, and an
//! unfinished last entry is reported, which a crash leaves and which is no damage.

use std::io;

use serde::Serialize;

use super::frame::{self, DecodedFrame};
use super::header::{self, HEADER_BYTES_MAX, Layout};
pub use super::observe::ClockJump;
use super::observe::{Observed, Observer};
use super::reader::{Damage, Tape};
use super::sealed::{self, BlockHead, BlockKind, BlockRef, HEAD, TRAILER};
use super::totals;

/// The result of a check.
#[derive(Clone, Debug, Serialize)]
pub struct VerifyReport {
    /// How many entries can be read.
    pub entries: u64,
    /// What is damaged, in the order of entries.
    pub damage: Vec<Damage>,
    /// The end of the hash chain, in hex. With a copy of it kept elsewhere, any later alteration can be detected. None if
    /// something was altered.
    pub head: Option<String>,
    /// Bytes of an entry that a crash cut off.
    pub unfinished_bytes: u64,
    /// The digest of the entries, in hex. A live tape has one too, and sealing does not change it.
    pub digest: String,
    /// Where the wall clock jumped. This is no damage.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clock_jumps: Vec<ClockJump>,
    /// Facts in which the footer differs from the entries. This is no damage, because another version sealed the tape
    /// and may have computed them differently.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub doubtful_totals: Vec<String>,
}

impl VerifyReport {
    /// Tells whether there is no damage.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty()
    }

    /// Returns the first damaged entry.
    #[must_use]
    pub fn first_bad_entry(&self) -> Option<u64> {
        self.damage.iter().filter_map(|d| d.entry).min()
    }
}

/// Checks a tape.
///
/// # Errors
/// The file cannot be read; damage is not an error but in the report.
pub fn verify(tape: &Tape) -> io::Result<VerifyReport> {
    verify_observed(tape, || Observer::new(tape.header(), Vec::new())).map(|(report, _)| report)
}

/// Checks a tape, and passes its entries to an observer. If the chain is broken the entries are read a second time, by
/// a new observer.
pub(crate) fn verify_observed(
    tape: &Tape,
    observer: impl Fn() -> Observer,
) -> io::Result<(VerifyReport, Observed)> {
    let mut walk = ChainWalk::new(observer().with_totals());
    // Damage from before the sealing counts, too.
    let mut damage = tape.footer().map(|footer| footer.damage.clone()).unwrap_or_default();
    if tape.layout() == Layout::Sealed {
        walk.follow(tape)?;
        if walk.damage.is_empty() {
            let (head, entries) = (walk.head(), walk.entries);
            let observed = walk.observer.finish();
            let report = report(entries, damage, head, 0, &observed);
            return Ok((VerifyReport { doubtful_totals: walk.doubtful_totals, ..report }, observed));
        }
    } else if tape.header().is_none() {
        walk.note(None, 0, "the tape's header is damaged");
    }
    // The walk ends at a block that it cannot read. `Entries` also finds the frames inside and behind damaged blocks.
    let mut observer = observer();
    let mut entries = tape.entries()?;
    while let Some((number, frame)) = entries.next_frame()? {
        observer.take(number, frame);
    }
    let observed = observer.finish();
    Damage::add(&mut damage, &walk.damage);
    Damage::add(&mut damage, entries.damage());
    damage.sort_by_key(|d| d.entry.unwrap_or(u64::MAX));
    let head = walk.head();
    Ok((report(observed.entries, damage, head, entries.unfinished_bytes(), &observed), observed))
}

fn report(
    entries: u64,
    damage: Vec<Damage>,
    head: Option<String>,
    unfinished_bytes: u64,
    observed: &Observed,
) -> VerifyReport {
    let (digest, clock_jumps) = (observed.digest.clone(), observed.jumps.clone());
    let doubtful_totals = Vec::new();
    VerifyReport { entries, damage, head, unfinished_bytes, digest, clock_jumps, doubtful_totals }
}

/// Follows the chain of a sealed tape, block by block.
struct ChainWalk {
    observer: Observer,
    entries: u64,
    blocks: Vec<BlockRef>,
    chain: [u8; 32],
    /// Where the next block should begin.
    at: u64,
    /// Which entry it should begin with.
    next: u64,
    ended: bool,
    altered: bool,
    damage: Vec<Damage>,
    doubtful_totals: Vec<String>,
}

impl ChainWalk {
    fn new(observer: Observer) -> Self {
        Self {
            observer,
            entries: 0,
            blocks: Vec::new(),
            chain: [0; 32],
            at: 0,
            next: 0,
            ended: false,
            altered: false,
            damage: Vec::new(),
            doubtful_totals: Vec::new(),
        }
    }

    fn head(&self) -> Option<String> {
        (self.ended && !self.altered).then(|| blake3::Hash::from_bytes(self.chain).to_hex().to_string())
    }

    fn note(&mut self, entry: Option<u64>, offset: u64, what: impl Into<String>) {
        self.damage.push(Damage { entry, offset, what: what.into() });
    }

    fn note_altered(&mut self, entry: Option<u64>, what: impl Into<String>) {
        self.altered = true;
        self.note(entry, self.at, what);
    }

    fn follow(&mut self, tape: &Tape) -> io::Result<()> {
        let file = tape.file();
        let mut start = vec![0; HEADER_BYTES_MAX];
        let present = sealed::read_at_most(file, &mut start, 0)?;
        match header::decode(&start[..present]) {
            Ok((.., length)) => self.chain = sealed::chain_start(&start[..length]),
            Err(e) => {
                self.note_altered(None, e.to_string());
                return Ok(());
            }
        }
        self.at = tape.body();
        let (mut stored, mut plain) = (Vec::new(), Vec::new());
        while let Some(head) = sealed::read_head(file, self.at)? {
            sealed::read_stored(file, &head.block, &mut stored)?;
            let whole = sealed::decompress(&stored, head.block.plain_bytes, &mut plain);
            let chained = self.take_chain(&head, &stored);
            if head.kind == BlockKind::Footer {
                return self.end(tape, &head.block, whole && chained);
            }
            self.take_block(&head.block, whole && chained, &plain);
        }
        // The trailer tells a footer that is damaged from a block that is.
        if sealed::read_trailer(file)?.is_some_and(|(offset, _)| offset == self.at) {
            self.note_altered(None, "the footer is damaged; the entries are not");
        } else {
            let next = self.next;
            self.note_altered(
                Some(next),
                format!("the block that should begin with entry {next} is damaged"),
            );
        }
        Ok(())
    }

    /// Tells whether the chain holds at this block, and continues with the hash that the block claims, so that one
    /// altered block does not make all later ones look altered.
    fn take_chain(&mut self, head: &BlockHead, stored: &[u8]) -> bool {
        let holds = sealed::chain_next(&self.chain, &head.chained, stored) == head.chain;
        self.chain = head.chain;
        holds
    }

    fn take_block(&mut self, block: &BlockRef, unaltered: bool, plain: &[u8]) {
        let next = self.next;
        let sound = sound_frames(block.first_entry, plain, &mut self.observer);
        if block.first_entry < next {
            self.note_altered(Some(block.first_entry), "a block is behind others that should follow it");
        } else if block.first_entry > next {
            // If the chain holds they were lost before the sealing, and the footer lists them.
            self.altered |= !unaltered;
            self.note(
                Some(next),
                self.at,
                format!("entries {next} to {} are missing", block.first_entry - 1),
            );
        }
        if !unaltered || sound != u64::from(block.entries) {
            let first = block.first_entry + sound.min(block.entries.into());
            let first = if first == block.end() { block.first_entry } else { first };
            self.note_altered(Some(first), format!("entry {first} cannot be trusted: its block was altered"));
        }
        self.entries += u64::from(block.entries);
        self.next = block.end();
        self.at += HEAD as u64 + u64::from(block.stored_bytes);
        self.blocks.push(*block);
    }

    fn end(&mut self, tape: &Tape, footer: &BlockRef, unaltered: bool) -> io::Result<()> {
        self.ended = true;
        if !unaltered {
            self.note_altered(None, "the footer is damaged, or does not belong here");
            return Ok(());
        }
        let length = tape.file_bytes()?;
        let trailer_at = self.at + HEAD as u64 + u64::from(footer.stored_bytes);
        match sealed::read_trailer(tape.file())? {
            Some(trailer) if trailer == (self.at, self.chain) && trailer_at + TRAILER as u64 == length => {}
            _ => {
                self.at = trailer_at;
                self.note_altered(None, "the tape's last bytes are damaged; the entries are not");
                return Ok(());
            }
        }
        if tape.footer().is_none_or(|footer| footer.blocks != self.blocks) {
            self.note_altered(None, "the footer does not describe the blocks that are there");
        }
        let noted = tape.footer().and_then(|footer| footer.digest.as_deref());
        if noted.is_some_and(|noted| noted != self.observer.digest()) {
            self.note_altered(None, "the footer names another digest than the entries have");
        }
        self.compare_totals(tape);
        Ok(())
    }

    /// Compares the footer with the entries, if no block was altered.
    fn compare_totals(&mut self, tape: &Tape) {
        let (Some(footer), Some(totals)) = (tape.footer(), self.observer.take_totals()) else { return };
        if self.altered {
            return;
        }
        let differences = totals::compare(footer, totals);
        if !differences.altered.is_empty() {
            let names = differences.altered.join(", ");
            self.note_altered(
                None,
                format!("the footer was altered: the entries do not add up to what it says ({names})"),
            );
        }
        self.doubtful_totals = differences.doubtful;
    }
}

fn sound_frames(first_entry: u64, mut plain: &[u8], observer: &mut Observer) -> u64 {
    let mut count = 0;
    while let DecodedFrame::Frame(_, length) = frame::decode(first_entry.saturating_add(count), plain) {
        observer.take(first_entry.saturating_add(count), &plain[..length]);
        count += 1;
        plain = &plain[length..];
    }
    count
}
