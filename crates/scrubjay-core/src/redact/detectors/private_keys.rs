//! Private keys in PEM and in PuTTY's format, with raw or escaped line ends.

use std::ops::Range;

use super::{Detector, Form};
use crate::redact::shape::ByteClass;

pub(super) const ALL: &[Detector] = &[
    Detector {
        name: "private-key",
        anchors: &["-----BEGIN ", "-----BEGIN+"],
        any_case: false,
        form: Form::Custom(pem),
    },
    Detector {
        name: "private-key",
        anchors: &["Private-Lines: "],
        any_case: false,
        form: Form::Custom(putty),
    },
];

/// The longest label of a PEM block, in bytes.
pub(in crate::redact) const LABEL_BYTES_MAX: usize = 64;

fn pem(text: &[u8], at: usize) -> Option<Range<usize>> {
    let label_at = at + "-----BEGIN ".len();
    let window = &text[label_at..text.len().min(label_at + LABEL_BYTES_MAX)];
    let label = &window[..memchr::memmem::find(window, b"-----")?];
    // Forms encode a space as `+`.
    let is_private = [&b"PRIVATE KEY"[..], b"PRIVATE+KEY"]
        .iter()
        .any(|private| memchr::memmem::find(label, private).is_some());
    if !is_private {
        return None;
    }
    let body = label_at + label.len() + 5;
    // If the end is missing, as after a cut, everything that can belong to the key is removed.
    let end = memchr::memmem::find(&text[body..], b"-----END").map_or_else(
        || body + text[body..].iter().position(|b| !in_block(*b)).unwrap_or(text.len() - body),
        |end| {
            let tail = body + end + "-----END".len();
            tail + memchr::memmem::find(&text[tail..], b"-----").map_or(text.len() - tail, |i| i + 5)
        },
    );
    Some(at..end)
}

fn in_block(b: u8) -> bool {
    ByteClass::Base64.has(b) || b.is_ascii_whitespace() || matches!(b, b'=' | b'\\' | b':' | b',' | b'%')
}

fn putty(text: &[u8], at: usize) -> Option<Range<usize>> {
    let end = memchr::memmem::find(&text[at..], b"Private-MAC").map_or(text.len(), |end| at + end);
    Some(at + "Private-Lines: ".len()..end)
}
