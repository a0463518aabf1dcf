//! Names and their values in running text: environment dumps, headers, command lines, query strings, code.

use std::ops::Range;

use super::action::is_mark;
use super::name::{Names, Telling};
use super::shape::{is_random, is_standin};

/// No name is looked at beyond this.
const NAME_BYTES_MAX: usize = 96;
const SPACES_MAX: usize = 8;

/// Returns the name around a place, as far as it is one.
pub(super) fn name_at(text: &[u8], at: usize) -> Range<usize> {
    let in_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.') || b >= 0x80;
    let before = text[..at].iter().rev().take(NAME_BYTES_MAX).take_while(|b| in_name(**b)).count();
    let after = text[at..].iter().take(NAME_BYTES_MAX).take_while(|b| in_name(**b)).count();
    let (mut start, end) = (at - before, at + after);
    if start > 0 && text[start - 1] == b'\\' {
        // The rest of an escape is no part of the name.
        match &text[start..end] {
            [b'n' | b'r' | b't' | b'b' | b'f', ..] => start += 1,
            [b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(|h| h.is_ascii_hexdigit()) => start += 5,
            _ => {}
        }
    }
    if start > 0 && text[start - 1] == b'%' && end - start > 2 {
        start += 2;
    }
    let name = &text[start.min(end)..end];
    let dashes = name.iter().take_while(|b| matches!(b, b'-' | b'.')).count();
    start + dashes..end
}

/// What stands between a name and its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Between {
    /// `=` alone.
    Equals,
    /// `=` with spaces, or `:=`.
    Assigns,
    Colon,
    /// A space behind a flag.
    Space,
}

/// A value in running text.
struct Value {
    range: Range<usize>,
    quoted: bool,
    between: Between,
}

/// Returns the secret that the name around a place tells of.
pub(super) fn value_of(text: &[u8], at: usize, names: &Names) -> Option<(Range<usize>, Telling)> {
    let name = name_at(text, at);
    if text[..name.start].ends_with(b"[redacted:") && text.get(name.end) == Some(&b']') {
        // The rule's name in a mark.
        return None;
    }
    let telling = names.tell(&text[name.clone()])?;
    let value = value_behind(text, &name)?;
    let bytes = &text[value.range.clone()];
    if bytes.is_empty()
        || is_mark(bytes)
        || (value.range.end < text.len() && is_mark(&text[value.range.start..=value.range.end]))
    {
        return None;
    }
    let is_secret = match telling {
        Telling::Weak => is_random(bytes) && !is_standin(bytes),
        Telling::Sensitive(_) | Telling::Strong => {
            // Behind a header stands the rest of the line: its first word is the value, and prose may follow.
            let word = bytes.split(|b| *b == b' ').next().filter(|_| !value.quoted).unwrap_or(bytes);
            bytes.len() >= 3 && !is_standin(word) && fits(text, &name, &value)
        }
    };
    is_secret.then_some((value.range, telling))
}

/// Tells whether a name is followed by what could be its value; cheap, and true rather too often.
pub(super) fn may_have_value(text: &[u8], name: &Range<usize>) -> bool {
    let rest = &text[name.end..text.len().min(name.end + 16)];
    let next = rest.iter().find(|b| !matches!(b, b'"' | b'\'' | b'`' | b'\\' | b']' | b')' | b' ' | b'\t'));
    matches!(next, Some(b':' | b'=' | b',' | b'%')) || is_flag(text, name)
}

fn is_flag(text: &[u8], name: &Range<usize>) -> bool {
    text[..name.start].ends_with(b"-")
        && matches!(text.get(name.end), Some(b' ' | b'"' | b'\'' | b'\\' | b'='))
}

