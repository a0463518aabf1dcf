//! The sealed layout: compressed blocks in a hash chain, a footer, a trailer.
//!
//! Each block names its entries and carries the BLAKE3 of everything before it, so an altered, missing or
//! added block shows. The footer is a block like the others, holding what the tape adds up to and where the
//! blocks are; the trailer at the very end says where the footer is.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use scrubjay_core::entry::End;
use scrubjay_core::stats::TapeMetadata;
use serde::{Deserialize, Serialize};
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe::CParameter;

use super::frame::FRAME_BYTES_MAX;
use super::header::Compression;
use super::observe::ClockJump;
use super::reader::Damage;

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
const COMPRESSION_LEVEL: i32 = 3;
/// No block asks for a larger window, whatever a damaged one says: level 3 never takes more than 2 MiB.
const WINDOW_LOG_MAX: u32 = 23;
/// How much is decompressed at once; a block is rarely larger.
const DECOMPRESS_BYTES: usize = 1 << 20;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Entries,
    Footer,
}

/// Where a block is and what it holds.
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

/// What a sealed tape says of itself at its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Footer {
    /// What the tape adds up to.
    pub metadata: TapeMetadata,
    /// By which rules this was added up ([`TOTALS_VERSION`](super::totals::TOTALS_VERSION)); none on tapes from before
    /// it was noted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub totals_version: Option<u32>,
    /// Wall time of the last entry, nanoseconds since the Unix epoch.
    pub ended_wall_ns: u64,
    /// Time from start to the last entry.
    pub duration_ns: u64,
    /// How the connection ended; none where it was cut off.
    #[serde(default)]
    pub end: Option<End>,
    /// Where the wall clock jumped.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub clock_jumps: Vec<ClockJump>,
    /// What was already damaged when the tape was sealed.
    #[serde(default)]
    pub damage: Vec<Damage>,
    /// The digest of all entries; none on tapes from before it was noted.
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
    /// Returns whether the blocks are where the footer says, one behind the other from header to footer.
    ///
    /// A block whose head is damaged cannot contradict.
    pub(super) fn describes(&self, file: &File, body: Option<u64>) -> io::Result<bool> {
        let blocks = &self.footer.blocks;
        let (mut at, mut next) = (body.or(blocks.first().map(|b| b.offset)).unwrap_or(self.offset), 0);
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
    /// By the numbers of their entries.
    pub(super) blocks: Vec<BlockRef>,
    /// Where the tape ends before its footer, if it does.
    pub(super) broken_off: Option<u64>,
}

/// A block's head as read.
pub(super) struct BlockHead {
    pub kind: BlockKind,
    pub block: BlockRef,
    pub chain: [u8; 32],
    pub chained: [u8; CHAINED],
}

/// Writes blocks and keeps the chain.
pub(super) struct BlockWriter<W> {
    out: W,
    offset: u64,
    chain: [u8; 32],
    compressor: zstd::bulk::Compressor<'static>,
    compression: Compression,
}

impl<W: io::Write> BlockWriter<W> {
    pub(super) fn new(mut out: W, header: &[u8], compression: Compression) -> io::Result<Self> {
        out.write_all(header)?;
        Ok(Self {
            out,
            offset: header.len() as u64,
            chain: chain_start(header),
            compressor: zstd::bulk::Compressor::new(COMPRESSION_LEVEL)?,
            compression,
        })
    }

    pub(super) fn write(
        &mut self,
        kind: BlockKind,
        first_entry: u64,
        entries: u32,
        plain: &[u8],
    ) -> io::Result<BlockRef> {
        let stored = if self.compression == Compression::None && kind == BlockKind::Entries {
            uncompressed(plain)
        } else {
            // An entry has its own checksum, and so has what the footer says.
            self.compressor.set_parameter(CParameter::ChecksumFlag(kind == BlockKind::Footer))?;
            self.compressor.compress(plain)?
        };
        let block = BlockRef {
            offset: self.offset,
            first_entry,
            entries,
            stored_bytes: length_of(&stored)?,
            plain_bytes: length_of(plain)?,
        };
        let chained = encode_chained(kind, &block);
        self.chain = chain_next(&self.chain, &chained, &stored);
        let mut head = [0; HEAD];
        head[..CHAINED].copy_from_slice(&chained);
        head[CHAINED..60].copy_from_slice(&self.chain);
        let crc = crc32fast::hash(&head[..60]).to_le_bytes();
        head[60..].copy_from_slice(&crc);
        self.out.write_all(&head)?;
        self.out.write_all(&stored)?;
        self.offset += (HEAD + stored.len()) as u64;
        Ok(block)
    }

