//! Finds the blocks of a sealed tape whose footer is missing or damaged.

use std::fs::File;
use std::io;

use super::{
    BLOCK_MAGIC, BlockHead, BlockKind, BlockMap, BlockRef, HEAD, read_at_most, read_head, read_trailer,
};

/// Finds the blocks of entries head by head; behind a damaged head it searches for the next.
pub(in crate::format) fn find_blocks(file: &File, from: u64) -> io::Result<BlockMap> {
    let mut blocks: Vec<BlockRef> = Vec::new();
    let (mut expected, mut search_from) = (from, from);
    let mut has_holes = false;
    let mut footer = None;
    while let Some(head) = next_head(file, expected, search_from)? {
        has_holes |= head.block.offset != expected;
        expected = head.block.end_offset();
        // If bytes are missing, the next head is nearer than this one says.
        search_from = head.block.offset + HEAD as u64;
        match head.kind {
            BlockKind::Entries => blocks.push(head.block),
            BlockKind::Footer => footer = Some(head.block),
        }
    }
    let end = blocks.last().map_or(from, BlockRef::end_offset);
    let whole = match footer {
        // The footer's number is the count of all entries. Entries lost before the sealing leave out numbers, and are
        // no sign of missing blocks.
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

/// Returns the head at the expected offset, or else the first valid one from `search_from` on.
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