/// Prose has `password: must have…`; a setting has one word, or one that is no word.
fn fits(text: &[u8], name: &Range<usize>, value: &Value) -> bool {
    let bytes = &text[value.range.clone()];
    let odd = bytes.iter().any(|b| !b.is_ascii_alphabetic() && !matches!(b, b'.' | b'-' | b'_'));
    match value.between {
        _ if value.quoted => !bytes.contains(&b' ') || odd,
        Between::Equals => true,
        Between::Assigns => odd,
        Between::Space => !bytes.starts_with(b"-"),
        Between::Colon => {
            let rest = text[value.range.end..].iter().find(|b| !matches!(b, b' ' | b'\t' | b'\r'));
            let ends = matches!(rest, None | Some(b'\n' | b'\\' | b'"' | b'}' | b',' | b';'));
            let line = text[..name.start].iter().rev().find(|b| !matches!(b, b' ' | b'\t' | b'-'));
            let begins = matches!(line, None | Some(b'\n' | b'"' | b'{' | b',' | b'n' | b';'));
            odd || (ends && begins)
        }
    }
}

fn value_behind(text: &[u8], name: &Range<usize>) -> Option<Value> {
    let mut at = name.end;
    let closers = |b: &&u8| matches!(b, b'"' | b'\'' | b'`' | b'\\' | b']' | b')');
    let closed = text[at..].iter().take(SPACES_MAX).take_while(closers).count();
    let spaces =
        |at: usize| text[at..].iter().take(SPACES_MAX).take_while(|b| matches!(b, b' ' | b'\t')).count();
    at += closed;
    let before = spaces(at);
    let (between, length) = match &text[at + before..] {
        [b'=', b'=', ..] | [b':', b':', ..] => return None,
        [b'=', b'>', ..] | [b':', b'=', ..] => (Between::Assigns, 2),
        [b'=', ..] if before == 0 && text.get(at + 1) != Some(&b' ') => (Between::Equals, 1),
        [b'=', ..] => (Between::Assigns, 1),
        [b':', ..] => (Between::Colon, 1),
        [b'%', b'3', b'D' | b'd', ..] => (Between::Equals, 3),
        _ if is_flag(text, name) && closed == 0 => (Between::Space, 0),
        _ => return None,
    };
    at += before + length;
    at += spaces(at);
    Some(read_value(text, name, at, between))
}

fn read_value(text: &[u8], name: &Range<usize>, at: usize, between: Between) -> Value {
    let escapes = text[at..].iter().take(SPACES_MAX).take_while(|b| **b == b'\\').count();
    if let Some(quote @ (b'"' | b'\'' | b'`')) = text.get(at + escapes) {
        let start = at + escapes + 1;
        return Value { range: start..quoted_end(text, start, *quote, escapes), quoted: true, between };
    }
    let whole_line = {
        let lower = text[name.clone()].to_ascii_lowercase();
        lower.ends_with(b"authorization") || lower.ends_with(b"cookie")
    };
    let stop = |b: &u8| {
        let ends = matches!(b, b'\n' | b'\r' | b'"' | b'\\' | b'\'' | b'`' | 0);
        ends || !whole_line
            && (b.is_ascii_whitespace()
                || matches!(b, b',' | b';' | b'&' | b')' | b'<' | b'>' | b'}' | b']' | b'|'))
    };
    let end = at + text[at..].iter().position(stop).unwrap_or(text.len() - at);
    // A scheme, as in `Bearer abc`, is no secret.
    let words = text[at..end].iter().take_while(|b| b.is_ascii_alphabetic()).count();
    let scheme = if whole_line && text[at..end].get(words) == Some(&b' ') { words + 1 } else { 0 };
    Value { range: at + scheme..end, quoted: false, between }
}

/// Finds the quote that closes: with as many escapes before it, or fewer.
fn quoted_end(text: &[u8], start: usize, quote: u8, escapes: usize) -> usize {
    let mut at = start;
    while let Some(found) = memchr::memchr2(quote, b'\n', &text[at..]) {
        let end = at + found;
        let before = text[start..end].iter().rev().take_while(|b| **b == b'\\').count();
        if text[end] == b'\n' || before <= escapes {
            return end - before;
        }
        at = end + 1;
    }
    text.len()
}
