//! Values that do not stand right behind their name: YAML blocks, elements of XML, strings in three quotes.

use std::ops::Range;

use super::placeholder::{ValuePosition, is_standin_alone};
use super::text::{Separator, TextValue, name_at};

/// No password has more lines than this.
const BLOCK_LINES_MAX: usize = 64;
/// No tag has more bytes of attributes than this, and no element a longer password.
const TAG_BYTES_MAX: usize = 256;
const ELEMENT_BYTES_MAX: usize = 4096;
/// How XML writes a text without escapes.
const CDATA: &[u8] = b"<![CDATA[";

/// Tells whether a YAML value that begins here stands on the next line: nothing is here, or how to read the block.
pub(super) fn may_begin(text: &[u8], at: usize) -> bool {
    matches!(text.get(at), Some(b'\n' | b'\r')) || header(text, at).is_some() || flattened(text, at).is_some()
}

/// Tells whether a word has a digit, or capitals and small letters mixed as no word of prose has them.
fn is_odd(word: &[u8]) -> bool {
    let capitals = word[1..].iter().any(u8::is_ascii_uppercase);
    word.iter().any(u8::is_ascii_digit) || capitals && word.iter().any(u8::is_ascii_lowercase)
}

/// Returns the word behind the header of a block whose line end is escaped or was made a space.
fn flattened(text: &[u8], at: usize) -> Option<Range<usize>> {
    if !matches!(text.get(at), Some(b'|' | b'>')) {
        return None;
    }
    let rest = &text[at + 1..text.len().min(at + 1 + TAG_BYTES_MAX)];
    let how = rest.iter().take(2).take_while(|b| matches!(b, b'+' | b'-' | b'1'..=b'9')).count();
    let mut gap = how;
    loop {
        let escapes = rest[gap..].iter().take_while(|b| **b == b'\\').count();
        gap += match rest[gap..].get(escapes) {
            Some(b'n' | b'r') if escapes > 0 => escapes + 1,
            Some(b' ' | b'\t') if escapes == 0 => 1,
            _ => break,
        };
    }
    let ends = |b: &u8| {
        b.is_ascii_whitespace() || matches!(b, b'"' | b'\'' | b'\\' | b'|' | b'<' | b'(' | b',' | b'}')
    };
    let length = rest[gap..].iter().position(ends).unwrap_or(rest.len() - gap);
    let word = &rest[gap..gap + length];
    let fits = gap >= how + 2 && word.len() >= 4 && is_odd(word);
    fits.then(|| at + 1 + gap..at + 1 + gap + length)
}

/// Reads the header of a block (`|`, `>-`, `|2+`): where its line ends.
fn header(text: &[u8], at: usize) -> Option<usize> {
    if !matches!(text.get(at), Some(b'|' | b'>')) {
        return None;
    }
    let rest = &text[at + 1..];
    let length = rest.iter().take(2).take_while(|b| matches!(b, b'+' | b'-' | b'1'..=b'9')).count();
    let end = at + 1 + length;
    let line = line_at(text, end);
    let is_header = line.end < text.len() && text[end..line.end].trim_ascii().is_empty();
    is_header.then_some(line.end)
}

/// Returns the name whose value stands below a line that ends here, and whether it is a block of several lines.
pub(super) fn opened_by(line: &[u8]) -> Option<(Range<usize>, bool)> {
    let line = line.trim_ascii_end();
    let how = line.iter().rev().take(2).take_while(|b| matches!(b, b'+' | b'-' | b'1'..=b'9')).count();
    let block = line[..line.len() - how].strip_suffix(b"|").or(line[..line.len() - how].strip_suffix(b">"));
    let named = block.unwrap_or(line).trim_ascii_end().strip_suffix(b":")?;
    let closers = named.iter().rev().take_while(|b| matches!(b, b'"' | b'\'' | b' ')).count();
    let end = named.len() - closers;
    (end > 0).then(|| (name_at(named, end - 1), block.is_some()))
}

/// Returns the value on the lines below a name, where they are indented deeper than it.
pub(super) fn yaml(text: &[u8], name: &Range<usize>, at: usize) -> Option<TextValue> {
    let name_line = line_at(text, name.start);
    let before = &text[name_line.start..name.start];
    let indent = before.iter().take_while(|b| **b == b' ').count();
    if let Some(range) = flattened(text, at) {
        return Some(TextValue { range, quoted: false, between: Separator::Block });
    }
    let range = match header(text, at) {
        Some(end) => lines_below(text, end, indent).filter(|range| !is_prose(&text[range.clone()]))?,
        None => {
            // Prose and code have lines that end in a name and a colon: only a line that is nothing else counts.
            let is_alone = before.iter().all(|b| matches!(b, b' ' | b'-' | b'"' | b'\''));
            let below = line_at(text, line_at(text, at).end + 1);
            is_alone.then(|| word_of(text, &below, indent)).flatten()?
        }
    };
    Some(TextValue { range, quoted: false, between: Separator::Block })
}

/// Returns the line around a place, without its end.
fn line_at(text: &[u8], at: usize) -> Range<usize> {
    let at = at.min(text.len());
    let start = memchr::memrchr(b'\n', &text[..at]).map_or(0, |newline| newline + 1);
    let end = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |newline| at + newline);
    start..end
}

/// Returns the lines behind a place that are indented deeper than this, from their first word to their last.
fn lines_below(text: &[u8], from: usize, indent: usize) -> Option<Range<usize>> {
    let (mut start, mut end, mut at) = (None, from, from);
    for _ in 0..BLOCK_LINES_MAX {
        if at >= text.len() {
            break;
        }
        let line = line_at(text, at + 1);
        at = line.end;
        let bytes = &text[line.clone()];
        let Some(first) = bytes.iter().position(|b| !b.is_ascii_whitespace()) else { continue };
        // A row of a table begins like a block.
        if first <= indent || bytes[first] == b'|' {
            break;
        }
        start.get_or_insert(line.start + first);
        end = line.start + bytes.trim_ascii_end().len();
    }
    start.map(|start| start..end)
}

