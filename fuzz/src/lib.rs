//! Properties that must hold for any bytes: one module for each target, with a function `check` that panics if they do
//! not.
//!
//! `fuzz_targets/` passes the inputs of libFuzzer; `tests/corpus.rs` passes the files of `corpus/`, on any toolchain.

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

/// The reader of configuration files, included by its path because it is private to `scrubjay-config`.
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

/// Pseudo-random numbers from a seed, so that an input always has the same run.
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

/// Splits off the first bytes, which choose how the rest is used.
pub(crate) fn settings<const N: usize>(data: &[u8]) -> Option<([u8; N], &[u8])> {
    data.split_first_chunk::<N>().map(|(first, rest)| (*first, rest))
}

/// Splits bytes into pieces of random length.
pub(crate) fn pieces(mut data: &[u8], mut dice: Dice) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while !data.is_empty() {
        let (piece, rest) = data.split_at(1 + dice.below(data.len().min(24)));
        pieces.push(piece);
        data = rest;
    }
    pieces
}
