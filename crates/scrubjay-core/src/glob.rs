//! Patterns of names in which `*` matches any characters: methods, tools, backends.

use serde::{Serialize, Serializer};
use thiserror::Error;

/// The longest pattern of a configuration, in bytes: no name is as long.
const PATTERN_BYTES_MAX: usize = 256;

/// Why a pattern cannot be used. The text follows the name of its setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GlobError {
    /// It has no characters.
    #[error("is an empty pattern")]
    Empty,
    /// It is longer than any name.
    #[error("is too long a pattern: at most {max} bytes", max = PATTERN_BYTES_MAX)]
    TooLong,
    /// It holds a character that has a meaning in other kinds of patterns, or none in names.
    #[error("is not a pattern: it holds {0:?}, and the only wildcard is *")]
    Unsupported(char),
}

/// A pattern with any number of `*` in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    /// The text before, between and after the stars; without a star there is one piece.
    pieces: Vec<Box<[u8]>>,
}

impl Glob {
    /// Takes any pattern: every character but `*` stands for itself.
    #[must_use]
    pub fn new(pattern: &str) -> Self {
        Self { pieces: pattern.split('*').map(|piece| piece.as_bytes().into()).collect() }
    }

    /// Takes a pattern that a person wrote, and refuses one that was meant for another kind of pattern.
    ///
    /// # Errors
    /// It is empty or too long, or has characters that are special in other patterns.
    pub fn parse(pattern: &str) -> Result<Self, GlobError> {
        if pattern.is_empty() {
            return Err(GlobError::Empty);
        }
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(GlobError::TooLong);
        }
        let is_unsupported = |c: char| c.is_control() || c.is_whitespace() || "?[]{}!\\".contains(c);
        match pattern.chars().find(|c| is_unsupported(*c)) {
            Some(c) => Err(GlobError::Unsupported(c)),
            None => Ok(Self::new(pattern)),
        }
    }

    /// Tells whether a name matches.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.matches_bytes(name.as_bytes())
    }

    /// Tells whether a name matches that need not be UTF-8.
    #[must_use]
    pub fn matches_bytes(&self, name: &[u8]) -> bool {
        let (first, rest) = self.pieces.split_first().expect("a pattern has a piece");
        let Some((last, between)) = rest.split_last() else { return **first == *name };
        let Some(mut behind) = name.strip_prefix(&**first) else { return false };
        // The first occurrence of each piece is enough, so there is no backtracking and the time is linear.
        for piece in between {
            let Some(at) = memchr::memmem::find(behind, piece) else { return false };
            behind = &behind[at + piece.len()..];
        }
        behind.ends_with(last)
    }
}

impl Serialize for Glob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&String::from_utf8_lossy(&self.pieces.join(&b'*')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "ab", true),
            ("a*", "a", true),
            ("*b", "ab", true),
            ("ab*b", "ab", false),
            ("a*c*e", "abcde", true),
            ("a*c*e", "abde", false),
            ("*", "é", true),
            ("*", "", true),
            ("**", "x", true),
            ("tools/*", "tools/call", true),
            ("*/list", "resources/templates/list", true),
            ("*/list", "tools/list_changed", false),
        ] {
            assert_eq!(Glob::new(pattern).matches(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn special_characters_of_other_pattern_languages_are_refused() {
        assert!(Glob::parse("tools/*").is_ok());
        for pattern in ["", "tools/?", "[ab]", "{a,b}", "a b", "!x", &"x".repeat(257)] {
            assert!(Glob::parse(pattern).is_err(), "{pattern}");
        }
    }
}
