//! Removes and adds the escapes of JSON strings.
//!
//! [`Unescaped`] also maps each byte of the unescaped text back to its position in the original, so that what is found
//! in the text can be changed in the original.

use std::borrow::Cow;
use std::ops::Range;

/// A text without its escapes, with a map back to the original.
#[derive(Debug)]
pub(crate) struct Unescaped<'a> {
    pub(crate) text: Cow<'a, [u8]>,
    /// For each byte of the text and for its end, the position in the original; `None` if the text is the original.
    positions: Option<Vec<usize>>,
}

impl<'a> Unescaped<'a> {
    /// Removes the escapes from the inside of a JSON string; an invalid escape stays.
    pub(crate) fn new(raw: &'a [u8]) -> Self {
        // Most strings have no escapes, and the map takes eight bytes for each byte of the text.
        if memchr::memchr(b'\\', raw).is_none() {
            return Self { text: Cow::Borrowed(raw), positions: None };
        }
        let (mut text, mut positions) = (Vec::with_capacity(raw.len()), Vec::with_capacity(raw.len() + 1));
        let mut at = 0;
        while at < raw.len() {
            let (bytes, length) = unescape(&raw[at..]);
            let mut utf8 = [0; 4];
            let piece: &[u8] = match bytes {
                Some(c) => c.encode_utf8(&mut utf8).as_bytes(),
                None => &raw[at..at + length],
            };
            text.extend_from_slice(piece);
            positions.extend(std::iter::repeat_n(at, piece.len()));
            at += length;
        }
        positions.push(raw.len());
        Self { text: Cow::Owned(text), positions: Some(positions) }
    }

    /// Removes the percent-encoding of a URL or a part of one.
    pub(crate) fn percent(raw: &'a [u8]) -> Self {
        let (mut text, mut positions) = (Vec::with_capacity(raw.len()), Vec::with_capacity(raw.len() + 1));
        let digit = |at: usize| raw.get(at).and_then(|b| char::from(*b).to_digit(16));
        let mut at = 0;
        while at < raw.len() {
            positions.push(at);
            match (raw[at], digit(at + 1), digit(at + 2)) {
                (b'%', Some(high), Some(low)) => {
                    text.push(u8::try_from(high * 16 + low).unwrap_or(b'%'));
                    at += 3;
                }
                (b, _, _) => {
                    text.push(b);
                    at += 1;
                }
            }
        }
        positions.push(raw.len());
        Self { text: Cow::Owned(text), positions: Some(positions) }
    }

    /// Maps a range of the text to the original.
    pub(crate) fn original(&self, range: &Range<usize>) -> Range<usize> {
        match &self.positions {
            None => range.clone(),
            Some(positions) => positions[range.start]..positions[range.end],
        }
    }
}

/// Reads one byte or escape; returns the character of an escape, and the length.
fn unescape(raw: &[u8]) -> (Option<char>, usize) {
    let simple = |c| (Some(c), 2);
    match raw {
        [b'\\', b'n', ..] => simple('\n'),
        [b'\\', b'r', ..] => simple('\r'),
        [b'\\', b't', ..] => simple('\t'),
        [b'\\', b'b', ..] => simple('\u{8}'),
        [b'\\', b'f', ..] => simple('\u{c}'),
        [b'\\', c @ (b'"' | b'\\' | b'/'), ..] => simple(char::from(*c)),
        // A lone surrogate is no character, so its escape stays.
        [b'\\', b'u', ..] => unicode(raw).map_or((None, 1), |(c, length)| (Some(c), length)),
        _ => (None, 1),
    }
}

/// Reads a `\u` escape, or a surrogate pair of two; returns the character and the length.
pub(crate) fn unicode(raw: &[u8]) -> Option<(char, usize)> {
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

/// Writes a text as the inside of a JSON string.
pub(crate) fn escape(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unescaped_ranges_map_back_to_the_original() {
        let raw = br#"a\u0070b\n\ud83d\ude00\\c\x"#;
        let plain = Unescaped::new(raw);
        assert_eq!(&*plain.text, "apb\n😀\\c\\x".as_bytes());
        assert_eq!(plain.original(&(1..2)), 1..7);
        assert_eq!(plain.original(&(4..8)), 10..22);
        assert_eq!(plain.original(&(0..plain.text.len())), 0..raw.len());
        let plain = Unescaped::percent(b"a%5Fb%zz%22");
        assert_eq!(&*plain.text, b"a_b%zz\"");
        assert_eq!(plain.original(&(1..2)), 1..4);
        assert_eq!(plain.original(&(6..7)), 8..11);
    }
}
