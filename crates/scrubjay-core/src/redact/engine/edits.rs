//! Finds the secrets of a text, and what is put in their place.

use std::ops::{ControlFlow, Range};

use super::{Edit, Owner, Redactor};
use crate::json::escape::{Unescaped, escape};
use crate::redact::action::is_mark;
use crate::redact::control::{self, Stripped};
use crate::redact::prefilter::PatternHit;
use crate::redact::walk::Walk;
use crate::redact::{encoded, text};

/// Clothes upon clothes (JSON in strings, base64) are looked into so deep.
const DEPTH_MAX: usize = 6;

impl Redactor {
    /// Finds what to put where, in a text that may be JSON.
    pub(in crate::redact) fn edits(&self, text: &[u8], depth: usize, explain: bool) -> Vec<Edit> {
        let edits = match Walk::new(self, text, depth, explain) {
            Some(walk) => walk.edits(),
            None => self.plain_edits(text, depth, explain),
        };
        merge(edits)
    }

    /// Finds what to put where in running text.
    pub(in crate::redact) fn plain_edits(&self, text: &[u8], depth: usize, explain: bool) -> Vec<Edit> {
        let mut edits = Vec::new();
        let mut base64_done = 0;
        let (mut spelled, mut percent) = (false, false);
        let mut has_controls = control::are_in(text);
        let _ = self.filter.hits(text, |hit| {
            match self.owners[usize::from(hit.owner)] {
                Owner::Escape => {
                    spelled |= encoded::spells(text, hit.at);
                    has_controls |= control::is_escaped(text, hit.at);
                }
                Owner::Control => has_controls = true,
                Owner::Slashed => spelled = true,
                Owner::Percent => percent = true,
                _ => {}
            }
            let found = self.secrets_at(text, hit, &mut base64_done, depth);
            self.push_edits(text, found, &mut edits);
            ControlFlow::Continue(())
        });
        for (regex, rule) in &self.regexes {
            let found = regex.find_iter(text).map(|found| found.range());
            edits.extend(found.filter(|r| !self.is_done(text, r, *rule)).map(|r| self.edit(text, r, *rule)));
        }
        if spelled && depth < DEPTH_MAX {
            let plain = Unescaped::new(text);
            edits.extend(
                self.edits(&plain.text, depth + 1, explain).into_iter().map(|edit| edit.led_back(&plain)),
            );
        }
        if percent && depth < DEPTH_MAX {
            let plain = Unescaped::percent(text);
            edits.extend(self.plain_edits(&plain.text, depth + 1, explain).into_iter().map(|mut edit| {
                edit.range = plain.original(&edit.range);
                edit
            }));
        }
        if has_controls && depth < DEPTH_MAX {
            edits.extend(self.stripped_edits(text, depth, explain));
        }
        merge(edits)
    }

    /// Finds what to put where in a text as a terminal shows it.
    fn stripped_edits(&self, text: &[u8], depth: usize, explain: bool) -> Vec<Edit> {
        let Some(stripped) = Stripped::new(text) else { return Vec::new() };
        let mut edits = self.edits(&stripped.text, depth + 1, explain);
        let _ = self.filter.hits(&stripped.text, |hit| {
            self.push_edits(&stripped.text, self.secrets_between(&stripped, hit), &mut edits);
            ControlFlow::Continue(())
        });
        for edit in &mut edits {
            edit.range = stripped.original(&edit.range);
        }
        // A sequence that takes the bracket of a mark for its end makes a value of the rest of it.
        edits.retain(|edit| edit.range.is_empty() || !self.is_done(text, &edit.range, edit.rule));
        edits
    }

    /// Adds what to put in the place of secrets, but for those that were taken out already.
    fn push_edits(&self, text: &[u8], found: Vec<(Range<usize>, u16)>, edits: &mut Vec<Edit>) {
        let new = found.into_iter().filter(|(range, rule)| !self.is_done(text, range, *rule));
        edits.extend(new.map(|(range, rule)| self.edit(text, range, rule)));
    }

