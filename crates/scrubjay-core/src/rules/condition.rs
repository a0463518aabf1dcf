//! What the parameters, the result or the error of a message must be like.

use regex::bytes::Regex;
use serde_json::Value;

use super::document::{Document, JsonPath};
use super::lenient::{may_equal, spelled};
use super::portable::is_plain_number;
use crate::expression::{self, ExpressionError};
use crate::json::escape::{Unescaped, escape};
use crate::json::tree::NodeKind;
use crate::query::ValueTest;

/// What some value of a message must be like.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Where the value stands.
    pub path: JsonPath,
    /// What one that stands there must be like.
    pub check: ValueCheck,
}

/// What a value must be like.
#[derive(Clone, Debug)]
pub struct ValueCheck(ValueKinds);

#[derive(Clone, Debug)]
enum ValueKinds {
    Exists(bool),
    Value(ValueTest),
    Matches(Regex),
    Greater(f64),
    Less(f64),
}

impl ValueCheck {
    /// There; or with `false`, not there.
    #[must_use]
    pub fn exists(wanted: bool) -> Self {
        Self(ValueKinds::Exists(wanted))
    }

    /// Equal to this, or something that lenient readers take for this.
    #[must_use]
    pub fn equals(value: Value) -> Self {
        Self(ValueKinds::Value(ValueTest::Equals(value)))
    }

    /// A text that holds this, whatever its case; of anything else, its JSON.
    #[must_use]
    pub fn contains(part: String) -> Self {
        Self(ValueKinds::Value(ValueTest::Contains(part)))
    }

    /// A text in which a regular expression is found; of anything else, its JSON.
    ///
    /// # Errors
    /// It is not one.
    pub fn matches(expression: &str) -> Result<Self, ExpressionError> {
        expression::compile(expression).map(|regex| Self(ValueKinds::Matches(regex)))
    }

    /// A number above this, or a text that spells one.
    #[must_use]
    pub fn greater(bound: f64) -> Self {
        Self(ValueKinds::Greater(bound))
    }

    /// A number below this, or a text that spells one.
    #[must_use]
    pub fn less(bound: f64) -> Self {
        Self(ValueKinds::Less(bound))
    }
}

/// How sure it must be that a condition holds, where readers may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Certainty {
    /// It holds for some reader.
    Possible,
    /// It holds for every reader.
    Certain,
}

impl Condition {
    pub(super) fn holds(&self, document: &Document<'_>, need: Certainty) -> bool {
        let here = self.holds_in(document, need);
        // What is too much to look into was refused before.
        let unpacked = document.unpacked().unwrap_or_default();
        match need {
            Certainty::Possible => here || unpacked.is_some_and(|unpacked| self.holds_in(unpacked, need)),
            Certainty::Certain => here && unpacked.is_none_or(|unpacked| self.holds_in(unpacked, need)),
        }
    }

    fn holds_in(&self, document: &Document<'_>, need: Certainty) -> bool {
        let look = |body| self.path.0.look(&document.text, &document.tree, body);
        let places = document.body().map(look).unwrap_or_default();
        let holds = |found: &[usize]| match &self.check.0 {
            ValueKinds::Exists(wanted) => found.is_empty() != *wanted,
            check => {
                let mut each = found.iter().map(|node| check.holds(document, *node, need));
                match need {
                    Certainty::Possible => each.any(|holds| holds),
                    // Its reader may take any of them.
                    Certainty::Certain => !found.is_empty() && each.all(|holds| holds),
                }
            }
        };
        match need {
            Certainty::Possible => holds(&places.exact) || holds(&places.folded),
            Certainty::Certain => holds(&places.exact) && holds(&places.folded),
        }
    }
}

impl ValueKinds {
    fn holds(&self, document: &Document<'_>, node: usize, need: Certainty) -> bool {
        let agree =
            |one: bool, other: bool| if need == Certainty::Possible { one || other } else { one && other };
        if document.kind(node) == NodeKind::String {
            let text = document.inside(node).text;
            let whole = self.holds_for_text(&text, need);
            // To C a text ends at a NUL.
            return match text.iter().position(|byte| *byte == 0) {
                Some(end) => agree(whole, self.holds_for_text(&text[..end], need)),
                None => whole,
            };
        }
        let holds = self.holds_for_other(document, node, need);
        if document.kind(node) == NodeKind::Array {
            return agree(holds, self.holds_for_text(&coerced(document, node), need));
        }
        holds
    }

