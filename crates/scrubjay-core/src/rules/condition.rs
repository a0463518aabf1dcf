//! What the parameters, the result or the error of a message must be like.

use regex::bytes::Regex;
use serde_json::Value;

use super::document::{Document, JsonPath};
use crate::expression;
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

    /// A number above this.
    #[must_use]
    pub fn greater(bound: f64) -> Self {
        Self(Kinds::Greater(bound))
    }

    /// A number below this.
    #[must_use]
    pub fn less(bound: f64) -> Self {
        Self(Kinds::Less(bound))
    }
}

impl Condition {
    pub(super) fn holds(&self, document: &Document<'_>) -> bool {
        let bodies = document.bodies();
        let mut found =
            bodies.iter().flat_map(|body| self.path.0.find(&document.text, &document.tree, *body));
        match &self.check.0 {
            Kinds::Exists(wanted) => found.next().is_some() == *wanted,
            check => found.any(|node| check.holds(document, node)),
        }
    }
}

impl Kinds {
    fn holds(&self, document: &Document<'_>, node: usize) -> bool {
        let (kind, raw) = (document.tree.nodes[node].kind, document.raw(node));
        // Numbers of any size: one that is beyond all others is greater than any bound.
        let number = || (kind == Kind::Number).then(|| std::str::from_utf8(raw).ok()?.parse::<f64>().ok())?;
        match self {
            Self::Exists(wanted) => *wanted,
            Self::Greater(bound) => number().is_some_and(|number| number > *bound),
            Self::Less(bound) => number().is_some_and(|number| number < *bound),
            Self::Matches(regex) if kind == Kind::String => regex.is_match(&document.inside(node).text),
            Self::Matches(regex) => regex.is_match(raw),
            Self::Value(test) => {
                // What cannot be a value here is compared as text.
                let text = || Value::String(String::from_utf8_lossy(raw).into_owned());
                test.holds(&serde_json::from_slice(raw).unwrap_or_else(|_| text()))
            }
        }
    }
}