    /// Returns the secrets at a place of a text without control sequences, where those are taken for their borders.
    pub(super) fn secrets_between(&self, stripped: &Stripped, hit: PatternHit) -> Vec<(Range<usize>, u16)> {
        match self.owners[usize::from(hit.owner)] {
            Owner::Format(detector, rule) => with_rule(stripped.find(detector, hit.at), rule),
            Owner::Name => {
                let begin = stripped.border(hit.at);
                let found = text::value_of(&stripped.text[begin..], hit.at - begin, &self.names);
                let moved = found.map(|(range, telling)| {
                    (begin + range.start..begin + range.end, self.names.rule_of(telling))
                });
                moved.into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn secrets_at(
        &self,
        text: &[u8],
        hit: PatternHit,
        base64_done: &mut usize,
        depth: usize,
    ) -> Vec<(Range<usize>, u16)> {
        let found = match self.owners[usize::from(hit.owner)] {
            Owner::Format(detector, rule) => return with_rule(detector.find(text, hit.at), rule),
            Owner::Name => text::value_of(text, hit.at, &self.names)
                .map(|(range, telling)| (range, self.names.rule_of(telling))),
            Owner::Base64(phase) if hit.at >= *base64_done => {
                let found = self.inside_base64(text, hit.at, phase, depth);
                *base64_done = found.as_ref().map_or(*base64_done, |(range, _)| range.end);
                found
            }
            Owner::Base64(_)
            | Owner::Escape
            | Owner::Control
            | Owner::Slashed
            | Owner::Percent
            | Owner::PathName => None,
        };
        found.into_iter().collect()
    }

    /// Looks into the base64 around a place; returns the whole of it, where there is a secret in it.
    pub(super) fn inside_base64(
        &self,
        text: &[u8],
        at: usize,
        phase: usize,
        depth: usize,
    ) -> Option<(Range<usize>, u16)> {
        if depth >= DEPTH_MAX {
            return None;
        }
        let (digits, place) = encoded::digits_near(text, at);
        // Groups are counted back from the place, without the ends of lines.
        let skipped = (place + 4 - phase % 4) % 4;
        let data = encoded::decode(digits.get(skipped..)?);
        let first = self.edits(&data, depth + 1, false).into_iter().next()?;
        Some((encoded::run(text, at), first.rule))
    }

    /// Tells whether what was found is what redaction left, or part of it.
    fn is_done(&self, text: &[u8], range: &Range<usize>, rule: u16) -> bool {
        if self.rules[usize::from(rule)].1.is_done(&text[range.clone()]) {
            return true;
        }
        let before = &text[range.start.saturating_sub(80)..range.start];
        let open = before.iter().rposition(|b| *b == b'[').map(|i| range.start - before.len() + i);
        open.is_some_and(|open| {
            let close = memchr::memchr(b']', &text[range.end - 1..]).map(|i| range.end + i);
            close.is_some_and(|close| close - open < 100 && is_mark(&text[open..close]))
        })
    }
}

impl Edit {
    /// Leads an edit of a text without escapes back to the original.
    pub(in crate::redact) fn led_back(mut self, plain: &Unescaped<'_>) -> Self {
        self.range = plain.original(&self.range);
        self.with = escape(&self.with);
        self
    }
}

fn with_rule(found: Vec<Range<usize>>, rule: u16) -> Vec<(Range<usize>, u16)> {
    found.into_iter().map(|range| (range, rule)).collect()
}

/// Makes edits that touch one.
pub(super) fn merge(mut edits: Vec<Edit>) -> Vec<Edit> {
    edits.sort_by_key(|edit| (edit.range.start, std::cmp::Reverse(edit.range.end), edit.rule));
    let mut merged: Vec<Edit> = Vec::with_capacity(edits.len());
    for edit in edits {
        match merged.last_mut() {
            Some(last) if edit.range.start < last.range.end => {
                last.range.end = last.range.end.max(edit.range.end);
            }
            _ => merged.push(edit),
        }
    }
    merged
}
