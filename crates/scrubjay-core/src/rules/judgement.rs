//! What comes of judging a line: what goes on, what goes back, and what its entry tells.

use std::time::Duration;

use super::Rule;
use crate::entry::{RuleEffects, RuleMarks, add_line};

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
    pub marks: OwnedRuleMarks,
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
pub struct OwnedRuleMarks {
    effects: RuleEffects,
    rules: String,
    tags: String,
}

impl OwnedRuleMarks {
    /// Returns what an entry tells.
    #[must_use]
    pub fn as_marks(&self) -> RuleMarks<'_> {
        RuleMarks { effects: self.effects, rules: &self.rules, tags: &self.tags }
    }

    /// Tells whether the line was refused because readers may differ on it.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.effects.has(RuleEffects::REFUSED)
    }

    pub(super) fn note(&mut self, name: &str, effects: RuleEffects) {
        add_line(&mut self.rules, name);
        self.act(effects);
    }

    pub(super) fn apply(&mut self, rule: &Rule, effects: RuleEffects) {
        self.note(&rule.name, effects);
    }

    pub(super) fn act(&mut self, effects: RuleEffects) {
        self.effects = self.effects.and(effects);
    }

    /// Forgets what was done, but for this.
    pub(super) fn keep(&mut self, effects: RuleEffects) {
        self.effects = if self.effects.has(effects) { effects } else { RuleEffects::default() };
    }

    pub(super) fn tag(&mut self, tag: &str) {
        add_line(&mut self.tags, tag);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.effects = self.effects.and(other.effects);
        other.rules.lines().for_each(|name| add_line(&mut self.rules, name));
        other.tags.lines().for_each(|tag| add_line(&mut self.tags, tag));
    }
}
