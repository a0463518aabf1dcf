//! The redactor and its public functions.
//!
//! `compile` makes it from a configuration, `raw_check` decides from raw bytes whether a message is parsed at all, and
//! `edits` finds the secrets and what replaces them. `prefilter` reports hits of patterns by number; the number is an
//! index into `meanings`.

mod compile;
mod edits;
mod raw_check;

use std::borrow::Cow;
use std::ops::Range;

use regex::bytes::Regex;

use self::edits::merge;
use super::action::{RedactionAction, RedactionKey, Replacement};
use super::detectors::Detector;
use super::lines::KeyLines;
use super::name::Names;
use super::prefilter::Prefilter;
use super::rules::MethodParam;
use super::walk::Walk;
use super::{Redacted, RedactionConfig, RedactionFinding};
use crate::json::edit;
use crate::json::path::Path;

/// The depth to which encodings within encodings are searched: JSON in strings, base64, percent-encoding.
pub(super) const DEPTH_MAX: usize = 6;

/// The name of the detectors of private keys.
const PRIVATE_KEY: &str = "private-key";

/// What a hit of a pattern may be.
#[derive(Clone, Copy, Debug)]
enum PatternMeaning {
    /// An anchor of this format; the number of its rule.
    Format(&'static Detector, u16),
    /// A name that is evidence of a secret.
    Name,
    /// Base64 of an anchor or name, which begins at this digit of a group ([`super::encoded::PHASES`]).
    Base64(usize),
    /// A JSON escape that may stand for a letter or a control character.
    Escape,
    /// A terminal control sequence in one of its spellings.
    Control,
    /// An anchor with escaped slashes.
    Slashed,
    /// A percent-encoded anchor, or other bytes typical of percent-encoded text.
    Percent,
    /// A name in one of the user's paths.
    PathName,
}

/// Finds secrets, and replaces them.
#[derive(Debug)]
pub struct Redactor {
    enabled: bool,
    filter: Prefilter,
    meanings: Vec<PatternMeaning>,
    pub(super) names: Names,
    /// The name and the action of each rule. Rules are referred to by their index.
    rules: Vec<(String, RedactionAction)>,
    pub(super) paths: Vec<(Path, u16)>,
    pub(super) params: Vec<(MethodParam, u16)>,
    regexes: Vec<(Regex, u16)>,
    pub(super) id_rule: Option<u16>,
    /// The rule for the lines of a private key.
    pub(super) key_rule: u16,
    /// Whether some rule cannot be searched for in raw bytes, so that every message is parsed.
    always_parse: bool,
    hash_key: RedactionKey,
}

/// A replacement of a range of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) range: Range<usize>,
    pub(super) with: String,
    pub(super) rule: u16,
    /// The JSONPath of the value, if an explanation is wanted.
    pub(super) place: String,
}

impl Redactor {
    /// Makes a redactor with the built-in names and formats.
    #[must_use]
    pub fn standard() -> Self {
        Self::new(&RedactionConfig::default()).expect("there are no rules that could be wrong")
    }

    /// Tells whether anything is redacted at all.
    pub(super) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Removes the secrets of a message or line.
    #[must_use]
    pub fn redact<'a>(&self, raw: &'a [u8]) -> Redacted<'a> {
        // The relay waits for this, and few messages hold a secret: most are returned here without a parse.
        if !self.enabled || !self.is_suspicious(raw) {
            return Redacted(Cow::Borrowed(raw));
        }
        let edits = self.edits(raw, 0, false);
        Redacted(if edits.is_empty() { Cow::Borrowed(raw) } else { Cow::Owned(apply(raw, &edits)) })
    }

    /// Removes the secrets of a message that may continue a private key of earlier lines; `None` if it is not JSON.
    pub(super) fn redact_message<'a>(&self, raw: &'a [u8], keys: &mut KeyLines) -> Option<Redacted<'a>> {
        let (edits, left) = Walk::new(self, raw, 0, false)?.edits_continuing(std::mem::take(keys));
        *keys = left;
        let edits = merge(edits);
        Some(Redacted(if edits.is_empty() { Cow::Borrowed(raw) } else { Cow::Owned(apply(raw, &edits)) }))
    }

    /// The same as [`Redactor::redact`], with a list of what was removed.
    #[must_use]
    pub fn explain<'a>(&self, raw: &'a [u8]) -> (Redacted<'a>, Vec<RedactionFinding>) {
        let edits = if self.enabled { self.edits(raw, 0, true) } else { Vec::new() };
        let findings = edits.iter().map(|edit| RedactionFinding {
            rule: self.rules[usize::from(edit.rule)].0.clone(),
            place: if edit.place.is_empty() {
                format!("byte {}", edit.range.start)
            } else {
                edit.place.clone()
            },
            bytes: edit.range.len(),
            range: edit.range.clone(),
        });
        let findings = findings.collect();
        let redacted = if edits.is_empty() { Cow::Borrowed(raw) } else { Cow::Owned(apply(raw, &edits)) };
        (Redacted(redacted), findings)
    }

    /// Removes the secrets of a text.
    #[must_use]
    pub fn redact_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.redact(text.as_bytes()).0 {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    pub(super) fn edit(&self, text: &[u8], range: Range<usize>, rule: u16) -> Edit {
        let with = match self.replacement(rule, &text[range.clone()]) {
            Replacement::Nothing => String::new(),
            Replacement::Text(text) => text,
            Replacement::Json(value) => value.to_string(),
        };
        Edit { range, with, rule, place: String::new() }
    }

    /// Applies a rule's action to a value.
    pub(super) fn replacement(&self, rule: u16, value: &[u8]) -> Replacement {
        let (name, action) = &self.rules[usize::from(rule)];
        action.apply(name, value, &self.hash_key)
    }

    /// Returns the action of a rule.
    pub(super) fn action(&self, rule: u16) -> &RedactionAction {
        &self.rules[usize::from(rule)].1
    }
}

fn apply(raw: &[u8], edits: &[Edit]) -> Vec<u8> {
    edit::apply(raw, edits.iter().map(|edit| (edit.range.clone(), edit.with.as_bytes())))
}
