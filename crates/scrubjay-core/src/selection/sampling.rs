//! Random sampling: whether an operation is in the sample, decided when it begins.
//!
//! The generator is seeded by the caller, so the same conversation with the same seed gives the same sample.

use super::settings::{Sampling, SelectionStrategy};

/// About how many operations the adaptive sampling remembers: then both counts are halved, so that it adapts to change.
const MEMORY: f64 = 512.0;
/// Over how many operations it corrects what it kept too much or too little.
const HORIZON: f64 = 32.0;

/// SplitMix64.
#[derive(Debug)]
struct RandomNumbers(u64);

impl RandomNumbers {
    // Not cryptographic: a sample only needs to be spread evenly, and the same for the same seed.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn is_below(&mut self, rate: f64) -> bool {
        share(self.next()) < rate
    }
}

/// Turns 64 random bits into a number in 0..1.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "53 bits fit exactly")]
pub fn share(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// Decides which operations are in the sample.
#[derive(Debug)]
pub(super) struct Sampler {
    sampling: Sampling,
    strategy: SelectionStrategy,
    random: RandomNumbers,
    /// A number in 0..1 that follows from the session's id, so that all connections of a session are in the sample or
    /// none.
    session_share: f64,
    count: u64,
    seen: f64,
    kept: f64,
}

impl Sampler {
    pub(super) fn new(
        sampling: Sampling,
        strategy: SelectionStrategy,
        seed: u64,
        session_share: f64,
    ) -> Self {
        Self {
            sampling,
            strategy,
            random: RandomNumbers(seed),
            session_share,
            count: 0,
            seen: 0.0,
            kept: 0.0,
        }
    }

    /// Decides about an operation that begins.
    pub(super) fn is_sampled(&mut self, method: &str, name: Option<&str>, wall_ns: u64) -> bool {
        let by_strategy = match self.strategy {
            SelectionStrategy::Sessions { rate } => self.session_share < rate,
            SelectionStrategy::Windows { window, every } => {
                // Windows follow the wall clock, so they are the same for all connections.
                u128::from(wall_ns) % every.as_nanos().max(1) < window.as_nanos()
            }
            SelectionStrategy::Full
            | SelectionStrategy::ErrorFocused { .. }
            | SelectionStrategy::Performance { .. } => true,
        };
        // The random number is drawn even outside the window, so that the sample does not depend on the window.
        self.by_chance(method, name) && by_strategy
    }

    fn by_chance(&mut self, method: &str, name: Option<&str>) -> bool {
        self.count += 1;
        match &self.sampling {
            Sampling::All => true,
            Sampling::Random { rate } => self.random.is_below(*rate),
            Sampling::Systematic { interval } => (self.count - 1).is_multiple_of(*interval),
            Sampling::Priority { rules, rate } => {
                let rule = rules.iter().find(|rule| rule.matches(method, name));
                self.random.is_below(rule.map_or(*rate, |rule| rule.rate))
            }
            Sampling::Adaptive { target_rate } => {
                self.seen += 1.0;
                let missing = target_rate * self.seen - self.kept;
                let taken = self.random.is_below(target_rate + missing / HORIZON);
                self.kept += f64::from(u8::from(taken));
                if self.seen > MEMORY {
                    self.seen /= 2.0;
                    self.kept /= 2.0;
                }
                taken
            }
        }
    }

    /// Counts an operation that is kept although it is not in the sample, for the adaptive rate.
    pub(super) fn count_forced(&mut self) {
        self.kept += 1.0;
    }
}
