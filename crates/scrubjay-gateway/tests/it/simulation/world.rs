//! The state that all clients and servers of a simulation share: the seed, the lines that they sent and received, and
//! the violations that they found.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Summary;

/// How many violations a failure lists.
const VIOLATIONS_MAX: usize = 10;

/// A sequence of random numbers that depends on the seed and on what it is used for.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    pub(super) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// Lines, and how often each occurred.
pub(super) type Lines = BTreeMap<String, u64>;

/// The lines that clients and servers sent and received, and the outcomes of calls.
#[derive(Default)]
pub(super) struct Log {
    steps: u64,
    pub(super) sent_by_clients: Lines,
    pub(super) received_by_clients: Lines,
    /// By the id of the server.
    pub(super) sent_by_servers: BTreeMap<&'static str, Lines>,
    pub(super) received_by_servers: BTreeMap<&'static str, Lines>,
    answered: u64,
    failed: u64,
    outcomes: Vec<String>,
    open: BTreeSet<String>,
    violations: Vec<String>,
}

/// Shared by all clients and servers of a simulation.
pub(super) struct World {
    seed: u64,
    log: Mutex<Log>,
}

impl World {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self { seed, log: Mutex::default() })
    }

    /// Returns the random numbers for a purpose: the same for the same seed, in any order in which clients and servers run.
    pub(super) fn random(&self, purpose: &str) -> Random {
        let mut hasher = DefaultHasher::new();
        (self.seed, purpose).hash(&mut hasher);
        Random(hasher.finish())
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

    /// Notes that a call waits for its answer.
    pub(super) fn call_started(&self, nonce: &str) {
        self.log().open.insert(nonce.to_owned());
    }

    /// Notes how a call ended.
    pub(super) fn call_ended(&self, nonce: &str, how: &str) {
        let mut log = self.log();
        log.open.remove(nonce);
        match how {
            "answered" => log.answered += 1,
            "failed" => log.failed += 1,
            _ => {}
        }
        log.outcomes.push(format!("{nonce} {how}"));
    }

    pub(super) fn open_calls(&self) -> Vec<String> {
        self.log().open.iter().cloned().collect()
    }

    /// Returns the summary of the run.
    ///
    /// # Panics
    /// There was a violation, or a call without an outcome.
    pub(super) fn summary(&self) -> Summary {
        let mut log = self.log();
        let violations = std::mem::take(&mut log.violations);
        let shown = violations.iter().take(VIOLATIONS_MAX).cloned().collect::<Vec<_>>().join("\n");
        assert!(violations.is_empty(), "{} violations:\n{shown}", violations.len());
        assert!(log.open.is_empty(), "calls were not answered: {:?}", log.open);
        let mut outcomes = std::mem::take(&mut log.outcomes);
        outcomes.sort();
        Summary { steps: log.steps, answered: log.answered, failed: log.failed, outcomes }
    }
}

pub(super) fn count(lines: &mut Lines, line: &str) {
    *lines.entry(line.to_owned()).or_default() += 1;
}