    /// Writes footer and trailer, and returns what was written to.
    pub(super) fn finish(mut self, footer: &Footer) -> io::Result<W> {
        let footer_offset = self.offset;
        let plain = serde_json::to_vec(footer)?;
        self.write(BlockKind::Footer, footer.metadata.total_entries, 0, &plain)?;
        let mut trailer = [0; TRAILER];
        trailer[..8].copy_from_slice(&footer_offset.to_le_bytes());
        trailer[8..40].copy_from_slice(&self.chain);
        let crc = crc32fast::hash(&trailer[..44]).to_le_bytes();
        trailer[44..48].copy_from_slice(&crc);
        trailer[48..].copy_from_slice(TRAILER_MAGIC);
        self.out.write_all(&trailer)?;
        Ok(self.out)
    }
}

/// Writes a frame of zstd that holds its content as it is, which any decoder reads (RFC 8878, 3.1.1).
fn uncompressed(plain: &[u8]) -> Vec<u8> {
    const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
    /// The content's size takes eight bytes; no checksum, no dictionary. Then the window: 128 KiB.
    const DESCRIPTOR: [u8; 2] = [0b1100_0000, 7 << 3];
    const BLOCK_BYTES_MAX: usize = 128 * 1024;
    let mut frame = Vec::with_capacity(plain.len() + 16 + 3 * plain.len().div_ceil(BLOCK_BYTES_MAX));
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&DESCRIPTOR);
    frame.extend_from_slice(&(plain.len() as u64).to_le_bytes());
    let mut rest = plain;
    loop {
        let (block, behind) = rest.split_at(rest.len().min(BLOCK_BYTES_MAX));
        // Bit 0: the last; bits 1 and 2: raw; then the size, which is below 2^18.
        let head = ((block.len() as u32) << 3) | u32::from(behind.is_empty());
        frame.extend_from_slice(&head.to_le_bytes()[..3]);
        frame.extend_from_slice(block);
        if behind.is_empty() {
            return frame;
        }
        rest = behind;
    }
}

fn length_of(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len())
        .ok()
        .filter(|n| *n as usize <= FRAME_BYTES_MAX)
        .ok_or_else(|| io::Error::other("a block of a tape may not exceed 1 GiB"))
}

fn encode_chained(kind: BlockKind, block: &BlockRef) -> [u8; CHAINED] {
    let mut bytes = [0; CHAINED];
    bytes[..4].copy_from_slice(BLOCK_MAGIC);
    bytes[4] = match kind {
        BlockKind::Entries => 1,
        BlockKind::Footer => 2,
    };
    bytes[8..16].copy_from_slice(&block.first_entry.to_le_bytes());
    bytes[16..20].copy_from_slice(&block.entries.to_le_bytes());
    bytes[20..24].copy_from_slice(&block.stored_bytes.to_le_bytes());
    bytes[24..28].copy_from_slice(&block.plain_bytes.to_le_bytes());
    bytes
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

/// Reads the head of a block; `None` where there is none, or a damaged one.
pub(super) fn read_head(file: &File, offset: u64) -> io::Result<Option<BlockHead>> {
    let mut bytes = [0; HEAD];
    if read_at_most(file, &mut bytes, offset)? < HEAD || !bytes.starts_with(BLOCK_MAGIC) {
        return Ok(None);
    }
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

/// Returns whether a block can be what this says: nobody wrote one otherwise.
fn is_plausible(block: &BlockRef) -> bool {
    block.stored_bytes as usize <= FRAME_BYTES_MAX
        && block.plain_bytes as usize <= FRAME_BYTES_MAX
        && block.first_entry.checked_add(block.entries.into()).is_some()
}

/// Reads the stored bytes of a block; fewer than it says where the file ends first.
pub(super) fn read_stored(file: &File, block: &BlockRef, out: &mut Vec<u8>) -> io::Result<()> {
    let from = block.offset.saturating_add(HEAD as u64);
    let wanted = file.metadata()?.len().saturating_sub(from).min(block.stored_bytes.into());
    out.clear();
    out.resize(usize::try_from(wanted).map_err(io::Error::other)?, 0);
    let present = read_at_most(file, out, from)?;
    out.truncate(present);
    Ok(())
}

/// Decompresses as far as the bytes are sound, and returns whether all was.
///
/// Where they are not, anything may follow what is sound, and zeros.
pub(super) fn decompress(stored: &[u8], plain_bytes: u32, out: &mut Vec<u8>) -> bool {
    out.clear();
    let limit = plain_bytes as usize;
    DECODER.with_borrow_mut(|kept| decompress_with(kept, stored, limit, out))
}

thread_local! {
    /// Making one takes longer than most footers take to decompress; who lists thousands of tapes needs thousands.
    static DECODER: RefCell<Option<Decoder<'static>>> = const { RefCell::new(None) };
}

fn decompress_with(
    kept: &mut Option<Decoder<'static>>,
    stored: &[u8],
    limit: usize,
    out: &mut Vec<u8>,
) -> bool {
    if kept.as_mut().is_none_or(|decoder| decoder.reinit().is_err()) {
        *kept = Decoder::new().ok();
    }
    let Some(decoder) = kept else { return false };
    if decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)).is_err() {
        return false;
    }
    let mut input = InBuffer::around(stored);
    loop {
        let from = out.len();
        // The size is only a claim: memory is taken as bytes come. One byte too many shows that it lies.
        out.resize(from + DECOMPRESS_BYTES.min(limit - from + 1), 0);
        let mut output = OutBuffer::around(&mut out[from..]);
        // On an error the decoder does not tell how much it wrote before: all stays, checksums will tell.
        let Ok(wants) = decoder.run(&mut input, &mut output) else { return false };
        let written = output.pos();
        out.truncate(from + written);
        let ended = wants == 0 || (written == 0 && input.pos() == stored.len());
        if ended || out.len() > limit {
            return wants == 0 && out.len() == limit && input.pos() == stored.len();
        }
    }
}

