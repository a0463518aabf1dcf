//! Random numbers whose seed is printed with a failure; `SCRUBJAY_TEST_SEED` repeats a run.

/// A source of random numbers: SplitMix64.
pub(crate) struct Chance(u64);

impl Chance {
    /// Begins with the seed from the environment, or with a fresh one, and prints it.
    #[expect(clippy::print_stderr, reason = "a failure can be repeated only with the seed")]
    pub(crate) fn new() -> Self {
        let given = std::env::var("SCRUBJAY_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| scrubjay_tape::clock::now().wall_ns);
        eprintln!("SCRUBJAY_TEST_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
