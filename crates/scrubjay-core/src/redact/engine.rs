//! The redactor: its parts, and what it offers.
//!
//! `compile` makes it from a configuration, `raw_check` decides from raw bytes whether a message is parsed at all, and
//! `edits` finds the secrets and what is put in their place.

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

/// The name of the detectors of private keys.
const PRIVATE_KEY: &str = "private-key";

/// Who a pattern of the search belongs to.
#[derive(Clone, Copy, Debug)]
enum Owner {
    /// A format, and the number of its rule.
    Format(&'static Detector, u16),
    /// A name that tells.
    Name,
    /// Base64 of either, in this phase of its groups.
    Base64(usize),
    /// An escape that may spell a letter or a control character.
    Escape,
    /// A terminal control sequence that is spelled out.
    Control,
    /// An anchor whose slashes are escaped.
    Slashed,
    /// An anchor that is percent-encoded, or something else that tells of such a text.
    Percent,
    /// The name at the end of a path.
    PathName,
}

/// Finds secrets, and takes them out.
#[derive(Debug)]
pub struct Redactor {
    enabled: bool,
    filter: Prefilter,
    owners: Vec<Owner>,
    pub(super) names: Names,
    rules: Vec<(String, RedactionAction)>,
    pub(super) paths: Vec<(Path, u16)>,
    pub(super) params: Vec<(MethodParam, u16)>,
    regexes: Vec<(Regex, u16)>,
    pub(super) id_rule: Option<u16>,
    /// The rule for the lines of a private key.
    pub(super) key_rule: u16,
    /// Some rule cannot be searched for in raw bytes.
    always: bool,
    hash_key: RedactionKey,
}

/// Something to put in the place of something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) range: Range<usize>,
    pub(super) with: String,
    pub(super) rule: u16,
    /// Where in a JSON text it stands, if anybody asks.
    pub(super) place: String,
}

impl Redactor {
    /// Makes the redactor that goes by the built-in names and formats.
    #[must_use]
    pub fn standard() -> Self {
        Self::new(&RedactionConfig::default()).expect("no rule, no wrong rule")
    }

    /// Tells whether it does anything.
    pub(super) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Takes the secrets out of a message or line.
    #[must_use]
    pub fn redact<'a>(&self, raw: &'a [u8]) -> Redacted<'a> {
        if !self.enabled || !self.is_suspicious(raw) {
            return Redacted(Cow::Borrowed(raw));
        }
        let edits = self.edits(raw, 0, false);
        Redacted(if edits.is_empty() { Cow::Borrowed(raw) } else { Cow::Owned(apply(raw, &edits)) })
    }

    /// Takes the secrets out of a message that may go on with a private key of the lines before; none where it is no JSON.
    pub(super) fn redact_message<'a>(&self, raw: &'a [u8], keys: &mut KeyLines) -> Option<Redacted<'a>> {
        let (edits, left) = Walk::new(self, raw, 0, false)?.edits_behind(std::mem::take(keys));
        *keys = left;
        let edits = merge(edits);
        Some(Redacted(if edits.is_empty() { Cow::Borrowed(raw) } else { Cow::Owned(apply(raw, &edits)) }))
    }

    /// The same, and says what was taken out.
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

    /// Takes the secrets out of a text.
    #[must_use]
    pub fn redact_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.redact(text.as_bytes()).0 {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    pub(super) fn edit(&self, text: &[u8], range: Range<usize>, rule: u16) -> Edit {
        let with = match self.left(rule, &text[range.clone()]) {
            Replacement::Nothing => String::new(),
            Replacement::Text(text) => text,
            Replacement::Json(value) => value.to_string(),
        };
        Edit { range, with, rule, place: String::new() }
    }

    /// Applies a rule's action to a value.
    pub(super) fn left(&self, rule: u16, value: &[u8]) -> Replacement {
        let (name, action) = &self.rules[usize::from(rule)];
        action.apply(name, value, &self.hash_key)
    }

    /// Returns what a rule does.
    pub(super) fn action(&self, rule: u16) -> &RedactionAction {
        &self.rules[usize::from(rule)].1
    }
}

fn apply(raw: &[u8], edits: &[Edit]) -> Vec<u8> {
    edit::apply(raw, edits.iter().map(|edit| (edit.range.clone(), edit.with.as_bytes())))
}
