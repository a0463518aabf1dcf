//! Secrets that go over several lines or strings: a private key that a program prints comes line by line, and in a message
//! it may be a list of lines.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem::{find, rfind};
use serde::de::IgnoredAny;

use super::action::is_mark;
use super::detectors::LABEL_BYTES_MAX;
use super::name::NameEvidence;
use super::shape::ByteClass;
use super::{Redacted, Redactor, block, control};
use crate::json::edit;
use crate::json::escape::escape;

/// No key has more lines than this.
const KEY_LINES_MAX: u32 = 256;
/// No password has more lines than this.
const BLOCK_LINES_MAX: u32 = 64;
const MARK: &str = "[redacted:private-key]";
/// What stands before the label of a key.
const BEGIN: &[u8] = b"-----BEGIN ";
/// What the label of a key holds.
const PRIVATE: &[u8] = b"PRIVATE KEY";
/// In JSON within JSON, as deep as it is looked into, a byte of a label is written with up to this many.
const ESCAPED_BYTES_MAX: usize = 64;
/// What the last line of a key holds.
const ENDS: [&[u8]; 2] = [b"-----END ", b"Private-MAC:"];

/// From this length on, base64 at the end of a text is taken for a key's, whatever stands before it.
const RUN_BYTES_MIN: usize = 16;
/// From this length on, in whichever member of a message it stands.
const ANYWHERE_BYTES_MIN: usize = 32;

/// What the lines before tell of the next.
#[derive(Clone, Debug, Default)]
pub struct LineContext {
    keys: KeyLines,
    /// A line that ends in a name, whose value stands on the lines below as YAML writes it.
    opening: Option<Opening>,
}

#[derive(Clone, Debug)]
struct Opening {
    line: Vec<u8>,
    /// So many lines may still belong to it.
    left: u32,
}

impl LineContext {
    /// Takes the secrets out of the next line.
    pub fn redact<'a>(&mut self, redactor: &Redactor, line: &'a [u8]) -> Redacted<'a> {
        if !redactor.is_enabled() {
            return redactor.redact(line);
        }
        if let Some(redacted) = self.value_below(redactor, line) {
            return redacted;
        }
        let shown = control::shown(line);
        if self.opening.is_none() {
            self.opening = opening(redactor, &shown);
        }
        let begins = begins_key(&shown);
        if !begins && self.keys.left == 0 {
            return redactor.redact(line);
        }
        // Only some of a message's strings belong to a key.
        if let Some(redacted) = redactor.redact_message(line, &mut self.keys) {
            return redacted;
        }
        if self.keys.is_next_line(&shown) {
            return marked(line);
        }
        if begins {
            self.keys.begin(None);
        }
        redactor.redact(line)
    }

    /// Takes out the value of a name that ended an earlier line; none where this line is no such value.
    fn value_below<'a>(&mut self, redactor: &Redactor, line: &'a [u8]) -> Option<Redacted<'a>> {
        let mut opening = self.opening.take()?;
        let indent = |line: &[u8]| line.iter().take_while(|b| **b == b' ').count();
        let is_blank = line.trim_ascii().is_empty();
        if !is_blank && indent(line) <= indent(&opening.line) {
            return None;
        }
        opening.left -= 1;
        let text = [&opening.line, b"\n".as_slice(), line].concat();
        let behind = opening.line.len() + 1;
        let mut edits = redactor.plain_edits(&text, 0, false);
        edits.retain(|edit| edit.range.start >= behind);
        if opening.left > 0 && (!edits.is_empty() || is_blank) {
            self.opening = Some(opening);
        }
        let first = edits.first()?;
        if is_json(line) {
            return Some(quoted(line, &first.with));
        }
        let edits = edits
            .iter()
            .map(|edit| (edit.range.start - behind..edit.range.end - behind, edit.with.as_bytes()));
        Some(Redacted(Cow::Owned(edit::apply(line, edits))))
    }
}

fn opening(redactor: &Redactor, line: &[u8]) -> Option<Opening> {
    let (name, is_block) = block::opened_by(line)?;
    let telling = redactor.names.tell(line.get(name)?)?;
    let left = if is_block { BLOCK_LINES_MAX } else { 1 };
    matches!(telling, NameEvidence::Sensitive(_) | NameEvidence::Strong)
        .then(|| Opening { line: line.to_vec(), left })
}

/// Puts a mark in the place of a line, which stays JSON if it is.
fn marked<'a>(line: &[u8]) -> Redacted<'a> {
    if is_json(line) { quoted(line, MARK) } else { Redacted(Cow::Owned(MARK.as_bytes().to_vec())) }
}

/// Puts a mark in the place of a line that is JSON; YAML does not mind the quotes.
fn quoted<'a>(line: &[u8], mark: &str) -> Redacted<'a> {
    let indent = line.len() - line.trim_ascii_start().len();
    Redacted(Cow::Owned([&line[..indent], b"\"", escape(mark).as_bytes(), b"\""].concat()))
}

