//! The type of keys and tokens.

/// A shorter value occurs in ordinary words, so texts are not searched for it.
const SCRUBBED_BYTES_MIN: usize = 8;

/// A value that neither `Debug` nor a log shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes the value.
    #[must_use]
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// Returns the value. Call it only where the value is sent or compared.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns a text with `***` in place of the value: servers repeat keys in what they answer.
    #[must_use]
    pub fn scrub(&self, text: String) -> String {
        if self.0.len() >= SCRUBBED_BYTES_MIN && text.contains(&self.0) {
            text.replace(&self.0, "***")
        } else {
            text
        }
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_a_secret() {
        let key = Secret::new("sk-canary-1");
        assert_eq!(format!("{key:?}"), "***");
        assert_eq!(key.reveal(), "sk-canary-1");
        assert_eq!(key.scrub("got sk-canary-1!".to_owned()), "got ***!");
        assert_eq!(Secret::new("ollama").scrub("ask ollama".to_owned()), "ask ollama");
    }
}
