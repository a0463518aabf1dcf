//! Reads a tape entry by entry.
//!
//! One entry is in memory at a time; of a sealed tape, one block. Damage does not end the reading as long as more
//! entries can be found: it is skipped and listed.

use std::fs::File;
use std::io;

use scrubjay_core::entry::Entry;

use super::frame::{self, DecodedFrame};
use super::reader::Damage;
use super::sealed::{self, BlockMap, BlockRef};
use super::search::{self, FramePosition, WORK_BYTES_MAX};
use super::upgrade::{self, UpgradeStep};

/// How much of a live file is read at a time: few system calls, little memory.
const READ_BYTES: usize = 256 * 1024;
/// How much damage is listed: a forged file must not fill the memory with findings.
const DAMAGE_MAX: usize = 1000;

#[derive(Debug)]
enum EntrySource {
    Live(File),
    Sealed {
        file: File,
        blocks: std::vec::IntoIter<BlockRef>,
        /// One past the last entry of the current block.
        block_end: u64,
        /// Where the tape breaks off, until that is listed as damage.
        broken_off: Option<u64>,
    },
}

/// What the last bytes of a live file are, if they are no whole entry.
#[derive(Debug)]
enum TailState {
    /// An entry that is being written, or that a crash cut off.
    CutOff { bytes: u64 },
    /// An entry that was whole, and is damaged.
    Damaged,
}

impl TailState {
    fn inspect(file: &File, here: u64) -> io::Result<Self> {
        let bytes = file.metadata()?.len().saturating_sub(here);
        // After a crash of the system the last bytes of a file may be zeros.
        let solid = search::solid_end(file, here)?.saturating_sub(here);
        let mut prefix = [0; 4];
        sealed::read_at_most(file, &mut prefix, here)?;
        let cut_off = match frame::claimed_length(prefix) {
            Some(whole) => solid < whole as u64,
            None => solid < prefix.len() as u64,
        };
        Ok(if cut_off { Self::CutOff { bytes } } else { Self::Damaged })
    }
}

/// A reader of a tape's entries.
///
/// At the end of a live tape [`Entries::next`] returns `None`; called again later, it returns entries that came since.
#[derive(Debug)]
pub struct Entries {
    source: EntrySource,
    steps: &'static [UpgradeStep],
    /// Frames: read from a live file, or decompressed from a block.
    chunk: Vec<u8>,
    /// The chunk's offset in the file.
    chunk_offset: u64,
    at: usize,
    next: u64,
    damage: Vec<Damage>,
    /// Whether the last damage is the end of a live file, which is examined again on the next call.
    end_is_damaged: bool,
    unfinished_bytes: u64,
    search_work_bytes: u64,
}

impl Entries {
    pub(super) fn of_live(file: File, body: u64, steps: &'static [UpgradeStep]) -> Self {
        Self::new(EntrySource::Live(file), body, 0, steps)
    }

    /// Reads from the block that holds an entry.
    pub(super) fn of_sealed(file: File, map: BlockMap, entry: u64, steps: &'static [UpgradeStep]) -> Self {
        let BlockMap { mut blocks, broken_off } = map;
        let first = blocks.partition_point(|b| b.end() <= entry);
        let next = blocks[..first].last().map_or(0, BlockRef::end);
        blocks.drain(..first);
        let source = EntrySource::Sealed { file, blocks: blocks.into_iter(), block_end: next, broken_off };
        Self::new(source, 0, next, steps)
    }

    fn new(source: EntrySource, chunk_offset: u64, next: u64, steps: &'static [UpgradeStep]) -> Self {
        Self {
            source,
            steps,
            chunk: Vec::new(),
            chunk_offset,
            at: 0,
            next,
            damage: Vec::new(),
            end_is_damaged: false,
            unfinished_bytes: 0,
            search_work_bytes: WORK_BYTES_MAX,
        }
    }

