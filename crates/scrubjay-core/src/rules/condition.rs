//! What the parameters, the result or the error of a message must be like.

use regex::bytes::Regex;
use serde_json::Value;

use super::document::{Document, JsonPath};
use crate::expression;
use crate::json::escape::{Unescaped, escape};
use crate::json::tree::Kind;
use crate::query::Test;

/// What some value of a message must be like.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Where the value stands.
    pub path: JsonPath,
    /// What one that stands there must be like.
    pub check: Check,
}

/// What a value must be like.
#[derive(Clone, Debug)]
pub struct Check(Kinds);

#[derive(Clone, Debug)]
enum Kinds {
    Exists(bool),
    Value(Test),
    Matches(Regex),
    Greater(f64),
    Less(f64),
}

impl Check {
    /// There; or with `false`, not there.
    #[must_use]
    pub fn exists(wanted: bool) -> Self {
        Self(Kinds::Exists(wanted))
    }

    /// Equal to this; text that reads like a number equals that number.
    #[must_use]
    pub fn equals(value: Value) -> Self {
        Self(Kinds::Value(Test::Equals(value)))
    }

    /// A text that holds this, whatever its case; of anything else, its JSON.
    #[must_use]
    pub fn contains(part: String) -> Self {
        Self(Kinds::Value(Test::Contains(part)))
    }

    /// A text in which a regular expression is found; of anything else, its JSON.
    ///
    /// # Errors
    /// It is not one.
    pub fn matches(expression: &str) -> Result<Self, String> {
        expression::compile(expression).map(|regex| Self(Kinds::Matches(regex)))
    }

    /// A number above this, or a text that spells one.
    #[must_use]
    pub fn greater(bound: f64) -> Self {
        Self(Kinds::Greater(bound))
    }

    /// A number below this, or a text that spells one.
    #[must_use]
    pub fn less(bound: f64) -> Self {
        Self(Kinds::Less(bound))
    }
}

/// How sure it must be that a condition holds, where readers may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// It holds for some reader.
    Possible,
    /// It holds for every reader.
    Certain,
}

impl Condition {
    /// Tells whether it is about what a value is, not only whether there is one.
    pub(super) fn wants_value(&self) -> bool {
        !matches!(self.check.0, Kinds::Exists(_))
    }

    pub(super) fn holds(&self, document: &Document<'_>, need: Need) -> bool {
        let look = |body| self.path.0.look(&document.text, &document.tree, body);
        let places = document.body().map(look).unwrap_or_default();
        let holds = |found: &[usize]| match &self.check.0 {
            Kinds::Exists(wanted) => found.is_empty() != *wanted,
            check => found.iter().any(|node| check.holds(document, *node, need)),
        };
        match need {
            Need::Possible => holds(&places.exact) || holds(&places.folded),
            Need::Certain => holds(&places.exact) && holds(&places.folded),
        }
    }
}

impl Kinds {
    fn holds(&self, document: &Document<'_>, node: usize, need: Need) -> bool {
        let (kind, raw) = (document.tree.nodes[node].kind, document.raw(node));
        // Numbers of any size: one that is beyond all others is greater than any bound. Many servers take a text
        // for the number it spells.
        let number = || match kind {
            Kind::Number => std::str::from_utf8(raw).ok()?.parse::<f64>().ok(),
            Kind::String if need == Need::Possible => spelled(&document.inside(node).text),
            _ => None,
        };
        match self {
            Self::Exists(wanted) => *wanted,
            Self::Greater(bound) => number().is_some_and(|number| number > *bound),
            Self::Less(bound) => number().is_some_and(|number| number < *bound),
            Self::Matches(regex) if kind == Kind::String => regex.is_match(&document.inside(node).text),
            Self::Matches(regex) => {
                let plain = plain(document, node);
                match need {
                    Need::Possible => regex.is_match(raw) || regex.is_match(&plain),
                    Need::Certain => regex.is_match(raw) && regex.is_match(&plain),
                }
            }
            Self::Value(test) => {
                // What cannot be a value here is compared as text.
                let text = || Value::String(String::from_utf8_lossy(raw).into_owned());
                test.holds(&serde_json::from_slice(raw).unwrap_or_else(|_| text()))
                    || matches!(test, Test::Equals(Value::Number(wanted)) if number() == wanted.as_f64())
            }
        }
    }
}

/// Returns the number that a text spells to readers that take texts for numbers.
fn spelled(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    text.parse().or_else(|_| text.replace('_', "").parse()).ok()
}

/// Returns the JSON of a value as one that wrote it anew would: without white space, escapes and odd numbers.
fn plain(document: &Document<'_>, node: usize) -> Vec<u8> {
    let raw = document.raw(node);
    if document.kind(node) == Kind::Number {
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
