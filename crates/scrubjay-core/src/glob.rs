//! Names with stars: `tools/*`, `*/list`. A star stands for any characters, none included.

use serde::{Serialize, Serializer};

/// No pattern is longer.
const PATTERN_BYTES_MAX: usize = 256;

/// A pattern for names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    /// What stands between the stars; the first and the last are the two ends.
    pieces: Vec<String>,
}

impl Glob {
    /// Reads a pattern.
    ///
    /// # Errors
    /// It is none; the message says what is.
    pub fn new(text: &str) -> Result<Self, String> {
        let fits = |c: char| !c.is_whitespace() && !c.is_control();
        if text.is_empty() || text.len() > PATTERN_BYTES_MAX || !text.chars().all(fits) {
            return Err("must be a name without spaces, in which * stands for anything, like tools/*".into());
        }
        Ok(Self { pieces: text.split('*').map(str::to_owned).collect() })
    }

    /// Tells whether a name fits.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.pieces.split_first() else { return false };
        let Some((last, between)) = rest.split_last() else { return name == first };
        let Some(mut left) = name.strip_prefix(first.as_str()) else { return false };
        // Each piece at the first place it fits: whatever fits at all fits then too.
        for piece in between {
            let Some(at) = memchr::memmem::find(left.as_bytes(), piece.as_bytes()) else { return false };
            left = &left[at + piece.len()..];
        }
        left.ends_with(last.as_str())
    }
}

impl Serialize for Glob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.pieces.join("*"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        let check = |pattern: &str, name: &str| Glob::new(pattern).unwrap().matches(name);
        assert!(check("tools/*", "tools/call") && check("tools/*", "tools/") && !check("tools/*", "tools"));
        assert!(check("*/list", "tools/list") && check("*/list", "resources/templates/list"));
        assert!(!check("*/list", "tools/list_changed"));
        assert!(check("ping", "ping") && !check("ping", "pings") && !check("ping", "a ping"));
        assert!(check("*", "") && check("*", "anything") && check("**", "x"));
        assert!(check("a*b*c", "a1b2b3c") && !check("a*b*c", "a1c2b") && !check("ab*ba", "aba"));
        assert!(check("*é*", "né"));
        for wrong in ["", "a b", "a\n", &"x".repeat(257)] {
            assert!(Glob::new(wrong).is_err(), "{wrong}");
        }
    }
}
