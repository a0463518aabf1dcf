//! A text that passed the redactor: what the ledger stores.

use std::fmt;
use std::ops::Deref;

use super::Redactor;

/// A text without its secrets. Only a [`Redactor`] makes one, so a function that takes it cannot be called with raw
/// text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RedactedText(String);

impl Redactor {
    /// Removes the secrets of a text, so that it may be stored.
    #[must_use]
    pub fn text(&self, text: &str) -> RedactedText {
        RedactedText(self.redact_text(text).into_owned())
    }
}

impl RedactedText {
    /// Takes a text from this program's source, which holds no secret.
    #[must_use]
    pub fn fixed(text: &'static str) -> Self {
        Self(text.to_owned())
    }

    /// Writes texts as a JSON array of strings.
    #[must_use]
    pub fn json_list(texts: &[Self]) -> Self {
        let texts: Vec<&str> = texts.iter().map(Self::as_str).collect();
        Self(serde_json::Value::from(texts).to_string())
    }

    /// Replaces NUL by the symbol for it (U+2400), because PostgreSQL cannot store NUL.
    #[must_use]
    pub fn without_nul(self) -> Self {
        if self.0.contains('\0') { Self(self.0.replace('\0', "\u{2400}")) } else { self }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the text, without the guarantee.
    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }
}

impl Deref for RedactedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RedactedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
