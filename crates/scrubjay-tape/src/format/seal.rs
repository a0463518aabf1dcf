//! Seals a live tape: rewrites its entries into compressed, chained blocks, with a footer.
//!
//! The sealed file appears under its name only when it is complete and synced, and the live file is removed after that.
//! A crash at any point leaves at least one of them complete.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::digest::RunningDigest;
use super::frame;
use super::header::{self, Header, Layout};
use super::reader::{Damage, OpenError, Tape};
use super::sealed::{BLOCK_BYTES, BlockKind, BlockRef, BlockWriter, Footer};
use super::totals::Totals;
use super::writer::create_private;

/// Why a tape could not be sealed; the live file is untouched.
#[derive(Debug, Error)]
pub enum SealError {
    /// The live file cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Reading or writing failed.
    #[error("cannot seal {path}")]
    Io {
        /// The sealed file that was to be made.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Seals the live tape at `live` and returns the sealed file's path.
///
/// # Errors
/// The live file cannot be read, or there is no room for the sealed one.
pub fn seal(live: &Path) -> Result<PathBuf, SealError> {
    let sealed = live.with_extension("tape");
    let tape = Tape::open(live)?;
    let io_error = |source| SealError::Io { path: sealed.clone(), source };
    let damaged = write_sealed(&tape, &sealed).map_err(io_error)?;
    retire(live, damaged).map_err(io_error)?;
    Ok(sealed)
}

/// Seals an abandoned tape, or finishes a sealing that a crash interrupted before the live file was removed.
///
/// # Errors
/// As [`seal`].
pub(crate) fn seal_or_finish(live: &Path) -> Result<PathBuf, SealError> {
    let sealed = live.with_extension("tape");
    // If the sealed file is not complete, it is made again.
    let Some(footer) = Tape::open(&sealed).ok().and_then(|tape| tape.footer().cloned()) else {
        return seal(live);
    };
    // A crash or a failure may have come before its name was synced.
    match sync_name(&sealed).and_then(|()| retire(live, !footer.damage.is_empty())) {
        Err(source) => Err(SealError::Io { path: sealed, source }),
        Ok(()) => Ok(sealed),
    }
}

/// Syncs the directory that holds the name of a file.
fn sync_name(file: &Path) -> io::Result<()> {
    match file.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

/// Removes a live file after it was sealed, or keeps it as `.damaged`.
fn retire(live: &Path, damaged: bool) -> io::Result<()> {
    if damaged {
        // The original is evidence: the parts that could not be read are only there.
        let kept = live.with_extension("damaged");
        std::fs::rename(live, &kept)?;
        sync_name(&kept)
    } else {
        std::fs::remove_file(live)
    }
}

/// Writes any tape as a sealed one at `target`; returns whether parts of it could not be read.
///
/// # Errors
/// Reading or writing failed; there is no file at `target` then.
pub fn write_sealed(tape: &Tape, target: &Path) -> io::Result<bool> {
    let header = tape.header().ok_or_else(|| io::Error::other("the tape's header is damaged"))?;
    write_sealed_as(tape, header, target)
}

/// Writes the entries of a tape as a sealed one with another header; returns whether parts could not be read.
///
/// # Errors
/// As [`write_sealed`].
pub fn write_sealed_as(tape: &Tape, header: &Header, target: &Path) -> io::Result<bool> {
    let temporary = target.with_extension("sealing");
    let written = write_blocks(tape, header, &temporary).and_then(|damaged| {
        std::fs::rename(&temporary, target)?;
        sync_name(target)?;
        Ok(damaged)
    });
    if written.is_err() {
        // The caller gets the first error; one from clearing up would hide it.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

fn write_blocks(tape: &Tape, header: &Header, temporary: &Path) -> io::Result<bool> {
    let file = create_private(temporary)?;
    let encoded = header::encode(header, Layout::Sealed);
    let mut sealer = Sealer::new(BufWriter::new(file), &encoded, header)?;
    let mut entries = tape.entries()?;
    while let Some((number, entry)) = entries.next()? {
        sealer.push(number, &entry)?;
    }
    // Damage found by an earlier sealing still counts.
    let mut damage = tape.footer().map(|footer| footer.damage.clone()).unwrap_or_default();
    Damage::add(&mut damage, entries.damage());
    let damaged = !damage.is_empty();
    let mut out = sealer.finish(damage)?;
    out.flush()?;
    out.get_ref().sync_all()?;
    Ok(damaged)
}

struct Sealer<W> {
    out: BlockWriter<W>,
    digest: RunningDigest,
    plain: Vec<u8>,
    first_entry: u64,
    entries: u32,
    blocks: Vec<BlockRef>,
    totals: Totals,
}

impl<W: Write> Sealer<W> {
    fn new(out: W, encoded: &[u8], header: &Header) -> io::Result<Self> {
        Ok(Self {
            out: BlockWriter::new(out, encoded, header.compression)?,
            digest: RunningDigest::new(Some(header)),
            plain: Vec::new(),
            first_entry: 0,
            entries: 0,
            blocks: Vec::new(),
            totals: Totals::default(),
        })
    }

    fn push(&mut self, number: u64, entry: &scrubjay_core::entry::Entry<'_>) -> io::Result<()> {
        // Entries of a block are numbered without gaps, so a new block begins behind a lost entry.
        if number != self.first_entry + u64::from(self.entries) {
            self.close_block()?;
            self.first_entry = number;
        }
        let start = self.plain.len();
        frame::encode_head(number, entry, &mut self.plain);
        self.plain.extend_from_slice(entry.payload);
        self.digest.update(&self.plain[start..]);
        self.entries += 1;
        self.totals.take(number, entry);
        if self.plain.len() >= BLOCK_BYTES {
            self.close_block()?;
        }
        Ok(())
    }

    fn close_block(&mut self) -> io::Result<()> {
        if self.entries > 0 {
            let block = self.out.write(BlockKind::Entries, self.first_entry, self.entries, &self.plain)?;
            self.blocks.push(block);
            self.first_entry += u64::from(self.entries);
            self.entries = 0;
            self.plain.clear();
            // Give the memory of one huge entry back.
            self.plain.shrink_to(BLOCK_BYTES * 2);
        }
        Ok(())
    }

    fn finish(mut self, damage: Vec<Damage>) -> io::Result<W> {
        self.close_block()?;
        let (blocks, digest) = (self.blocks, Some(self.digest.hex()));
        self.out.finish(&Footer { damage, digest, blocks, ..self.totals.finish() })
    }
}
