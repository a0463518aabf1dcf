//! The sealed layout: compressed blocks in a hash chain, a footer, a trailer.
//!
//! Each block names its entries and carries a BLAKE3 hash of everything before it, so that an altered, missing or added
//! block is found. The footer is a block like the others. It holds the statistics of the tape and the positions of its
//! blocks; the trailer at the end of the file says where the footer is.

mod decompress;
mod recover;
mod write;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use scrubjay_core::entry::End;
use scrubjay_core::stats::TapeMetadata;
use serde::{Deserialize, Serialize};

use super::frame::FRAME_BYTES_MAX;
use super::observe::ClockJump;
use super::reader::Damage;

pub(super) use self::decompress::decompress;
pub(super) use self::recover::find_blocks;
pub(super) use self::write::BlockWriter;

const BLOCK_MAGIC: &[u8; 4] = b"SJBK";
const TRAILER_MAGIC: &[u8; 8] = b"SJTAPEND";
/// Bytes of a block's head.
pub(super) const HEAD: usize = 64;
/// Bytes of the head that the chain covers: all but the chain itself and the checksum.
const CHAINED: usize = 28;
/// Bytes of the trailer.
pub(super) const TRAILER: usize = 56;
/// A block is closed when its frames have this many bytes.
pub(super) const BLOCK_BYTES: usize = 256 * 1024;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Entries,
    Footer,
}

/// The position of a block, and which entries it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRef {
    /// Where its head begins in the file.
    pub offset: u64,
    /// The number of its first entry.
    pub first_entry: u64,
    /// How many entries it holds.
    pub entries: u32,
    /// How many bytes follow the head.
    pub stored_bytes: u32,
    /// How many bytes those are when decompressed.
    pub plain_bytes: u32,
}

impl BlockRef {
    /// Returns the number behind its last entry.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first_entry.saturating_add(self.entries.into())
    }

    /// Returns where in the file it ends.
    fn end_offset(&self) -> u64 {
        self.offset.saturating_add(HEAD as u64 + u64::from(self.stored_bytes))
    }
}

/// The footer of a sealed tape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Footer {
    /// The statistics of its entries.
    pub metadata: TapeMetadata,
    /// The version of the rules by which the statistics were computed (`TOTALS_VERSION`); none on tapes of versions
    /// that did not note it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub totals_version: Option<u32>,
    /// Wall time of the last entry, nanoseconds since the Unix epoch.
    pub ended_wall_ns: u64,
    /// Time from start to the last entry.
    pub duration_ns: u64,
    /// How the connection ended; none if the recording was cut off.
    #[serde(default)]
    pub end: Option<End>,
    /// Where the wall clock jumped.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub clock_jumps: Vec<ClockJump>,
    /// What could not be read when the tape was sealed.
    #[serde(default)]
    pub damage: Vec<Damage>,
    /// The digest of all entries; none on tapes of versions that did not note it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub digest: Option<String>,
    /// Where the entries are.
    pub blocks: Vec<BlockRef>,
}

/// A footer as read.
#[derive(Debug)]
pub(super) struct FoundFooter {
    pub(super) footer: Footer,
    /// Where its block begins.
    offset: u64,
}

impl FoundFooter {
    /// Tells whether the blocks are where the footer says, one behind the other from header to footer.
    ///
    /// A block whose head is damaged is taken to be as the footer says.
    pub(super) fn describes(&self, file: &File, body: Option<u64>) -> io::Result<bool> {
        let blocks = &self.footer.blocks;
        let (mut at, mut next) = (body.or(blocks.first().map(|b| b.offset)).unwrap_or(self.offset), 0);
        // A footer that does not match the file would hide entries, so every head is compared.
        for block in blocks {
            if block.offset != at || block.first_entry < next || !is_plausible(block) {
                return Ok(false);
            }
            if let Some(head) = read_head(file, block.offset)?
                && (head.kind != BlockKind::Entries || head.block != *block)
            {
                return Ok(false);
            }
            (at, next) = (block.end_offset(), block.end());
        }
        Ok(at == self.offset)
    }
}

/// Where the blocks of entries are.
#[derive(Debug)]
pub(super) struct BlockMap {
    /// Sorted by the numbers of their entries.
    pub(super) blocks: Vec<BlockRef>,
    /// Where the tape breaks off before its footer, if it does.
    pub(super) broken_off: Option<u64>,
}

/// A block's head as read.
pub(super) struct BlockHead {
    pub kind: BlockKind,
    pub block: BlockRef,
    pub chain: [u8; 32],
    pub chained: [u8; CHAINED],
}

