//! Removes secrets from messages and lines before they are written anywhere.
//!
//! A search over the raw bytes decides whether a message is parsed at all; most are returned as they came. Secrets are
//! replaced where they stand, and every other byte stays. Only a [`Redactor`] makes a [`Redacted`], and only a
//! `Redacted` can be written to a tape; only a `Redactor` makes a [`RedactedText`], and only a `RedactedText` can be
//! stored in the ledger. Keys come from the caller: there is no clock, randomness or file here.

mod action;
mod block;
mod control;
mod cut;
mod decrypt;
mod detectors;
mod encoded;
mod engine;
mod lines;
mod name;
mod placeholder;
mod prefilter;
mod redacted_text;
mod rules;
mod shape;
mod text;
mod walk;

use std::borrow::Cow;

use serde::Serialize;

pub use self::action::{RedactionAction, RedactionKey, marks};
pub use self::cut::cut;
pub use self::decrypt::{Decrypted, UnreadableMark, UnreadableReason, decrypt};
pub use self::engine::Redactor;
pub use self::lines::LineContext;
pub use self::name::SENSITIVE as SENSITIVE_FIELDS;
pub use self::redacted_text::RedactedText;
pub use self::rules::{PatternError, RedactionPattern, RedactionRule, RuleError};

/// The configuration of a redactor.
#[derive(Clone, Debug)]
pub struct RedactionConfig {
    /// Whether anything is redacted at all.
    pub redact_sensitive: bool,
    /// Names whose values are secret, in addition to the built-in ones.
    pub sensitive_fields: Vec<String>,
    /// Whether ids are replaced by keyed hashes.
    pub hash_ids: bool,
    /// The user's rules; the first that applies to a value counts.
    pub rules: Vec<RedactionRule>,
    /// What happens to secrets that no rule of the user matches.
    pub action: RedactionAction,
    /// The key of the hashes in marks.
    pub hash_key: RedactionKey,
}

impl Default for RedactionConfig {
    fn default() -> Self {
        Self {
            redact_sensitive: true,
            sensitive_fields: Vec::new(),
            hash_ids: false,
            rules: Vec::new(),
            action: RedactionAction::Mark,
            // Never used: nothing is hashed by default.
            hash_key: RedactionKey([0; 32]),
        }
    }
}

/// Bytes without their secrets: the only bytes that may be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redacted<'a>(Cow<'a, [u8]>);

impl<'a> Redacted<'a> {
    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Lends the bytes as proof that they are redacted.
    #[must_use]
    pub fn payload(&self) -> Payload<'_> {
        Payload(&self.0)
    }

    /// Copies the bytes if they are borrowed, so that they can be kept.
    #[must_use]
    pub fn into_owned(self) -> Redacted<'static> {
        Redacted(Cow::Owned(self.0.into_owned()))
    }

    /// Returns the original bytes if nothing was removed.
    #[must_use]
    pub fn unchanged(&self) -> Option<Payload<'a>> {
        match self.0 {
            Cow::Borrowed(bytes) => Some(Payload(bytes)),
            Cow::Owned(_) => None,
        }
    }

    /// Tells whether something was removed.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        matches!(self.0, Cow::Owned(_))
    }
}

/// Borrowed redacted bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<'a>(&'a [u8]);

impl<'a> Payload<'a> {
    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

/// An explanation of what was removed, without the secret itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RedactionFinding {
    /// The rule that applied.
    pub rule: String,
    /// Where it was: a JSONPath, or the number of a byte in other text.
    pub place: String,
    /// Its length in bytes.
    pub bytes: usize,
    /// Its range in the original.
    #[serde(skip)]
    pub range: std::ops::Range<usize>,
}

#[cfg(test)]
mod tests;
