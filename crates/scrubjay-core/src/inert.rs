//! Makes recorded text safe to display: nothing in it can control a terminal or hide from a reader.
//!
//! Control characters, C1 codes, bidirectional overrides and zero-width characters are written as visible
//! escapes. All code that shows recorded data to a person uses this.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns the text with control, format and zero-width characters written as escapes.
#[must_use]
pub fn inert(text: &str) -> Cow<'_, str> {
    // Nearly all text is plain, and a listing shows a lot of it, so the check of bytes comes first.
    if text.bytes().all(|b| matches!(b, b' '..=b'~')) || !text.chars().any(is_active) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_active(c) => {
                write!(out, "\\u{{{:x}}}", u32::from(c)).expect("writing to a string cannot fail");
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Returns JSON with the same characters written as JSON escapes. In JSON they can only be in strings.
#[must_use]
pub fn inert_json(json: &str) -> Cow<'_, str> {
    if !json.chars().any(is_active) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    let mut units = [0; 2];
    for c in json.chars() {
        if is_active(c) {
            for unit in c.encode_utf16(&mut units) {
                write!(out, "\\u{unit:04x}").expect("writing to a string cannot fail");
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Returns raw bytes as inert text; invalid UTF-8 becomes U+FFFD.
#[must_use]
pub fn inert_bytes(bytes: &[u8]) -> String {
    inert(&String::from_utf8_lossy(bytes)).into_owned()
}

/// Returns the text with every invisible character written as an escape, even the joiners of emoji: for a person who
/// must decide whether to trust the text.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unseen) {
        return inert(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unseen(c) && !is_active(c) {
            write!(out, "\\u{{{:x}}}", u32::from(c)).expect("writing to a string cannot fail");
        } else {
            out.push_str(&inert(c.encode_utf8(&mut [0; 4])));
        }
    }
    Cow::Owned(out)
}

/// Counts the invisible characters, except line ends and tabs.
#[must_use]
pub fn unseen(text: &str) -> usize {
    text.chars().filter(|c| is_unseen(*c) && !matches!(c, '\n' | '\t')).count()
}

/// Tells whether a character is invisible, or looks like a space without being one.
fn is_unseen(c: char) -> bool {
    is_active(c)
        || matches!(c,
            '\u{a0}' | '\u{34f}' | '\u{115f}'..='\u{1160}' | '\u{1680}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{2800}' | '\u{3000}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
            | '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}')
}

/// Tells whether a character controls a terminal, reorders text or has no width.
fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_left_alone() {
        assert!(matches!(inert("read_file \u{e9}\u{4e2d} \u{1f426}"), Cow::Borrowed(_)));
    }

    #[test]
    fn visible_escapes_every_invisible_character() {
        assert_eq!(
            visible("a\u{fe0f}b\u{e0150}\u{3164}\n\u{1b}"),
            "a\\u{fe0f}b\\u{e0150}\\u{3164}\\n\\u{1b}"
        );
        assert!(matches!(visible("plain é \u{1f426}"), Cow::Borrowed(_)));
        assert_eq!((unseen("a\u{200b}\u{e0041}\nb"), unseen("plain\ttext\n")), (2, 0));
    }

    #[test]
    fn inert_text_has_no_active_characters() {
        assert_eq!(inert("\u{1b}[31mred\u{7}\r\n\u{9b}1m"), "\\u{1b}[31mred\\u{7}\\r\\n\\u{9b}1m");
        assert_eq!(inert("a\u{202e}b\u{200b}c\u{e0041}"), "a\\u{202e}b\\u{200b}c\\u{e0041}");
        assert_eq!(inert_json("\"\u{202e}\u{e0041}\u{9b}\""), r#""\u202e\udb40\udc41\u009b""#);
        assert!(matches!(inert_json(r#"{"a":1}"#), Cow::Borrowed(_)));
        assert!(!inert_bytes(&(0..=255).collect::<Vec<u8>>()).chars().any(char::is_control));
    }
}
