//! Terminal control sequences in text: colours, hyperlinks, overstrikes.
//!
//! A terminal shows `ESC[1mAK ESC[31mIA…` as one word, and `total ESC[0m AKIA…` as two. So a text is also searched
//! without its sequences, and every position where one was removed may be the border of a token. Sequences are
//! recognised as bytes, as JSON escapes (`\u001b[31m`), and as source code, logs and `cat -v` spell them (`\x1b[`,
//! `\u{1b}[`, `\033[`, `\e[`, `^[[`).

use std::borrow::Cow;
use std::ops::Range;

use super::action::is_mark;
use super::detectors::Detector;
use crate::json::escape::unicode;

/// The spellings of an escape character with the bracket of a sequence: patterns for the search over raw bytes.
pub(super) const SPELLED: &[&str] = &[r"\x1b[", r"\x1B[", r"\u{1b}[", r"\033[", r"\e[", "^[["];
/// The beginning of every JSON escape of a control character.
pub(super) const ESCAPED: &[u8] = br"\u00";
/// The most bytes of parameters in a sequence; no colour has as many.
const PARAMETERS_BYTES_MAX: usize = 64;
/// The longest title or hyperlink, in bytes. If it does not end within this limit, only its introducer is removed, so
/// that a stray introducer hides nothing.
const STRING_BYTES_MAX: usize = 4096;
/// The most backslashes before an escape. JSON in JSON in JSON needs seven, so more are written on purpose.
const BACKSLASHES_MAX: usize = 64;
/// The longest mark that ends with a bracket: `[redacted:` with a rule's name of 64 bytes.
const MARK_BYTES_MAX: usize = 76;
/// The number of borders after a token's beginning that are tried as its end; a limit on the work for one hit.
const ENDS_MAX: usize = 16;

/// A text without its control sequences, and a map back to the original.
pub(super) struct Stripped {
    pub(super) text: Vec<u8>,
    /// Where each run of unchanged bytes begins, in the text and in the original. A sequence was removed before each
    /// run but the first.
    runs: Vec<(usize, usize)>,
}

/// Tells whether a text has the raw bytes of escape, backspace or NUL.
pub(super) fn has_control_bytes(text: &[u8]) -> bool {
    memchr::memchr3(0x1b, 0x08, 0, text).is_some()
}

/// Tells whether the JSON escape here stands for a control character.
pub(super) fn is_escaped(raw: &[u8], at: usize) -> bool {
    unicode(&raw[at..]).is_some_and(|(c, _)| is_control(c))
}

/// Returns a text as a terminal shows it. A text is returned as it is unless it has one of the sequences that the
/// search over raw bytes recognises: the line reader and the search must agree on which texts are stripped.
pub(super) fn as_shown(text: &[u8]) -> Cow<'_, [u8]> {
    let is_escaped = || memchr::memmem::find_iter(text, ESCAPED).any(|at| is_escaped(text, at));
    let is_spelled =
        || SPELLED.iter().any(|spelling| memchr::memmem::find(text, spelling.as_bytes()).is_some());
    let has_sequences = has_control_bytes(text) || is_escaped() || is_spelled();
    if has_sequences { stripped(text) } else { Cow::Borrowed(text) }
}

/// Returns a text without its control sequences.
pub(super) fn stripped(text: &[u8]) -> Cow<'_, [u8]> {
    match Stripped::new(text) {
        Some(stripped) => Cow::Owned(stripped.text),
        None => Cow::Borrowed(text),
    }
}

impl Stripped {
    /// Removes the control sequences of a text; `None` if it has none.
    pub(super) fn new(raw: &[u8]) -> Option<Self> {
        let mut stripped = Self { text: Vec::new(), runs: vec![(0, 0)] };
        let (mut run, mut at) = (0, 0);
        while let Some(next) = next_candidate(raw, at) {
            let length = sequence(&raw[next..]);
            if length == 0 {
                at = next + 1;
                continue;
            }
            stripped.text.extend_from_slice(&raw[run..next]);
            // A backspace: a terminal overwrites the last character with the next, and only the latter shows.
            if raw[next] == 0x08 {
                stripped.remove_last_character();
            }
            at = next + length;
            run = at;
            stripped.runs.push((stripped.text.len(), run));
        }
        if run == 0 {
            return None;
        }
        stripped.text.extend_from_slice(&raw[run..]);
        Some(stripped)
    }

