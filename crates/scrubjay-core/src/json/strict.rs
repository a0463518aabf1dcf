//! Checks that a text is JSON for the strictest reader, and reports the first problem and its position.
//!
//! RFC 8259 and more: one value, valid UTF-8, no byte order mark, no line end between tokens, whole surrogate pairs,
//! limited depth and number of values. Every reader takes a text that passes for the same value, and no line reader
//! splits it, except at the three line separators that strings may contain. Those are returned, so that they can be
//! escaped.

use crate::envelope::DEPTH_MAX;

/// The most values in a message: each costs memory while rules are applied.
pub(crate) const VALUES_MAX: usize = 1 << 20;

/// The problem of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonProblem {
    NotUtf8,
    ByteOrderMark,
    /// A raw character at which some readers begin a new line.
    LineEnd,
    /// A raw control character in a string.
    Control,
    /// Half of a surrogate pair.
    Surrogate,
    /// Not one JSON value.
    NotJson,
    TooDeep,
    TooManyValues,
}

/// A problem, and its position in bytes.
pub(crate) type ProblemAt = (JsonProblem, usize);

/// Checks a text; returns the positions of U+0085, U+2028 and U+2029 in its strings.
pub(crate) fn scan(text: &[u8]) -> Result<Vec<usize>, ProblemAt> {
    if let Err(e) = std::str::from_utf8(text) {
        return Err((JsonProblem::NotUtf8, e.valid_up_to()));
    }
    // RFC 8259 lets readers either skip or reject it.
    if text.starts_with(b"\xef\xbb\xbf") {
        return Err((JsonProblem::ByteOrderMark, 0));
    }
    let mut scanner = Scanner { text, at: 0, open: Vec::new(), values: 0, separators: Vec::new() };
    scanner.whole()?;
    Ok(scanner.separators)
}

/// Replaces the line separators found by [`scan`] by escapes, which have the same meaning.
pub(crate) fn escape_separators(text: &[u8], separators: &[usize]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + separators.len() * 4);
    let mut from = 0;
    for &at in separators {
        out.extend_from_slice(&text[from..at]);
        let (escape, length): (&[u8], usize) = match &text[at..] {
            [0xc2, ..] => (b"\\u0085", 2),
            [0xe2, 0x80, 0xa8, ..] => (b"\\u2028", 3),
            _ => (b"\\u2029", 3),
        };
        out.extend_from_slice(escape);
        from = at + length;
    }
    out.extend_from_slice(&text[from..]);
    out
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// The open brackets.
    open: Vec<u8>,
    values: usize,
    separators: Vec<usize>,
}

