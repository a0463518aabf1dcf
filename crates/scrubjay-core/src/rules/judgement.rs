//! The result of judging a line: what is forwarded, what is sent back, and the marks for its entry.

use std::time::Duration;

use super::Rule;
use crate::entry::{RuleEffects, RuleMarks, add_line};

/// What to do with a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// What is forwarded.
    pub forwarded: Forwarded,
    /// What is sent back to the sender: an answer, or a batch of answers.
    pub back: Option<Vec<u8>>,
    /// The delay before anything is sent either way.
    pub delay: Duration,
    /// The marks for its entry.
    pub marks: OwnedRuleMarks,
}

/// What is forwarded of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Forwarded {
    /// The line, byte for byte.
    #[default]
    Unchanged,
    /// Another line.
    Changed(Vec<u8>),
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
    /// Returns the marks as an entry holds them.
    #[must_use]
    pub fn as_marks(&self) -> RuleMarks<'_> {
        RuleMarks { effects: self.effects, rules: &self.rules, tags: &self.tags }
    }

    /// Tells whether the line was refused because readers may read it in different ways.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.effects.has(RuleEffects::REFUSED)
    }

    pub(super) fn note(&mut self, name: &str, effects: RuleEffects) {
        add_line(&mut self.rules, name);
        self.add_effects(effects);
    }

    pub(super) fn apply(&mut self, rule: &Rule, effects: RuleEffects) {
        self.note(&rule.name, effects);
    }

    pub(super) fn add_effects(&mut self, effects: RuleEffects) {
        self.effects = self.effects.and(effects);
    }

    /// Keeps this effect if there is one, and drops all others.
    pub(super) fn retain(&mut self, effects: RuleEffects) {
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