    /// Removes the last character, unless it is the end of a mark: the secret had another length than its mark, so it
    /// is unknown how much of the mark the backspaces would erase.
    fn remove_last_character(&mut self) {
        // In text that is not UTF-8, continuation bytes may follow anything, even a mark.
        while self.text.pop_if(|b| *b & 0xc0 == 0x80).is_some() {}
        if !ends_with_mark(&self.text) {
            self.text.pop();
        }
        // A run whose text was overwritten is dropped, so that a range around it maps to all of the original.
        let left = self.text.len();
        self.runs.retain(|(start, _)| *start <= left);
    }

    /// Maps a range of the text to the original, including the sequences inside it.
    pub(super) fn original(&self, range: &Range<usize>) -> Range<usize> {
        let place = |at: usize| {
            let run = self.runs.partition_point(|(start, _)| *start <= at).saturating_sub(1);
            let (start, original) = self.runs[run];
            original + (at - start)
        };
        let start = place(range.start);
        if range.is_empty() { start..start } else { start..place(range.end - 1) + 1 }
    }

    /// Returns the beginning of the run around a position: after a removed sequence, or the start of the text.
    pub(super) fn border(&self, at: usize) -> usize {
        let border = self.runs.partition_point(|(start, _)| *start <= at);
        self.runs[border.saturating_sub(1)].0
    }

    /// Returns the secrets whose anchor stands here, with removed sequences as their borders.
    pub(super) fn find(&self, detector: &Detector, at: usize) -> Vec<Range<usize>> {
        let border = self.runs.partition_point(|(start, _)| *start <= at);
        let begin = self.border(at);
        // Detectors rely on a text that holds the whole anchor.
        let anchor = detector.anchors.iter().map(|anchor| anchor.len()).max().unwrap_or(0);
        let behind = self.runs[border..].iter().take(ENDS_MAX).map(|(start, _)| *start);
        let behind = behind.filter(|end| *end >= at + anchor);
        let ends = std::iter::once(self.text.len()).chain(behind);
        let parts = ends.filter_map(|end| self.text.get(begin..end));
        let found = parts.map(|part| detector.find(part, at - begin)).find(|found| !found.is_empty());
        found.into_iter().flatten().map(|found| begin + found.start..begin + found.end).collect()
    }
}

fn ends_with_mark(text: &[u8]) -> bool {
    let near = &text[text.len().saturating_sub(MARK_BYTES_MAX)..];
    let opening = || near.iter().rposition(|b| *b == b'[');
    near.ends_with(b"]") && opening().is_some_and(|open| is_mark(&near[open..]))
}

fn is_control(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\r' | '\t')
}

fn next_candidate(raw: &[u8], from: usize) -> Option<usize> {
    let candidate = |b: &u8| {
        matches!(b, b'\\' | b'^' | 0x7f | 0xc2) || (*b < b' ' && !matches!(b, b'\n' | b'\r' | b'\t'))
    };
    raw.get(from..)?.iter().position(candidate).map(|at| from + at)
}

/// Returns the length of the control character or sequence that begins here; 0 if none does.
fn sequence(raw: &[u8]) -> usize {
    let (introducer, is_escape) = match raw {
        [0x1b, ..] => (1, true),
        // C1 control characters. U+009B is an escape and a bracket in one.
        [0xc2, 0x9b, ..] => return 2 + parameters(&raw[2..]),
        [0xc2, 0x80..=0x9f, ..] => (2, false),
        [b, ..] if *b < b' ' || *b == 0x7f => (1, false),
        [b'\\' | b'^', ..] => {
            // In JSON inside JSON the backslash of an escape is itself escaped, once or several times.
            let before =
                raw.iter().take(BACKSLASHES_MAX).take_while(|b| **b == b'\\').count().saturating_sub(1);
            match spelled(&raw[before..]) {
                Some((length, is_escape)) => (before + length, is_escape),
                None => return 0,
            }
        }
        _ => return 0,
    };
    if is_escape { introducer + escape_body_len(&raw[introducer..]) } else { introducer }
}

/// Reads a control character in one of its spellings; returns the length, and whether it is an escape.
fn spelled(raw: &[u8]) -> Option<(usize, bool)> {
    if let Some((c, length)) = unicode(raw) {
        return is_control(c).then_some((length, c == '\u{1b}'));
    }
    let found = SPELLED.iter().find(|spelling| raw.starts_with(spelling.as_bytes()))?;
    Some((found.len() - 1, true))
}