fn is_json(line: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(line).is_ok()
}

/// A private key that has begun: which of the texts that follow belong to it.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyLines {
    /// So many lines may still belong to it.
    left: u32,
    /// The member of a message that it began in; none for an element or a line.
    member: Option<Vec<u8>>,
}

impl KeyLines {
    fn begin(&mut self, member: Option<&[u8]>) {
        *self = Self { left: KEY_LINES_MAX, member: member.map(<[u8]>::to_vec) };
    }

    /// Returns what in the next string of a message belongs to a key, and notes whether one begins there.
    pub(super) fn taken(&mut self, text: &[u8], member: Option<&[u8]>) -> Vec<Range<usize>> {
        let mut taken = Vec::new();
        let mut at = 0;
        while self.left > 0 && at < text.len() {
            let end = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |newline| at + newline);
            let line = control::shown(&text[at..end]);
            self.left -= 1;
            let is_last = is_end(&line);
            if is_last || self.has(&line, member) {
                taken.push(at..at + text[at..end].trim_ascii_end().len());
            }
            if is_last {
                self.left = 0;
            }
            at = end + 1;
        }
        if begins_key(&control::shown(text)) {
            self.begin(member);
        }
        taken
    }

    /// Tells whether a line of a message's string is one of a key's.
    fn has(&self, line: &[u8], member: Option<&[u8]>) -> bool {
        let Some(run) = run(line) else { return false };
        let is_whole = run.start == line.len() - line.trim_ascii_start().len();
        if self.member.as_deref() != member {
            return is_whole && run.len() >= ANYWHERE_BYTES_MIN;
        }
        run.len() >= RUN_BYTES_MIN || is_whole && run.len() % 4 == 0 || line[..run.end].ends_with(b"=")
    }

    /// Tells whether a line that a program prints is the next one of a key.
    fn is_next_line(&mut self, line: &[u8]) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        if is_end(line) {
            self.left = 0;
            return true;
        }
        // A logger puts anything before it, code and JSON a quote.
        let is_apart = |at: usize| {
            at == 0 || line[at - 1].is_ascii_whitespace() || matches!(line[at - 1], b'"' | b'\'' | b'|')
        };
        run(line).is_some_and(|run| {
            run.len() >= RUN_BYTES_MIN || is_apart(run.start) || line[..run.end].ends_with(b"=")
        })
    }
}

fn is_end(line: &[u8]) -> bool {
    ENDS.iter().any(|end| find(line, end).is_some())
}

/// Tells whether the lines of a private key follow, of the usual form or of PuTTY's.
fn begins_key(text: &[u8]) -> bool {
    let is_pem = || {
        rfind(text, BEGIN).is_some_and(|at| {
            let label = &text[at..text.len().min(at + BEGIN.len() + LABEL_BYTES_MAX)];
            find(label, PRIVATE).is_some() && find(&text[at..], b"-----END ").is_none()
        })
    };
    let is_putty =
        || rfind(text, b"Private-Lines: ").is_some_and(|at| find(&text[at..], b"Private-MAC:").is_none());
    is_pem() || is_putty()
}

/// Tells whether the lines of a private key may follow its anchor, from the raw bytes of a message. It looks for less than
/// the detector and `begins_key` do, because escapes may part or lengthen the label in raw bytes.
pub(super) fn may_begin_key(raw: &[u8]) -> bool {
    let near = &raw[..raw.len().min(BEGIN.len() + LABEL_BYTES_MAX * ESCAPED_BYTES_MAX)];
    find(near, b"PRIVATE").is_some()
}