    /// Returns the next entry with its number.
    ///
    /// # Errors
    /// The file cannot be read.
    #[expect(
        clippy::should_implement_trait,
        reason = "an entry borrows the reader, which an iterator cannot"
    )]
    pub fn next(&mut self) -> io::Result<Option<(u64, Entry<'_>)>> {
        let steps = self.steps;
        let Some((number, frame)) = self.next_frame()? else { return Ok(None) };
        let entry = frame::decode_checked(frame).expect("find() stops only at a frame that can be decoded");
        Ok(Some((number, upgrade::apply(steps, entry))))
    }

    /// Returns the next entry as its raw frame, with its number.
    pub(crate) fn next_frame(&mut self) -> io::Result<Option<(u64, &[u8])>> {
        let Some(length) = self.find()? else { return Ok(None) };
        let number = self.next;
        let start = self.at;
        self.at += length;
        self.next += 1;
        Ok(Some((number, &self.chunk[start..self.at])))
    }

    /// Skips to an entry, or to the first one behind it if it is lost.
    pub(super) fn skip_to(&mut self, entry: u64) -> io::Result<()> {
        while self.find()?.is_some() && self.next < entry {
            self.next()?;
        }
        Ok(())
    }

    /// Returns what could not be read so far.
    #[must_use]
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Returns about how far the file has been read.
    pub fn file_offset(&self) -> u64 {
        self.chunk_offset
    }

    /// Tells whether a live file still holds the bytes read last. A writer whose sync failed takes entries off again.
    pub fn still_stands(&self) -> bool {
        let EntrySource::Live(file) = &self.source else { return true };
        let read = &self.chunk[..self.at];
        let mut now = vec![0; read.len()];
        let got = sealed::read_at_most(file, &mut now, self.chunk_offset);
        got.is_ok_and(|got| &now[..got] == read)
    }

    /// Returns how many bytes at the end of a live tape are no whole entry yet.
    #[must_use]
    pub fn unfinished_bytes(&self) -> u64 {
        self.unfinished_bytes
    }

    /// Goes to the next whole frame and returns its length.
    fn find(&mut self) -> io::Result<Option<usize>> {
        if std::mem::take(&mut self.end_is_damaged) {
            self.damage.pop();
        }
        self.unfinished_bytes = 0;
        loop {
            let frames = if self.block_is_read() { &[] } else { &self.chunk[self.at..] };
            let wanted = match frame::decode(self.next, frames) {
                DecodedFrame::Frame(_, length) => return Ok(Some(length)),
                DecodedFrame::Incomplete(wanted) => wanted,
                DecodedFrame::Damaged => 0,
            };
            let goes_on = match self.source {
                EntrySource::Live(_) => self.go_on_live(wanted)?,
                EntrySource::Sealed { .. } => self.go_on_sealed()?,
            };
            if !goes_on {
                return Ok(None);
            }
        }
    }

    fn block_is_read(&self) -> bool {
        matches!(self.source, EntrySource::Sealed { block_end, .. } if self.next >= block_end)
    }

    /// Reads or searches for the next frame if the chunk has no sound one; returns whether there may be one now.
    fn go_on_live(&mut self, wanted: usize) -> io::Result<bool> {
        if self.load(wanted)? {
            return Ok(true);
        }
        if self.at == self.chunk.len() {
            return Ok(false);
        }
        let EntrySource::Live(file) = &self.source else { return Ok(false) };
        let here = FramePosition { offset: self.chunk_offset + self.at as u64, number: self.next };
        let found = search::next_frame(file, here, &mut self.search_work_bytes)?;
        let end = TailState::inspect(file, here.offset)?;
        // The writer may have appended between reading and searching. An entry that was unfinished then is no damage,
        // even if others follow it now.
        if self.load(wanted)? {
            return Ok(true);
        }
        let Some(found) = found else {
            self.note_end(here.offset, &end);
            return Ok(false);
        };
        self.note_lost(here.offset, found.number);
        self.chunk.clear();
        self.at = 0;
        self.chunk_offset = found.offset;
        self.next = found.number;
        Ok(true)
    }

    /// Reads again from the current position, and returns whether anything changed.
    ///
    /// It rereads bytes that are in the chunk already, because a writer truncates a failed append and writes others
    /// there.
    fn load(&mut self, wanted: usize) -> io::Result<bool> {
        let EntrySource::Live(file) = &self.source else { return Ok(false) };
        let here = self.chunk_offset + self.at as u64;
        let present = usize::try_from(file.metadata()?.len().saturating_sub(here)).unwrap_or(usize::MAX);
        // A damaged length may be huge: ask for no more than the file has.
        let wanted = if wanted > present { 0 } else { wanted };
        let old = &self.chunk[self.at..];
        let mut new = vec![0; wanted.max(READ_BYTES).max(old.len()).min(present)];
        let got = sealed::read_at_most(file, &mut new, here)?;
        new.truncate(got);
        if new == old {
            return Ok(false);
        }
        self.chunk = new;
        self.chunk_offset = here;
        self.at = 0;
        Ok(true)
    }

    fn note_end(&mut self, here: u64, end: &TailState) {
        match end {
            TailState::CutOff { bytes } => self.unfinished_bytes = *bytes,
            TailState::Damaged => {
                let listed = self.damage.len();
                let what = format!("entry {} and what follows cannot be read", self.next);
                self.note(Some(self.next), here, what);
                self.end_is_damaged = self.damage.len() > listed;
            }
        }
    }

    /// Finds a frame behind damage in the block, or goes to the next block; returns whether there is one.
    fn go_on_sealed(&mut self) -> io::Result<bool> {
        let EntrySource::Sealed { block_end, .. } = self.source else { return Ok(false) };
        if self.next < block_end {
            let here = FramePosition { offset: self.at as u64, number: self.next };
            let found = search::next_frame(&self.chunk[..], here, &mut self.search_work_bytes)?;
            if let Some(found) = found.filter(|found| found.number < block_end) {
                self.note_lost(self.chunk_offset, found.number);
                self.at = usize::try_from(found.offset).expect("within the chunk");
                self.next = found.number;
                return Ok(true);
            }
            self.note_lost(self.chunk_offset, block_end);
            self.next = block_end;
        }
        self.next_block()
    }

    fn next_block(&mut self) -> io::Result<bool> {
        self.chunk.clear();
        self.at = 0;
        let EntrySource::Sealed { file, blocks, block_end, broken_off } = &mut self.source else {
            return Ok(false);
        };
        // A block that begins before the current entry is a copy, or its numbers are forged.
        let Some(block) = blocks.find(|b| b.first_entry >= self.next) else {
            if let Some(offset) = broken_off.take() {
                let what = format!("the tape breaks off: entry {} and what followed are missing", self.next);
                self.note(Some(self.next), offset, what);
            }
            return Ok(false);
        };
        *block_end = block.end();
        let mut stored = Vec::new();
        sealed::read_stored(file, &block, &mut stored)?;
        // If it is not sound, frames are missing or fail their checksum, which is found when they are read.
        sealed::decompress(&stored, block.plain_bytes, &mut self.chunk);
        if block.first_entry > self.next {
            let what = format!("entries {} to {} are missing", self.next, block.first_entry - 1);
            self.note(Some(self.next), block.offset, what);
        }
        self.chunk_offset = block.offset;
        self.next = block.first_entry;
        Ok(true)
    }

    /// Notes that the entries from the current one up to another are lost.
    fn note_lost(&mut self, offset: u64, until: u64) {
        let first = self.next;
        match until.saturating_sub(first) {
            0 => self.note(None, offset, format!("there are bytes that are no entry before entry {first}")),
            1 => self.note(Some(first), offset, format!("entry {first} fails its checksum")),
            _ => self.note(Some(first), offset, format!("entries {first} to {} cannot be read", until - 1)),
        }
    }

    fn note(&mut self, entry: Option<u64>, offset: u64, what: String) {
        if self.damage.len() < DAMAGE_MAX {
            self.damage.push(Damage { entry, offset, what });
        } else if self.damage.len() == DAMAGE_MAX {
            let what = "there is more damage than is listed".to_owned();
            self.damage.push(Damage { entry: None, offset, what });
        }
    }
}
