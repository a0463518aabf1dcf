//! Regular expressions that a person wrote: bounded in memory, and in words when one is wrong.

use regex::bytes::{Regex, RegexBuilder};

/// A regular expression may need no more memory than this.
const BYTES_MAX: usize = 1 << 20;

/// Compiles a regular expression.
pub(crate) fn compile(text: &str) -> Result<Regex, String> {
    RegexBuilder::new(text).size_limit(BYTES_MAX).build().map_err(|e| match e {
        regex::Error::CompiledTooBig(_) => "is too large a regular expression".to_owned(),
        e => {
            let told = e.to_string();
            let last = told.lines().last().unwrap_or_default();
            format!("is not a regular expression: {}", last.trim_start_matches("error: "))
        }
    })
}

/// Compiles one that is to find something.
pub(crate) fn finding(text: &str) -> Result<Regex, String> {
    let regex = compile(text)?;
    if regex.is_match(b"") {
        Err("matches the empty text, so it would match everywhere".to_owned())
    } else {
        Ok(regex)
    }
}
