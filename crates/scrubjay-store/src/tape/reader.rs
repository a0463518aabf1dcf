//! Reads a tape: live, abandoned, sealed, or damaged; forwards, or from any entry.
//!
//! One entry is in memory at a time (one block, for a sealed tape). Damage never ends a reading that can go
//! on: it is skipped and listed.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use scrubjay_core::entry::Entry;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::frame::{self, Decoded};
use super::header::{self, HEADER_BYTES_MAX, Header, HeaderError, Layout};
use super::sealed::{self, BlockRef, Footer};
use super::upgrade::{self, Step};

/// How much of a live file is read at once.
const READ_BYTES: usize = 256 * 1024;

/// What became of a tape's writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Being written.
    Live,
    /// Left behind by a crash; whole up to its last entry.
    Abandoned,
    /// Closed.
    Sealed,
}

/// A part of a tape that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// The first entry that is lost; none where no entry is.
    pub entry: Option<u64>,
    /// Where in the file.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

/// Why a tape cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is no tape this program reads.
    #[error("{path}: {source}")]
    Header {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        source: HeaderError,
    },
}

/// An open tape.
#[derive(Debug)]
pub struct Tape {
    file: File,
    path: PathBuf,
    header: Option<Header>,
    layout: Layout,
    steps: &'static [Step],
    body: u64,
    footer: Option<Footer>,
}

impl Tape {
    /// Opens a tape of either layout.
    ///
    /// # Errors
    /// The file cannot be read, or is no tape. A damaged sealed tape opens.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let io_error = |source| OpenError::Io { path: path.to_owned(), source };
        let header_error = |source| OpenError::Header { path: path.to_owned(), source };
        let file = File::open(path).map_err(io_error)?;
        let mut start = vec![0; HEADER_BYTES_MAX];
        let present = sealed::read_at_most(&file, &mut start, 0).map_err(io_error)?;
        start.truncate(present);
        let footer = sealed::read_footer(&file).map_err(io_error)?;
        match header::decode(&start) {
            Ok((header, layout, version, body)) => Ok(Self {
                file,
                path: path.to_owned(),
                header: Some(header),
                layout,
                steps: upgrade::steps_from(version),
                body: body as u64,
                footer,
            }),
            Err(HeaderError::TooNew(version)) => Err(header_error(HeaderError::TooNew(version))),
            // Blocks can be found without a header; the frames of a live file cannot.
            Err(source) => {
                let found = sealed::find_blocks(&file, 0).map_err(io_error)?;
                if found.is_empty() {
                    return Err(header_error(source));
                }
                let (layout, steps) = (Layout::Sealed, upgrade::steps_from(header::VERSION));
                Ok(Self { file, path: path.to_owned(), header: None, layout, steps, body: 0, footer })
            }
        }
    }

    /// Returns the header; none where it is damaged.
    #[must_use]
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Returns the footer; none for a live tape, or where it is damaged.
    #[must_use]
    pub fn footer(&self) -> Option<&Footer> {
        self.footer.as_ref()
    }

    /// Returns where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size of the file.
    ///
    /// # Errors
    /// The file cannot be looked at.
    pub fn file_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Returns what became of the writer.
    #[must_use]
    pub fn state(&self) -> State {
        if self.layout == Layout::Sealed {
            return State::Sealed;
        }
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                // Held on for as long as this tape is open, it would look alive to others.
                let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
                State::Abandoned
            }
            Err(_) => State::Live,
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    pub(super) fn body(&self) -> u64 {
        self.body
    }

    /// Reads from the first entry.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn entries(&self) -> io::Result<Entries> {
        self.entries_from(0)
    }

    /// Reads from an entry on: a sealed tape seeks to its block, a live one is walked.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn entries_from(&self, entry: u64) -> io::Result<Entries> {
        let file = self.file.try_clone()?;
        let mut entries = Entries {
            source: match self.layout {
                Layout::Live => Source::Live { file, offset: self.body },
                Layout::Sealed => Source::Sealed { file, blocks: self.blocks_from(entry)?.into_iter() },
            },
            steps: self.steps,
            chunk: Vec::new(),
            chunk_offset: self.body,
            at: 0,
            next: 0,
            block_end: None,
            damage: Vec::new(),
        };
        while entries.position()? < entry && entries.next()?.is_some() {}
        Ok(entries)
    }

    fn blocks_from(&self, entry: u64) -> io::Result<Vec<BlockRef>> {
        let mut blocks = match &self.footer {
            Some(footer) => footer.blocks.clone(),
            None => sealed::find_blocks(&self.file, self.body)?,
        };
        let first = blocks.partition_point(|b| b.first_entry + u64::from(b.entries) <= entry);
        blocks.drain(..first);
        Ok(blocks)
    }
}

#[derive(Debug)]
enum Source {
    Live { file: File, offset: u64 },
    Sealed { file: File, blocks: std::vec::IntoIter<BlockRef> },
}

/// A reading of a tape, entry by entry.
///
/// At the end of a live tape [`Entries::next`] returns `None`; asked again later it goes on.
#[derive(Debug)]
pub struct Entries {
    source: Source,
    steps: &'static [Step],
    /// Frames: read from a live file, or decompressed from a block.
    chunk: Vec<u8>,
    /// Where in the file the chunk is from.
    chunk_offset: u64,
    at: usize,
    next: u64,
    /// One past the last entry of the current block.
    block_end: Option<u64>,
    damage: Vec<Damage>,
}

