//! Names and their values in running text: environment dumps, headers, command lines, query strings, code.

use std::ops::Range;

use super::action::is_mark;
use super::block;
use super::detectors::is_basic_credentials;
use super::name::{NameEvidence, Names, is_password};
use super::placeholder::{ValuePosition, is_placeholder, is_placeholder_alone, is_template};
use super::shape::{is_random, parameters, quoted_end};

/// The most bytes examined on each side of a hit for its name: longer runs are data, and a limit keeps the search
/// linear.
const NAME_BYTES_MAX: usize = 96;
/// The most spaces between a name and its value; there are many where columns are aligned.
const SPACES_MAX: usize = 64;
/// The most quotes, brackets and backslashes after a name, and the most backslashes before the quote of its value.
const CLOSERS_MAX: usize = 8;

/// Returns the name around a position; empty if there is none.
pub(super) fn name_at(text: &[u8], at: usize) -> Range<usize> {
    // Bytes beyond ASCII too: users may list names in any script.
    let in_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.') || b >= 0x80;
    let before = text[..at].iter().rev().take(NAME_BYTES_MAX).take_while(|b| in_name(**b)).count();
    let after = text[at..].iter().take(NAME_BYTES_MAX).take_while(|b| in_name(**b)).count();
    let (mut start, end) = (at - before, at + after);
    if start > 0 && text[start - 1] == b'\\' {
        // The rest of an escape, such as the `n` of `\n`, is no part of the name.
        match &text[start..end] {
            [b'n' | b'r' | b't' | b'b' | b'f', ..] => start += 1,
            [b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(|h| h.is_ascii_hexdigit()) => start += 5,
            _ => {}
        }
    }
    // The same for the two digits of a percent-encoded byte.
    if start > 0 && text[start - 1] == b'%' && end - start > 2 {
        start += 2;
    }
    let name = &text[start.min(end)..end];
    let dashes = name.iter().take_while(|b| matches!(b, b'-' | b'.')).count();
    start + dashes..end
}

/// How a name and its value are joined.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Separator {
    /// `=` alone.
    Equals,
    /// `=` with spaces, `=>` or `:=`.
    Assigns,
    Colon,
    /// The space after a command-line flag.
    Space,
    /// A YAML block, an XML element or a triple-quoted string: `block` has already checked that it looks like a value.
    Block,
}

/// The quotes of JSON as HTML entities.
const ENTITIES: [&[u8]; 5] = [b"&quot;", b"&#34;", b"&apos;", b"&#39;", b"&#x27;"];

/// A value in running text.
pub(super) struct TextValue {
    pub(super) range: Range<usize>,
    pub(super) quoted: bool,
    pub(super) separator: Separator,
}

/// Returns the secret named by the name around a position: its range, and what the name says about it.
pub(super) fn value_of(text: &[u8], at: usize, names: &Names) -> Option<(Range<usize>, NameEvidence)> {
    let name = name_at(text, at);
    if text[..name.start].ends_with(b"[redacted:") && text.get(name.end) == Some(&b']') {
        // The name of a rule in a mark that redaction left.
        return None;
    }
    let evidence = names.evidence(&text[name.clone()])?;
    let value = value_after(text, &name)?;
    let bytes = &text[value.range.clone()];
    if bytes.is_empty() || is_mark(bytes) || begins_with_mark(&text[value.range.start..]) {
        return None;
    }
    // A member of JSON that is not parsed as JSON, such as `"token": 1234` in a broken or quoted message.
    let is_member = !value.quoted && matches!(text.get(name.end), Some(b'"' | b'\\'));
    if names.has_other_meaning(evidence, &text[name.clone()], bytes)
        || is_member && names.is_count(evidence, bytes)
    {
        return None;
    }
    let is_secret = match evidence {
        // The value of a header may have several words, and one random word is enough.
        NameEvidence::Weak if is_header(&text[name.clone()]) && !value.quoted => bytes
            .split(|b| *b == b' ')
            .any(|word| is_random(word) && !is_placeholder_alone(word, value.position(text, &name))),
        NameEvidence::Weak => is_random(bytes) && !value.is_placeholder(text, &name),
        NameEvidence::BasicCredentials => is_basic_credentials(bytes),
        NameEvidence::Sensitive(_) | NameEvidence::Strong => {
            bytes.len() >= 3 && !value.is_placeholder(text, &name) && is_value_not_prose(text, &name, &value)
        }
    };
    is_secret.then(|| (value.whole(text, &name), evidence))
}

