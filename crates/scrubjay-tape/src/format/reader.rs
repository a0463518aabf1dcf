//! Opens a tape: live, abandoned, sealed or damaged.
//!
//! Here is what is known without reading entries; `entries.rs` reads those, from the first or from any other.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::entries::Entries;
use super::header::{self, HEADER_BYTES_MAX, Header, HeaderError, Layout};
use super::sealed::{self, BlockMap, Footer, FoundFooter};
use super::search::{self, FramePosition, WORK_BYTES_MAX};
use super::upgrade::{self, UpgradeStep};

/// Read first, because hardly any header is longer and listings open thousands of tapes.
const HEADER_BYTES_USUAL: usize = 4 * 1024;

/// Whether a tape is being written, was abandoned, or is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TapeState {
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
    /// The first entry that is lost; none if no entry is.
    pub entry: Option<u64>,
    /// The offset in the file.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

impl Damage {
    /// Adds `found` to `known`, except damage of entries that are known to be damaged.
    pub(super) fn add(known: &mut Vec<Self>, found: &[Self]) {
        for new in found {
            if new.entry.is_none() || known.iter().all(|old| old.entry != new.entry) {
                known.push(new.clone());
            }
        }
    }
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
    /// The file is no tape that this version reads.
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
    steps: &'static [UpgradeStep],
    body: u64,
    end: Option<FoundFooter>,
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
        let (header, layout, version, body) = match read_header(&file).map_err(io_error)? {
            Ok((header, layout, version, body)) => (Some(header), layout, version, body as u64),
            // The header is sound, so this is no damage, and a search could take a later layout for this one.
            Err(HeaderError::TooNew(version)) => return Err(header_error(HeaderError::TooNew(version))),
            Err(source) => {
                let (layout, body) =
                    Self::without_header(&file).map_err(io_error)?.ok_or_else(|| header_error(source))?;
                (None, layout, header::VERSION, body)
            }
        };
        let end = match layout {
            // A peer controls the last bytes of a live tape, so it could forge a footer there.
            Layout::Live => None,
            Layout::Sealed => sealed::read_footer(&file).map_err(io_error)?,
        };
        let steps = upgrade::steps_from(version);
        Ok(Self { file, path: path.to_owned(), header, layout, steps, body, end })
    }

    /// Finds the layout of a file with a damaged header, and where its entries begin.
    fn without_header(file: &File) -> io::Result<Option<(Layout, u64)>> {
        if sealed::read_footer(file)?.is_some() || !sealed::find_blocks(file, 0)?.blocks.is_empty() {
            return Ok(Some((Layout::Sealed, 0)));
        }
        let found =
            search::next_frame(file, FramePosition { offset: 0, number: 0 }, &mut { WORK_BYTES_MAX })?;
        Ok(found.map(|first| (Layout::Live, if first.number == 0 { first.offset } else { 0 })))
    }

    /// Returns the header; `None` if it is damaged.
    #[must_use]
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Returns the footer; `None` for a live tape, or if it is damaged.
    #[must_use]
    pub fn footer(&self) -> Option<&Footer> {
        self.end.as_ref().map(|end| &end.footer)
    }

    /// Returns the path of the file.
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

    /// Returns whether it is being written, was abandoned, or is sealed.
    #[must_use]
    pub fn state(&self) -> TapeState {
        if self.layout == Layout::Sealed {
            return TapeState::Sealed;
        }
        // Shared, so that two readers do not take each other for the writer.
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                // While this lock is held, the tape would look live to others.
                let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
                TapeState::Abandoned
            }
            Err(_) => TapeState::Live,
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

    /// Reads from an entry on. A sealed tape seeks to its block; a live one is read from the start.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn entries_from(&self, entry: u64) -> io::Result<Entries> {
        let file = self.file.try_clone()?;
        let mut entries = match self.layout {
            Layout::Live => Entries::of_live(file, self.body, self.steps),
            Layout::Sealed => Entries::of_sealed(file, self.map()?, entry, self.steps),
        };
        entries.skip_to(entry)?;
        Ok(entries)
    }

    /// Returns the positions of the blocks: from the footer, or by searching if it does not match the file.
    fn map(&self) -> io::Result<BlockMap> {
        // Without a header it is not known where the first block should be.
        let body = self.header.as_ref().map(|_| self.body);
        if let Some(end) = &self.end
            && end.describes(&self.file, body)?
        {
            return Ok(BlockMap { blocks: end.footer.blocks.clone(), broken_off: None });
        }
        sealed::find_blocks(&self.file, self.body)
    }
}

type DecodedHeader = Result<(Header, Layout, u16, usize), HeaderError>;

fn read_header(file: &File) -> io::Result<DecodedHeader> {
    let read = |bytes: usize| -> io::Result<(DecodedHeader, bool)> {
        let mut start = vec![0; bytes];
        let present = sealed::read_at_most(file, &mut start, 0)?;
        Ok((header::decode(&start[..present]), present == bytes))
    };
    match read(HEADER_BYTES_USUAL)? {
        // It may be longer than usual, and not damaged.
        (Err(HeaderError::Damaged), true) => Ok(read(HEADER_BYTES_MAX)?.0),
        (decoded, _) => Ok(decoded),
    }
}

/// Reads only the header of a tape, also if it is being sealed at this moment; none if it is damaged.
pub(crate) fn peek_header(path: &Path) -> io::Result<Option<Header>> {
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => File::open(path.with_extension("tape"))?,
        file => file?,
    };
    Ok(read_header(&file)?.ok().map(|(header, ..)| header))
}
