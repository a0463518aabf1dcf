//! Encoded secrets: letters written as JSON escapes, and base64.

use std::ops::Range;

use super::shape::ByteClass;
use crate::json::escape::unicode;

/// Tells whether the escape here stands for a character that names and tokens consist of.
pub(super) fn spells_token_character(raw: &[u8], at: usize) -> bool {
    match unicode(&raw[at..]) {
        Some((c, _)) => c.is_ascii_alphanumeric() || "_-:/.\\%+=@ ".contains(c),
        None => false,
    }
}

/// Decodes base64 of either alphabet, and skips bytes that are no digits.
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

/// Base64 encodes groups of three bytes as four digits. If 0, 1 or 2 bytes of the group precede a text, the digits that
/// depend on the text alone begin at this digit of the group.
pub(super) const PHASES: [usize; 3] = [0, 2, 3];

/// Returns the digits that the base64 of any data with this text contains, for each number of bytes before it in its
/// group.
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

/// The most digits before a hit that are decoded to see whether they hold a secret.
const BEFORE_BYTES: usize = 512;
/// The most digits after a hit that are decoded for the same purpose.
const BEHIND_BYTES: usize = 4096;

/// The most bytes between two lines of base64: line end, escapes and indentation.
const BREAK_BYTES_MAX: usize = 64;

/// Returns the beginning of the next line of base64 if a line ends here. Its end may be escaped and the next line
/// indented.
fn next_line(text: &[u8], at: usize) -> Option<usize> {
    let near = &text[at..text.len().min(at + BREAK_BYTES_MAX)];
    let (mut length, mut is_line) = (0, false);
    loop {
        let escapes = near[length..].iter().take_while(|b| **b == b'\\').count();
        length += match near[length..].get(escapes) {
            Some(b'n') if escapes > 0 => {
                is_line = true;
                escapes + 1
            }
            Some(b'r' | b't') if escapes > 0 => escapes + 1,
            Some(b'\n') if escapes == 0 => {
                is_line = true;
                1
            }
            Some(b'\r' | b' ' | b'\t') if escapes == 0 => 1,
            _ => break,
        };
    }
    is_line.then_some(at + length)
}

/// Returns the end of the previous line of base64 if a line begins here.
fn line_before(text: &[u8], at: usize) -> Option<usize> {
    let near = &text[at.saturating_sub(BREAK_BYTES_MAX)..at];
    let is_break = |b: &u8| matches!(b, b'\\' | b'n' | b'r' | b't' | b'\n' | b'\r' | b' ' | b'\t');
    let length = near.iter().rev().take_while(|b| is_break(b)).count();
    // `n`, `r` and `t` are digits of base64 too, so the break may begin later than it seems.
    (at - length..at).find(|end| next_line(text, *end) == Some(at))
}

/// Returns the beginning of the line of digits around a position. The letter of an escape before it is no digit.
fn line_start(text: &[u8], at: usize) -> usize {
    let start = at - text[..at].iter().rev().take_while(|b| ByteClass::Base64.has(**b)).count();
    let is_escape = text[..start].ends_with(b"\\") && matches!(text.get(start), Some(b'n' | b'r' | b't'));
    if is_escape && start < at { start + 1 } else { start }
}

/// Returns the base64 digits near a position, across line ends, and how many of them precede the position. They are
/// enough to decide whether the data holds a secret.
pub(super) fn digits_near(text: &[u8], at: usize) -> (Vec<u8>, usize) {
    let mut lines = Vec::new();
    let (mut end, mut count) = (at, 0);
    loop {
        let floor = end.saturating_sub(BEFORE_BYTES - count);
        let start = floor + line_start(&text[floor..], end - floor);
        lines.push(start..end);
        count += end - start;
        // A line that was cut at the limit does not begin here, so none is before it.
        match line_before(text, start).filter(|_| start > floor && count < BEFORE_BYTES) {
            Some(before) => end = before,
            None => break,
        }
    }
    let mut digits: Vec<u8> = lines.into_iter().rev().flat_map(|line| &text[line]).copied().collect();
    let place = digits.len();
    let mut start = at;
    loop {
        let limit = text.len().min(start + BEHIND_BYTES - (digits.len() - place));
        let end = ByteClass::Base64.run(&text[..limit], start);
        digits.extend_from_slice(&text[start..end]);
        match next_line(text, end).filter(|_| end > start && digits.len() - place < BEHIND_BYTES) {
            Some(next) => start = next,
            None => break,
        }
    }
    (digits, place)
}

/// The shortest line of wrapped base64: tools wrap at 64 or 76 digits. Below it, adjacent lines are separate texts.
const WRAPPED_BYTES_MIN: usize = 60;

/// Returns the whole run of base64 around a position, across the ends of wrapped lines.
pub(super) fn run(text: &[u8], at: usize) -> Range<usize> {
    let mut start = line_start(text, at);
    while let Some(before) = line_before(text, start) {
        let line = line_start(text, before);
        if before - line < WRAPPED_BYTES_MIN {
            break;
        }
        start = line;
    }
    let (mut line, mut end) = (line_start(text, at), ByteClass::Base64.run(text, at));
    while end - line >= WRAPPED_BYTES_MIN
        && let Some(next) = next_line(text, end)
    {
        let next_end = ByteClass::Base64.run(text, next);
        if next_end == next {
            break;
        }
        (line, end) = (next, next_end);
    }
    let padding = text[end..].iter().take(2).take_while(|b| **b == b'=').count();
    start..end + padding
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_is_found_in_base64_at_every_phase() {
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
