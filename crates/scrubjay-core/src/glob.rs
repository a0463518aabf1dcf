//! Names in which `*` stands for anything: methods, tools, backends.

use serde::{Serialize, Serializer};

/// A name with any number of `*` in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    /// What stands before, between and behind the stars; one piece is a name without any.
    pieces: Vec<Box<[u8]>>,
}

impl Glob {
    /// Takes a pattern as it is: whatever is no `*` stands for itself.
    #[must_use]
    pub fn new(pattern: &str) -> Self {
        Self { pieces: pattern.split('*').map(|piece| piece.as_bytes().into()).collect() }
    }

    /// Takes a pattern that a person wrote, and refuses what was surely meant otherwise.
    ///
    /// # Errors
    /// It names nothing, or holds signs that other patterns know.
    pub fn parse(pattern: &str) -> Result<Self, String> {
        if pattern.is_empty() {
            return Err("is an empty pattern".to_owned());
        }
        let odd = |c: char| c.is_control() || c.is_whitespace() || "?[]{}!\\".contains(c);
        match pattern.chars().find(|c| odd(*c)) {
            Some(c) => Err(format!("is not a pattern: it holds {c:?}, and only * stands for anything")),
            None => Ok(Self::new(pattern)),
        }
    }

    /// Tells whether a name fits.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.matches_bytes(name.as_bytes())
    }

    /// Tells whether a name fits that may not be UTF-8; takes time in proportion to its length.
    #[must_use]
    pub fn matches_bytes(&self, name: &[u8]) -> bool {
        let (first, rest) = self.pieces.split_first().expect("a pattern has a piece");
        let Some((last, between)) = rest.split_last() else { return **first == *name };
        let Some(mut behind) = name.strip_prefix(&**first) else { return false };
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
    fn signs_of_other_patterns_are_told() {
        assert!(Glob::parse("tools/*").is_ok());
        for pattern in ["", "tools/?", "[ab]", "{a,b}", "a b", "!x"] {
            assert!(Glob::parse(pattern).is_err(), "{pattern}");
        }
    }
}
