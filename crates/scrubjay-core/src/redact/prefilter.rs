//! Finds the positions in a text where a secret may stand, at nearly memory speed.
//!
//! Every pattern enters two adjacent three-byte windows into a hash table, in upper and lower case as needed. One of
//! the two begins at an even position wherever the pattern stands, so looking up every second position of a text is
//! enough. Where the table has an entry, the patterns are compared. What a pattern means, only the caller knows.

use std::ops::{ControlFlow, Range};

/// The slots of the hash table: many more than windows, so that ordinary text rarely hits one.
const SLOTS: usize = 1 << 17;
/// The bytes scanned at a time: one bit of a `u64` for each position.
const BLOCK: usize = 64;
/// The bytes after a block that are read with it: the windows at its end, read as words of eight bytes.
const BEYOND: usize = 8;
/// Separators that may stand between any letters of a name.
const SEPARATORS: [u8; 2] = *b"-_";
/// The letters of running text, the most frequent first.
const FREQUENT: &[u8] = b" etaoinsrhldcumfpgwybvkxjqz";
/// Windows with rare letters that are part of frequent words all the same.
const COMMON: [&[u8; 3]; 5] = [b"key", b"ook", b"ok_", b" ke", b"th\""];

/// How a pattern is compared with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternKind {
    /// Byte by byte.
    Exact,
    /// In any case.
    Fold,
    /// A name, in any case and with separators in it. It is not compared: a hit only means that the name may be near.
    Name,
}

#[derive(Clone, Debug)]
struct Pattern {
    bytes: Vec<u8>,
    kind: PatternKind,
    id: u16,
}

/// Three adjacent bytes of a pattern.
#[derive(Clone, Copy, Debug)]
struct Window {
    bytes: u32,
    pattern: u16,
    /// Where it begins in the pattern.
    offset: u8,
    /// The next window in the same slot: its number plus one; 0 ends the list.
    next: u32,
}

/// A position at which a pattern was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PatternHit {
    /// The id that the caller gave the pattern.
    pub(super) id: u16,
    /// Where it begins; for a name, a position within it.
    pub(super) at: usize,
}

/// The table of all patterns.
#[derive(Clone, Debug)]
pub(super) struct Prefilter {
    /// For each slot, whether it has a window: a byte each, because it is read faster than a bit.
    table: Box<[u8; SLOTS]>,
    /// For each slot, the number of its last window plus one; 0 where it has none.
    heads: Box<[u32; SLOTS]>,
    windows: Vec<Window>,
    patterns: Vec<Pattern>,
}

impl Prefilter {
    pub(super) fn new() -> Self {
        let table = vec![0; SLOTS].try_into().expect("the length is the same");
        let heads = vec![0; SLOTS].try_into().expect("the length is the same");
        Self { table, heads, windows: Vec::new(), patterns: Vec::new() }
    }

    /// Adds a pattern of at least three bytes.
    pub(super) fn add(&mut self, bytes: &[u8], kind: PatternKind, id: u16) {
        debug_assert!(bytes.len() >= 3, "a shorter pattern is everywhere");
        let number = u16::try_from(self.patterns.len()).expect("lists of a configuration are shorter");
        self.patterns.push(Pattern { bytes: bytes.to_vec(), kind, id });
        if bytes.len() == 3 {
            // The second window includes the byte after the pattern: any printable one, or the zero after the end of
            // the text.
            self.window([bytes[0], bytes[1], bytes[2]], number, 0);
            for next in std::iter::once(0).chain(b'!'..=b'~') {
                self.window([bytes[1], bytes[2], next], number, 1);
            }
            return;
        }
        // The rarest four bytes of the pattern make the fewest false hits.
        let rarity = |i: usize| -> usize {
            let window = &bytes[i..i + 4];
            let common = COMMON.iter().any(|c| window.windows(3).any(|w| w.eq_ignore_ascii_case(*c)));
            if common { 0 } else { window.iter().map(|b| rank(*b)).sum() }
        };
        let best = (0..=bytes.len() - 4).max_by_key(|i| rarity(*i)).unwrap_or(0);
        let [a, b, c, d] = [bytes[best], bytes[best + 1], bytes[best + 2], bytes[best + 3]];
        let offset = u8::try_from(best).unwrap_or(u8::MAX);
        self.window([a, b, c], number, offset);
        self.window([b, c, d], number, offset + 1);
        if kind == PatternKind::Name {
            // A separator may stand between any two letters, and two of them together (`api__key`).
            for s in SEPARATORS {
                for window in [[a, s, b], [a, b, s], [s, b, c], [b, s, c], [b, c, s]] {
                    self.window(window, number, 0);
                }
                for t in SEPARATORS {
                    self.window([s, b, t], number, 0);
                    self.window([a, s, t], number, 0);
                    self.window([s, t, b], number, 0);
                }
            }
        }
    }

