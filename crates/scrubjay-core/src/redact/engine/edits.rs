//! Finds the secrets of a text, and what replaces them.

use std::ops::{ControlFlow, Range};

use super::{DEPTH_MAX, Edit, PatternMeaning, Redactor};
use crate::json::escape::{Unescaped, escape};
use crate::redact::action::is_mark;
use crate::redact::control::{self, Stripped};
use crate::redact::prefilter::PatternHit;
use crate::redact::walk::Walk;
use crate::redact::{encoded, text};

impl Redactor {
    /// Finds the secrets of a text that may be JSON, and what replaces them.
    pub(in crate::redact) fn edits(&self, text: &[u8], depth: usize, explain: bool) -> Vec<Edit> {
        let edits = match Walk::new(self, text, depth, explain) {
            Some(walk) => walk.edits(),
            None => self.plain_edits(text, depth, explain),
        };
        merge(edits)
    }

    /// The same for running text.
    pub(in crate::redact) fn plain_edits(&self, text: &[u8], depth: usize, explain: bool) -> Vec<Edit> {
        let mut edits = Vec::new();
        let mut base64_done = 0;
        let (mut spelled, mut percent) = (false, false);
        let mut has_controls = control::has_control_bytes(text);
        let _ = self.filter.hits(text, |hit| {
            match self.meanings[usize::from(hit.id)] {
                PatternMeaning::Escape => {
                    spelled |= encoded::spells_token_character(text, hit.at);
                    has_controls |= control::is_escaped(text, hit.at);
                }
                PatternMeaning::Control => has_controls = true,
                PatternMeaning::Slashed => spelled = true,
                PatternMeaning::Percent => percent = true,
                _ => {}
            }
            let found = self.secrets_at(text, hit, &mut base64_done, depth);
            self.push_edits(text, found, &mut edits);
            ControlFlow::Continue(())
        });
        for (regex, rule) in &self.regexes {
            let found = regex.find_iter(text).map(|found| found.range());
            edits.extend(
                found.filter(|r| !self.is_redacted(text, r, *rule)).map(|r| self.edit(text, r, *rule)),
            );
        }
        // What follows searches the text again in another form. Each counts as a level, which bounds the work.
        if spelled && depth < DEPTH_MAX {
            // Unescaped text may turn out to be JSON, so this is not only searched as running text.
            let plain = Unescaped::new(text);
            edits.extend(
                self.edits(&plain.text, depth + 1, explain).into_iter().map(|edit| edit.mapped_back(&plain)),
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

    /// The same for a text as a terminal shows it, without control sequences.
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
        // A sequence may have swallowed the bracket of a mark, so that the rest of the mark looks like a value.
        edits.retain(|edit| edit.range.is_empty() || !self.is_redacted(text, &edit.range, edit.rule));
        edits
    }

    /// Adds the edits for some secrets, except for those that are marks already.
    fn push_edits(&self, text: &[u8], found: Vec<(Range<usize>, u16)>, edits: &mut Vec<Edit>) {
        let new = found.into_iter().filter(|(range, rule)| !self.is_redacted(text, range, *rule));
        edits.extend(new.map(|(range, rule)| self.edit(text, range, rule)));
    }

    /// Returns the secrets at a hit in a text without control sequences, with the removed sequences as their borders.
    pub(super) fn secrets_between(&self, stripped: &Stripped, hit: PatternHit) -> Vec<(Range<usize>, u16)> {
        match self.meanings[usize::from(hit.id)] {
            PatternMeaning::Format(detector, rule) => with_rule(stripped.find(detector, hit.at), rule),
            PatternMeaning::Name => {
                let begin = stripped.border(hit.at);
                let found = text::value_of(&stripped.text[begin..], hit.at - begin, &self.names);
                let moved = found.map(|(range, evidence)| {
                    (begin + range.start..begin + range.end, self.names.rule_of(evidence))
                });
                moved.into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the secrets at a hit. `base64_done` is the end of the last run of base64 that held one: hits before it
    /// are in the same run, which is replaced as a whole.
    fn secrets_at(
        &self,
        text: &[u8],
        hit: PatternHit,
        base64_done: &mut usize,
        depth: usize,
    ) -> Vec<(Range<usize>, u16)> {
        let found = match self.meanings[usize::from(hit.id)] {
            PatternMeaning::Format(detector, rule) => return with_rule(detector.find(text, hit.at), rule),
            PatternMeaning::Name => text::value_of(text, hit.at, &self.names)
                .map(|(range, evidence)| (range, self.names.rule_of(evidence))),
            PatternMeaning::Base64(phase) if hit.at >= *base64_done => {
                let found = self.inside_base64(text, hit.at, phase, depth);
                *base64_done = found.as_ref().map_or(*base64_done, |(range, _)| range.end);
                found
            }
            PatternMeaning::Base64(_)
            | PatternMeaning::Escape
            | PatternMeaning::Control
            | PatternMeaning::Slashed
            | PatternMeaning::Percent
            | PatternMeaning::PathName => None,
        };
        found.into_iter().collect()
    }

    /// Decodes the base64 around a hit; returns the whole run if there is a secret in it.
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
        // Decoding must begin at the first digit of a group. Groups are counted back from the hit, without line ends.
        let skipped = (place + 4 - phase % 4) % 4;
        let data = encoded::decode(digits.get(skipped..)?);
        let first = self.edits(&data, depth + 1, false).into_iter().next()?;
        Some((encoded::run(text, at), first.rule))
    }

    /// Tells whether a range is a mark, or part of one.
    fn is_redacted(&self, text: &[u8], range: &Range<usize>, rule: u16) -> bool {
        if self.rules[usize::from(rule)].1.is_redacted(&text[range.clone()]) {
            return true;
        }
        // A mark with a rule's name of 64 bytes has 76: enough is read before the range to find its bracket.
        let before = &text[range.start.saturating_sub(80)..range.start];
        let open = before.iter().rposition(|b| *b == b'[').map(|i| range.start - before.len() + i);
        open.is_some_and(|open| {
            let close = memchr::memchr(b']', &text[range.end - 1..]).map(|i| range.end + i);
            close.is_some_and(|close| close - open < 100 && is_mark(&text[open..close]))
        })
    }
}

impl Edit {
    /// Turns an edit of an unescaped text into one of the original, with its replacement escaped.
    pub(in crate::redact) fn mapped_back(mut self, plain: &Unescaped<'_>) -> Self {
        self.range = plain.original(&self.range);
        self.with = escape(&self.with);
        self
    }
}

fn with_rule(found: Vec<Range<usize>>, rule: u16) -> Vec<(Range<usize>, u16)> {
    found.into_iter().map(|range| (range, rule)).collect()
}

/// Joins overlapping edits; the replacement of the first one counts.
pub(super) fn merge(mut edits: Vec<Edit>) -> Vec<Edit> {
    // At the same start the longest edit comes first, then the rule with the lower number: users' rules have lower
    // numbers than built-in formats.
    edits.sort_by_key(|edit| (edit.range.start, std::cmp::Reverse(edit.range.end), edit.rule));
    let mut merged: Vec<Edit> = Vec::with_capacity(edits.len());
    // Half of a secret must not stay because another secret covers the other half.
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
