//! What a user can ask for: which parts of operations, which methods, what share, by which strategy.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use crate::envelope::{Envelope, MessageKind};
use crate::glob::Glob;

/// Which entries are kept; by default all of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SelectionSettings {
    /// Which parts of operations.
    pub capture: Capture,
    /// Which operations, by their method.
    pub filters: Filters,
    /// Which share of them.
    pub sampling: Sampling,
    /// Operations that sampling never leaves out.
    pub always: AlwaysKept,
    /// Which of them, by time or by how they end.
    pub strategy: SelectionStrategy,
}

/// Which parts of operations are kept. The only setting that leaves a part of an operation on a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Capture {
    /// Requests of either side.
    pub requests: bool,
    /// Answers that report no failure.
    pub responses: bool,
    /// Notifications.
    pub notifications: bool,
    /// Answers that report a failure.
    pub errors: bool,
}

impl Default for Capture {
    fn default() -> Self {
        Self { requests: true, responses: true, notifications: true, errors: true }
    }
}

impl Capture {
    /// Returns whether a message is wanted; for a batch, whether one of its messages is.
    pub(super) fn has(self, envelope: &Envelope) -> bool {
        match envelope.kind {
            MessageKind::Request => self.requests,
            MessageKind::Notification => self.notifications,
            MessageKind::Response | MessageKind::Error if envelope.is_failure() => self.errors,
            MessageKind::Response | MessageKind::Error => self.responses,
            // A batch is one entry, which cannot be kept in part.
            MessageKind::Batch => envelope.batch.is_empty() || envelope.batch.iter().any(|one| self.has(one)),
            // What cannot be parsed is what people look for when something is wrong.
            MessageKind::Opaque => true,
        }
    }
}

/// Which operations are kept, by method and response time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filters {
    /// Only these methods; empty means all.
    pub include_methods: Vec<Glob>,
    /// Except these.
    pub exclude_methods: Vec<Glob>,
    /// Only requests whose answer took at least this long.
    pub min_response_time: Option<Duration>,
}

impl Filters {
    /// Returns whether a method is wanted.
    pub(super) fn pass(&self, method: &str) -> bool {
        let any = |globs: &[Glob]| globs.iter().any(|glob| glob.matches(method));
        (self.include_methods.is_empty() || any(&self.include_methods)) && !any(&self.exclude_methods)
    }
}

/// Which share of operations is kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Sampling {
    /// All of them.
    #[default]
    All,
    /// Each with this probability.
    Random {
        /// 0 to 1.
        rate: f64,
    },
    /// Every n-th.
    Systematic {
        /// At least 1.
        interval: u64,
    },
    /// As many as are needed for the share of all kept operations to reach this rate.
    Adaptive {
        /// 0 to 1.
        target_rate: f64,
    },
    /// Each with the probability of the first rule that matches it.
    Priority {
        /// The rules in order.
        rules: Vec<PriorityRule>,
        /// The probability if no rule matches.
        rate: f64,
    },
}

/// The probability for some operations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PriorityRule {
    /// These methods; empty means any.
    pub methods: Vec<Glob>,
    /// These tools, prompts or resources; empty means any.
    pub names: Vec<Glob>,
    /// 0 to 1.
    pub rate: f64,
}

impl PriorityRule {
    pub(super) fn matches(&self, method: &str, name: Option<&str>) -> bool {
        let any = |globs: &[Glob], text: &str| globs.iter().any(|glob| glob.matches(text));
        (self.methods.is_empty() || any(&self.methods, method))
            && (self.names.is_empty() || name.is_some_and(|name| any(&self.names, name)))
    }
}

/// What sampling never leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlwaysKept {
    /// Operations that failed.
    pub errors: bool,
    /// Operations that took at least this long.
    pub slow: Option<Duration>,
}

/// Which operations are kept, by when they happen or how they end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum SelectionStrategy {
    /// All.
    #[default]
    Full,
    /// The operations of a share of all sessions.
    Sessions {
        /// 0 to 1.
        rate: f64,
    },
    /// The operations that begin in a recurring window of time.
    Windows {
        /// How long a window is.
        window: Duration,
        /// The time from one window's start to the next.
        every: Duration,
    },
    /// The operations that fail, and those around them.
    ErrorFocused {
        /// How many messages before a failure.
        before: usize,
        /// How many messages after it.
        after: usize,
    },
    /// The operations that take at least this long.
    Performance {
        /// The least time to the answer.
        threshold: Duration,
    },
}

impl SelectionSettings {
    /// Returns whether everything is kept.
    #[must_use]
    pub fn keeps_all(&self) -> bool {
        // `always` only matters where something else leaves messages out.
        *self == Self { always: self.always, ..Self::default() }
    }

    /// Returns whether some operations have to wait in memory until their outcome is known.
    #[must_use]
    pub fn waits_for_outcomes(&self) -> bool {
        let may_be_left_out = self.sampling != Sampling::All
            || matches!(
                self.strategy,
                SelectionStrategy::Sessions { .. } | SelectionStrategy::Windows { .. }
            );
        self.filters.min_response_time.is_some()
            || matches!(
                self.strategy,
                SelectionStrategy::ErrorFocused { .. } | SelectionStrategy::Performance { .. }
            )
            || may_be_left_out && (self.always.errors || self.always.slow.is_some())
    }

    /// Describes the settings for the tape's header; defaults are left out.
    #[must_use]
    pub fn facts(&self) -> Value {
        let mut facts = serde_json::Map::new();
        let mut tell = |key: &str, value: Value| facts.insert(key.to_owned(), value);
        if self.capture != Capture::default() {
            tell("capture", json!(self.capture));
        }
        if !self.filters.include_methods.is_empty() {
            tell("include_methods", json!(self.filters.include_methods));
        }
        if !self.filters.exclude_methods.is_empty() {
            tell("exclude_methods", json!(self.filters.exclude_methods));
        }
        if let Some(time) = self.filters.min_response_time {
            tell("min_response_time_ms", ms(time));
        }
        match &self.sampling {
            Sampling::All => None,
            Sampling::Random { rate } => tell("sampling", json!({ "strategy": "random", "rate": rate })),
            Sampling::Systematic { interval } => {
                tell("sampling", json!({ "strategy": "systematic", "interval": interval }))
            }
            Sampling::Adaptive { target_rate } => {
                tell("sampling", json!({ "strategy": "adaptive", "target_rate": target_rate }))
            }
            Sampling::Priority { rules, rate } => {
                tell("sampling", json!({ "strategy": "priority", "rules": rules, "rate": rate }))
            }
        };
        if self.always.errors {
            tell("always_errors", json!(true));
        }
        if let Some(slow) = self.always.slow {
            tell("always_slower_than_ms", ms(slow));
        }
        match self.strategy {
            SelectionStrategy::Full => None,
            SelectionStrategy::Sessions { rate } => {
                tell("strategy", json!({ "kind": "sampled", "by": "session", "rate": rate }))
            }
            SelectionStrategy::Windows { window, every } => tell(
                "strategy",
                json!({ "kind": "sampled", "by": "window", "window_ms": ms(window), "every_ms": ms(every) }),
            ),
            SelectionStrategy::ErrorFocused { before, after } => {
                tell("strategy", json!({ "kind": "error_focused", "before": before, "after": after }))
            }
            SelectionStrategy::Performance { threshold } => {
                tell("strategy", json!({ "kind": "performance", "threshold_ms": ms(threshold) }))
            }
        };
        Value::Object(facts)
    }
}

fn ms(time: Duration) -> Value {
    json!(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
