//! Takes secrets out of messages and lines before they are written anywhere.
//!
//! Bytes in, the same bytes out where nothing is found: a search over the raw bytes decides, and only what
//! it points at is parsed. What is found is replaced where it stands; everything else keeps its bytes. Only
//! a [`Redactor`] makes a [`Redacted`], and only a `Redacted` can be written to a tape; only a `Redactor` makes a
//! [`RedactedText`], and only a `RedactedText` can be stored in the ledger. The keys are given; there is no clock,
//! randomness or file here.

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

/// What a redactor is told.
#[derive(Clone, Debug)]
pub struct RedactionConfig {
    /// Whether anything is redacted at all.
    pub redact_sensitive: bool,
    /// Names whose values are secret, besides the built-in ones.
    pub sensitive_fields: Vec<String>,
    /// Whether ids are replaced by keyed hashes.
    pub hash_ids: bool,
    /// Rules beyond names and the built-in formats; the first that applies to a value counts.
    pub rules: Vec<RedactionRule>,
    /// What happens to what no rule of the user's names.
    pub action: RedactionAction,
    /// The key of all hashes.
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
            hash_key: RedactionKey([0; 32]),
        }
    }
}

/// Bytes from which secrets were taken out: the only ones that may be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redacted<'a>(Cow<'a, [u8]>);

impl<'a> Redacted<'a> {
    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Lends the bytes, with the guarantee.
    #[must_use]
    pub fn payload(&self) -> Payload<'_> {
        Payload(&self.0)
    }

    /// Copies the bytes where they are someone else's, so that they can be kept.
    #[must_use]
    pub fn into_owned(self) -> Redacted<'static> {
        Redacted(Cow::Owned(self.0.into_owned()))
    }

    /// Returns the original bytes, with the guarantee; none where something was taken out.
    #[must_use]
    pub fn unchanged(&self) -> Option<Payload<'a>> {
        match self.0 {
            Cow::Borrowed(bytes) => Some(Payload(bytes)),
            Cow::Owned(_) => None,
        }
    }

    /// Tells whether something was taken out.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        matches!(self.0, Cow::Owned(_))
    }
}

/// Redacted bytes that someone else keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<'a>(&'a [u8]);

impl<'a> Payload<'a> {
    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

/// What was taken out, for a person who asks. The secret itself is not told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RedactionFinding {
    /// The rule that applied.
    pub rule: String,
    /// Where it stood: a path in JSON, else a byte.
    pub place: String,
    /// How many bytes it had.
    pub bytes: usize,
    /// Which bytes of the original these were.
    #[serde(skip)]
    pub range: std::ops::Range<usize>,
}

#[cfg(test)]
mod tests;
