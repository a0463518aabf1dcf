//! The user's own rules: what they match, and what is wrong with one.

use regex::bytes::{Regex, RegexBuilder};
use thiserror::Error;

use super::action::Action;
use super::name::normal;
use super::path::Path;

/// A regular expression may need no more memory than this.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// A rule of the user's.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// What it is called, in marks and explanations.
    pub name: String,
    /// What it matches.
    pub pattern: Pattern,
    /// What happens to that.
    pub action: Action,
}

/// What a rule matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The value of a member with this name, in any spelling of it.
    Field(String),
    /// What a JSONPath leads to.
    Path(String),
    /// A stretch of any text.
    Regex(String),
    /// A parameter of a method; the method may end in `*`.
    MethodParam {
        /// The method.
        method: String,
        /// The path of the parameter below `params`.
        param: String,
    },
}

impl Pattern {
    /// Tells what is wrong with it, if anything is.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Field(name) if normal(name).is_empty() => Err("names no field".to_owned()),
            Self::Field(_) => Ok(()),
            Self::Path(text) => match Path::parse(text) {
                Ok(_) => Ok(()),
                Err(e) => Err(format!("is not a JSONPath: {e}")),
            },
            Self::Regex(text) => regex(text).map(drop),
            Self::MethodParam { method, param } => Param::new(method, param).map(drop),
        }
    }
}

/// A rule that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what}")]
pub struct RuleError {
    /// Which one, from zero.
    pub rule: usize,
    /// What is wrong with it.
    pub what: String,
}

/// Compiles a regular expression.
pub(super) fn regex(text: &str) -> Result<Regex, String> {
    let regex = RegexBuilder::new(text).size_limit(REGEX_BYTES_MAX).build().map_err(|e| match e {
        regex::Error::CompiledTooBig(_) => "is too large a regular expression".to_owned(),
        e => {
            let told = e.to_string();
            let last = told.lines().last().unwrap_or_default();
            format!("is not a regular expression: {}", last.trim_start_matches("error: "))
        }
    })?;
    if regex.is_match(b"") {
        Err("matches the empty text, so it would match everywhere".to_owned())
    } else {
        Ok(regex)
    }
}

/// A parameter of some methods.
#[derive(Clone, Debug)]
pub(super) struct Param {
    method: String,
    pub(super) path: Path,
}

impl Param {
    pub(super) fn new(method: &str, param: &str) -> Result<Self, String> {
        if method.is_empty() {
            return Err("has an empty method".to_owned());
        }
        Ok(Self {
            method: method.to_owned(),
            path: Path::parse(param).map_err(|e| format!("has a wrong param: {e}"))?,
        })
    }

    pub(super) fn is_of(&self, method: &[u8]) -> bool {
        match self.method.strip_suffix('*') {
            Some(start) => method.starts_with(start.as_bytes()),
            None => method == self.method.as_bytes(),
        }
    }
}
