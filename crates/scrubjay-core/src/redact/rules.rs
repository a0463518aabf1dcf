//! The user's rules: what they match, and why one cannot be used.

use thiserror::Error;

use super::action::RedactionAction;
use super::name::normal;
use crate::expression::{self, ExpressionError};
use crate::glob::Glob;
use crate::json::path::{Path, PathError};

/// A rule of the user.
#[derive(Clone, Debug, PartialEq)]
pub struct RedactionRule {
    /// Its name in marks and explanations.
    pub name: String,
    /// What it matches.
    pub pattern: RedactionPattern,
    /// What happens to a match.
    pub action: RedactionAction,
}

/// What a rule matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedactionPattern {
    /// The value of a member with this name, in any case and with any separators.
    Field(String),
    /// The values that a JSONPath leads to.
    Path(String),
    /// The matches of a regular expression in any text.
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
    /// Checks that the pattern can be used.
    ///
    /// # Errors
    /// It cannot; the error says why.
    pub fn check(&self) -> Result<(), PatternError> {
        match self {
            Self::Field(name) if normal(name).is_empty() => Err(PatternError::NoField),
            Self::Field(_) => Ok(()),
            Self::Path(text) => Path::parse(text).map(drop).map_err(PatternError::Path),
            Self::Regex(text) => expression::finding(text).map(drop).map_err(PatternError::Regex),
            Self::MethodParam { method, param } => MethodParam::new(method, param).map(drop),
        }
    }
}

/// Why a pattern cannot be used. The text follows the name of its setting.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PatternError {
    /// The name of the field consists of separators.
    #[error("names no field")]
    NoField,
    /// The path cannot be parsed.
    #[error("is not a JSONPath: {0}")]
    Path(PathError),
    /// The regular expression cannot be used.
    #[error(transparent)]
    Regex(ExpressionError),
    /// No method is given.
    #[error("has an empty method")]
    NoMethod,
    /// The path of the parameter cannot be parsed.
    #[error("has a wrong param: {0}")]
    Param(PathError),
}

/// A rule that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what}")]
pub struct RuleError {
    /// The number of the rule, from zero.
    pub rule: usize,
    /// What is wrong with its pattern.
    pub what: PatternError,
}

/// A parameter of some methods.
#[derive(Clone, Debug)]
pub(super) struct MethodParam {
    method: Glob,
    pub(super) path: Path,
}

impl MethodParam {
    pub(super) fn new(method: &str, param: &str) -> Result<Self, PatternError> {
        if method.is_empty() {
            return Err(PatternError::NoMethod);
        }
        Ok(Self { method: Glob::new(method), path: Path::parse(param).map_err(PatternError::Param)? })
    }

    pub(super) fn is_of(&self, method: &[u8]) -> bool {
        self.method.matches_bytes(method)
    }
}
