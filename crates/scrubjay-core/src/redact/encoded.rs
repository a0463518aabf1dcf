//! Secrets in other clothes: letters spelled as JSON escapes, and base64.

use std::ops::Range;

use super::shape::Class;
use crate::json::escape::unicode;

/// Tells whether an escape here spells a character that names and tokens are made of.
pub(super) fn spells(raw: &[u8], at: usize) -> bool {
    match unicode(&raw[at..]) {
        Some((c, _)) => c.is_ascii_alphanumeric() || "_-:/.\\%+=@ ".contains(c),
        None => false,
    }
}

/// Decodes base64 of either alphabet, as far as it goes; what is no digit is left out.
pub(super) fn decode(text: &[u8]) -> Vec<u8> {
    let (mut out, mut bits, mut count) = (Vec::with_capacity(text.len() * 3 / 4), 0u32, 0);
    for b in text {
        let digit = match b {
            b'A'..=b'Z' => b - b'A',
            b'a'..=b'z' => b - b'a' + 26,
            b'0'..=b'9' => b - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => continue,
        };
        bits = (bits << 6 | u32::from(digit)) & 0xff_ffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xff) as u8);
        }
    }
    out
}

/// Where in a group of four digits what is certain of a text begins, when so many bytes of a group go before.
pub(super) const PHASES: [usize; 3] = [0, 2, 3];

/// Returns the digits that stand in base64 wherever the text stands in the data, for each phase.
pub(super) fn fragments(text: &[u8]) -> [Vec<u8>; 3] {
    use base64::Engine;
    [0, 1, 2].map(|before| {
        let mut data = vec![0; before];
        data.extend_from_slice(text);
        let certain = data.len() * 8 / 6;
        let digits = base64::engine::general_purpose::STANDARD_NO_PAD.encode(&data);
        digits.as_bytes()[PHASES[before]..certain].to_vec()
    })
}

/// So much of a run of base64 is looked into around a place.
const BEFORE_BYTES: usize = 512;
const BEHIND_BYTES: usize = 4096;

/// Returns what is near a place in base64: enough to see whether it means anything.
pub(super) fn window(text: &[u8], at: usize) -> Range<usize> {
    let inside = |b: &&u8| Class::Base64.has(**b) || **b == b'\n';
    let before = text[..at].iter().rev().take(BEFORE_BYTES).take_while(inside).count();
    let behind = text[at..].iter().take(BEHIND_BYTES).take_while(inside).count();
    at - before..at + behind
}

/// A wrapped line of base64 is at least this long.
const WRAPPED_BYTES_MIN: usize = 60;

/// Returns the run of base64 around a place, over the ends of wrapped lines too.
pub(super) fn run(text: &[u8], at: usize) -> Range<usize> {
    let back = |from: usize| text[..from].iter().rev().take_while(|b| Class::Base64.has(**b)).count();
    let mut start = at - back(at);
    while start > 0 && text[start - 1] == b'\n' {
        let line = back(start - 1);
        if line < WRAPPED_BYTES_MIN {
            break;
        }
        start -= line + 1;
    }
    let mut end = Class::Base64.run(text, at);
    let mut line_start = text[..end].iter().rposition(|b| *b == b'\n').map_or(start, |n| n + 1).max(start);
    while end - line_start >= WRAPPED_BYTES_MIN && text.get(end) == Some(&b'\n') {
        let next = Class::Base64.run(text, end + 1);
        if next == end + 1 {
            break;
        }
        (line_start, end) = (end + 1, next);
    }
    let padding = text[end..].iter().take(2).take_while(|b| **b == b'=').count();
    start..end + padding
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_stands_in_every_encoding() {
        use base64::Engine;
        for before in 0..7 {
            let data = format!("{}AKIA-and-more", "x".repeat(before));
            let digits = base64::engine::general_purpose::STANDARD.encode(data);
            let found = fragments(b"AKIA").map(|f| memchr::memmem::find(digits.as_bytes(), &f));
            let at = found[before % 3].unwrap();
            assert_eq!(at % 4, PHASES[before % 3]);
        }
    }

    #[test]
    fn base64_decodes_without_its_wrapping() {
        assert_eq!(decode(b"dXNlcjpw\nYXNz"), b"user:pass");
        assert_eq!(decode(b"_-8="), [0xff, 0xef]);
    }
}