    /// Enters a window in every combination of upper and lower case that the pattern may be written in.
    fn window(&mut self, window: [u8; 3], pattern: u16, offset: u8) {
        if self.patterns[usize::from(pattern)].kind == PatternKind::Exact {
            return self.exact_window(window, pattern, offset);
        }
        for upper in 0..8 {
            let case = |i: usize| {
                let b = window[i];
                if upper >> i & 1 == 1 { b.to_ascii_uppercase() } else { b.to_ascii_lowercase() }
            };
            self.exact_window([case(0), case(1), case(2)], pattern, offset);
        }
    }

    fn exact_window(&mut self, window: [u8; 3], pattern: u16, offset: u8) {
        let bytes = u32::from_le_bytes([0, window[0], window[1], window[2]]);
        let slot = slot(bytes);
        let same = |w: &Window| (w.bytes, w.pattern, w.offset) == (bytes, pattern, offset);
        if self.windows.iter().rev().take_while(|w| w.pattern == pattern).any(same) {
            return;
        }
        self.table[slot] = 1;
        let head = &mut self.heads[slot];
        self.windows.push(Window { bytes, pattern, offset, next: *head });
        *head = u32::try_from(self.windows.len()).expect("each pattern has a few hundred windows at most");
    }

    /// Calls `on_hit` for each position of a pattern, in order, until it breaks.
    pub(super) fn hits(
        &self,
        text: &[u8],
        on_hit: impl FnMut(PatternHit) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.hits_in(text, 0..text.len(), on_hit)
    }

    /// The same for a part of a text: every pattern that has a window there. A pattern at the border of two parts may
    /// be found in both.
    pub(super) fn hits_in(
        &self,
        text: &[u8],
        part: Range<usize>,
        mut on_hit: impl FnMut(PatternHit) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut at = part.start;
        while at < part.end && at + BLOCK + BEYOND <= text.len() {
            let block = text[at..].first_chunk().expect("the block is within the text");
            self.scan_block(text, block, at, &mut on_hit)?;
            at += BLOCK;
        }
        let mut last = [0; BLOCK + BEYOND];
        while at < part.end {
            // Too near the end for a full block: the rest is copied, followed by zeros, which are in no pattern.
            let rest = &text[at..text.len().min(at + BLOCK + BEYOND)];
            last.fill(0);
            last[..rest.len()].copy_from_slice(rest);
            self.scan_block(text, &last, at, &mut on_hit)?;
            at += BLOCK;
        }
        ControlFlow::Continue(())
    }

