//! Values that do not directly follow their name: YAML blocks, XML elements, triple-quoted strings.

use std::ops::Range;

use super::placeholder::{ValuePosition, is_placeholder_alone};
use super::text::{Separator, TextValue, name_at};

/// The most lines of a YAML block that are taken for a secret: a longer block is a document, not a password.
const BLOCK_LINES_MAX: usize = 64;
/// The most bytes of attributes in a tag that are searched for its `>`.
const TAG_BYTES_MAX: usize = 256;
/// The most bytes of an element that are searched for its closing tag, so that an unclosed one costs little.
const ELEMENT_BYTES_MAX: usize = 4096;
/// What begins unescaped text in XML.
const CDATA: &[u8] = b"<![CDATA[";

/// Tells whether a YAML value begins on the next line: here the line ends, or a block indicator such as `|` stands.
pub(super) fn may_begin(text: &[u8], at: usize) -> bool {
    matches!(text.get(at), Some(b'\n' | b'\r'))
        || block_header(text, at).is_some()
        || flattened_block(text, at).is_some()
}

/// Tells whether a word has a digit, or a capital after its first letter beside small ones, unlike words of prose.
fn is_mixed(word: &[u8]) -> bool {
    let capitals = word[1..].iter().any(u8::is_ascii_uppercase);
    word.iter().any(u8::is_ascii_digit) || capitals && word.iter().any(u8::is_ascii_lowercase)
}

/// Returns the first word of a YAML block whose line ends are escaped or were replaced by spaces.
fn flattened_block(text: &[u8], at: usize) -> Option<Range<usize>> {
    if !matches!(text.get(at), Some(b'|' | b'>')) {
        return None;
    }
    let rest = &text[at + 1..text.len().min(at + 1 + TAG_BYTES_MAX)];
    let indicators = rest.iter().take(2).take_while(|b| matches!(b, b'+' | b'-' | b'1'..=b'9')).count();
    let mut gap = indicators;
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
    let is_value = gap >= indicators + 2 && word.len() >= 4 && is_mixed(word);
    is_value.then(|| at + 1 + gap..at + 1 + gap + length)
}

/// Reads the header of a YAML block (`|`, `>-`, `|2+`), and returns the end of its line.
fn block_header(text: &[u8], at: usize) -> Option<usize> {
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

/// Returns the name at the end of a line whose value is on the lines below, and whether the value is a block.
pub(super) fn name_awaiting_value(line: &[u8]) -> Option<(Range<usize>, bool)> {
    let line = line.trim_ascii_end();
    let indicators = line.iter().rev().take(2).take_while(|b| matches!(b, b'+' | b'-' | b'1'..=b'9')).count();
    let block = line[..line.len() - indicators]
        .strip_suffix(b"|")
        .or(line[..line.len() - indicators].strip_suffix(b">"));
    let named = block.unwrap_or(line).trim_ascii_end().strip_suffix(b":")?;
    let closers = named.iter().rev().take_while(|b| matches!(b, b'"' | b'\'' | b' ')).count();
    let end = named.len() - closers;
    (end > 0).then(|| (name_at(named, end - 1), block.is_some()))
}

/// Returns the YAML value on the lines below a name, which are indented deeper than the name.
pub(super) fn yaml(text: &[u8], name: &Range<usize>, at: usize) -> Option<TextValue> {
    let name_line = line_at(text, name.start);
    let before = &text[name_line.start..name.start];
    let indent = before.iter().take_while(|b| **b == b' ').count();
    if let Some(range) = flattened_block(text, at) {
        return Some(TextValue { range, quoted: false, separator: Separator::Block });
    }
    let range = match block_header(text, at) {
        Some(end) => lines_below(text, end, indent).filter(|range| !is_prose(&text[range.clone()]))?,
        None => {
            // In prose and code a line may end in a name and a colon, so the name must be alone on its line.
            let is_alone = before.iter().all(|b| matches!(b, b' ' | b'-' | b'"' | b'\''));
            let below = line_at(text, line_at(text, at).end + 1);
            is_alone.then(|| word_of(text, &below, indent)).flatten()?
        }
    };
    Some(TextValue { range, quoted: false, separator: Separator::Block })
}

/// Returns the line around a position, without its line end.
fn line_at(text: &[u8], at: usize) -> Range<usize> {
    let at = at.min(text.len());
    let start = memchr::memrchr(b'\n', &text[..at]).map_or(0, |newline| newline + 1);
    let end = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |newline| at + newline);
    start..end
}

