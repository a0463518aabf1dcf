//! Reverses the action `encrypt`: replaces marks by the values that they hold.
//!
//! It follows the path of redaction, through JSON, its strings and the JSON in those, so that values are escaped as
//! before. A mark that cannot be decrypted stays and is reported; every byte outside a mark stays.

use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use chacha20poly1305::aead::{Aead, KeyInit};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use super::action::RedactionKey;
use super::engine::DEPTH_MAX;
use crate::json::edit;
use crate::json::escape::{Unescaped, escape};
use crate::json::tree::{NodeKind, Tree};

const PREFIX: &[u8] = b"enc:v1:";
const NONCE_BYTES: usize = 24;
/// The base64 of the nonce (24 bytes) and the authentication tag (16) of an empty value.
const SEALED_CHARS_MIN: usize = 54;
/// The most characters after a mark that may look like part of it. Each is a possible end, and each end costs a
/// decryption.
const BEHIND_MAX: usize = 128;

/// A line with its values decrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decrypted {
    /// The line.
    pub line: Vec<u8>,
    /// The number of values that were decrypted.
    pub found: usize,
    /// The marks that could not be decrypted, which stay in the line.
    pub failed: Vec<UnreadableMark>,
}

/// A mark that could not be decrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableMark {
    /// The name of its key.
    pub key_id: String,
    /// Why.
    pub why: UnreadableReason,
}

/// Why a mark could not be decrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnreadableReason {
    /// The caller has no key of this name.
    NoKey,
    /// The mark is cut off or not base64.
    Damaged,
    /// The value was encrypted with another key, or was changed since.
    WrongKey,
}

/// Replaces the marks in a line by their decrypted values; `key` returns the key of a name.
pub fn decrypt(line: &[u8], key: &mut dyn FnMut(&str) -> Option<RedactionKey>) -> Decrypted {
    let mut reading = Decryption { key, found: 0, failed: Vec::new() };
    // With a backslash, the prefix itself may be escaped.
    let edits = if memchr::memmem::find(line, PREFIX).is_some() || memchr::memchr(b'\\', line).is_some() {
        reading.edits(line, 0)
    } else {
        Vec::new()
    };
    let (found, failed) = (reading.found, reading.failed);
    let edits = edits.iter().map(|(range, with)| (range.clone(), with.as_slice()));
    Decrypted { line: edit::apply(line, edits), found, failed }
}

struct Decryption<'k> {
    key: &'k mut dyn FnMut(&str) -> Option<RedactionKey>,
    found: usize,
    failed: Vec<UnreadableMark>,
}

type Edits = Vec<(Range<usize>, Vec<u8>)>;

impl Decryption<'_> {
    fn edits(&mut self, text: &[u8], depth: usize) -> Edits {
        let looks_like_json = matches!(text.trim_ascii_start().first(), Some(b'{' | b'[' | b'"'));
        // The depth that redaction searches.
        match Tree::parse(text).filter(|_| looks_like_json && depth < DEPTH_MAX) {
            Some(tree) => self.in_json(text, &tree, depth),
            None => self.in_text(text),
        }
    }

    fn in_json(&mut self, text: &[u8], tree: &Tree, depth: usize) -> Edits {
        let strings = tree.nodes.iter().flat_map(|node| {
            let inside = (node.kind == NodeKind::String).then(|| node.inside());
            node.key.clone().into_iter().chain(inside)
        });
        let mut edits = Edits::new();
        for string in strings {
            let plain = Unescaped::new(&text[string.clone()]);
            for (range, with) in self.edits(&plain.text, depth + 1) {
                let range = plain.original(&range);
                // A value that is not UTF-8 cannot be escaped, so its bytes are restored as they were.
                let with =
                    String::from_utf8(with).map_or_else(|e| e.into_bytes(), |s| escape(&s).into_bytes());
                edits.push((range.start + string.start..range.end + string.start, with));
            }
        }
        edits.sort_by_key(|(range, _)| range.start);
        edits
    }

    fn in_text(&mut self, text: &[u8]) -> Edits {
        let mut edits = Edits::new();
        let mut done = 0;
        for at in memchr::memmem::find_iter(text, PREFIX) {
            if at < done {
                continue;
            }
            let Some((key_id, sealed)) = mark_at(text, at) else { continue };
            match self.open(key_id, &text[sealed.clone()]) {
                Ok((plain, chars)) => {
                    self.found += 1;
                    done = sealed.start + chars;
                    edits.push((at..done, plain));
                }
                Err(why) => {
                    done = sealed.end;
                    self.failed.push(UnreadableMark { key_id: key_id.to_owned(), why });
                }
            }
        }
        edits
    }

    /// Decrypts a mark; returns its value, and how many of the characters belong to the mark.
    fn open(&mut self, key_id: &str, sealed: &[u8]) -> Result<(Vec<u8>, usize), UnreadableReason> {
        let key = (self.key)(key_id).ok_or(UnreadableReason::NoKey)?;
        let cipher = XChaCha20Poly1305::new(&key.0.into());
        let shortest = sealed.len().saturating_sub(BEHIND_MAX).max(SEALED_CHARS_MIN);
        let mut why = UnreadableReason::Damaged;
        for chars in (shortest..=sealed.len()).rev() {
            let Ok(bytes) = STANDARD_NO_PAD.decode(&sealed[..chars]) else { continue };
            let nonce = XNonce::try_from(&bytes[..NONCE_BYTES]).expect("it is long enough");
            match cipher.decrypt(&nonce, &bytes[NONCE_BYTES..]) {
                Ok(plain) => return Ok((plain, chars)),
                Err(_) => why = UnreadableReason::WrongKey,
            }
        }
        Err(why)
    }
}

