//! Writes the blocks of a sealed tape, its footer and its trailer, and keeps the hash chain.

use std::io;

use zstd::zstd_safe::CParameter;

use super::{
    BLOCK_MAGIC, BlockKind, BlockRef, CHAINED, Footer, HEAD, TRAILER, TRAILER_MAGIC, chain_next, chain_start,
};
use crate::format::frame::FRAME_BYTES_MAX;
use crate::format::header::Compression;

/// zstd's own default: higher levels cost much more time for a few per cent.
const COMPRESSION_LEVEL: i32 = 3;

/// Writes blocks and keeps the chain.
pub(in crate::format) struct BlockWriter<W> {
    out: W,
    offset: u64,
    chain: [u8; 32],
    compressor: zstd::bulk::Compressor<'static>,
    compression: Compression,
}

impl<W: io::Write> BlockWriter<W> {
    pub(in crate::format) fn new(mut out: W, header: &[u8], compression: Compression) -> io::Result<Self> {
        out.write_all(header)?;
        Ok(Self {
            out,
            offset: header.len() as u64,
            chain: chain_start(header),
            compressor: zstd::bulk::Compressor::new(COMPRESSION_LEVEL)?,
            compression,
        })
    }

    pub(in crate::format) fn write(
        &mut self,
        kind: BlockKind,
        first_entry: u64,
        entries: u32,
        plain: &[u8],
    ) -> io::Result<BlockRef> {
        let stored = if self.compression == Compression::None && kind == BlockKind::Entries {
            uncompressed(plain)
        } else {
            // Frames have checksums of their own; the footer needs zstd's.
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
    pub(in crate::format) fn finish(mut self, footer: &Footer) -> io::Result<W> {
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

/// Writes a zstd frame of raw blocks, which any decoder reads (RFC 8878, 3.1.1).
fn uncompressed(plain: &[u8]) -> Vec<u8> {
    const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
    /// The content's size in eight bytes, no checksum, no dictionary; then the window: 128 KiB.
    const DESCRIPTOR: [u8; 2] = [0b1100_0000, 7 << 3];
    const BLOCK_BYTES_MAX: usize = 128 * 1024;
    let mut frame = Vec::with_capacity(plain.len() + 16 + 3 * plain.len().div_ceil(BLOCK_BYTES_MAX));
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&DESCRIPTOR);
    frame.extend_from_slice(&(plain.len() as u64).to_le_bytes());
    let mut rest = plain;
    loop {
        let (block, behind) = rest.split_at(rest.len().min(BLOCK_BYTES_MAX));
        // Bit 0: last block; bits 1 and 2: raw; then the size, which is below 2^18.
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
