//! The built-in formats of secrets. Each family is one file with a table, and one line here.
//!
//! A detector lists byte strings of which every such secret contains one (its anchors). The prefilter searches for the
//! anchors; at each, the detector's form decides whether there is a secret, and where it begins and ends. A new format
//! is one line in a table, and a canary in `tests.rs`.

mod cloud;
mod code;
mod commands;
mod headers;
mod jwt;
mod models;
mod payments;
mod private_keys;
mod services;
mod urls;

use std::ops::Range;

pub(super) use self::headers::is_basic_credentials;
pub(super) use self::private_keys::LABEL_BYTES_MAX;
use super::shape::{self, ByteClass};

/// All families.
const FAMILIES: &[&[Detector]] = &[
    cloud::ALL,
    code::ALL,
    commands::ALL,
    headers::ALL,
    jwt::ALL,
    models::ALL,
    payments::ALL,
    private_keys::ALL,
    services::ALL,
    urls::ALL,
];

/// One format of secret.
#[derive(Debug)]
pub(super) struct Detector {
    /// The name in the mark that replaces the secret: `[redacted:name]`.
    pub(super) name: &'static str,
    /// Byte strings of which every such secret contains one; at least three bytes each.
    pub(super) anchors: &'static [&'static str],
    /// Whether anchors are found in any case.
    pub(super) any_case: bool,
    /// How the secret is delimited, and told from text that only contains an anchor.
    pub(super) form: Form,
}

/// The form of a secret around its anchor.
#[derive(Debug)]
pub(super) enum Form {
    /// The anchor, then a number of bytes of a class.
    Token(ByteClass, Range<usize>),
    /// The same, and the bytes after the anchor must look random.
    Random(ByteClass, Range<usize>),
    /// Anything else: a function from the text and the anchor's position to the secret.
    Custom(fn(&[u8], usize) -> Option<Range<usize>>),
    /// One or several secrets that depend on quotes and line ends, which are escaped in raw bytes. On raw bytes the
    /// first function, a cheap check, decides whether the message is parsed; the second finds the secrets in unescaped
    /// text.
    Prechecked(fn(&[u8], usize) -> bool, fn(&[u8], usize) -> Vec<Range<usize>>),
}

impl Detector {
    /// Tells whether it has a check of its own for raw bytes.
    pub(super) fn has_precheck(&self) -> bool {
        matches!(self.form, Form::Prechecked(..))
    }

    /// Tells whether such a secret may stand here once the text is unescaped; with false positives.
    pub(super) fn may_be_here(&self, raw: &[u8], at: usize) -> bool {
        match &self.form {
            Form::Prechecked(may_be_here, _) => may_be_here(raw, at),
            _ => !self.find(raw, at).is_empty(),
        }
    }

    /// Returns the secrets at an anchor: a command may hold more than one.
    pub(super) fn find(&self, text: &[u8], at: usize) -> Vec<Range<usize>> {
        let token = |class: ByteClass, length: &Range<usize>| {
            let anchors = self.anchors.iter().filter(|anchor| text[at..].starts_with(anchor.as_bytes()));
            // One anchor may be the beginning of another.
            let prefix = anchors.map(|anchor| anchor.len()).max()?;
            Some((prefix, shape::token(text, at, prefix, class, length)?))
        };
        let found = match &self.form {
            Form::Token(class, length) => token(*class, length).map(|(_, found)| found),
            Form::Random(class, length) => token(*class, length).and_then(|(prefix, found)| {
                let tail = &text[found.start + prefix..found.end];
                // An anchor such as `sk-` also begins hyphenated words, which have no digits.
                (tail.iter().any(u8::is_ascii_digit) && shape::entropy(tail) > 3.0).then_some(found)
            }),
            Form::Custom(find) => find(text, at),
            Form::Prechecked(_, find) => return find(text, at),
        };
        found.into_iter().collect()
    }
}

/// Makes a detector of tokens that begin with an anchor; `length` is that of the rest.
const fn token(
    name: &'static str,
    anchors: &'static [&'static str],
    class: ByteClass,
    length: Range<usize>,
) -> Detector {
    Detector { name, anchors, any_case: false, form: Form::Token(class, length) }
}

/// The same for an anchor that also begins other words, so that the rest must look random.
const fn random(
    name: &'static str,
    anchors: &'static [&'static str],
    class: ByteClass,
    length: Range<usize>,
) -> Detector {
    Detector { name, anchors, any_case: false, form: Form::Random(class, length) }
}

/// Lists every detector.
pub(super) fn all() -> impl Iterator<Item = &'static Detector> {
    FAMILIES.iter().copied().flatten()
}