/// Reads the mark at a position: the name of its key, and the range of the encrypted value.
fn mark_at(text: &[u8], at: usize) -> Option<(&str, Range<usize>)> {
    let start = at + PREFIX.len();
    let colon = start + memchr::memchr(b':', &text[start..])?;
    let id = std::str::from_utf8(&text[start..colon]).ok()?;
    let is_id = !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    let length = text[colon + 1..]
        .iter()
        .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
        .count();
    is_id.then_some((id, colon + 1..colon + 1 + length))
}

#[cfg(test)]
mod tests {
    use super::super::{RedactionAction, RedactionConfig, RedactionPattern, RedactionRule, Redactor};
    use super::*;

    const KEY: RedactionKey = RedactionKey([7; 32]);

    fn redactor() -> Redactor {
        let action = RedactionAction::Encrypt { key_id: "main".to_owned(), key: KEY };
        let pattern = RedactionPattern::Regex("jay-[0-9]+".to_owned());
        let rules = vec![RedactionRule { name: "jays".to_owned(), pattern, action: action.clone() }];
        Redactor::new(&RedactionConfig { action, rules, ..RedactionConfig::default() }).unwrap()
    }

    fn read(line: &[u8]) -> Decrypted {
        decrypt(line, &mut |id| (id == "main").then_some(KEY))
    }

    #[test]
    fn decryption_restores_a_line_byte_for_byte() {
        for line in [
            r#"{"password":"hun\"ter\n2","n":1.0}"#,
            r#"{ "token" : "caf\u00e9 \/ x" , "plain": "\/" }"#,
            r#"{"text":"{\"password\":\"a\\\"b\\\\c\"}"}"#,
            r#"[{"a":"{\"b\":\"{\\\"token\\\":\\\"deep 1\\\"}\"}"}]"#,
            "DB_PASSWORD=hunter2 and ghp_abcdefghijklmnopqrstuvwxyz0123456789, twice",
            "postgres://ann:s3cretpassword@db/birds",
            "xjay-42y jay-7",
            "nothing here",
            "",
        ] {
            let hidden = redactor();
            let hidden = hidden.redact(line.as_bytes());
            let back = read(hidden.as_bytes());
            assert_eq!(back.failed, [], "{line}");
            // Only needless escapes within a secret are not restored.
            let expected = line.replace(r"caf\u00e9 \/ x", "café / x");
            assert_eq!(String::from_utf8_lossy(&back.line), expected);
            assert_eq!(back.found > 0, hidden.is_changed(), "{line}");
        }
    }

    #[test]
    fn a_mark_that_cannot_be_decrypted_is_kept_and_reported() {
        let hidden = redactor();
        let hidden = hidden.redact(br#"{"a":{"password":"one"},"b":{"password":"two"}}"#).as_bytes().to_vec();
        let text = String::from_utf8(hidden.clone()).unwrap();
        let check = |line: &str, found: usize, why: &[UnreadableReason]| {
            let back = read(line.as_bytes());
            assert_eq!(back.found, found, "{line}");
            assert_eq!(back.failed.iter().map(|f| f.why.clone()).collect::<Vec<_>>(), why, "{line}");
            back
        };
        let other = text.replacen("enc:v1:main:", "enc:v1:old:", 1);
        let back = check(&other, 1, &[UnreadableReason::NoKey]);
        assert!(
            back.line.starts_with(&other.as_bytes()[..60]) && back.line.ends_with(br#"{"password":"two"}}"#)
        );
        let changed = text.replacen("main:", "main:AAAA", 1);
        check(&changed, 1, &[UnreadableReason::WrongKey]);
        let token = text.split('"').find(|part| part.starts_with("enc:")).unwrap();
        check(&token[..40], 0, &[UnreadableReason::Damaged]);
        let back = decrypt(&hidden, &mut |_| Some(RedactionKey([8; 32])));
        assert_eq!((back.line, back.found, back.failed.len()), (hidden, 0, 2));
        // Text that only mentions a mark.
        check("enc:v1:<key_id>:<base64> and enc:v1: too", 0, &[]);
    }
}
