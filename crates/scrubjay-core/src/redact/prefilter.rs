//! Finds the places where a secret may stand, at the speed of memory.
//!
//! Every pattern leaves two of its three-byte windows in a table, in each case they may be written in: one for
//! either parity of its place. Looking at every second place of a text is then enough. What the table lets
//! through is compared with the patterns; what a pattern means is its owner's business.

use std::ops::{ControlFlow, Range};

/// How many places the table has: the hash of a window is one of them.
const PLACES: usize = 1 << 17;
const BLOCK: usize = 64;
/// A block needs to see so many bytes beyond its end.
const BEYOND: usize = 8;
/// Separators that a name may be written with.
const SEPARATORS: [u8; 2] = *b"-_";
/// The letters of running text, the most frequent first.
const FREQUENT: &[u8] = b" etaoinsrhldcumfpgwybvkxjqz";
/// Windows with rare letters that stand in frequent words all the same.
const COMMON: [&[u8; 3]; 5] = [b"key", b"ook", b"ok_", b" ke", b"th\""];

/// How a pattern is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternKind {
    /// Byte by byte.
    Exact,
    /// In any case.
    Fold,
    /// A name, in any case and with separators in it; a hit only says that it may be near.
    Name,
}

#[derive(Clone, Debug)]
struct Pattern {
    bytes: Vec<u8>,
    kind: PatternKind,
    owner: u16,
}

/// A window of a pattern.
#[derive(Clone, Copy, Debug)]
struct Window {
    bytes: u32,
    pattern: u16,
    /// Where in the pattern it begins.
    offset: u8,
    /// One more than the number of the next window at the same place.
    next: u16,
}

/// A place where a pattern stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PatternHit {
    /// Whose pattern it is.
    pub(super) owner: u16,
    /// Where it begins; for a name, a place within it.
    pub(super) at: usize,
}

/// The patterns of all who look for something.
#[derive(Clone, Debug)]
pub(super) struct Prefilter {
    /// For each place, whether there is a window: a byte is read faster than a bit.
    table: Box<[u8; PLACES]>,
    /// For each place, one more than the number of the last window there.
    heads: Box<[u16; PLACES]>,
    windows: Vec<Window>,
    patterns: Vec<Pattern>,
}

impl Prefilter {
    pub(super) fn new() -> Self {
        let table = vec![0; PLACES].try_into().expect("the length is the same");
        let heads = vec![0; PLACES].try_into().expect("the length is the same");
        Self { table, heads, windows: Vec::new(), patterns: Vec::new() }
    }

    /// Adds a pattern of at least three bytes.
    pub(super) fn add(&mut self, bytes: &[u8], kind: PatternKind, owner: u16) {
        debug_assert!(bytes.len() >= 3, "a shorter pattern is everywhere");
        let number = u16::try_from(self.patterns.len()).expect("there are few patterns");
        self.patterns.push(Pattern { bytes: bytes.to_vec(), kind, owner });
        if bytes.len() == 3 {
            self.window([bytes[0], bytes[1], bytes[2]], number, 0);
            for next in std::iter::once(0).chain(b'!'..=b'~') {
                self.window([bytes[1], bytes[2], next], number, 1);
            }
            return;
        }
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

    /// Leaves a window in each case that the pattern may be written in.
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
        let place = place(bytes);
        let same = |w: &Window| (w.bytes, w.pattern, w.offset) == (bytes, pattern, offset);
        if self.windows.iter().rev().take_while(|w| w.pattern == pattern).any(same) {
            return;
        }
        self.table[place] = 1;
        let head = &mut self.heads[place];
        self.windows.push(Window { bytes, pattern, offset, next: *head });
        *head = u16::try_from(self.windows.len()).expect("there are few windows");
    }

    /// Calls back for each place where a pattern stands, in order, until told to stop.
    pub(super) fn hits(
        &self,
        text: &[u8],
        tell: impl FnMut(PatternHit) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.hits_in(text, 0..text.len(), tell)
    }

    /// The same for a part of a text: every pattern that has a window there; one at its edge may be in both.
    pub(super) fn hits_in(
        &self,
        text: &[u8],
        part: Range<usize>,
        mut tell: impl FnMut(PatternHit) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut at = part.start;
        while at < part.end && at + BLOCK + BEYOND <= text.len() {
            let block = text[at..].first_chunk().expect("the block is within the text");
            self.look(text, block, at, &mut tell)?;
            at += BLOCK;
        }
        let mut last = [0; BLOCK + BEYOND];
        while at < part.end {
            let rest = &text[at..text.len().min(at + BLOCK + BEYOND)];
            last.fill(0);
            last[..rest.len()].copy_from_slice(rest);
            self.look(text, &last, at, &mut tell)?;
            at += BLOCK;
        }
        ControlFlow::Continue(())
    }

    /// Looks at a block: which of its places have a bit, and whether a pattern stands there.
    #[inline]
    fn look(
        &self,
        text: &[u8],
        block: &[u8; BLOCK + BEYOND],
        at: usize,
        tell: &mut impl FnMut(PatternHit) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut places = 0u64;
        for at in (0..BLOCK).step_by(8) {
            let (word, beyond) = (word(block, at), word(block, at + 1));
            let windows = [word as u32, (word >> 16) as u32, (word >> 32) as u32, (beyond >> 40) as u32];
            let found = windows.map(|window| u64::from(self.table[place(window << 8)]));
            places |= (found[0] | found[1] << 2 | found[2] << 4 | found[3] << 6) << at;
        }
        while places != 0 {
            let i = places.trailing_zeros() as usize;
            places &= places - 1;
            self.compare(text, (word(block, i) as u32) << 8, at + i, tell)?;
        }
        ControlFlow::Continue(())
    }

    fn compare(
        &self,
        text: &[u8],
        bytes: u32,
        at: usize,
        tell: &mut impl FnMut(PatternHit) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut next = self.heads[place(bytes)];
        while next != 0 {
            let window = self.windows[usize::from(next) - 1];
            next = window.next;
            if window.bytes != bytes {
                continue;
            }
            let pattern = &self.patterns[usize::from(window.pattern)];
            if let Some(at) = pattern.stands(text, at, usize::from(window.offset)) {
                tell(PatternHit { owner: pattern.owner, at })?;
            }
        }
        ControlFlow::Continue(())
    }
}

impl Pattern {
    fn stands(&self, text: &[u8], at: usize, offset: usize) -> Option<usize> {
        if self.kind == PatternKind::Name {
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

fn place(window: u32) -> usize {
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
            found.push((hit.owner, hit.at));
            ControlFlow::Continue(())
        });
        found
    }

    #[test]
    fn a_pattern_is_found_at_every_place() {
        let mut filter = Prefilter::new();
        filter.add(b"ghp_", PatternKind::Exact, 1);
        filter.add(b"eyJ", PatternKind::Exact, 2);
        filter.add(b"bearer ", PatternKind::Fold, 3);
        for length in [0, 1, 3, 60, 64, 65, 130, 200] {
            for at in 0..=length {
                for (owner, pattern) in [(1, "ghp_"), (2, "eyJ"), (3, "BeaRer ")] {
                    let text = format!("{}{pattern}{}", "x".repeat(at), "y".repeat(length - at));
                    assert_eq!(hits(&filter, text.as_bytes()), [(owner, at)], "{text}");
                }
            }
        }
        assert!(hits(&filter, b"GHP_ eyj bear er").is_empty());
    }

    #[test]
    fn a_name_is_near_however_it_is_written() {
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