/// Returns the base64 that a line ends in, before what code and JSON put behind it.
fn run(line: &[u8]) -> Option<Range<usize>> {
    let mut end = line.len();
    loop {
        end = match &line[..end] {
            [.., b'\\', b'n' | b'r'] => end - 2,
            [.., b] if b.is_ascii_whitespace() => end - 1,
            [.., b'"' | b'\'' | b'`' | b',' | b';' | b')' | b']' | b'}' | b'|' | b'\\'] => end - 1,
            _ => break,
        };
    }
    let in_run = |b: &u8| ByteClass::Base64.has(*b) || *b == b'=';
    let start = end - line[..end].iter().rev().take_while(|b| in_run(b)).count();
    let word = line[..start].iter().rposition(|b| matches!(b, b'[' | b' ' | b'"')).unwrap_or(0);
    let marks = [&line[word..line.len().min(end + 1)], &line[word..end], &line[(word + 1).min(end)..end]];
    (start < end && !marks.iter().any(|mark| is_mark(mark))).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_putty_goes_line_by_line() {
        let redactor = Redactor::standard();
        let mut lines = LineContext::default();
        let text = "Private-Lines: 2\nAAAAc4n4ryc4n4ry\nBBBBc4n4ry==\nPrivate-MAC: 00ff\nQUJD";
        let redact = |line: &str| lines.redact(&redactor, line.as_bytes()).as_bytes().to_vec();
        let out = text.lines().map(redact).collect::<Vec<_>>().join(&b'\n');
        let out = String::from_utf8(out).unwrap();
        assert!(!out.contains("c4n4ry") && out.ends_with("\nQUJD"), "{out}");
    }

    #[test]
    fn a_key_goes_line_by_line() {
        let redactor = Redactor::standard();
        let text = "start\n-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMHcCAQEEIc4n4ry\nlog: c4n4ryAA==\n-----END EC PRIVATE KEY-----\nQUJD\n";
        let mut lines = LineContext::default();
        let out: Vec<String> = text
            .lines()
            .map(|line| {
                String::from_utf8_lossy(lines.redact(&redactor, line.as_bytes()).as_bytes()).into_owned()
            })
            .collect();
        let mark = "[redacted:private-key]";
        assert_eq!(
            out,
            ["start", mark, "Proc-Type: 4,ENCRYPTED", "", mark, mark, mark, "QUJD"].map(str::to_owned)
        );
    }

    /// Redacts a text line by line.
    fn redact_lines(text: &str) -> Vec<String> {
        let redactor = Redactor::standard();
        let mut lines = LineContext::default();
        let redact =
            |line: &str| String::from_utf8(lines.redact(&redactor, line.as_bytes()).as_bytes().to_vec());
        text.lines().map(redact).collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn a_key_in_code_or_json_goes_line_by_line() {
        let body = "MIIEc4n4ryAKCAQEAu5FqWmPtX8s3vZ1bQ2nYc7dKe0gH";
        for (before, behind) in
            [("  \"", "\","), ("  \"", "\\n\" +"), ("| ", " |"), ("key.pem:", ""), ("{\"text\": \"", "\"},")]
        {
            let lines =
                ["-----BEGIN RSA PRIVATE KEY-----", body, "c4n4ry==", "-----END RSA PRIVATE KEY-----"];
            let text: Vec<String> = lines.map(|line| format!("{before}{line}{behind}")).into();
            let out = redact_lines(&text.join("\n")).join("\n");
            assert!(!out.contains("c4n4ry"), "{out}");
        }
    }

    #[test]
    fn of_a_message_only_the_strings_of_a_key_go() {
        let body = "MIIEc4n4ryAKCAQEAu5FqWmPtX8s3vZ1bQ2nYc7dKe0gH";
        let line = |text: &str| format!(r#"{{"level":"info","msg":"{text}"}}"#);
        let text = ["-----BEGIN RSA PRIVATE KEY-----", body, "-----END RSA PRIVATE KEY-----", body].map(line);
        let mark = line(MARK);
        assert_eq!(redact_lines(&text.join("\n")), [mark.clone(), mark.clone(), mark, line(body)]);
        let json = redact_lines("-----BEGIN RSA PRIVATE KEY-----\n1234\nnull\n\"abcd\"");
        assert!(json[1..].iter().all(|line| is_json(line.as_bytes())), "{json:?}");
    }

    #[test]
    fn the_quick_look_sees_a_key_that_begins_with_an_unfinished_label() {
        let redactor = Redactor::standard();
        let message =
            |label: &str| format!(r#"["{label}","","MIIEc4n4ryAKCAQEAu5FqWmPtX8s3vZ1bQ2nYc7dKe0gH"]"#);
        let check = |label: &str, is_key: bool| {
            let message = message(label);
            let quick = redactor.redact(message.as_bytes());
            assert_eq!(quick.is_changed(), is_key, "{message}");
            assert_eq!(quick.as_bytes(), redactor.explain(message.as_bytes()).0.as_bytes());
        };
        check("-----BEGIN RSA PRIVATE KEY", true);
        check(r"-----BEGIN \\\\\\\\ RSA PRIVATE KEY", true);
        check(r"-----BEGIN RSA PRIVATE\u0020KEY", true);
        check("-----BEGIN RSA PRI\x1b[1mVATE KEY", true);
        check(r"-----BEGIN RSA PRI\\x1b[1mVATE KEY", true);
        check("-----BEGIN RSA PRI\x0eVATE KEY", false);
        check("\\\\u000a -----BEGIN RSA PRI\x0eVATE KEY", false);
        check("-----BEGIN a certificate, and in the same breath somebody speaks of a PRIVATE KEY", false);
    }

    #[test]
    fn a_yaml_block_goes_line_by_line() {
        let text = "db:\n  password: |\n    c4n4ry one\n\n    c4n4ry 2\n  user: anna\ntoken:\n  c4n4ry77\n  stays\npassword: >-\n  12345678";
        let out = redact_lines(text);
        assert!(!out.concat().contains("c4n4ry") && !out.concat().contains("12345678"), "{out:?}");
        assert_eq!((&*out[5], &*out[8]), ("  user: anna", "  stays"));
        assert_eq!(out[10], "  \"[redacted:password]\"");
    }
}