impl Scanner<'_> {
    fn whole(&mut self) -> Result<(), ProblemAt> {
        loop {
            self.space();
            if let Some(bracket) = self.value()? {
                self.space();
                if self.peek() != Some(closing(bracket)) {
                    if bracket == b'{' {
                        self.key()?;
                    }
                    continue;
                }
                self.close();
            }
            if self.after_value()? {
                return Ok(());
            }
        }
    }

    /// Reads from the end of a value to the beginning of the next one; returns true at the end of the text.
    fn after_value(&mut self) -> Result<bool, ProblemAt> {
        loop {
            self.space();
            let Some(bracket) = self.open.last().copied() else {
                return if self.at == self.text.len() { Ok(true) } else { Err(self.wrong()) };
            };
            match self.peek() {
                Some(byte) if byte == closing(bracket) => self.close(),
                Some(b',') => {
                    self.at += 1;
                    if bracket == b'{' {
                        self.space();
                        self.key()?;
                    }
                    return Ok(false);
                }
                _ => return Err(self.wrong()),
            }
        }
    }

    fn close(&mut self) {
        self.at += 1;
        self.open.pop();
    }

    fn key(&mut self) -> Result<(), ProblemAt> {
        if self.peek() != Some(b'"') {
            return Err(self.wrong());
        }
        self.string()?;
        self.space();
        if self.peek() != Some(b':') {
            return Err(self.wrong());
        }
        self.at += 1;
        Ok(())
    }

    /// Reads a scalar, or the opening bracket of a container, which is returned.
    fn value(&mut self) -> Result<Option<u8>, ProblemAt> {
        self.values += 1;
        if self.values > VALUES_MAX {
            return Err((JsonProblem::TooManyValues, self.at));
        }
        match self.peek() {
            Some(bracket @ (b'{' | b'[')) => {
                if self.open.len() == DEPTH_MAX {
                    return Err((JsonProblem::TooDeep, self.at));
                }
                self.open.push(bracket);
                self.at += 1;
                return Ok(Some(bracket));
            }
            Some(b'"') => self.string()?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => {
                let rest = &self.text[self.at..];
                let word = [&b"true"[..], b"false", b"null"].into_iter().find(|word| rest.starts_with(word));
                self.at += word.ok_or_else(|| self.wrong())?.len();
            }
        }
        Ok(None)
    }

    fn number(&mut self) -> Result<(), ProblemAt> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), ProblemAt> {
        let rest = &self.text[self.at..];
        let count = rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
        self.at += count;
        if count == 0 { Err(self.wrong()) } else { Ok(()) }
    }

    fn string(&mut self) -> Result<(), ProblemAt> {
        self.at += 1;
        loop {
            match &self.text[self.at..] {
                [] => return Err((JsonProblem::NotJson, self.at)),
                [b'"', ..] => {
                    self.at += 1;
                    return Ok(());
                }
                [b'\\', ..] => self.escape()?,
                [0xc2, 0x85, ..] => {
                    self.separators.push(self.at);
                    self.at += 2;
                }
                [0xe2, 0x80, 0xa8 | 0xa9, ..] => {
                    self.separators.push(self.at);
                    self.at += 3;
                }
                [0..=0x1f, ..] => return Err((self.wrong_in_string(), self.at)),
                // The text is UTF-8, in which no byte of a longer character looks like a quote or backslash.
                _ => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<(), ProblemAt> {
        match self.text.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => match (self.unit(self.at), self.unit(self.at + 6)) {
                (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => self.at += 12,
                // Some readers keep half of a pair, others replace it or reject the text.
                (Some(0xd800..0xe000), _) => return Err((JsonProblem::Surrogate, self.at)),
                (Some(_), _) => self.at += 6,
                (None, _) => return Err((JsonProblem::NotJson, self.at)),
            },
            _ => return Err((JsonProblem::NotJson, self.at)),
        }
        Ok(())
    }

    /// Returns the number that a `\u` escape stands for.
    fn unit(&self, at: usize) -> Option<u32> {
        let [b'\\', b'u', digits @ ..] = self.text.get(at..at + 6)? else { return None };
        digits.iter().try_fold(0, |value, d| Some(value * 16 + char::from(*d).to_digit(16)?))
    }

    fn space(&mut self) {
        // JSON also allows CR and LF here, but line readers split at them.
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Returns the problem with the byte here, outside of a string.
    fn wrong(&self) -> ProblemAt {
        let is_line_end = match &self.text[self.at..] {
            [0xc2, 0x85, ..] | [0xe2, 0x80, 0xa8 | 0xa9, ..] => true,
            rest => rest.first().is_some_and(|byte| is_line_end(*byte)),
        };
        (if is_line_end { JsonProblem::LineEnd } else { JsonProblem::NotJson }, self.at)
    }

    fn wrong_in_string(&self) -> JsonProblem {
        if is_line_end(self.text[self.at]) { JsonProblem::LineEnd } else { JsonProblem::Control }
    }
}

/// Tells whether some reader begins a new line after this control character: Python's `splitlines` knows all of them.
fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r' | 0x0b | 0x0c | 0x1c..=0x1e)
}

fn closing(bracket: u8) -> u8 {
    if bracket == b'{' { b'}' } else { b']' }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: impl AsRef<[u8]>, expected: Result<&[usize], ProblemAt>) {
        let text = text.as_ref();
        assert_eq!(scan(text).as_deref().map_err(|e| *e), expected, "{}", text.escape_ascii());
    }

    #[test]
    fn strict_json_passes() {
        for text in [
            "{}",
            "[]",
            " [1, -0.5e+3 ,\t\"a\\u0041\\ud83d\\ude00\\/\",true,false,null,{\"\":{}}] ",
            "1e400",
            "-0",
            "\"\u{7f}\u{feff}é\"",
            "123456789012345678901234567890",
        ] {
            check(text, Ok(&[]));
        }
        check(format!("{}{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX)), Ok(&[]));
    }

    #[test]
    fn every_other_text_is_rejected_with_its_problem() {
        use JsonProblem::{
            ByteOrderMark, Control, LineEnd, NotJson, NotUtf8, Surrogate, TooDeep, TooManyValues,
        };
        let cases: [(&[u8], ProblemAt); 32] = [
            (b"", (NotJson, 0)),
            (b"{} {}", (NotJson, 3)),
            (b"[1,]", (NotJson, 3)),
            (b"{\"a\":1,}", (NotJson, 7)),
            (b"{,}", (NotJson, 1)),
            (b"[NaN]", (NotJson, 1)),
            (b"[-Infinity]", (NotJson, 2)),
            (b"[01]", (NotJson, 2)),
            (b"[1.]", (NotJson, 3)),
            (b"[.5]", (NotJson, 1)),
            (b"[+1]", (NotJson, 1)),
            (b"[0x10]", (NotJson, 2)),
            (b"[1e]", (NotJson, 3)),
            (b"{'a':1}", (NotJson, 1)),
            (b"{a:1}", (NotJson, 1)),
            (b"[1] // x", (NotJson, 4)),
            (b"[1/**/]", (NotJson, 2)),
            (b"\"a", (NotJson, 2)),
            (b"\"\\x41\"", (NotJson, 1)),
            (b"\"\\u00g0\"", (NotJson, 1)),
            (b"[\r1]", (LineEnd, 1)),
            (b"[1\n]", (LineEnd, 2)),
            (b"[\x0b1]", (LineEnd, 1)),
            (b"[1,\x1c2]", (LineEnd, 3)),
            ("[\u{2028}1]".as_bytes(), (LineEnd, 1)),
            ("[1]\u{85}".as_bytes(), (LineEnd, 3)),
            (b"\"a\rb\"", (LineEnd, 2)),
            (b"\"a\0b\"", (Control, 2)),
            (b"\"\\ud800\"", (Surrogate, 1)),
            (b"\"\\udc00\\ud800\"", (Surrogate, 1)),
            (b"\xef\xbb\xbf{}", (ByteOrderMark, 0)),
            (b"\"\xff\"", (NotUtf8, 1)),
        ];
        for (text, found) in cases {
            check(text, Err(found));
        }
        check("[\u{a0}1]", Err((NotJson, 1)));
        check([b'['; 300], Err((TooDeep, DEPTH_MAX)));
        let many = format!("[{}1]", "1,".repeat(VALUES_MAX));
        assert_eq!(scan(many.as_bytes()).unwrap_err().0, TooManyValues);
    }

    #[test]
    fn separators_in_strings_become_escapes() {
        let text = "{\"a\u{2028}\":\"\u{85}x\u{2029}\"}";
        let separators = scan(text.as_bytes()).unwrap();
        let escaped = escape_separators(text.as_bytes(), &separators);
        assert_eq!(String::from_utf8_lossy(&escaped), r#"{"a\u2028":"\u0085x\u2029"}"#);
        assert_eq!(scan(&escaped), Ok(Vec::new()));
    }
}
