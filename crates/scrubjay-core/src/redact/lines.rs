//! Secrets that go over several lines: a private key that a program prints comes line by line.

use std::borrow::Cow;

use memchr::memmem::find;

use super::shape::Class;
use super::{Redacted, Redactor, control};

/// No key has more lines than this.
const KEY_LINES_MAX: u32 = 256;
const MARK: &[u8] = b"[redacted:private-key]";
/// What the last line of a key holds.
const ENDS: [&[u8]; 2] = [b"-----END ", b"Private-MAC:"];

/// What the lines before tell of the next.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// So many lines may still belong to a key that has begun.
    key_lines: u32,
}

impl Lines {
    /// Takes the secrets out of the next line.
    pub fn redact<'a>(&mut self, redactor: &Redactor, line: &'a [u8]) -> Redacted<'a> {
        if !redactor.is_enabled() {
            return redactor.redact(line);
        }
        let shown = if control::are_in(line) { control::without(line) } else { Cow::Borrowed(line) };
        if self.key_lines > 0 {
            self.key_lines -= 1;
            if ENDS.iter().any(|end| find(&shown, end).is_some()) {
                self.key_lines = 0;
                return Redacted(Cow::Owned(MARK.to_vec()));
            }
            if is_body(&shown) {
                return Redacted(Cow::Owned(MARK.to_vec()));
            }
        }
        if begins_key(&shown) {
            self.key_lines = KEY_LINES_MAX;
        }
        redactor.redact(line)
    }
}

/// Tells whether the lines of a private key follow, of the usual form or of PuTTY's.
fn begins_key(line: &[u8]) -> bool {
    let is_pem = find(line, b"-----BEGIN ").is_some_and(|at| {
        find(&line[at..], b"PRIVATE KEY").is_some() && find(&line[at..], b"-----END ").is_none()
    });
    is_pem || find(line, b"Private-Lines:").is_some()
}

/// Tells whether a line ends in base64, as those of a key do, behind whatever a logger puts before them.
fn is_body(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    let start = line.iter().rposition(|b| b.is_ascii_whitespace()).map_or(0, |at| at + 1);
    let last = line[start..].trim_ascii_end();
    !last.is_empty() && last.iter().all(|b| Class::Base64.has(*b) || *b == b'=')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_putty_goes_line_by_line() {
        let redactor = Redactor::standard();
        let mut lines = Lines::default();
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
        let mut lines = Lines::default();
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
}