/// Returns the lines after a position that are indented deeper than `indent`, from their first word to their last.
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
        // A row of a Markdown table: its `|` only looked like a block indicator.
        if first <= indent || bytes[first] == b'|' {
            break;
        }
        start.get_or_insert(line.start + first);
        end = line.start + bytes.trim_ascii_end().len();
    }
    start.map(|start| start..end)
}

/// Tells whether a value is prose: more than two words, all short and without digits.
fn is_prose(value: &[u8]) -> bool {
    let words = || value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let is_word = |word: &[u8]| !word.iter().any(u8::is_ascii_digit) && word.len() <= 16;
    words().count() > 2 && words().all(is_word)
}

/// Returns the only word of a line that is indented deeper than `indent`, unless it looks like code, a type or a plain
/// word.
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
    let is_value = first > indent && word.len() >= 4 && is_odd && begins && ends;
    (is_value && !word.iter().any(is_code)).then(|| line.start + start..line.start + start + word.len())
}

/// Tells whether a name may be that of an XML element with attributes. A cheap check of raw bytes, with false
/// positives.
pub(super) fn may_be_element(text: &[u8], name: &Range<usize>) -> bool {
    matches!(text.get(name.end), Some(b' ' | b'\\' | b'\t' | b'\n' | b'\r'))
        && may_open_tag(&text[..name.start])
}

/// Tells whether a text may end in the opening of an element: `<` or `\u003c`, and perhaps a namespace.
fn may_open_tag(before: &[u8]) -> bool {
    let escaped =
        |before: &[u8]| before.len() >= 6 && before[before.len() - 6..].eq_ignore_ascii_case(br"\u003c");
    let Some(namespace) = before.strip_suffix(b":") else { return before.ends_with(b"<") || escaped(before) };
    let near = &namespace[namespace.len().saturating_sub(TAG_BYTES_MAX)..];
    // White space before the colon may be escaped, so a backslash and a letter count as part of the namespace.
    let in_name = |b: &u8| b.is_ascii_alphanumeric() || b.is_ascii_whitespace() || matches!(b, b'-' | b'\\');
    let length = near.iter().rev().take_while(|b| in_name(b)).count();
    let (rest, prefix) = near.split_at(near.len() - length);
    rest.ends_with(b"<") || prefix.windows(6).any(escaped)
}

/// Returns the text of the XML element with this name: `<password>…</password>`.
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
    // A `<` before the `>` means that this is no tag, as in a comparison.
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
    let is_text =
        (data.is_some() || !value.contains(&b'<')) && !is_placeholder_alone(value, ValuePosition::Text);
    // Several words without a digit are a label or an instruction, as in a form: `<password>Enter it here</password>`.
    let is_label = value.iter().any(u8::is_ascii_whitespace) && !value.iter().any(u8::is_ascii_digit);
    (is_text && !is_label).then(|| TextValue {
        range: first..first + value.len(),
        quoted: true,
        separator: Separator::Block,
    })
}

/// Reads a triple-quoted string, as in TOML and Python.
pub(super) fn triple_quoted(text: &[u8], at: usize) -> Option<TextValue> {
    let quotes = text.get(at..at + 3).filter(|q| matches!(*q, b"\"\"\"" | b"'''"))?;
    let start = at + 3;
    let end = memchr::memmem::find(&text[start..], quotes).map_or(text.len(), |end| start + end);
    let inside = &text[start..end];
    let first = start + (inside.len() - inside.trim_ascii_start().len());
    let range = first.min(end)..first.min(end) + inside.trim_ascii().len();
    Some(TextValue { range, quoted: true, separator: Separator::Block })
}
