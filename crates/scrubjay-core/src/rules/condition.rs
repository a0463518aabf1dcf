//! Conditions on the parameters, result or error of a message.

use regex::bytes::Regex;
use serde_json::Value;

use super::document::{Document, JsonPath};
use super::lenient::{may_equal, spelled_number};
use super::portable::is_plain_number;
use crate::expression::{self, ExpressionError};
use crate::json::escape::{Unescaped, escape};
use crate::json::tree::NodeKind;
use crate::query::ValueTest;

/// A condition on the values at a path.
#[derive(Clone, Debug)]
pub struct Condition {
    /// The path of the values.
    pub path: JsonPath,
    /// The check that a value must pass.
    pub check: ValueCheck,
}

/// A check of a value.
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
    /// There is a value; with `false`, there is none.
    #[must_use]
    pub fn exists(wanted: bool) -> Self {
        Self(ValueKinds::Exists(wanted))
    }

    /// The value is equal to this one, or lenient readers take it for this one.
    #[must_use]
    pub fn equals(value: Value) -> Self {
        Self(ValueKinds::Value(ValueTest::Equals(value)))
    }

    /// A string, or the JSON of another value, contains this text in any case.
    #[must_use]
    pub fn contains(part: String) -> Self {
        Self(ValueKinds::Value(ValueTest::Contains(part)))
    }

    /// A regular expression matches somewhere in a string, or in the JSON of another value.
    ///
    /// # Errors
    /// The expression cannot be used.
    pub fn matches(expression: &str) -> Result<Self, ExpressionError> {
        expression::compile(expression).map(|regex| Self(ValueKinds::Matches(regex)))
    }

    /// The value is a number above the bound, or a string that spells one.
    #[must_use]
    pub fn greater(bound: f64) -> Self {
        Self(ValueKinds::Greater(bound))
    }

    /// The value is a number below the bound, or a string that spells one.
    #[must_use]
    pub fn less(bound: f64) -> Self {
        Self(ValueKinds::Less(bound))
    }
}

/// How certain a condition must be, since readers may differ.
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
        // A message too large to unpack was refused before.
        let unpacked = document.unpacked().unwrap_or_default();
        match need {
            Certainty::Possible => here || unpacked.is_some_and(|unpacked| self.holds_in(unpacked, need)),
            Certainty::Certain => here && unpacked.is_none_or(|unpacked| self.holds_in(unpacked, need)),
        }
    }

    fn holds_in(&self, document: &Document<'_>, need: Certainty) -> bool {
        let find = |body| self.path.0.find_for_every_reader(&document.text, &document.tree, body);
        let found = document.body().map(find).unwrap_or_default();
        let holds = |found: &[usize]| match &self.check.0 {
            ValueKinds::Exists(wanted) => found.is_empty() != *wanted,
            check => {
                let mut each = found.iter().map(|node| check.holds(document, *node, need));
                match need {
                    Certainty::Possible => each.any(|holds| holds),
                    // The server may act on any of the values.
                    Certainty::Certain => !found.is_empty() && each.all(|holds| holds),
                }
            }
        };
        // The two lists differ where keys differ in case, and it is unknown which of them the receiver reads.
        match need {
            Certainty::Possible => holds(&found.exact) || holds(&found.folded),
            Certainty::Certain => holds(&found.exact) && holds(&found.folded),
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
            // In C a string ends at NUL.
            return match text.iter().position(|byte| *byte == 0) {
                Some(end) => agree(whole, self.holds_for_text(&text[..end], need)),
                None => whole,
            };
        }
        let holds = self.holds_for_other(document, node, need);
        if document.kind(node) == NodeKind::Array {
            // A JavaScript server may convert an array to a string.
            return agree(holds, self.holds_for_text(&coerced(document, node), need));
        }
        holds
    }

    /// Tells whether it holds for a value that is not a string.
    fn holds_for_other(&self, document: &Document<'_>, node: usize, need: Certainty) -> bool {
        let raw = document.raw(node);
        let agree =
            |one: bool, other: bool| if need == Certainty::Possible { one || other } else { one && other };
        let number = match document.kind(node) {
            NodeKind::Number => Number::new(raw),
            // Many servers take a boolean for a number.
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
                // serde_json rejects numbers beyond the range of doubles. Then the value's JSON in normal form is
                // tested as a text, and nothing is certain.
                Err(_) => need == Certainty::Possible && test.holds(&text_value(&plain(document, node))),
            },
        }
    }

    fn holds_for_text(&self, text: &[u8], need: Certainty) -> bool {
        // Many servers take a string for the number that it spells.
        let number = || if need == Certainty::Possible { spelled_number(text) } else { None };
        match self {
            Self::Exists(wanted) => *wanted,
            Self::Greater(bound) => number().is_some_and(|number| number > *bound),
            Self::Less(bound) => number().is_some_and(|number| number < *bound),
            Self::Matches(regex) => regex.is_match(text),
            Self::Value(test) => match need {
                Certainty::Possible => holds_for_some(test, &text_value(text)),
                // It is unknown whether the server takes a string for the number or boolean that it spells.
                Certainty::Certain => {
                    let is_open = matches!(test, ValueTest::Equals(wanted) if !wanted.is_string());
                    !is_open && test.holds(&text_value(text))
                }
            },
        }
    }
}

/// Tells whether a test holds for at least one reader.
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
    /// Whether all readers see the same number.
    is_exact: bool,
}

impl Number {
    fn new(raw: &[u8]) -> Option<Self> {
        let nearest = std::str::from_utf8(raw).ok()?.parse().ok()?;
        Some(Self { nearest, is_exact: is_plain_number(raw) })
    }

    /// Returns the number that servers take `true` or `false` for.
    fn of_truth(raw: &[u8]) -> Option<Self> {
        let nearest = match raw {
            b"true" => 1.0,
            b"false" => 0.0,
            _ => return None,
        };
        Some(Self { nearest, is_exact: true })
    }

    /// Compares it with `holds`, which is also told whether some readers may see a slightly larger or smaller number.
    fn compares(self, need: Certainty, holds: impl Fn(f64, bool) -> bool) -> bool {
        match need {
            Certainty::Possible => holds(self.nearest, !self.is_exact),
            Certainty::Certain => self.is_exact && holds(self.nearest, false),
        }
    }
}

/// Returns the string that JavaScript converts an array to.
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

/// Returns the JSON of a value in normal form: no white space, no needless escapes, numbers as doubles.
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