/// Reads trailer and footer; `None` where they are missing or damaged.
pub(super) fn read_footer(file: &File) -> io::Result<Option<FoundFooter>> {
    let Some((plain, offset)) = read_footer_text(file)? else { return Ok(None) };
    Ok(serde_json::from_slice(&plain).ok().map(|footer| FoundFooter { footer, offset }))
}

/// Reads trailer and footer as it is written, and returns where its block begins.
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

/// Returns where the trailer says the footer is, and the end of the chain.
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

/// Finds the blocks of entries without a footer: head by head, searching on where a head is damaged.
pub(super) fn find_blocks(file: &File, from: u64) -> io::Result<BlockMap> {
    let mut blocks: Vec<BlockRef> = Vec::new();
    let (mut expected, mut search_from) = (from, from);
    let mut has_holes = false;
    let mut footer = None;
    while let Some(head) = next_head(file, expected, search_from)? {
        has_holes |= head.block.offset != expected;
        expected = head.block.end_offset();
        // Where bytes are missing, the next head is nearer than this one says.
        search_from = head.block.offset + HEAD as u64;
        match head.kind {
            BlockKind::Entries => blocks.push(head.block),
            BlockKind::Footer => footer = Some(head.block),
        }
    }
    let end = blocks.last().map_or(from, BlockRef::end_offset);
    let whole = match footer {
        // The footer's number is the count of all entries. Fewer are missing within where numbers are left out.
        Some(footer) => {
            let found: u64 = blocks.iter().map(|b| u64::from(b.entries)).sum();
            let last = blocks.iter().map(BlockRef::end).max().unwrap_or(0);
            footer.offset == end && (has_holes || found.max(last) >= footer.first_entry)
        }
        None => read_trailer(file)?.is_some_and(|(offset, _)| offset == end),
    };
    blocks.sort_by_key(|b| b.first_entry);
    Ok(BlockMap { blocks, broken_off: (!whole).then_some(end) })
}

/// Returns the head at the expected place, or else the first sound one from another on.
fn next_head(file: &File, expected: u64, search_from: u64) -> io::Result<Option<BlockHead>> {
    const WINDOW: usize = 256 * 1024;
    if let Some(head) = read_head(file, expected)? {
        return Ok(Some(head));
    }
    let mut window = vec![0; WINDOW];
    let mut at = search_from;
    loop {
        let present = read_at_most(file, &mut window, at)?;
        for place in magic_places(&window[..present]) {
            if let Some(head) = read_head(file, at + place as u64)? {
                return Ok(Some(head));
            }
        }
        if present < WINDOW {
            return Ok(None);
        }
        at += (WINDOW - BLOCK_MAGIC.len()) as u64;
    }
}

fn magic_places(bytes: &[u8]) -> impl Iterator<Item = usize> {
    bytes.windows(BLOCK_MAGIC.len()).enumerate().filter(|(_, w)| w == BLOCK_MAGIC).map(|(at, _)| at)
}

/// Fills the buffer as far as the file goes: not at all at an offset that no file has.
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
