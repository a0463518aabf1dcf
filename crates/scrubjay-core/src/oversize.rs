//! What is known of a line beyond the limit: its length, its hash, and enough to answer it.
//!
//! The line is scanned in bounded memory as it arrives. A peer that waits for an answer must get an error under the
//! right id, so the scanner extracts `id` and `method` from the top level of the object.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The most bytes of a top-level key or value that are buffered: ids and methods are shorter.
const TOKEN_BYTES_MAX: usize = 256;

/// A line that was too long to buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Oversize {
    /// Its length.
    pub bytes: u64,
    /// Its BLAKE3 hash in hex.
    pub hash: String,
    /// The message's id as raw JSON, if it had one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id: Option<String>,
    /// The message's method, if it had one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub method: Option<String>,
}

/// Returns the id of a request that is not valid JSON as a whole, such as one with `NaN` in it: its sender waits for an
/// answer under that id.
#[must_use]
pub fn id_of_request(line: &[u8]) -> Option<String> {
    let mut scanner = OversizeScanner::default();
    scanner.feed(line);
    let scanned = scanner.finish();
    scanned.id.filter(|_| scanned.method.is_some())
}

/// Scans a line that is not buffered.
#[derive(Clone, Debug, Default)]
pub(crate) struct OversizeScanner {
    bytes: u64,
    hasher: blake3::Hasher,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The string or scalar that is being read at the top level.
    token: Vec<u8>,
    /// The last key at the top level, until its value has been read.
    key: Vec<u8>,
    after_colon: bool,
    id: Option<String>,
    method: Option<String>,
}

impl OversizeScanner {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hasher.update(bytes);
        for &byte in bytes {
            self.scan(byte);
        }
    }

    pub(crate) fn finish(mut self) -> Oversize {
        self.end_value();
        Oversize {
            bytes: self.bytes,
            hash: self.hasher.finalize().to_hex().to_string(),
            id: self.id,
            method: self.method,
        }
    }

    fn scan(&mut self, byte: u8) {
        if self.in_string {
            self.buffer(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.buffer(byte);
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_value();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => {
                self.key = std::mem::take(&mut self.token);
                self.after_colon = true;
            }
            b',' if self.depth == 1 => self.end_value(),
            byte if byte.is_ascii_whitespace() => {}
            byte => self.buffer(byte),
        }
    }

    fn buffer(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() < TOKEN_BYTES_MAX {
            self.token.push(byte);
        }
    }

    fn end_value(&mut self) {
        let token = std::mem::take(&mut self.token);
        // A token that fills the buffer may have been cut, and half an id would be another id.
        if std::mem::take(&mut self.after_colon) && token.len() < TOKEN_BYTES_MAX {
            let text = String::from_utf8(token).ok().filter(|t| !t.is_empty());
            match self.key.as_slice() {
                // The id is copied into the answer, so it must be valid JSON.
                br#""id""# => {
                    self.id = text.filter(|t| t != "null" && serde_json::from_str::<&RawValue>(t).is_ok())
                }
                br#""method""# => self.method = text.and_then(|t| serde_json::from_str(&t).ok()),
                _ => {}
            }
        }
        self.key.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(pieces: &[&[u8]]) -> Oversize {
        let mut scanner = OversizeScanner::default();
        pieces.iter().for_each(|p| scanner.feed(p));
        scanner.finish()
    }

    #[test]
    fn the_id_is_found_at_any_position_in_the_object() {
        let line =
            br#"{"jsonrpc":"2.0","result":{"id":7,"a":["id",{"id":8}],"t":"\"id\":9}"} , "id" : "x\"1" }"#;
        for cut in 0..line.len() {
            let seen = scan(&[&line[..cut], &line[cut..]]);
            assert_eq!(seen.id.as_deref(), Some(r#""x\"1""#), "cut at {cut}");
            assert_eq!(seen.method, None);
            assert_eq!(seen.bytes, line.len() as u64);
            assert_eq!(seen.hash, blake3::hash(line).to_hex().to_string());
        }
        let seen = scan(&[br#"{"id":123456789012345678901234567890,"method":"tools/call","params":{}}"#]);
        assert_eq!(seen.id.as_deref(), Some("123456789012345678901234567890"));
        assert_eq!(seen.method.as_deref(), Some("tools/call"));
    }

    #[test]
    fn an_invalid_line_has_no_id() {
        assert_eq!(scan(&[b"]]]}}}} \"id\":1,,,::"]).id, None);
        assert_eq!(scan(&[br#"{"id":null}"#]).id, None);
    }
}
