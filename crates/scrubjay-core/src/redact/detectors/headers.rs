//! Credentials after `Bearer`, `Basic` and `Digest`.

use std::ops::Range;

use super::{Detector, Form};
use crate::redact::shape::{ByteClass, begins, entropy, parameters};

pub(super) const ALL: &[Detector] = &[
    Detector { name: "bearer-token", anchors: &["bearer "], any_case: true, form: Form::Custom(bearer) },
    Detector { name: "basic-credentials", anchors: &["basic "], any_case: true, form: Form::Custom(basic) },
    Detector {
        name: "digest-credentials",
        anchors: &["digest user"],
        any_case: true,
        form: Form::Custom(digest),
    },
];

fn credentials(text: &[u8], at: usize, scheme: usize, more: &[u8]) -> Option<Range<usize>> {
    if !begins(text, at) {
        return None;
    }
    let start = at + scheme;
    let rest = &text[start..];
    let in_token = |b: &u8| ByteClass::Base64.has(*b) || more.contains(b);
    let end = start + rest.iter().position(|b| !in_token(b)).unwrap_or(rest.len());
    Some(start..end)
}

fn bearer(text: &[u8], at: usize) -> Option<Range<usize>> {
    let found = credentials(text, at, "bearer ".len(), b".~=:|")?;
    let token = &text[found.clone()];
    let mixed = token.iter().any(u8::is_ascii_digit) || token.iter().any(u8::is_ascii_uppercase);
    // `bearer authentication` is prose.
    (token.len() >= 8 && mixed && entropy(token) > 2.5 || token.len() >= 24).then_some(found)
}

fn basic(text: &[u8], at: usize) -> Option<Range<usize>> {
    let found = credentials(text, at, "basic ".len(), b"=")?;
    is_basic_credentials(&text[found.clone()]).then_some(found)
}

/// Tells whether a text is the base64 of `user:password`: printable, with a colon.
pub(in crate::redact) fn is_basic_credentials(token: &[u8]) -> bool {
    let decoded = crate::redact::encoded::decode(token);
    token.len() >= 4
        && token.iter().all(|b| ByteClass::Base64.has(*b) || *b == b'=')
        && decoded.contains(&b':')
        && decoded.iter().all(|b| *b >= b' ' && *b != 0x7f)
}

fn digest(text: &[u8], at: usize) -> Option<Range<usize>> {
    let start = at + "digest ".len();
    let is_named = text[start..].len() > 9 && text[start..start + 9].eq_ignore_ascii_case(b"username=");
    (is_named && begins(text, at)).then(|| parameters(text, start)).flatten().map(|end| start..end)
}
