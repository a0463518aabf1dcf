//! What the simulation knows: the seed, what everybody said and heard, and what went wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Summary;

/// No more than this is told of what went wrong.
const VIOLATIONS_MAX: usize = 10;

/// Numbers that follow from the seed and what they are for.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    pub(super) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// Lines, and how often each was said.
pub(super) type Lines = BTreeMap<String, u64>;

/// What everybody said and heard.
#[derive(Default)]
pub(super) struct Log {
    steps: u64,
    /// What clients said, and what they heard.
    pub(super) clients_said: Lines,
    pub(super) clients_heard: Lines,
    /// What each server said and heard.
    pub(super) servers_said: BTreeMap<&'static str, Lines>,
    pub(super) servers_heard: BTreeMap<&'static str, Lines>,
    answered: u64,
    failed: u64,
    outcomes: Vec<String>,
    open: BTreeSet<String>,
    violations: Vec<String>,
}

/// Shared by all who take part.
pub(super) struct World {
    seed: u64,
    log: Mutex<Log>,
}

impl World {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self { seed, log: Mutex::default() })
    }

    /// Returns the dice for something: the same for the same seed, whatever else happens meanwhile.
    pub(super) fn dice(&self, what: &str) -> Dice {
        let mut hasher = DefaultHasher::new();
        (self.seed, what).hash(&mut hasher);
        Dice(hasher.finish())
    }

    pub(super) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn step(&self) {
        self.log().steps += 1;
    }

    pub(super) fn violation(&self, what: String) {
        self.log().violations.push(what);
    }

    pub(super) fn check(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violation(what());
        }
    }

    /// Notes a call that waits for its answer.
    pub(super) fn opened(&self, nonce: &str) {
        self.log().open.insert(nonce.to_owned());
    }

    /// Notes how a call ended.
    pub(super) fn ended(&self, nonce: &str, how: &str) {
        let mut log = self.log();
        log.open.remove(nonce);
        match how {
            "answered" => log.answered += 1,
            "failed" => log.failed += 1,
            _ => {}
        }
        log.outcomes.push(format!("{nonce} {how}"));
    }

    pub(super) fn open(&self) -> Vec<String> {
        self.log().open.iter().cloned().collect()
    }

    /// Returns what the run amounts to.
    ///
    /// # Panics
    /// Something went wrong.
    pub(super) fn summary(&self) -> Summary {
        let mut log = self.log();
        let violations = std::mem::take(&mut log.violations);
        let shown = violations.iter().take(VIOLATIONS_MAX).cloned().collect::<Vec<_>>().join("\n");
        assert!(violations.is_empty(), "{} things went wrong:\n{shown}", violations.len());
        assert!(log.open.is_empty(), "calls were not answered: {:?}", log.open);
        let mut outcomes = std::mem::take(&mut log.outcomes);
        outcomes.sort();
        Summary { steps: log.steps, answered: log.answered, failed: log.failed, outcomes }
    }
}

/// Counts a line.
pub(super) fn count(lines: &mut Lines, line: &str) {
    *lines.entry(line.to_owned()).or_default() += 1;
}