/// Tells whether words follow each other that have nothing but letters in them.
fn is_prose(value: &[u8]) -> bool {
    let words = || value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let is_word = |word: &[u8]| !word.iter().any(u8::is_ascii_digit) && word.len() <= 16;
    words().count() > 2 && words().all(is_word)
}

/// Returns the one word on a line that is indented deeper than this, where it looks like no code or type.
fn word_of(text: &[u8], line: &Range<usize>, indent: usize) -> Option<Range<usize>> {
    let bytes = &text[line.clone()];
    let first = bytes.iter().position(|b| !matches!(b, b' ' | b'\t'))?;
    let word = bytes[first..].trim_ascii_end();
    let quote = matches!(word, [b'"', .., b'"'] | [b'\'', .., b'\'']);
    let (start, word) =
        if quote && word.len() > 2 { (first + 1, &word[1..word.len() - 1]) } else { (first, word) };
    let is_odd = word.iter().any(|b| !b.is_ascii_alphabetic() && !matches!(b, b'.' | b'-' | b'_'));
    let is_code = |b: &u8| {
        b.is_ascii_whitespace()
            || matches!(b, b'<' | b'>' | b'(' | b')' | b'{' | b'}' | b'[' | b']' | b';' | b'"' | b'\'')
    };
    let begins = !matches!(word.first(), None | Some(b'-' | b'#' | b'|' | b'/' | b'*' | b'+' | b'>'));
    let ends = !matches!(word.last(), Some(b':' | b','));
    let fits = first > indent && word.len() >= 4 && is_odd && begins && ends;
    (fits && !word.iter().any(is_code)).then(|| line.start + start..line.start + start + word.len())
}

/// Tells whether a name may be that of an element with attributes; cheap, and true rather too often.
pub(super) fn may_be_element(text: &[u8], name: &Range<usize>) -> bool {
    matches!(text.get(name.end), Some(b' ' | b'\\' | b'\t' | b'\n' | b'\r')) && may_open(&text[..name.start])
}

/// Tells whether a text may end in what opens an element: `<`, its escape, and perhaps a namespace.
fn may_open(before: &[u8]) -> bool {
    let escaped =
        |before: &[u8]| before.len() >= 6 && before[before.len() - 6..].eq_ignore_ascii_case(br"\u003c");
    let Some(namespace) = before.strip_suffix(b":") else { return before.ends_with(b"<") || escaped(before) };
    let near = &namespace[namespace.len().saturating_sub(TAG_BYTES_MAX)..];
    // Space before the colon may be escaped, which looks like a part of the name.
    let in_name = |b: &u8| b.is_ascii_alphanumeric() || b.is_ascii_whitespace() || matches!(b, b'-' | b'\\');
    let length = near.iter().rev().take_while(|b| in_name(b)).count();
    let (rest, prefix) = near.split_at(near.len() - length);
    rest.ends_with(b"<") || prefix.windows(6).any(escaped)
}

/// Returns what stands between the tags that a name opens and closes: `<password>…</password>`.
pub(super) fn element(text: &[u8], name: &Range<usize>) -> Option<TextValue> {
    let before = &text[name.start.saturating_sub(TAG_BYTES_MAX)..name.start];
    let namespace = before.strip_suffix(b":").map(|before| before.trim_ascii_end()).map(|before| {
        let prefix = before.iter().rev().take_while(|b| b.is_ascii_alphanumeric() || **b == b'-').count();
        &before[..before.len() - prefix]
    });
    if !namespace.unwrap_or(before).ends_with(b"<") {
        return None;
    }
    let attributes = &text[name.end..text.len().min(name.end + TAG_BYTES_MAX)];
    let close = memchr::memchr2(b'<', b'>', attributes).filter(|close| attributes[*close] == b'>')?;
    let is_tag = close == 0 || attributes[0].is_ascii_whitespace();
    if !is_tag || attributes[..close].ends_with(b"/") {
        return None;
    }
    let start = name.end + close + 1;
    let inside = &text[start..text.len().min(start + ELEMENT_BYTES_MAX)];
    let first = start + (inside.len() - inside.trim_ascii_start().len());
    let data = text[first..start + inside.len()].strip_prefix(CDATA);
    let (first, value) = match data {
        Some(data) => (first + CDATA.len(), &data[..memchr::memmem::find(data, b"]]>")?]),
        None => (first, inside[..memchr::memmem::find(inside, b"</")?].trim_ascii()),
    };
    let is_text = (data.is_some() || !value.contains(&b'<')) && !is_standin_alone(value, ValuePosition::Text);
    let is_label = value.iter().any(u8::is_ascii_whitespace) && !value.iter().any(u8::is_ascii_digit);
    (is_text && !is_label).then(|| TextValue {
        range: first..first + value.len(),
        quoted: true,
        between: Separator::Block,
    })
}

/// Reads a string in three quotes, as TOML and Python have them over several lines.
pub(super) fn three_quotes(text: &[u8], at: usize) -> Option<TextValue> {
    let quotes = text.get(at..at + 3).filter(|q| matches!(*q, b"\"\"\"" | b"'''"))?;
    let start = at + 3;
    let end = memchr::memmem::find(&text[start..], quotes).map_or(text.len(), |end| start + end);
    let inside = &text[start..end];
    let first = start + (inside.len() - inside.trim_ascii_start().len());
    let range = first.min(end)..first.min(end) + inside.trim_ascii().len();
    Some(TextValue { range, quoted: true, between: Separator::Block })
}
