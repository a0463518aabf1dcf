//! The built-in formats of secrets. A family is one file with a table, and one line here.
//!
//! A detector names the bytes that every such secret holds (its anchors) and says, at such a place, where
//! the secret begins and ends.

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

pub(super) use self::headers::is_pair;
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
    /// What stands in place of the secret: `[redacted:name]`.
    pub(super) name: &'static str,
    /// Bytes of which every such secret holds one.
    pub(super) anchors: &'static [&'static str],
    /// Whether anchors are found in any case.
    pub(super) any_case: bool,
    /// How it is told from what only looks like it.
    pub(super) form: Form,
}

/// The form of a secret around its anchor.
#[derive(Debug)]
pub(super) enum Form {
    /// The anchor, then so many bytes of a class.
    Token(ByteClass, Range<usize>),
    /// The same, and what follows the anchor looks random.
    Random(ByteClass, Range<usize>),
    /// Anything else: from the text and the anchor's place to the secret.
    By(fn(&[u8], usize) -> Option<Range<usize>>),
    /// One or several secrets, which escapes may hide from a look at raw bytes: there, the first of the two says whether
    /// to look on.
    Near(fn(&[u8], usize) -> bool, fn(&[u8], usize) -> Vec<Range<usize>>),
}

impl Detector {
    /// Tells whether its quick look is one at raw bytes, however they are escaped.
    pub(super) fn goes_by_raw_bytes(&self) -> bool {
        matches!(self.form, Form::Near(..))
    }

    /// Tells whether such a secret may stand here once the text is unescaped; true rather too often.
    pub(super) fn is_near(&self, raw: &[u8], at: usize) -> bool {
        match &self.form {
            Form::Near(near, _) => near(raw, at),
            _ => !self.find(raw, at).is_empty(),
        }
    }

    /// Returns the secrets whose anchor stands here: a command may have more than one.
    pub(super) fn find(&self, text: &[u8], at: usize) -> Vec<Range<usize>> {
        let token = |class: ByteClass, length: &Range<usize>| {
            let anchors = self.anchors.iter().filter(|anchor| text[at..].starts_with(anchor.as_bytes()));
            let prefix = anchors.map(|anchor| anchor.len()).max()?;
            Some((prefix, shape::token(text, at, prefix, class, length)?))
        };
        let found = match &self.form {
            Form::Token(class, length) => token(*class, length).map(|(_, found)| found),
            Form::Random(class, length) => token(*class, length).and_then(|(prefix, found)| {
                let tail = &text[found.start + prefix..found.end];
                (tail.iter().any(u8::is_ascii_digit) && shape::entropy(tail) > 3.0).then_some(found)
            }),
            Form::By(find) => find(text, at),
            Form::Near(_, find) => return find(text, at),
        };
        found.into_iter().collect()
    }
}

/// Makes a detector of tokens with a prefix.
const fn token(
    name: &'static str,
    anchors: &'static [&'static str],
    class: ByteClass,
    length: Range<usize>,
) -> Detector {
    Detector { name, anchors, any_case: false, form: Form::Token(class, length) }
}

/// Makes a detector of tokens with a prefix that also begins other words.
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
