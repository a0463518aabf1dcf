//! What comes of judging a line: what goes on, what goes back, and what its entry tells.

use std::time::Duration;

use super::Rule;
use crate::entry::{Acts, Judged, add_line};

/// What is to be done with a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// What goes on in its place.
    pub onward: Onward,
    /// What goes back to whoever said it: an answer, or a batch of them.
    pub back: Option<Vec<u8>>,
    /// How long it waits before anything goes either way.
    pub delay: Duration,
    /// What its entry tells.
    pub marks: Marks,
}

/// What goes on in the place of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Onward {
    /// The line, byte for byte.
    #[default]
    Same,
    /// Another.
    Other(Vec<u8>),
    /// Nothing.
    Nothing,
}

/// Which rules applied to a line, and what they did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    acts: Acts,
    rules: String,
    tags: String,
}

impl Marks {
    /// Returns what an entry tells.
    #[must_use]
    pub fn judged(&self) -> Judged<'_> {
        Judged { acts: self.acts, rules: &self.rules, tags: &self.tags }
    }

    /// Tells whether the line was refused because readers may differ on it.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.acts.has(Acts::REFUSED)
    }

    pub(super) fn note(&mut self, name: &str, acts: Acts) {
        add_line(&mut self.rules, name);
        self.act(acts);
    }

    pub(super) fn apply(&mut self, rule: &Rule, acts: Acts) {
        self.note(&rule.name, acts);
    }

    pub(super) fn act(&mut self, acts: Acts) {
        self.acts = self.acts.and(acts);
    }

    /// Forgets what was done, but for this.
    pub(super) fn keep(&mut self, acts: Acts) {
        self.acts = if self.acts.has(acts) { acts } else { Acts::default() };
    }

    pub(super) fn tag(&mut self, tag: &str) {
        add_line(&mut self.tags, tag);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.acts = self.acts.and(other.acts);
        other.rules.lines().for_each(|name| add_line(&mut self.rules, name));
        other.tags.lines().for_each(|tag| add_line(&mut self.tags, tag));
    }
}