impl Entries {
    /// Returns the next entry with its number.
    ///
    /// # Errors
    /// The file cannot be read.
    #[expect(
        clippy::should_implement_trait,
        reason = "an entry borrows the reader, which an iterator cannot"
    )]
    pub fn next(&mut self) -> io::Result<Option<(u64, Entry<'_>)>> {
        let Some(length) = self.find()? else { return Ok(None) };
        let number = self.next;
        let start = self.at;
        self.at += length;
        self.next += 1;
        let Decoded::Frame(entry, _) = frame::decode(number, &self.chunk[start..]) else {
            unreachable!("find() stops only at a whole frame")
        };
        Ok(Some((number, upgrade::apply(self.steps, entry))))
    }

    /// Returns what could not be read so far.
    #[must_use]
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Returns how many bytes at the end of a live tape are not a whole entry.
    #[must_use]
    pub fn unfinished_bytes(&self) -> usize {
        self.chunk.len() - self.at
    }

    /// Returns the number the next entry has.
    fn position(&mut self) -> io::Result<u64> {
        self.find()?;
        Ok(self.next)
    }

    /// Goes to the next whole frame and returns its length.
    fn find(&mut self) -> io::Result<Option<usize>> {
        loop {
            match frame::decode(self.next, &self.chunk[self.at..]) {
                Decoded::Frame(_, length) => return Ok(Some(length)),
                Decoded::Incomplete(wanted) => {
                    if !self.refill(wanted)? {
                        return Ok(None);
                    }
                }
                Decoded::Damaged(length) => {
                    if !self.skip_damaged(length)? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Gets more bytes, and returns whether there were any.
    fn refill(&mut self, wanted: usize) -> io::Result<bool> {
        let rest = self.chunk.len() - self.at;
        match &mut self.source {
            Source::Live { file, offset } => {
                self.chunk.drain(..self.at);
                self.chunk_offset += self.at as u64;
                self.at = 0;
                // The length may be damage: trust it only as far as the file goes.
                let present = file.metadata()?.len().saturating_sub(*offset);
                let read =
                    (wanted - rest).max(READ_BYTES).min(usize::try_from(present).unwrap_or(usize::MAX));
                let before = self.chunk.len();
                self.chunk.resize(before + read, 0);
                let got = sealed::read_at_most(file, &mut self.chunk[before..], *offset)?;
                self.chunk.truncate(before + got);
                *offset += got as u64;
                Ok(got > 0)
            }
            Source::Sealed { .. } => {
                self.lose_rest_of_block();
                self.next_block()
            }
        }
    }

    fn next_block(&mut self) -> io::Result<bool> {
        let Source::Sealed { file, blocks } = &mut self.source else { return Ok(false) };
        let Some(block) = blocks.next() else {
            self.chunk.clear();
            self.at = 0;
            return Ok(false);
        };
        let mut stored = Vec::new();
        sealed::read_stored(file, &block, &mut stored)?;
        if block.first_entry > self.next && self.block_end.is_some() {
            self.damage.push(Damage {
                entry: Some(self.next),
                offset: self.chunk_offset,
                what: format!("entries {} to {} are missing", self.next, block.first_entry - 1),
            });
        }
        // Whatever is unsound shows as frames that are missing or fail their checksum.
        sealed::decompress(&stored, block.plain_bytes, &mut self.chunk);
        self.at = 0;
        self.chunk_offset = block.offset;
        self.next = block.first_entry;
        self.block_end = Some(block.first_entry + u64::from(block.entries));
        Ok(true)
    }

    /// Notes the entries that the current block should still have held.
    fn lose_rest_of_block(&mut self) {
        if let Some(end) = self.block_end
            && self.next < end
        {
            self.damage.push(Damage {
                entry: Some(self.next),
                offset: self.chunk_offset,
                what: format!("entries {} to {} cannot be read", self.next, end - 1),
            });
            self.next = end;
        }
    }

    /// Steps over a damaged frame, and returns whether reading can go on behind it.
    fn skip_damaged(&mut self, length: Option<usize>) -> io::Result<bool> {
        if let Source::Live { .. } = self.source {
            return self.skip_damaged_live(length);
        }
        let behind = length.map(|length| self.at + length);
        match behind {
            Some(behind)
                if matches!(frame::decode(self.next + 1, &self.chunk[behind..]), Decoded::Frame(..)) =>
            {
                self.note_damaged_entry();
                self.at = behind;
                self.next += 1;
                Ok(true)
            }
            _ => {
                self.at = self.chunk.len();
                self.lose_rest_of_block();
                self.next_block()
            }
        }
    }

    fn skip_damaged_live(&mut self, length: Option<usize>) -> io::Result<bool> {
        let Some(length) = length else { return Ok(false) };
        while let Decoded::Incomplete(wanted) = frame::decode(self.next + 1, &self.chunk[self.at + length..])
        {
            if !self.refill(length + wanted)? {
                // The last entry: torn by a crash, not damaged since.
                return Ok(false);
            }
        }
        if matches!(frame::decode(self.next + 1, &self.chunk[self.at + length..]), Decoded::Damaged(_)) {
            return Ok(false);
        }
        self.note_damaged_entry();
        self.at += length;
        self.next += 1;
        Ok(true)
    }

    fn note_damaged_entry(&mut self) {
        self.damage.push(Damage {
            entry: Some(self.next),
            offset: self.chunk_offset,
            what: format!("entry {} fails its checksum", self.next),
        });
    }
}