/// Tells whether a text begins with a mark in brackets. A value may have been cut at the mark's own `]`.
fn begins_with_mark(text: &[u8]) -> bool {
    let near = &text[..text.len().min(NAME_BYTES_MAX)];
    near.starts_with(b"[") && memchr::memchr(b']', near).is_some_and(|close| is_mark(&near[..=close]))
}

impl TextValue {
    /// Returns the full range of the secret: alone on its line, a value includes separators such as `,` and `;`.
    fn whole(self, text: &[u8], name: &Range<usize>) -> Range<usize> {
        let Range { start, end } = self.range;
        let is_setting = matches!(self.separator, Separator::Colon | Separator::Assigns);
        let is_word = !self.quoted && is_setting && !is_header(&text[name.clone()]);
        let word = is_word.then(|| whole_word(text, name, start)).flatten();
        start..end.max(word.unwrap_or(end))
    }

    /// Returns which forms count as placeholders here.
    fn position(&self, text: &[u8], name: &Range<usize>) -> ValuePosition {
        match self.separator {
            Separator::Equals if is_variable(text, name) => ValuePosition::Setting,
            Separator::Equals if !text[..name.start].ends_with(b"-") && !self.quoted => ValuePosition::Code,
            Separator::Colon | Separator::Assigns if !self.quoted => ValuePosition::Code,
            _ => ValuePosition::Text,
        }
    }

    fn is_placeholder(&self, text: &[u8], name: &Range<usize>) -> bool {
        let bytes = &text[self.range.clone()];
        let position = self.position(text, name);
        if self.quoted {
            // A scheme may come before it: `"Bearer ${token}"`.
            let scheme = bytes.iter().take_while(|b| b.is_ascii_alphabetic()).count();
            let skipped = if bytes.get(scheme) == Some(&b' ') { scheme + 1 } else { 0 };
            // A shell quotes again inside a command substitution, `"$(cat "$FILE")"`, so the quoted value is cut short.
            let runs = position == ValuePosition::Setting && bytes.starts_with(b"$(");
            return is_placeholder_alone(bytes, position)
                || is_template(&bytes[skipped..])
                || runs && is_placeholder(text, &self.range, position);
        }
        // The value of a header is the rest of the line, and of a YAML block all its lines, so more may follow the
        // first word, which decides.
        let word = bytes.split(u8::is_ascii_whitespace).next().unwrap_or(bytes);
        is_placeholder(text, &(self.range.start..self.range.start + word.len()), position)
    }
}

/// Tells whether a name is an environment variable that is set here: `DB_PASSWORD=`.
fn is_variable(text: &[u8], name: &Range<usize>) -> bool {
    let in_name = |b: &u8| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_';
    text.get(name.end) == Some(&b'=') && text[name.clone()].iter().all(in_name)
}

/// Tells whether a value may follow a name. A cheap check of raw bytes, with false positives but no false negatives.
pub(super) fn may_have_value(text: &[u8], name: &Range<usize>) -> bool {
    let rest = &text[name.end..text.len().min(name.end + CLOSERS_MAX + SPACES_MAX + 8)];
    let is_between = |b: &u8| matches!(b, b'"' | b'\'' | b'`' | b'\\' | b']' | b')' | b' ' | b'\t');
    let at = rest.iter().position(|b| !is_between(b)).unwrap_or(rest.len());
    // `::` separates a path and `==` compares.
    let is_doubled = matches!(rest[at..], [b':', b':', ..] | [b'=', b'=', ..]);
    matches!(rest.get(at), Some(b':' | b'=' | b',' | b'%' | b'&' | b'>')) && !is_doubled
        // `\u003d` and the like: the separator itself may be escaped.
        || rest[..at].ends_with(b"\\") && rest.get(at) == Some(&b'u')
        || is_flag(text, name)
        || block::may_be_element(text, name)
}

