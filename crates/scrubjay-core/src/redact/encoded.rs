//! Secrets in other clothes: JSON strings with escapes, and base64.
//!
//! A text is looked into undressed; a map leads from each of its bytes back to where that came from.

use std::borrow::Cow;
use std::ops::Range;

use super::shape::Class;

/// A text without its escapes, and the way back.
#[derive(Debug)]
pub(super) struct Unescaped<'a> {
    pub(super) text: Cow<'a, [u8]>,
    /// For each byte of the text and for its end, where it begins in the original; none where they are one.
    places: Option<Vec<usize>>,
}

impl<'a> Unescaped<'a> {
    /// Undoes the escapes of a JSON string's inside; what is no escape stays.
    pub(super) fn new(raw: &'a [u8]) -> Self {
        if memchr::memchr(b'\\', raw).is_none() {
            return Self { text: Cow::Borrowed(raw), places: None };
        }
        let (mut text, mut places) = (Vec::with_capacity(raw.len()), Vec::with_capacity(raw.len() + 1));
        let mut at = 0;
        while at < raw.len() {
            let (bytes, length) = unescape(&raw[at..]);
            let mut utf8 = [0; 4];
            let piece: &[u8] = match bytes {
                Some(c) => c.encode_utf8(&mut utf8).as_bytes(),
                None => &raw[at..at + length],
            };
            text.extend_from_slice(piece);
            places.extend(std::iter::repeat_n(at, piece.len()));
            at += length;
        }
        places.push(raw.len());
        Self { text: Cow::Owned(text), places: Some(places) }
    }

    /// Leads a range of the text back to the original.
    pub(super) fn original(&self, range: &Range<usize>) -> Range<usize> {
        match &self.places {
            None => range.clone(),
            Some(places) => places[range.start]..places[range.end],
        }
    }
}

/// Reads one byte or escape: its character, where it is an escape, and its length.
fn unescape(raw: &[u8]) -> (Option<char>, usize) {
    let simple = |c| (Some(c), 2);
    match raw {
        [b'\\', b'n', ..] => simple('\n'),
        [b'\\', b'r', ..] => simple('\r'),
        [b'\\', b't', ..] => simple('\t'),
        [b'\\', b'b', ..] => simple('\u{8}'),
        [b'\\', b'f', ..] => simple('\u{c}'),
        [b'\\', c @ (b'"' | b'\\' | b'/'), ..] => simple(char::from(*c)),
        [b'\\', b'u', ..] => unicode(raw).map_or((None, 1), |(c, length)| (Some(c), length)),
        _ => (None, 1),
    }
}

fn unicode(raw: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| -> Option<u32> {
        if raw.get(at..at + 2)? != b"\\u" {
            return None;
        }
        let digits = raw.get(at + 2..at + 6)?;
        digits.iter().try_fold(0, |value, d| Some(value * 16 + char::from(*d).to_digit(16)?))
    };
    let first = unit(0)?;
    if (0xd800..0xdc00).contains(&first)
        && let Some(second @ 0xdc00..0xe000) = unit(6)
    {
        let joined = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        return char::from_u32(joined).map(|c| (c, 12));
    }
    char::from_u32(first).map(|c| (c, 6))
}

/// Tells whether an escape here spells a character that names and tokens are made of.
pub(super) fn spells(raw: &[u8], at: usize) -> bool {
    match unicode(&raw[at..]) {
        Some((c, _)) => c.is_ascii_alphanumeric() || "_-:/.\\%+=@ ".contains(c),
        None => false,
    }
}

/// Writes a text as the inside of a JSON string.
pub(super) fn escape(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
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
    fn escapes_lead_back() {
        let raw = br#"a\u0070b\n\ud83d\ude00\\c\x"#;
        let plain = Unescaped::new(raw);
        assert_eq!(&*plain.text, "apb\n😀\\c\\x".as_bytes());
        assert_eq!(plain.original(&(1..2)), 1..7);
        assert_eq!(plain.original(&(4..8)), 10..22);
        assert_eq!(plain.original(&(0..plain.text.len())), 0..raw.len());
    }

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