/// Returns the number of bytes after an escape that belong to its sequence.
fn escape_body_len(rest: &[u8]) -> usize {
    match rest {
        [b'[', parameters_on @ ..] => 1 + parameters(parameters_on),
        [b']' | b'P' | b'X' | b'^' | b'_', string @ ..] => 1 + string_end(string).unwrap_or(0),
        [b' '..=b'/', ..] => {
            let between = rest.iter().take(4).take_while(|b| matches!(b, b' '..=b'/')).count();
            between + usize::from(matches!(rest.get(between), Some(0x30..=0x7e)))
        }
        // A letter after an escape may be a command or the first letter of a secret. It is removed here only: the
        // original is searched too.
        [0x30..=0x7e, ..] => 1,
        _ => 0,
    }
}

fn parameters(rest: &[u8]) -> usize {
    let length = rest.iter().take(PARAMETERS_BYTES_MAX).take_while(|b| matches!(b, b' '..=b'?')).count();
    length + usize::from(matches!(rest.get(length), Some(0x40..=0x7e)))
}

/// Finds the end of a string such as a hyperlink's address: BEL, or an escape and a backslash.
fn string_end(rest: &[u8]) -> Option<usize> {
    let near = &rest[..rest.len().min(STRING_BYTES_MAX)];
    (0..near.len()).find_map(|at| match &near[at..] {
        [0x07, ..] => Some(at + 1),
        [0x1b, b'\\', ..] => Some(at + 2),
        [b'\\', b'u', ..] => match unicode(&near[at..]) {
            Some(('\u{7}', length)) => Some(at + length),
            Some(('\u{1b}', length)) => {
                let closing = near[at + length..].iter().take_while(|b| **b == b'\\').count();
                (closing > 0).then_some(at + length + closing.min(2))
            }
            _ => None,
        },
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(raw: &str, expected: &str) {
        let stripped = stripped(raw.as_bytes());
        assert_eq!(String::from_utf8_lossy(&stripped), expected, "{raw:?}");
    }

    #[test]
    fn sequences_are_removed_in_every_spelling() {
        check("plain \\d text ^ and \n\ttabs", "plain \\d text ^ and \n\ttabs");
        check("a\x1b[1;31mb\x1b[0mc\x1b[Kd", "abcd");
        check("a\u{9b}31mb", "ab");
        check(r"a\u001b[31mb\u001B[0mc", "abc");
        check(r"a\\u001b[31mb\\\\u001b[0mc", "abc");
        check(r"a\x1b[31mb\033[0mc\e[1md^[[0me\u{1b}[0mf", "abcdef");
        check("\x1b]8;;https://x.example\x1b\\link\x1b]8;;\x07 on", "link on");
        check(r"\u001b]0;title\u0007x\u001b]8;;u\u001b\\y", "xy");
        check("p\x08pa\x08as\x08s _\x08x é\x08e", "pas x e");
        check("[redacted:aws-key]s\x08\x08\x08x [s]\x08\x08", "[redacted:aws-key]x [");
        check("A\0K\0I\0A\0", "AKIA");
        check("\x1b(Bx\x1b[", "x");
        check(r"no \u0041 \u000a \n escape", r"no \u0041 \u000a \n escape");
    }

    #[test]
    fn a_range_maps_back_across_removed_sequences() {
        let raw = b"ab\x1b[1mcd\x1b[0mef";
        let stripped = Stripped::new(raw).unwrap();
        assert_eq!(&raw[stripped.original(&(1..3))], b"b\x1b[1mc");
        assert_eq!(&raw[stripped.original(&(2..4))], b"cd");
        assert_eq!(&raw[stripped.original(&(0..6))], raw);
        assert_eq!(stripped.original(&(4..4)).len(), 0);
    }

    #[test]
    fn a_range_maps_back_across_overwritten_characters() {
        let raw = b"ab\x1b[1mcd\x1b[0me\x08\x08\x08\x08XY";
        let stripped = Stripped::new(raw).unwrap();
        assert_eq!(stripped.text, b"aXY");
        assert_eq!(&raw[stripped.original(&(0..1))], b"a");
        assert_eq!(&raw[stripped.original(&(1..3))], b"XY");
    }

    #[test]
    fn backspaces_do_not_erase_a_mark() {
        let check = |raw: &[u8], expected: &[u8]| {
            let shown = String::from_utf8_lossy(raw);
            assert_eq!(Stripped::new(raw).unwrap().text, expected, "{shown:?}");
        };
        check(b"[redacted:x]\x08\x08y", b"[redacted:x]y");
        check(b"[redacted:x]\x90\x90\x08\x08y", b"[redacted:x]y");
        check(b"[redacted:x]ab\x90\x08\x08\x08\x08y", b"[redacted:x]y");
    }
}