/// Tells whether a name is a header whose value is the rest of the line.
fn is_header(name: &[u8]) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.ends_with(b"authorization") || lower.ends_with(b"cookie")
}

fn is_flag(text: &[u8], name: &Range<usize>) -> bool {
    text[..name.start].ends_with(b"-")
        && matches!(text.get(name.end), Some(b' ' | b'"' | b'\'' | b'\\' | b'='))
}

/// Tells whether a value is one, and not the next word of prose such as `password: must have…`: it is not made of
/// letters alone, or it stands where settings do.
fn is_value_not_prose(text: &[u8], name: &Range<usize>, value: &TextValue) -> bool {
    let bytes = &text[value.range.clone()];
    let odd = bytes.iter().any(|b| !b.is_ascii_alphabetic() && !matches!(b, b'.' | b'-' | b'_'));
    match value.separator {
        _ if value.quoted => !bytes.contains(&b' ') || odd,
        Separator::Equals | Separator::Block => true,
        Separator::Assigns => odd || is_setting(text, name, value),
        Separator::Space => !bytes.starts_with(b"-"),
        Separator::Colon => {
            let rest = text[value.range.end..].iter().find(|b| !matches!(b, b' ' | b'\t' | b'\r'));
            let ends = matches!(rest, None | Some(b'\n' | b'\\' | b'"' | b'}' | b',' | b';'));
            let line = text[..name.start].iter().rev().find(|b| !matches!(b, b' ' | b'\t' | b'-'));
            let begins = matches!(line, None | Some(b'\n' | b'"' | b'{' | b',' | b'n' | b';'));
            odd || (ends && begins)
        }
    }
}

/// Tells whether the name is one of a password and alone on its line with its value, as in a settings file:
/// `password = swordfish`.
fn is_setting(text: &[u8], name: &Range<usize>, value: &TextValue) -> bool {
    let bytes = &text[name.clone()];
    is_password(bytes)
        && !bytes.contains(&b'.')
        && text[name.end..value.range.start].trim_ascii() == b"="
        && is_line(text, name, value.range.end)
}

fn value_after(text: &[u8], name: &Range<usize>) -> Option<TextValue> {
    // First, because attributes of an element, `<password type="x">`, would be read as the separator and value.
    if let Some(value) = block::element(text, name) {
        return Some(value);
    }
    let mut at = name.end + entity(&text[name.end..]);
    let closers = |b: &&u8| matches!(b, b'"' | b'\'' | b'`' | b'\\' | b']' | b')');
    let closed = text[at..].iter().take(CLOSERS_MAX).take_while(closers).count();
    let spaces =
        |at: usize| text[at..].iter().take(SPACES_MAX).take_while(|b| matches!(b, b' ' | b'\t')).count();
    at += closed;
    let before = spaces(at);
    let (separator, length) = match &text[at + before..] {
        [b'=', b'=', ..] | [b':', b':', ..] => return None,
        [b'=', b'>', ..] | [b':', b'=', ..] => (Separator::Assigns, 2),
        [b'=', ..] if before == 0 && text.get(at + 1) != Some(&b' ') => (Separator::Equals, 1),
        [b'=', ..] => (Separator::Assigns, 1),
        [b':', ..] => (Separator::Colon, 1),
        [b'%', b'3', b'D' | b'd', ..] => (Separator::Equals, 3),
        _ if is_flag(text, name) && closed == 0 => (Separator::Space, 0),
        _ => return None,
    };
    at += before + length;
    at += spaces(at);
    if separator == Separator::Colon && closed == 0 && ends_label(text, name, at) {
        return None;
    }
    if separator == Separator::Colon && block::may_begin(text, at) {
        return block::yaml(text, name, at);
    }
    Some(read_value(text, name, at, separator))
}

/// Tells whether the quote here closes a prompt instead of opening a value: `ask("Password: ", user)`.
fn ends_label(text: &[u8], name: &Range<usize>, at: usize) -> bool {
    matches!(text.get(at), Some(b'"' | b'\''))
        && (text[..name.start].last() == text.get(at) || text[at + 1..].starts_with(b", "))
}

