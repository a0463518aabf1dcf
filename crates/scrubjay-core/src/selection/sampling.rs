//! Chance: whether an operation is in the sample, decided when it begins.
//!
//! The generator is seeded by the caller, so the same conversation with the same seed gives the same sample.

use super::settings::{Sampling, SelectionStrategy};

/// How many operations the adaptive sampling remembers, about.
const MEMORY: f64 = 512.0;
/// Over how many operations it makes up for what it kept too much or too little.
const HORIZON: f64 = 32.0;

/// A cheap source of varied numbers.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    /// Xorshift-multiply: a sample needs no more.
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn is_below(&mut self, rate: f64) -> bool {
        share(self.roll()) < rate
    }
}

/// Turns 64 varied bits into a number from 0 up to, but not, 1.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "53 bits fit exactly")]
pub fn share(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// Decides by chance.
#[derive(Debug)]
pub(super) struct Sampler {
    sampling: Sampling,
    strategy: SelectionStrategy,
    dice: Dice,
    /// Where this session stands among all, 0 to 1.
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
        Self { sampling, strategy, dice: Dice(seed), session_share, count: 0, seen: 0.0, kept: 0.0 }
    }

    /// Decides about an operation that begins.
    pub(super) fn takes(&mut self, method: &str, name: Option<&str>, wall_ns: u64) -> bool {
        let by_strategy = match self.strategy {
            SelectionStrategy::Sessions { rate } => self.session_share < rate,
            SelectionStrategy::Windows { window, every } => {
                u128::from(wall_ns) % every.as_nanos().max(1) < window.as_nanos()
            }
            SelectionStrategy::Full
            | SelectionStrategy::ErrorFocused { .. }
            | SelectionStrategy::Performance { .. } => true,
        };
        // Chance goes on in any case: what is in the sample does not depend on the window.
        self.by_chance(method, name) && by_strategy
    }

    fn by_chance(&mut self, method: &str, name: Option<&str>) -> bool {
        self.count += 1;
        match &self.sampling {
            Sampling::All => true,
            Sampling::Random { rate } => self.dice.is_below(*rate),
            Sampling::Systematic { interval } => (self.count - 1).is_multiple_of(*interval),
            Sampling::Priority { rules, rate } => {
                let rule = rules.iter().find(|rule| rule.fits(method, name));
                self.dice.is_below(rule.map_or(*rate, |rule| rule.rate))
            }
            Sampling::Adaptive { target_rate } => {
                self.seen += 1.0;
                let missing = target_rate * self.seen - self.kept;
                let taken = self.dice.is_below(target_rate + missing / HORIZON);
                self.kept += f64::from(u8::from(taken));
                if self.seen > MEMORY {
                    self.seen /= 2.0;
                    self.kept /= 2.0;
                }
                taken
            }
        }
    }

    /// Notes that an operation is kept that is not in the sample.
    pub(super) fn was_forced(&mut self) {
        self.kept += 1.0;
    }
}
