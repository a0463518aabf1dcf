//! The rules in force between the gateway and its backends, which a reload may replace.
//!
//! All connections read them from one place, so replaced rules apply to the next line of each connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use scrubjay_core::entry::Direction;
use scrubjay_core::rules::{Judge, Judgement, Rules};

use crate::session::lock;

/// The rules in force, if there are any.
#[derive(Default)]
pub(crate) struct RulesInForce {
    now: Mutex<Option<Arc<Rules>>>,
    /// Counts how often they were replaced.
    version: AtomicU64,
}

impl RulesInForce {
    /// Puts rules in force, or none.
    pub(crate) fn put(&self, rules: Option<Arc<Rules>>) {
        let mut now = lock(&self.now);
        *now = rules;
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Tells whether any rule is in force.
    pub(crate) fn are_any(&self) -> bool {
        // Most gateways never have rules: then there is no lock to take.
        self.version.load(Ordering::Acquire) > 0
            && lock(&self.now).as_ref().is_some_and(|rules| !rules.is_empty())
    }

    /// Returns those in force.
    pub(crate) fn now(&self) -> Option<Arc<Rules>> {
        lock(&self.now).clone()
    }

    fn get(&self) -> (u64, Option<Arc<Rules>>) {
        let now = lock(&self.now);
        (self.version.load(Ordering::Acquire), now.clone())
    }
}

/// The rules as applied to one connection, with the calls that are open there.
pub(crate) struct ConnectionJudge {
    rules: Arc<RulesInForce>,
    /// The backend's name in rules.
    backend: String,
    message_bytes_max: usize,
    at_work: Mutex<AtWork>,
}

#[derive(Default)]
struct AtWork {
    version: u64,
    /// Made when rules are first in force while the connection is open.
    judge: Option<Judge>,
}

impl ConnectionJudge {
    pub(crate) fn new(rules: Arc<RulesInForce>, backend: &str, message_bytes_max: usize) -> Self {
        Self { rules, backend: backend.to_owned(), message_bytes_max, at_work: Mutex::default() }
    }

    /// Judges a line by the rules in force now.
    pub(crate) fn line(&self, direction: Direction, line: &[u8]) -> Judgement {
        // Most gateways have no rules: then a line costs no lock and no parsing.
        if self.rules.version.load(Ordering::Acquire) == 0 {
            return Judgement::default();
        }
        let mut at_work = lock(&self.at_work);
        if self.rules.version.load(Ordering::Acquire) != at_work.version {
            let (version, rules) = self.rules.get();
            at_work.version = version;
            match (&mut at_work.judge, rules) {
                // Kept, with its open calls: their answers must be judged as answers to those calls.
                (Some(judge), rules) => {
                    judge.replace_rules(rules.unwrap_or_else(|| Arc::new(Rules::new(Vec::new()))))
                }
                (none, Some(rules)) => {
                    *none = Some(Judge::new(rules, &self.backend, self.message_bytes_max));
                }
                (None, None) => {}
            }
        }
        at_work.judge.as_mut().map(|judge| judge.line(direction, line)).unwrap_or_default()
    }

    /// Forgets a call to the backend: nobody waits for its answer any more.
    pub(crate) fn forget_call(&self, id: u64) {
        if let Some(judge) = &mut lock(&self.at_work).judge {
            judge.forget(Direction::ClientToServer, id.to_string().as_bytes());
        }
    }
}
