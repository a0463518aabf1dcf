//! The shape of secrets: where a token begins and ends, and how random it is.

use std::ops::Range;

use super::action::is_mark;

/// The bytes that a token consists of.
#[derive(Clone, Copy, Debug)]
pub(super) enum ByteClass {
    /// Letters and digits.
    Alnum,
    /// Letters, digits and `_`.
    Word,
    /// Letters, digits, `_` and `-`: URL-safe base64.
    Dashed,
    /// Letters, digits, `_`, `-` and `.`.
    Dotted,
    /// Capitals and digits.
    Upper,
    /// Hexadecimal digits.
    Hex,
    /// Base64 of either alphabet.
    Base64,
    /// Base64 in a URL, where `+`, `/` and `=` are percent-encoded.
    Percent,
}

impl ByteClass {
    pub(super) fn has(self, b: u8) -> bool {
        match self {
            Self::Alnum => b.is_ascii_alphanumeric(),
            Self::Word => b.is_ascii_alphanumeric() || b == b'_',
            Self::Dashed => b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'),
            Self::Dotted => b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'),
            Self::Upper => b.is_ascii_uppercase() || b.is_ascii_digit(),
            Self::Hex => b.is_ascii_hexdigit(),
            Self::Base64 => b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'_' | b'-'),
            Self::Percent => b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'%'),
        }
    }

    /// Returns the end of the run of such bytes that begins here.
    pub(super) fn run(self, text: &[u8], from: usize) -> usize {
        let rest = text.get(from..).unwrap_or_default();
        from + rest.iter().position(|b| !self.has(*b)).unwrap_or(rest.len())
    }
}

/// Tells whether a token may begin here: the byte before is no letter or digit, unless it is the end of an escape.
///
/// An underscore is a boundary: gateways join names with one or two (`files__ghp_…`), and so do people
/// (`backup_ghp_…`).
pub(super) fn begins(text: &[u8], at: usize) -> bool {
    let before = &text[..at];
    match before {
        [.., b'\\', b'n' | b'r' | b't' | b'b' | b'f'] => true,
        [.., b'\\', b'u', a, b, c, d] if [a, b, c, d].iter().all(|h| h.is_ascii_hexdigit()) => true,
        [.., b'%', a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => true,
        [.., last] => !last.is_ascii_alphanumeric(),
        [] => true,
    }
}

/// Returns the token that begins here with a prefix of `prefix` bytes, if a number of bytes within `length` follows.
pub(super) fn token(
    text: &[u8],
    at: usize,
    prefix: usize,
    class: ByteClass,
    length: &Range<usize>,
) -> Option<Range<usize>> {
    // A prefix like `&sig=` is a boundary by itself.
    let is_word = text.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    if is_word && !begins(text, at) {
        return None;
    }
    let start = at + prefix;
    let end = class.run(text, start);
    if length.contains(&(end - start)) {
        return Some(at..end);
    }
    // The run is too long: a suffix such as `.txt` or `-old` may follow the token, so try to end it at a separator.
    let limit = end.min(start + length.end);
    let cut = (start..limit)
        .rev()
        .find(|i| matches!(text[*i], b'-' | b'_' | b'.') && length.contains(&(i - start)));
    cut.map(|end| at..end)
}

/// The most parameters of one header that are followed: a limit on the work for one hit, far above real headers.
const PARAMETERS_MAX: usize = 64;
/// The most white space between two parameters, and the most backslashes before a quote, that are followed.
const GAP_BYTES_MAX: usize = 8;

/// Returns the end of the parameter list that begins here: `a="b", c=d`, or with semicolons as in cookies.
pub(super) fn parameters(text: &[u8], from: usize) -> Option<usize> {
    let count = |at: usize, counts: fn(&u8) -> bool| {
        text[at..].iter().take(GAP_BYTES_MAX).take_while(|b| counts(b)).count()
    };
    let (mut at, mut end) = (from, None);
    for _ in 0..PARAMETERS_MAX {
        let name_end = ByteClass::Dotted.run(text, at);
        if name_end == at {
            break;
        }
        at = name_end;
        if text.get(at) == Some(&b'=') {
            let value = at + 1;
            let escapes = count(value, |b| *b == b'\\');
            at = match text.get(value + escapes) {
                Some(quote @ (b'"' | b'\'')) => {
                    let inside_end = quoted_end(text, value + escapes + 1, *quote, escapes);
                    let closing = text[inside_end..].iter().take(escapes + 1);
                    inside_end + closing.take_while(|b| matches!(b, b'\\' | b'"' | b'\'')).count()
                }
                _ => {
                    let stop = |b: &u8| {
                        b.is_ascii_whitespace() || matches!(b, b',' | b';' | b'"' | b'\'' | b'`' | b'\\' | 0)
                    };
                    value + text[value..].iter().position(stop).unwrap_or(text.len() - value)
                }
            };
            end = Some(at);
        }
        at += count(at, u8::is_ascii_whitespace);
        if !matches!(text.get(at), Some(b',' | b';')) {
            break;
        }
        at += 1;
        at += count(at, u8::is_ascii_whitespace);
    }
    end
}

/// Finds the end of a quoted text: the closing quote has no more backslashes before it than the opening one
/// (`escapes`).
pub(super) fn quoted_end(text: &[u8], start: usize, quote: u8, escapes: usize) -> usize {
    let mut at = start;
    while let Some(found) = memchr::memchr2(quote, b'\n', &text[at..]) {
        let end = at + found;
        let before = text[start..end].iter().rev().take_while(|b| **b == b'\\').count();
        // A line end closes a quote as well: an unclosed one must not take in the rest of the text.
        if text[end] == b'\n' || before <= escapes {
            return end - before;
        }
        at = end + 1;
    }
    text.len()
}

/// Finds the colon between a user and a password; a colon inside a mark such as `[hash:…]` does not count.
pub(super) fn user_end(text: &[u8]) -> Option<usize> {
    let in_mark = |colon: usize| {
        let open = memchr::memrchr(b'[', &text[..colon]);
        let close = memchr::memchr(b']', &text[colon..]).map(|close| colon + close);
        open.zip(close).is_some_and(|(open, close)| is_mark(&text[open..=close]))
    };
    memchr::memchr_iter(b':', text).find(|colon| !in_mark(*colon))
}

/// Returns the Shannon entropy of a text, in bits per byte.
pub(super) fn entropy(text: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    text.iter().for_each(|b| counts[usize::from(*b)] += 1);
    #[expect(clippy::cast_precision_loss, reason = "texts are far shorter than 2^52")]
    let length = text.len().max(1) as f64;
    counts.iter().filter(|c| **c > 0).map(|c| f64::from(*c) / length).map(|p| -p * p.log2()).sum()
}

/// Tells whether a text looks random: letters and digits mixed, few repetitions, and not a path or URL.
pub(super) fn is_random(text: &[u8]) -> bool {
    if !(12..=4096).contains(&text.len()) || text.iter().any(u8::is_ascii_whitespace) {
        return false;
    }
    let digits = text.iter().filter(|b| b.is_ascii_digit()).count();
    let letters = text.iter().filter(|b| b.is_ascii_alphabetic()).count();
    let is_path_or_url = text.starts_with(b"/")
        || text.starts_with(b"./")
        || text.starts_with(b"~/")
        || memchr::memmem::find(text, b"://").is_some();
    // 3 bits per byte: long random hexadecimal has nearly 4 and base64 nearly 6; few different characters have less.
    digits >= 2 && letters >= 2 && entropy(text) >= 3.0 && !is_path_or_url
}
