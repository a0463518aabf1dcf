//! What a user may ask for: which parts, which methods, what share, which of several ways.

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
    /// Which operations, by what they are.
    pub filters: Filters,
    /// What share of them.
    pub sampling: Sampling,
    /// Those a sampling never leaves out.
    pub always: AlwaysKept,
    /// Which of them, by what becomes of them.
    pub strategy: SelectionStrategy,
}

/// Which parts of operations are kept. The one thing that leaves half of an operation on a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Capture {
    /// Requests of either side.
    pub requests: bool,
    /// Answers that are no failure.
    pub responses: bool,
    /// Notifications.
    pub notifications: bool,
    /// Answers that are a failure.
    pub errors: bool,
}

impl Default for Capture {
    fn default() -> Self {
        Self { requests: true, responses: true, notifications: true, errors: true }
    }
}

impl Capture {
    /// Tells whether a message is wanted; of a batch, whether any of its messages is.
    pub(super) fn has(self, envelope: &Envelope) -> bool {
        match envelope.kind {
            MessageKind::Request => self.requests,
            MessageKind::Notification => self.notifications,
            MessageKind::Response | MessageKind::Error if envelope.is_failure() => self.errors,
            MessageKind::Response | MessageKind::Error => self.responses,
            MessageKind::Batch => envelope.batch.is_empty() || envelope.batch.iter().any(|one| self.has(one)),
            MessageKind::Opaque => true,
        }
    }
}

/// Which operations are kept by what they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filters {
    /// Only these methods; none is all.
    pub include_methods: Vec<Glob>,
    /// But not these.
    pub exclude_methods: Vec<Glob>,
    /// Only requests that took at least so long to answer.
    pub min_response_time: Option<Duration>,
}

impl Filters {
    /// Tells whether a method is wanted.
    pub(super) fn pass(&self, method: &str) -> bool {
        let any = |globs: &[Glob]| globs.iter().any(|glob| glob.matches(method));
        (self.include_methods.is_empty() || any(&self.include_methods)) && !any(&self.exclude_methods)
    }
}

/// What share of operations is kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Sampling {
    /// All of them.
    #[default]
    All,
    /// Each with this chance.
    Random {
        /// 0 to 1.
        rate: f64,
    },
    /// One of so many.
    Systematic {
        /// At least 1.
        interval: u64,
    },
    /// So many that the share of what is kept for any reason comes to this.
    Adaptive {
        /// 0 to 1.
        target_rate: f64,
    },
    /// Each with the chance of the first rule that fits it.
    Priority {
        /// In order.
        rules: Vec<PriorityRule>,
        /// The chance where none fits.
        rate: f64,
    },
}

/// The chance of some operations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PriorityRule {
    /// Of these methods; none is any.
    pub methods: Vec<Glob>,
    /// Of these tools, prompts or resources; none is any.
    pub names: Vec<Glob>,
    /// 0 to 1.
    pub rate: f64,
}

impl PriorityRule {
    pub(super) fn fits(&self, method: &str, name: Option<&str>) -> bool {
        let any = |globs: &[Glob], text: &str| globs.iter().any(|glob| glob.matches(text));
        (self.methods.is_empty() || any(&self.methods, method))
            && (self.names.is_empty() || name.is_some_and(|name| any(&self.names, name)))
    }
}

/// What a sampling never leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlwaysKept {
    /// Operations that failed.
    pub errors: bool,
    /// Operations that took at least so long.
    pub slow: Option<Duration>,
}

/// Which operations are kept by what becomes of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum SelectionStrategy {
    /// All.
    #[default]
    Full,
    /// Those of a share of all sessions.
    Sessions {
        /// 0 to 1.
        rate: f64,
    },
    /// Those that begin in a stretch of time that comes again and again.
    Windows {
        /// How long a stretch is.
        window: Duration,
        /// How far their beginnings are apart.
        every: Duration,
    },
    /// Those that fail, and what is around them.
    ErrorFocused {
        /// So many messages before a failure.
        before: usize,
        /// So many behind it.
        after: usize,
    },
    /// Those that take at least so long.
    Performance {
        /// How long.
        threshold: Duration,
    },
}

impl SelectionSettings {
    /// Tells whether everything is kept.
    #[must_use]
    pub fn keeps_all(&self) -> bool {
        *self == Self { always: self.always, ..Self::default() }
    }

    /// Tells whether some operations have to wait in memory until it is known what becomes of them.
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

    /// Tells what is in force, for the tape: what is as usual is not mentioned.
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
