//! Passwords in URLs: `scheme://user:password@host`, plain or percent-encoded.

use std::ops::Range;

use super::{Detector, Form};
use crate::redact::placeholder::is_template;
use crate::redact::shape::user_end;

pub(super) const ALL: &[Detector] = &[
    Detector { name: "url-password", anchors: &["://"], any_case: false, form: Form::Custom(plain) },
    Detector { name: "url-password", anchors: &["%3A%2F%2F"], any_case: true, form: Form::Custom(encoded) },
];

/// The longest user and password that are searched for the `@`, in bytes.
const USERINFO_BYTES_MAX: usize = 1024;

fn plain(text: &[u8], at: usize) -> Option<Range<usize>> {
    let start = at + 3;
    let rest = &text[start..text.len().min(start + USERINFO_BYTES_MAX)];
    let stop = |b: &u8| {
        b.is_ascii_whitespace() || matches!(b, b'/' | b'?' | b'#' | b'"' | b'\'' | b'<' | b'>' | b'`')
    };
    let authority = &rest[..rest.iter().position(stop).unwrap_or(rest.len())];
    // A password may contain an unencoded `@` or slash, the host neither: the last `@` ends the password.
    let at_sign = memchr::memrchr(b'@', authority).or_else(|| unencoded(rest))?;
    let colon = user_end(&rest[..at_sign])?;
    let secret = start + colon + 1..start + at_sign;
    (!secret.is_empty() && !is_template(&text[secret.clone()])).then_some(secret)
}

/// Finds the end of a password with an unencoded slash or the like: `user:pa/ss@host`, where `user:pa` is no host with
/// a port.
fn unencoded(rest: &[u8]) -> Option<usize> {
    let line = &rest[..rest
        .iter()
        .position(|b| b.is_ascii_whitespace() || matches!(b, b'"' | b'`'))
        .unwrap_or(rest.len())];
    let colon = user_end(line)?;
    let in_password = |b: &u8| matches!(b, b'/' | b'?' | b'#' | b'<' | b'>' | b'\'');
    let special = line.iter().position(in_password)?;
    let port = line.get(colon + 1..special)?;
    let first = special + memchr::memchr(b'@', &line[special..])?;
    // A `>` or two quotes before the `@` surround the URL, so the `@` is outside it.
    let is_around =
        line[special..first].contains(&b'>') || memchr::memchr_iter(b'\'', &line[..first]).count() > 1;
    if port.iter().all(u8::is_ascii_digit) || is_around {
        return None;
    }
    let host = &line[first + 1..];
    let host = &host[..host.iter().position(in_password).unwrap_or(host.len())];
    Some(memchr::memrchr(b'@', host).map_or(first, |last| first + 1 + last))
}

fn encoded(text: &[u8], at: usize) -> Option<Range<usize>> {
    let start = at + "%3A%2F%2F".len();
    let rest = &text[start..text.len().min(start + USERINFO_BYTES_MAX)];
    let authority = &rest
        [..rest.iter().position(|b| !b.is_ascii_graphic() || matches!(b, b'&' | b'"')).unwrap_or(rest.len())];
    let upper = authority.to_ascii_uppercase();
    let colon = memchr::memmem::find(&upper, b"%3A")?;
    let end = memchr::memmem::find(&upper, b"%40")?;
    (end > colon + 3).then_some(start + colon + 3..start + end)
}
