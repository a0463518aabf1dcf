//! Secrets that extend over several lines or strings: a program prints a private key line by line, and a message may
//! hold it as a list of lines.

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

/// The lines after the beginning of a private key that may belong to it: a key of 4096 bits has about 50, and other
/// lines may stand between them. The limit ends a key whose last line never comes.
const KEY_LINES_MAX: u32 = 256;
/// The most lines of a YAML block that are taken for a secret, as in `block`.
const BLOCK_LINES_MAX: u32 = 64;
const MARK: &str = "[redacted:private-key]";
/// What precedes the label of a PEM block.
const BEGIN: &[u8] = b"-----BEGIN ";
/// What the label of a private key contains.
const PRIVATE: &[u8] = b"PRIVATE KEY";
/// The most bytes that one byte of a label takes in JSON inside JSON, escaped once for each level that is searched.
const ESCAPED_BYTES_MAX: usize = 64;
/// What the last line of a key contains, in PEM and in PuTTY's format.
const ENDS: [&[u8]; 2] = [b"-----END ", b"Private-MAC:"];

/// Base64 of at least this length at the end of a line belongs to the key, no matter what precedes it on the line.
const RUN_BYTES_MIN: usize = 16;
/// Base64 of at least this length belongs to the key in any member of a message, not only in the one the key began in.
const ANYWHERE_BYTES_MIN: usize = 32;

/// What must be remembered of earlier lines to redact the next one.
#[derive(Clone, Debug, Default)]
pub struct LineContext {
    keys: KeyLines,
    /// The name whose YAML value is expected on the next lines.
    awaited: Option<AwaitedValue>,
}

#[derive(Clone, Debug)]
struct AwaitedValue {
    /// The line that ends in the name.
    line: Vec<u8>,
    /// How many more lines may belong to the value.
    left: u32,
}

impl LineContext {
    /// Removes the secrets of the next line.
    pub fn redact<'a>(&mut self, redactor: &Redactor, line: &'a [u8]) -> Redacted<'a> {
        if !redactor.is_enabled() {
            return redactor.redact(line);
        }
        if let Some(redacted) = self.value_below(redactor, line) {
            return redacted;
        }
        let shown = control::as_shown(line);
        if self.awaited.is_none() {
            self.awaited = awaited_value(redactor, &shown);
        }
        let begins = begins_key(&shown);
        if !begins && self.keys.left == 0 {
            return redactor.redact(line);
        }
        // In a message only some of the strings belong to the key; in plain text the whole line does.
        if let Some(redacted) = redactor.redact_message(line, &mut self.keys) {
            return redacted;
        }
        if self.keys.is_next_line(&shown) {
            return line_as_mark(line);
        }
        if begins {
            // The detector redacts this line; the lines after it have no anchor and are recognised from this state.
            self.keys.begin(None);
        }
        redactor.redact(line)
    }

    /// Removes the value of a name at the end of an earlier line; `None` if this line has no such value.
    fn value_below<'a>(&mut self, redactor: &Redactor, line: &'a [u8]) -> Option<Redacted<'a>> {
        let mut awaited = self.awaited.take()?;
        let indent = |line: &[u8]| line.iter().take_while(|b| **b == b' ').count();
        let is_blank = line.trim_ascii().is_empty();
        if !is_blank && indent(line) <= indent(&awaited.line) {
            return None;
        }
        // A name whose value never comes must not have every later line checked for it.
        awaited.left -= 1;
        // Redacted together with the line of the name, so that `block` recognises the value.
        let text = [&awaited.line, b"\n".as_slice(), line].concat();
        let behind = awaited.line.len() + 1;
        let mut edits = redactor.plain_edits(&text, 0, false);
        edits.retain(|edit| edit.range.start >= behind);
        if awaited.left > 0 && (!edits.is_empty() || is_blank) {
            self.awaited = Some(awaited);
        }
        let first = edits.first()?;
        if is_json(line) {
            return Some(json_string_as_mark(line, &first.with));
        }
        let edits = edits
            .iter()
            .map(|edit| (edit.range.start - behind..edit.range.end - behind, edit.with.as_bytes()));
        Some(Redacted(Cow::Owned(edit::apply(line, edits))))
    }
}

fn awaited_value(redactor: &Redactor, line: &[u8]) -> Option<AwaitedValue> {
    let (name, is_block) = block::name_awaiting_value(line)?;
    let evidence = redactor.names.evidence(line.get(name)?)?;
    let left = if is_block { BLOCK_LINES_MAX } else { 1 };
    matches!(evidence, NameEvidence::Sensitive(_) | NameEvidence::Strong)
        .then(|| AwaitedValue { line: line.to_vec(), left })
}

/// Replaces a whole line by a mark; a line of JSON stays JSON.
fn line_as_mark<'a>(line: &[u8]) -> Redacted<'a> {
    if is_json(line) {
        json_string_as_mark(line, MARK)
    } else {
        Redacted(Cow::Owned(MARK.as_bytes().to_vec()))
    }
}

/// Replaces a line of JSON by a mark in quotes, which YAML accepts too.
fn json_string_as_mark<'a>(line: &[u8], mark: &str) -> Redacted<'a> {
    let indent = line.len() - line.trim_ascii_start().len();
    Redacted(Cow::Owned([&line[..indent], b"\"", escape(mark).as_bytes(), b"\""].concat()))
}

