//! The user's own rules: what they match, and what is wrong with one.

use thiserror::Error;

use super::action::RedactionAction;
use super::name::normal;
use crate::expression;
use crate::glob::Glob;
use crate::json::path::Path;

/// A rule of the user's.
#[derive(Clone, Debug, PartialEq)]
pub struct RedactionRule {
    /// What it is called, in marks and explanations.
    pub name: String,
    /// What it matches.
    pub pattern: RedactionPattern,
    /// What happens to that.
    pub action: RedactionAction,
}

/// What a rule matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedactionPattern {
    /// The value of a member with this name, in any spelling of it.
    Field(String),
    /// What a JSONPath leads to.
    Path(String),
    /// A stretch of any text.
    Regex(String),
    /// A parameter of a method; in the method `*` stands for anything.
    MethodParam {
        /// The method.
        method: String,
        /// The path of the parameter below `params`.
        param: String,
    },
}

impl RedactionPattern {
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
            Self::Regex(text) => expression::finding(text).map(drop),
            Self::MethodParam { method, param } => MethodParam::new(method, param).map(drop),
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

/// A parameter of some methods.
#[derive(Clone, Debug)]
pub(super) struct MethodParam {
    method: Glob,
    pub(super) path: Path,
}

impl MethodParam {
    pub(super) fn new(method: &str, param: &str) -> Result<Self, String> {
        if method.is_empty() {
            return Err("has an empty method".to_owned());
        }
        Ok(Self {
            method: Glob::new(method),
            path: Path::parse(param).map_err(|e| format!("has a wrong param: {e}"))?,
        })
    }

    pub(super) fn is_of(&self, method: &[u8]) -> bool {
        self.method.matches_bytes(method)
    }
}
