//! What stands behind `Bearer` and `Basic`.

use std::ops::Range;

use super::{Detector, Form};
use crate::redact::shape::{Class, begins, entropy};

pub(super) const ALL: &[Detector] = &[
    Detector { name: "bearer-token", anchors: &["bearer "], any_case: true, form: Form::By(bearer) },
    Detector { name: "basic-credentials", anchors: &["basic "], any_case: true, form: Form::By(basic) },
];

fn credentials(text: &[u8], at: usize, scheme: usize, more: &[u8]) -> Option<Range<usize>> {
    if !begins(text, at) {
        return None;
    }
    let start = at + scheme;
    let rest = &text[start..];
    let in_token = |b: &u8| Class::Base64.has(*b) || more.contains(b);
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
    let token = &text[found.clone()];
    let decoded = crate::redact::encoded::decode(token);
    // It is `user:password`, and nothing else is.
    let is_pair = decoded.contains(&b':') && decoded.iter().all(|b| *b >= b' ' && *b != 0x7f);
    (token.len() >= 4 && is_pair).then_some(found)
}