fn is_json(line: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(line).is_ok()
}

/// A private key that has begun: decides which of the following lines belong to it.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyLines {
    /// How many more lines may belong to it; 0 if no key has begun.
    left: u32,
    /// The name of the member it began in; `None` for an element of an array or a line of text.
    member: Option<Vec<u8>>,
}

impl KeyLines {
    fn begin(&mut self, member: Option<&[u8]>) {
        *self = Self { left: KEY_LINES_MAX, member: member.map(<[u8]>::to_vec) };
    }

    /// Returns the ranges of the next string of a message that belong to the key, and notes if a key begins there.
    pub(super) fn key_ranges(&mut self, text: &[u8], member: Option<&[u8]>) -> Vec<Range<usize>> {
        let mut taken = Vec::new();
        let mut at = 0;
        while self.left > 0 && at < text.len() {
            let end = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |newline| at + newline);
            let line = control::as_shown(&text[at..end]);
            self.left -= 1;
            let is_last = is_end(&line);
            if is_last || self.is_key_line(&line, member) {
                taken.push(at..at + text[at..end].trim_ascii_end().len());
            }
            if is_last {
                self.left = 0;
            }
            at = end + 1;
        }
        if begins_key(&control::as_shown(text)) {
            self.begin(member);
        }
        taken
    }

    /// Tells whether a line inside a string of a message belongs to the key.
    fn is_key_line(&self, line: &[u8], member: Option<&[u8]>) -> bool {
        let Some(run) = run(line) else { return false };
        let is_whole = run.start == line.len() - line.trim_ascii_start().len();
        if self.member.as_deref() != member {
            return is_whole && run.len() >= ANYWHERE_BYTES_MIN;
        }
        run.len() >= RUN_BYTES_MIN || is_whole && run.len() % 4 == 0 || line[..run.end].ends_with(b"=")
    }

    /// Tells whether a line of a program's output belongs to the key.
    fn is_next_line(&mut self, line: &[u8]) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        if is_end(line) {
            self.left = 0;
            return true;
        }
        // Short base64 must be a word of its own or follow a quote or `|`, as in code and tables.
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

/// Tells whether a text ends inside a private key, in PEM or in PuTTY's format.
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

/// Tells whether a private key may begin at an anchor in the raw bytes of a message. This is weaker than the checks of
/// the detector and of `begins_key`, because in raw bytes escapes may split or lengthen the label.
pub(super) fn may_begin_key(raw: &[u8]) -> bool {
    let near = &raw[..raw.len().min(BEGIN.len() + LABEL_BYTES_MAX * ESCAPED_BYTES_MAX)];
    find(near, b"PRIVATE").is_some()
}

/// Returns the base64 at the end of a line, ignoring the punctuation that code and JSON add after it.
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
    fn a_putty_key_is_redacted_line_by_line() {
        let redactor = Redactor::standard();
        let mut lines = LineContext::default();
        let text = "Private-Lines: 2\nAAAAc4n4ryc4n4ry\nBBBBc4n4ry==\nPrivate-MAC: 00ff\nQUJD";
        let redact = |line: &str| lines.redact(&redactor, line.as_bytes()).as_bytes().to_vec();
        let out = text.lines().map(redact).collect::<Vec<_>>().join(&b'\n');
        let out = String::from_utf8(out).unwrap();
        assert!(!out.contains("c4n4ry") && out.ends_with("\nQUJD"), "{out}");
    }

    #[test]
    fn a_private_key_is_redacted_line_by_line() {
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
    fn a_private_key_in_code_or_json_is_redacted_line_by_line() {
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
    fn only_the_strings_of_a_key_are_redacted_in_a_message() {
        let body = "MIIEc4n4ryAKCAQEAu5FqWmPtX8s3vZ1bQ2nYc7dKe0gH";
        let line = |text: &str| format!(r#"{{"level":"info","msg":"{text}"}}"#);
        let text = ["-----BEGIN RSA PRIVATE KEY-----", body, "-----END RSA PRIVATE KEY-----", body].map(line);
        let mark = line(MARK);
        assert_eq!(redact_lines(&text.join("\n")), [mark.clone(), mark.clone(), mark, line(body)]);
        let json = redact_lines("-----BEGIN RSA PRIVATE KEY-----\n1234\nnull\n\"abcd\"");
        assert!(json[1..].iter().all(|line| is_json(line.as_bytes())), "{json:?}");
    }

    #[test]
    fn the_raw_check_finds_a_key_that_begins_with_an_unfinished_label() {
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
    fn a_yaml_block_is_redacted_line_by_line() {
        let text = "db:\n  password: |\n    c4n4ry one\n\n    c4n4ry 2\n  user: anna\ntoken:\n  c4n4ry77\n  stays\npassword: >-\n  12345678";
        let out = redact_lines(text);
        assert!(!out.concat().contains("c4n4ry") && !out.concat().contains("12345678"), "{out:?}");
        assert_eq!((&*out[5], &*out[8]), ("  user: anna", "  stays"));
        assert_eq!(out[10], "  \"[redacted:password]\"");
    }
}