    /// Looks up every second position of a block in the table, and compares the patterns where there is an entry.
    #[inline]
    fn scan_block(
        &self,
        text: &[u8],
        block: &[u8; BLOCK + BEYOND],
        at: usize,
        on_hit: &mut impl FnMut(PatternHit) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        // One bit for each position with an entry. Each round looks up four windows of eight bytes; the
        // fourth needs the byte after them.
        let mut candidates = 0u64;
        for at in (0..BLOCK).step_by(8) {
            let (word, beyond) = (word(block, at), word(block, at + 1));
            let windows = [word as u32, (word >> 16) as u32, (word >> 32) as u32, (beyond >> 40) as u32];
            let found = windows.map(|window| u64::from(self.table[slot(window << 8)]));
            candidates |= (found[0] | found[1] << 2 | found[2] << 4 | found[3] << 6) << at;
        }
        while candidates != 0 {
            let i = candidates.trailing_zeros() as usize;
            candidates &= candidates - 1;
            self.compare(text, (word(block, i) as u32) << 8, at + i, on_hit)?;
        }
        ControlFlow::Continue(())
    }

    fn compare(
        &self,
        text: &[u8],
        bytes: u32,
        at: usize,
        on_hit: &mut impl FnMut(PatternHit) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut next = self.heads[slot(bytes)];
        while next != 0 {
            let window = self.windows[next as usize - 1];
            next = window.next;
            if window.bytes != bytes {
                continue;
            }
            let pattern = &self.patterns[usize::from(window.pattern)];
            if let Some(at) = pattern.match_at(text, at, usize::from(window.offset)) {
                on_hit(PatternHit { id: pattern.id, at })?;
            }
        }
        ControlFlow::Continue(())
    }
}

impl Pattern {
    fn match_at(&self, text: &[u8], at: usize, offset: usize) -> Option<usize> {
        if self.kind == PatternKind::Name {
            // Its letters may have separators between them, so the caller compares the whole name around the position.
            return (at < text.len()).then_some(at);
        }
        let start = at.checked_sub(offset)?;
        let found = text.get(start..start + self.bytes.len())?;
        let same = match self.kind {
            PatternKind::Exact => found == self.bytes,
            PatternKind::Fold | PatternKind::Name => found.eq_ignore_ascii_case(&self.bytes),
        };
        same.then_some(start)
    }
}

fn word(block: &[u8; BLOCK + BEYOND], at: usize) -> u64 {
    block[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn slot(window: u32) -> usize {
    // Multiplicative hashing: the upper 17 bits of the product are the slot.
    (window.wrapping_mul(0x9E37_79B1) >> 15) as usize
}

fn rank(byte: u8) -> usize {
    FREQUENT.iter().position(|f| *f == byte.to_ascii_lowercase()).unwrap_or(FREQUENT.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(filter: &Prefilter, text: &[u8]) -> Vec<(u16, usize)> {
        let mut found = Vec::new();
        let _ = filter.hits(text, |hit| {
            found.push((hit.id, hit.at));
            ControlFlow::Continue(())
        });
        found
    }

    #[test]
    fn a_pattern_is_found_at_every_position() {
        let mut filter = Prefilter::new();
        filter.add(b"ghp_", PatternKind::Exact, 1);
        filter.add(b"eyJ", PatternKind::Exact, 2);
        filter.add(b"bearer ", PatternKind::Fold, 3);
        for length in [0, 1, 3, 60, 64, 65, 130, 200] {
            for at in 0..=length {
                for (id, pattern) in [(1, "ghp_"), (2, "eyJ"), (3, "BeaRer ")] {
                    let text = format!("{}{pattern}{}", "x".repeat(at), "y".repeat(length - at));
                    assert_eq!(hits(&filter, text.as_bytes()), [(id, at)], "{text}");
                }
            }
        }
        assert!(hits(&filter, b"GHP_ eyj bear er").is_empty());
    }

    #[test]
    fn a_name_is_found_with_any_separators_and_case() {
        let mut filter = Prefilter::new();
        filter.add(b"apikey", PatternKind::Name, 7);
        for name in ["apikey", "API_KEY", "api-key", "apiKey", "a_p_i_k_e_y", "api__key", "ap-ikey"] {
            for before in ["", "x", "xx", "xxx"] {
                let text = format!("{before}{name}\": 1");
                assert!(!hits(&filter, text.as_bytes()).is_empty(), "{text}");
            }
        }
        assert!(hits(&filter, b"the capital of France is Paris").is_empty());
    }
}
