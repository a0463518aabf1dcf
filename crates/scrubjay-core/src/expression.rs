//! Regular expressions that a person wrote: bounded in memory, and in words when one is wrong.

use regex::bytes::{Regex, RegexBuilder};
use thiserror::Error;

/// The most memory that a compiled expression may take, in bytes: `(a{1000}){1000}` is short, and has a million states.
const BYTES_MAX: usize = 1 << 20;

/// Why a regular expression cannot be used. The text follows the name of its setting.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExpressionError {
    /// Compiled, it would take too much memory.
    #[error("is too large a regular expression")]
    TooLarge,
    /// It cannot be parsed; the parser's reason.
    #[error("is not a regular expression: {0}")]
    Malformed(String),
    /// Every position of every text would be a match.
    #[error("matches the empty text, so it would match everywhere")]
    MatchesEmpty,
}

/// Compiles a regular expression.
pub(crate) fn compile(text: &str) -> Result<Regex, ExpressionError> {
    RegexBuilder::new(text).size_limit(BYTES_MAX).build().map_err(|e| match e {
        regex::Error::CompiledTooBig(_) => ExpressionError::TooLarge,
        e => {
            // The last of several lines: those above show the expression with a caret below the mistake.
            let lines = e.to_string();
            let reason = lines.lines().last().unwrap_or_default().trim_start_matches("error: ");
            ExpressionError::Malformed(reason.to_owned())
        }
    })
}

/// Compiles an expression whose matches are replaced, so it must not match the empty text.
pub(crate) fn finding(text: &str) -> Result<Regex, ExpressionError> {
    let regex = compile(text)?;
    if regex.is_match(b"") { Err(ExpressionError::MatchesEmpty) } else { Ok(regex) }
}
