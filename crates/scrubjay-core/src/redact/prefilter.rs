//! Finds the places where a secret may stand, at the speed of memory.
//!
//! Every pattern leaves two of its three-byte windows, folded in case, in a bitmap: one for either parity of
//! its place. Looking at every second place of a text is then enough. What the bitmap lets through is
//! compared with the patterns; what a pattern means is its owner's business.

use std::ops::ControlFlow;

const WORDS: usize = 1024;
const BLOCK: usize = 64;
/// A block needs to see so many bytes beyond its end.
const BEYOND: usize = 4;
/// Separators that a name may be written with.
const SEPARATORS: [u8; 2] = *b"-_";
/// The letters of running text, the most frequent first.
const FREQUENT: &[u8] = b" etaoinsrhldcumfpgwybvkxjqz";

/// How a pattern is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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
    kind: Kind,
    owner: u16,
}

/// A window of a pattern.
#[derive(Clone, Copy, Debug)]
struct Window {
    folded: u32,
    pattern: u16,
    /// Where in the pattern it begins.
    offset: u8,
    /// One more than the number of the next window with the same bit.
    next: u16,
}

/// A place where a pattern stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    /// Whose pattern it is.
    pub(super) owner: u16,
    /// Where it begins; for a name, a place within it.
    pub(super) at: usize,
}

/// The patterns of all who look for something.
#[derive(Clone, Debug)]
pub(super) struct Prefilter {
    bits: Box<[u64; WORDS]>,
    /// For each bit, one more than the number of the last window there.
    heads: Box<[u16; WORDS * 64]>,
    windows: Vec<Window>,
    patterns: Vec<Pattern>,
}

impl Prefilter {
    pub(super) fn new() -> Self {
        let heads = vec![0; WORDS * 64].try_into().expect("the length is the same");
        Self { bits: Box::new([0; WORDS]), heads, windows: Vec::new(), patterns: Vec::new() }
    }

    /// Adds a pattern of at least three bytes.
    pub(super) fn add(&mut self, bytes: &[u8], kind: Kind, owner: u16) {
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
        let rarity = |i: usize| -> usize { bytes[i..i + 4].iter().map(|b| rank(*b)).sum() };
        let best = (0..=bytes.len() - 4).max_by_key(|i| rarity(*i)).unwrap_or(0);
        let [a, b, c, d] = [bytes[best], bytes[best + 1], bytes[best + 2], bytes[best + 3]];
        let offset = u8::try_from(best).unwrap_or(u8::MAX);
        self.window([a, b, c], number, offset);
        self.window([b, c, d], number, offset + 1);
        if kind == Kind::Name {
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

    fn window(&mut self, window: [u8; 3], pattern: u16, offset: u8) {
        let folded = fold(u32::from_le_bytes([window[0], window[1], window[2], 0]));
        let place = place(folded);
        self.bits[place >> 6] |= 1 << (place & 63);
        let same = |w: &Window| (w.folded, w.pattern, w.offset) == (folded, pattern, offset);
        if self.windows.iter().rev().take_while(|w| w.pattern == pattern).any(same) {
            return;
        }
        let head = &mut self.heads[place];
        self.windows.push(Window { folded, pattern, offset, next: *head });
        *head = u16::try_from(self.windows.len()).expect("there are few windows");
    }

    /// Calls back for each place where a pattern stands, in order, until told to stop.
    pub(super) fn hits(&self, text: &[u8], mut tell: impl FnMut(Hit) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut at = 0;
        while at + BLOCK + BEYOND <= text.len() {
            let block = text[at..].first_chunk().expect("the block is within the text");
            self.look(text, block, at, &mut tell)?;
            at += BLOCK;
        }
        let mut last = [0; BLOCK + BEYOND];
        while at < text.len() {
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
        tell: &mut impl FnMut(Hit) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut places = 0u64;
        for i in (0..BLOCK).step_by(2) {
            let place = place(fold(word(block, i)));
            places |= ((self.bits[place >> 6] >> (place & 63)) & 1) << i;
        }
        while places != 0 {
            let i = places.trailing_zeros() as usize;
            places &= places - 1;
            self.compare(text, fold(word(block, i)), at + i, tell)?;
        }
        ControlFlow::Continue(())
    }

    fn compare(
        &self,
        text: &[u8],
        folded: u32,
        at: usize,
        tell: &mut impl FnMut(Hit) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut next = self.heads[place(folded)];
        while next != 0 {
            let window = self.windows[usize::from(next) - 1];
            next = window.next;
            if window.folded != folded {
                continue;
            }
            let pattern = &self.patterns[usize::from(window.pattern)];
            if let Some(at) = pattern.stands(text, at, usize::from(window.offset)) {
                tell(Hit { owner: pattern.owner, at })?;
            }
        }
        ControlFlow::Continue(())
    }
}

fn word(block: &[u8; BLOCK + BEYOND], i: usize) -> u32 {
    u32::from_le_bytes([block[i], block[i + 1], block[i + 2], block[i + 3]])
}

impl Pattern {
    fn stands(&self, text: &[u8], at: usize, offset: usize) -> Option<usize> {
        if self.kind == Kind::Name {
            return (at < text.len()).then_some(at);
        }
        let start = at.checked_sub(offset)?;
        let found = text.get(start..start + self.bytes.len())?;
        let same = match self.kind {
            Kind::Exact => found == self.bytes,
            Kind::Fold | Kind::Name => found.eq_ignore_ascii_case(&self.bytes),
        };
        same.then_some(start)
    }
}

/// Folds three bytes in case; others come together too, which costs a comparison.
fn fold(word: u32) -> u32 {
    (word & 0x00ff_ffff) | 0x0020_2020
}

fn place(folded: u32) -> usize {
    (folded.wrapping_mul(0x9E37_79B1) >> 16) as usize
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
        filter.add(b"ghp_", Kind::Exact, 1);
        filter.add(b"eyJ", Kind::Exact, 2);
        filter.add(b"bearer ", Kind::Fold, 3);
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
        filter.add(b"apikey", Kind::Name, 7);
        for name in ["apikey", "API_KEY", "api-key", "apiKey", "a_p_i_k_e_y", "api__key", "ap-ikey"] {
            for before in ["", "x", "xx", "xxx"] {
                let text = format!("{before}{name}\": 1");
                assert!(!hits(&filter, text.as_bytes()).is_empty(), "{text}");
            }
        }
        assert!(hits(&filter, b"the capital of France is Paris").is_empty());
    }
}
