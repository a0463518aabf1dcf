//! Passwords in addresses: `scheme://user:password@host`, as they are or percent-encoded.

use std::ops::Range;

use super::{Detector, Form};

pub(super) const ALL: &[Detector] = &[
    Detector { name: "url-password", anchors: &["://"], any_case: false, form: Form::By(plain) },
    Detector { name: "url-password", anchors: &["%3A%2F%2F"], any_case: true, form: Form::By(encoded) },
];

/// Who logs in is told in no more bytes than this.
const USERINFO_BYTES_MAX: usize = 1024;

fn plain(text: &[u8], at: usize) -> Option<Range<usize>> {
    let start = at + 3;
    let rest = &text[start..text.len().min(start + USERINFO_BYTES_MAX)];
    let stop = |b: &u8| {
        b.is_ascii_whitespace() || matches!(b, b'/' | b'?' | b'#' | b'"' | b'\'' | b'<' | b'>' | b'`')
    };
    let authority = &rest[..rest.iter().position(stop).unwrap_or(rest.len())];
    // A password may hold an `@` or a slash that nobody encoded; the host has neither.
    let at_sign = memchr::memrchr(b'@', authority).or_else(|| unencoded(rest))?;
    let colon = memchr::memchr(b':', &rest[..at_sign])?;
    let secret = start + colon + 1..start + at_sign;
    (!secret.is_empty() && !is_template(&text[secret.clone()])).then_some(secret)
}

/// Finds the end of a password with a slash in it: `user:pa/ss@host`, where `user:pa` is no host and port.
fn unencoded(rest: &[u8]) -> Option<usize> {
    let line = &rest[..rest
        .iter()
        .position(|b| b.is_ascii_whitespace() || matches!(b, b'"' | b'\''))
        .unwrap_or(rest.len())];
    let colon = memchr::memchr(b':', line)?;
    let slash = memchr::memchr2(b'/', b'?', line)?;
    let port = line.get(colon + 1..slash)?;
    let is_port = port.iter().all(u8::is_ascii_digit);
    if is_port { None } else { memchr::memchr(b'@', line).filter(|at| *at > slash) }
}

/// Tells whether only a variable's name stands there.
fn is_template(secret: &[u8]) -> bool {
    matches!(secret, [b'$' | b'<' | b'{' | b'%', .., b'}' | b'>' | b')']) || secret.iter().all(|b| *b == b'*')
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
