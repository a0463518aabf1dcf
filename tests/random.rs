//! Random numbers for tests, the same on every machine for the same seed. Each crate's tests include this file.
//!
//! A test that tries something else in each run takes its seed from [`Random::from_environment`], which prints it.

#![allow(dead_code, reason = "no crate needs all of it")]

use std::hash::{BuildHasher, RandomState};

/// A generator of random numbers: SplitMix64.
pub(crate) struct Random {
    seed: u64,
    state: u64,
}

impl Random {
    /// Begins with this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    /// Begins with the seed in `SCRUBJAY_TEST_SEED`, or with a fresh one, and prints it.
    #[expect(clippy::print_stderr, reason = "a failure can be repeated only with the seed")]
    pub(crate) fn from_environment() -> Self {
        let given = std::env::var("SCRUBJAY_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0));
        eprintln!("SCRUBJAY_TEST_SEED={seed}");
        Self::new(seed)
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("it is below a usize")
    }

    /// Returns true once in `n` times on average.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Chooses one of these.
    pub(crate) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Returns this many random bytes.
    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}