/// Returns where the chain of a file with this header begins.
pub(super) fn chain_start(header: &[u8]) -> [u8; 32] {
    *blake3::hash(header).as_bytes()
}

/// Returns the chain after one more block.
pub(super) fn chain_next(previous: &[u8; 32], chained: &[u8], stored: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(previous).update(chained).update(stored);
    *hasher.finalize().as_bytes()
}

/// Reads the head of a block; `None` if there is none, or it is damaged.
pub(super) fn read_head(file: &File, offset: u64) -> io::Result<Option<BlockHead>> {
    let mut bytes = [0; HEAD];
    if read_at_most(file, &mut bytes, offset)? < HEAD || !bytes.starts_with(BLOCK_MAGIC) {
        return Ok(None);
    }
    // Each head has a checksum of its own, so that blocks are found without the footer.
    if crc32fast::hash(&bytes[..60]).to_le_bytes() != bytes[60..] {
        return Ok(None);
    }
    let kind = match bytes[4] {
        1 => BlockKind::Entries,
        2 => BlockKind::Footer,
        _ => return Ok(None),
    };
    let number = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("within the head"));
    let block = BlockRef {
        offset,
        first_entry: u64::from_le_bytes(*bytes[8..].first_chunk().expect("within the head")),
        entries: number(16),
        stored_bytes: number(20),
        plain_bytes: number(24),
    };
    if !is_plausible(&block) {
        return Ok(None);
    }
    Ok(Some(BlockHead {
        kind,
        block,
        chain: *bytes[CHAINED..].first_chunk().expect("within the head"),
        chained: *bytes.first_chunk().expect("within the head"),
    }))
}

/// Tells whether the sizes and numbers of a block are possible.
fn is_plausible(block: &BlockRef) -> bool {
    block.stored_bytes as usize <= FRAME_BYTES_MAX
        && block.plain_bytes as usize <= FRAME_BYTES_MAX
        && block.first_entry.checked_add(block.entries.into()).is_some()
}

/// Reads the stored bytes of a block; fewer, if the file ends first.
pub(super) fn read_stored(file: &File, block: &BlockRef, out: &mut Vec<u8>) -> io::Result<()> {
    let from = block.offset.saturating_add(HEAD as u64);
    // A forged head may claim 1 GiB: memory is taken only for bytes that the file has.
    let wanted = file.metadata()?.len().saturating_sub(from).min(block.stored_bytes.into());
    out.clear();
    out.resize(usize::try_from(wanted).map_err(io::Error::other)?, 0);
    let present = read_at_most(file, out, from)?;
    out.truncate(present);
    Ok(())
}

/// Reads the footer; `None` if trailer or footer are missing or damaged.
pub(super) fn read_footer(file: &File) -> io::Result<Option<FoundFooter>> {
    let Some((plain, offset)) = read_footer_text(file)? else { return Ok(None) };
    Ok(serde_json::from_slice(&plain).ok().map(|footer| FoundFooter { footer, offset }))
}

/// Reads the footer's JSON, and returns where its block begins.
pub(super) fn read_footer_text(file: &File) -> io::Result<Option<(Vec<u8>, u64)>> {
    let Some((offset, _)) = read_trailer(file)? else { return Ok(None) };
    let Some(head) = read_head(file, offset)? else { return Ok(None) };
    if head.kind != BlockKind::Footer {
        return Ok(None);
    }
    let (mut stored, mut plain) = (Vec::new(), Vec::new());
    read_stored(file, &head.block, &mut stored)?;
    let is_whole = decompress(&stored, head.block.plain_bytes, &mut plain);
    Ok(is_whole.then_some((plain, offset)))
}

/// Returns the offset of the footer and the end of the chain, from the trailer.
pub(super) fn read_trailer(file: &File) -> io::Result<Option<(u64, [u8; 32])>> {
    let length = file.metadata()?.len();
    let Some(at) = length.checked_sub(TRAILER as u64) else { return Ok(None) };
    let mut bytes = [0; TRAILER];
    read_at_most(file, &mut bytes, at)?;
    if &bytes[48..] != TRAILER_MAGIC || crc32fast::hash(&bytes[..44]).to_le_bytes() != bytes[44..48] {
        return Ok(None);
    }
    let offset = u64::from_le_bytes(*bytes.first_chunk().expect("within the trailer"));
    Ok(Some((offset, *bytes[8..].first_chunk().expect("within the trailer"))))
}

/// Fills the buffer as far as the file goes. Reads nothing at an offset that no file can have, as forged heads claim.
pub(super) fn read_at_most(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    if offset.saturating_add(buffer.len() as u64) > i64::MAX.cast_unsigned() {
        return Ok(0);
    }
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}