/// Returns the length of the HTML entity for a quote that stands here; 0 if there is none.
fn entity(text: &[u8]) -> usize {
    ENTITIES.iter().find(|entity| text.starts_with(entity)).map_or(0, |entity| entity.len())
}

fn read_value(text: &[u8], name: &Range<usize>, at: usize, separator: Separator) -> TextValue {
    let entity = entity(&text[at..]);
    if entity > 0 {
        let start = at + entity;
        let end =
            memchr::memmem::find(&text[start..], &text[at..start]).map_or(text.len(), |end| start + end);
        return TextValue { range: start..end, quoted: true, separator };
    }
    if let Some(value) = block::triple_quoted(text, at) {
        return value;
    }
    let escapes = text[at..].iter().take(CLOSERS_MAX).take_while(|b| **b == b'\\').count();
    if let Some(quote @ (b'"' | b'\'' | b'`')) = text.get(at + escapes) {
        let start = at + escapes + 1;
        return TextValue { range: start..quoted_end(text, start, *quote, escapes), quoted: true, separator };
    }
    let whole_line = is_header(&text[name.clone()]);
    if separator == Separator::Equals
        && !whole_line
        && let Some(end) = whole_word(text, name, at)
    {
        return TextValue { range: at..end, quoted: false, separator };
    }
    let stop = |b: &u8| {
        let ends = matches!(b, b'\n' | b'\r' | b'"' | b'\\' | b'\'' | b'`' | 0);
        ends || !whole_line
            && (b.is_ascii_whitespace()
                || matches!(b, b',' | b';' | b'&' | b')' | b'<' | b'>' | b'}' | b']' | b'|'))
    };
    let end = at + text[at..].iter().position(stop).unwrap_or(text.len() - at);
    // A scheme, as in `Bearer abc`, stays readable.
    let words = text[at..end].iter().take_while(|b| b.is_ascii_alphabetic()).count();
    let scheme = if whole_line && text[at..end].get(words) == Some(&b' ') { words + 1 } else { 0 };
    // The values of its parameters may be quoted, and a quote would end the value above.
    let parameters = whole_line.then(|| parameters(text, at + scheme)).flatten();
    TextValue { range: at + scheme..end.max(parameters.unwrap_or(0)), quoted: false, separator }
}

/// Returns the end of a value that is a whole word, separators such as `,` and `;` included: after an environment
/// variable with nothing but white space or a quote before it, or if name and value are alone on their line. `None`
/// otherwise.
fn whole_word(text: &[u8], name: &Range<usize>, at: usize) -> Option<usize> {
    let stop = |b: &u8| *b == b' ' || b.is_ascii_control() || matches!(b, b'"' | b'\\' | b'\'' | b'`');
    let word = &text[at..at + text[at..].iter().position(stop).unwrap_or(text.len() - at)];
    let word = &word[..memchr::memmem::find(word, b"</").unwrap_or(word.len())];
    let before = text[..name.start].last();
    let is_apart = before.is_none_or(|b| b.is_ascii_whitespace() || matches!(b, b'"' | b'\'' | b'`'));
    let is_alone = || !word.contains(&b'=') && is_line(text, name, at + word.len());
    let closes = |b: &&u8| matches!(b, b',' | b';' | b'&' | b')' | b'}' | b']' | b'>' | b'|');
    let end = at + word.len() - word.iter().rev().take_while(closes).count();
    (is_apart && is_variable(text, name) || is_alone()).then_some(end)
}

/// Tells whether the text from a name to `end` is a line of its own.
fn is_line(text: &[u8], name: &Range<usize>, end: usize) -> bool {
    let before = text[..name.start].iter().rev().find(|b| !matches!(b, b' ' | b'\t'));
    let behind = text[end..].iter().find(|b| !matches!(b, b' ' | b'\t' | b'\r'));
    matches!(before, None | Some(b'\n')) && matches!(behind, None | Some(b'\n'))
}