    /// Tells whether it holds for what is no text.
    fn holds_for_other(&self, document: &Document<'_>, node: usize, need: Certainty) -> bool {
        let raw = document.raw(node);
        let agree =
            |one: bool, other: bool| if need == Certainty::Possible { one || other } else { one && other };
        let number = match document.kind(node) {
            NodeKind::Number => Number::new(raw),
            // Many servers take a truth value for a number.
            NodeKind::Word if need == Certainty::Possible => Number::of_truth(raw),
            _ => None,
        };
        match self {
            Self::Exists(wanted) => *wanted,
            Self::Greater(bound) => number
                .is_some_and(|number| number.compares(need, |n, more| n > *bound || more && n >= *bound)),
            Self::Less(bound) => number
                .is_some_and(|number| number.compares(need, |n, more| n < *bound || more && n <= *bound)),
            Self::Matches(regex) => agree(regex.is_match(raw), regex.is_match(&plain(document, node))),
            Self::Value(test) => match serde_json::from_slice(raw) {
                Ok(value) => match need {
                    Certainty::Possible => holds_for_some(test, &value),
                    Certainty::Certain => number.is_none_or(|number| number.is_exact) && test.holds(&value),
                },
                // A number beyond all bounds is no value here, and neither is what holds one: then its JSON, written
                // anew, is looked at, and nothing is certain.
                Err(_) => need == Certainty::Possible && test.holds(&text_value(&plain(document, node))),
            },
        }
    }

    fn holds_for_text(&self, text: &[u8], need: Certainty) -> bool {
        // Many servers take a text for the number it spells.
        let number = || if need == Certainty::Possible { spelled(text) } else { None };
        match self {
            Self::Exists(wanted) => *wanted,
            Self::Greater(bound) => number().is_some_and(|number| number > *bound),
            Self::Less(bound) => number().is_some_and(|number| number < *bound),
            Self::Matches(regex) => regex.is_match(text),
            Self::Value(test) => match need {
                Certainty::Possible => holds_for_some(test, &text_value(text)),
                // Nobody knows of a text whether its reader takes it for the number, or for `true`, that it spells.
                Certainty::Certain => {
                    let is_open = matches!(test, ValueTest::Equals(wanted) if !wanted.is_string());
                    !is_open && test.holds(&text_value(text))
                }
            },
        }
    }
}

/// Tells whether a test holds for some reader.
fn holds_for_some(test: &ValueTest, value: &Value) -> bool {
    test.holds(value) || matches!(test, ValueTest::Equals(wanted) if may_equal(value, wanted))
}

fn text_value(text: &[u8]) -> Value {
    Value::String(String::from_utf8_lossy(text).into_owned())
}

/// A number as readers see it.
#[derive(Clone, Copy)]
struct Number {
    nearest: f64,
    /// Whether it is the same to all of them.
    is_exact: bool,
}

impl Number {
    fn new(raw: &[u8]) -> Option<Self> {
        let nearest = std::str::from_utf8(raw).ok()?.parse().ok()?;
        Some(Self { nearest, is_exact: is_plain_number(raw) })
    }

    /// Returns the number that `true` or `false` is.
    fn of_truth(raw: &[u8]) -> Option<Self> {
        let nearest = match raw {
            b"true" => 1.0,
            b"false" => 0.0,
            _ => return None,
        };
        Some(Self { nearest, is_exact: true })
    }

    /// Compares it; `holds` hears whether readers may see a little more or less.
    fn compares(self, need: Certainty, holds: impl Fn(f64, bool) -> bool) -> bool {
        match need {
            Certainty::Possible => holds(self.nearest, !self.is_exact),
            Certainty::Certain => self.is_exact && holds(self.nearest, false),
        }
    }
}

/// Returns the text that JavaScript makes of an array where it wants one.
fn coerced(document: &Document<'_>, array: usize) -> Vec<u8> {
    let texts = document.tree.children(array).map(|element| match document.kind(element) {
        NodeKind::String => document.inside(element).text.into_owned(),
        NodeKind::Array => coerced(document, element),
        NodeKind::Object => b"[object Object]".to_vec(),
        NodeKind::Word if document.raw(element) == b"null" => Vec::new(),
        NodeKind::Word | NodeKind::Number => plain(document, element),
    });
    texts.collect::<Vec<_>>().join(&b","[..])
}

/// Returns the JSON of a value as one that wrote it anew would: without white space, escapes and odd numbers.
fn plain(document: &Document<'_>, node: usize) -> Vec<u8> {
    let raw = document.raw(node);
    if document.kind(node) == NodeKind::Number {
        let number = std::str::from_utf8(raw).ok().and_then(|raw| raw.parse::<f64>().ok());
        return number.map_or_else(|| raw.to_vec(), |number| format!("{number}").into_bytes());
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        match raw[at] {
            b' ' | b'\t' => at += 1,
            b'"' => {
                let mut end = at + 1;
                while raw[end] != b'"' {
                    end += if raw[end] == b'\\' { 2 } else { 1 };
                }
                let inside = Unescaped::new(&raw[at + 1..end]);
                out.push(b'"');
                out.extend_from_slice(escape(&String::from_utf8_lossy(&inside.text)).as_bytes());
                out.push(b'"');
                at = end + 1;
            }
            byte => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}
