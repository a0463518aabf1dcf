//! What must hold of any bytes: one module a target, one function `check` in each, which panics where it does not.
//!
//! `fuzz_targets/` hands them what libFuzzer makes up; `tests/corpus.rs` the files of `corpus/`, on any toolchain.

pub mod envelope;
pub mod framing;
pub mod glob;
pub mod import;
pub mod merge;
pub mod query;
pub mod redaction;
pub mod rules;
pub mod sse;
pub mod tape;
pub mod yaml;

/// The reader of configuration files: `scrubjay-config` keeps it to itself.
#[path = "../../crates/scrubjay-config/src"]
mod config {
    #![expect(dead_code, reason = "only the reader is used here")]

    pub(crate) mod node;
    pub(crate) mod problem;
    pub(crate) mod yaml;
}

/// Every target by its name.
pub const TARGETS: &[(&str, fn(&[u8]))] = &[
    ("envelope", envelope::check),
    ("framing", framing::check),
    ("glob", glob::check),
    ("import", import::check),
    ("merge", merge::check),
    ("query", query::check),
    ("redaction", redaction::check),
    ("rules", rules::check),
    ("sse", sse::check),
    ("tape", tape::check),
    ("yaml", yaml::check),
];

/// Numbers that follow from a seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound.max(1)
    }
}

/// Takes the first bytes off, which choose how the rest is used.
pub(crate) fn settings<const N: usize>(data: &[u8]) -> Option<([u8; N], &[u8])> {
    data.split_first_chunk::<N>().map(|(first, rest)| (*first, rest))
}

/// Cuts bytes into pieces as the dice fall.
pub(crate) fn pieces(mut data: &[u8], mut dice: Dice) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while !data.is_empty() {
        let (piece, rest) = data.split_at(1 + dice.below(data.len().min(24)));
        pieces.push(piece);
        data = rest;
    }
    pieces
}
