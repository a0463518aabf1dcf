//! Secrets that go over several lines: a private key that a program prints comes line by line.

use std::borrow::Cow;

use memchr::memmem::find;

use super::shape::Class;
use super::{Redacted, Redactor, control};

/// No key has more lines than this.
const KEY_LINES_MAX: u32 = 256;
const MARK: &[u8] = b"[redacted:private-key]";

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
            if find(&shown, b"-----END ").is_some() {
                self.key_lines = 0;
                return Redacted(Cow::Owned(MARK.to_vec()));
            }
            if is_body(&shown) {
                return Redacted(Cow::Owned(MARK.to_vec()));
            }
        }
        if let Some(at) = find(&shown, b"-----BEGIN ")
            && find(&shown[at..], b"PRIVATE KEY").is_some()
            && find(&shown[at..], b"-----END ").is_none()
        {
            self.key_lines = KEY_LINES_MAX;
        }
        redactor.redact(line)
    }
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
