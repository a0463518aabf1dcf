//! What replaces a secret, and how marks are recognised.
//!
//! A mark is never taken for a secret, so redacting twice gives the same as redacting once. No randomness is needed:
//! the nonce is derived from the value and the key, so equal values have equal ciphertexts, and no nonce is used for
//! two values.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use chacha20poly1305::aead::{Aead, KeyInit};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use memchr::memmem::Finder;
use serde_json::Value;

/// A key for hashing or encryption. Its `Debug` output hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct RedactionKey(pub [u8; 32]);

impl std::fmt::Debug for RedactionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// What to do with a secret.
#[derive(Clone, Debug, PartialEq)]
pub enum RedactionAction {
    /// Replace it by a mark that names the rule.
    Mark,
    /// Remove it: a member with its key, an element, a stretch of text.
    Remove,
    /// Replace it by this value.
    Replace(Value),
    /// Replace it by a keyed hash: equal values stay equal.
    Hash,
    /// Keep its last characters, a quarter of them at most.
    Mask {
        /// How many characters to keep.
        visible_chars: usize,
    },
    /// Encrypt it.
    Encrypt {
        /// The name of the key.
        key_id: String,
        /// The key itself.
        key: RedactionKey,
    },
}

/// What replaces a secret.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Replacement {
    Nothing,
    Text(String),
    Json(Value),
}

/// The most characters of a value that a mask shows.
const VISIBLE_CHARS_MAX: usize = 16;
/// The bytes of a hash in a mark: 128 bits, so that two values rarely share one.
const HASH_BYTES: usize = 16;

impl RedactionAction {
    /// Applies the action to a value.
    pub(super) fn apply(&self, rule: &str, value: &[u8], hash_key: &RedactionKey) -> Replacement {
        match self {
            Self::Mark => Replacement::Text(format!("[redacted:{}]", slug(rule))),
            Self::Remove => Replacement::Nothing,
            Self::Replace(Value::String(text)) => Replacement::Text(text.clone()),
            Self::Replace(value) => Replacement::Json(value.clone()),
            Self::Hash => Replacement::Text(hash(value, hash_key)),
            Self::Mask { visible_chars } => Replacement::Text(mask(value, *visible_chars)),
            Self::Encrypt { key_id, key } => Replacement::Text(encrypt(key_id, key, value)),
        }
    }

    /// Tells whether an object or array is replaced as a whole, instead of each string and number in it.
    pub(super) fn replaces_containers(&self) -> bool {
        matches!(self, Self::Remove | Self::Replace(_))
    }

    /// Tells whether a value is the result of this or another action.
    pub(super) fn is_redacted(&self, value: &[u8]) -> bool {
        is_mark(value) || matches!(self, Self::Replace(Value::String(text)) if text.as_bytes() == value)
    }
}

/// Hashes a value under a key.
pub(super) fn hash(value: &[u8], key: &RedactionKey) -> String {
    let hash = blake3::keyed_hash(&key.0, value);
    let hex = hash.to_hex();
    format!("[hash:{}]", &hex[..HASH_BYTES * 2])
}

fn mask(value: &[u8], visible_chars: usize) -> String {
    let text = String::from_utf8_lossy(value);
    let chars: Vec<char> = text.chars().collect();
    let visible = visible_chars.min(chars.len() / 4).min(VISIBLE_CHARS_MAX);
    let tail = chars[chars.len() - visible..].iter();
    // Only characters that `is_mark` accepts: others could end the mark early or need an escape.
    let tail: String = tail.map(|c| if c.is_ascii_alphanumeric() { *c } else { '*' }).collect();
    format!("[masked:{tail}]")
}

fn encrypt(key_id: &str, key: &RedactionKey, value: &[u8]) -> String {
    // A key of its own, so that hashing and encryption do not share one.
    let nonce_key = blake3::derive_key("scrubjay redaction nonce v1", &key.0);
    let digest = blake3::keyed_hash(&nonce_key, value);
    let mut nonce = [0; 24];
    nonce.copy_from_slice(&digest.as_bytes()[..24]);
    let cipher = XChaCha20Poly1305::new(&key.0.into());
    let sealed = cipher.encrypt(&XNonce::from(nonce), value).expect("a value is shorter than 256 GiB");
    format!("enc:v1:{key_id}:{}", STANDARD_NO_PAD.encode([&nonce[..], &sealed].concat()))
}

/// Writes the name of a rule as it appears in a mark.
fn slug(rule: &str) -> String {
    // Other characters could end the mark early or need an escape in JSON.
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') { c } else { '-' };
    // 64: `is_mark` accepts no longer name, because a bracket far away could belong to other text.
    rule.chars().take(64).map(plain).collect()
}

/// Tells whether a value is a mark.
pub(super) fn is_mark(value: &[u8]) -> bool {
    let within = |open: &str| value.strip_prefix(open.as_bytes()).and_then(|rest| rest.strip_suffix(b"]"));
    let named = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    if let Some(rule) = within("[redacted:") {
        return (1..=64).contains(&rule.len()) && rule.iter().all(named);
    }
    if let Some(hex) = within("[hash:") {
        return hex.len() == HASH_BYTES * 2 && hex.iter().all(u8::is_ascii_hexdigit);
    }
    if let Some(tail) = within("[masked:") {
        return tail.len() <= VISIBLE_CHARS_MAX
            && tail.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'*');
    }
    let Some(rest) = value.strip_prefix(b"enc:v1:") else { return false };
    let Some(colon) = memchr::memchr(b':', rest) else { return false };
    let sealed = &rest[colon + 1..];
    // 54 digits of base64: the nonce (24 bytes) and the authentication tag (16) of an empty value.
    sealed.len() >= 54 && sealed.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

/// Lists the marks in a message in their order; an encrypted value as `[encrypted:KEY]` with the name of its key.
///
/// Values that were removed or replaced by a text of the user's have no mark.
#[must_use]
pub fn marks(payload: &[u8]) -> Vec<String> {
    // Made once, because listings call this for every message.
    static OPENINGS: LazyLock<[Finder<'static>; 3]> =
        LazyLock::new(|| ["[redacted:", "[hash:", "[masked:"].map(Finder::new));
    static SEALED: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("enc:v1:"));
    let mut found = Vec::new();
    for opening in OPENINGS.iter() {
        for at in opening.find_iter(payload) {
            // A rule's name has at most 64 bytes, then comes the bracket.
            let rest = &payload[at..payload.len().min(at + opening.needle().len() + 65)];
            let end = memchr::memchr(b']', rest).map_or(rest.len(), |end| end + 1);
            if is_mark(&rest[..end]) {
                found.push((at, String::from_utf8_lossy(&rest[..end]).into_owned()));
            }
        }
    }
    for at in SEALED.find_iter(payload) {
        let is_inside =
            |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b':' | b'+' | b'/' | b'_' | b'-' | b'.');
        let rest = &payload[at..];
        let end = rest.iter().position(|b| !is_inside(b)).unwrap_or(rest.len());
        if is_mark(&rest[..end]) {
            let key = rest[7..end].split(|b| *b == b':').next().unwrap_or_default();
            found.push((at, format!("[encrypted:{}]", String::from_utf8_lossy(key))));
        }
    }
    found.sort_unstable();
    found.into_iter().map(|(_, mark)| mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(action: &RedactionAction, value: &str) -> String {
        match action.apply("my rule", value.as_bytes(), &RedactionKey([7; 32])) {
            Replacement::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn marks_are_listed_in_their_order() {
        let encrypt = RedactionAction::Encrypt { key_id: "k1".to_owned(), key: RedactionKey([1; 32]) };
        let (mark, hash) = (left(&RedactionAction::Mark, "x"), left(&RedactionAction::Hash, "x"));
        let text =
            format!(r#"{{"a":"{}","b":"Bearer {mark} and {hash}","c":[redacted:]}}"#, left(&encrypt, "x"));
        assert_eq!(marks(text.as_bytes()), ["[encrypted:k1]", "[redacted:my-rule]", &hash]);
        assert!(marks(b"nothing [hash:12] [redacted:").is_empty());
    }

    #[test]
    fn every_mark_is_recognised_as_a_mark() {
        let encrypt = RedactionAction::Encrypt { key_id: "default".to_owned(), key: RedactionKey([1; 32]) };
        for action in [
            RedactionAction::Mark,
            RedactionAction::Hash,
            RedactionAction::Mask { visible_chars: 4 },
            encrypt,
        ] {
            for value in ["", "hunter2", "a much longer secret value 12345"] {
                let mark = left(&action, value);
                assert!(is_mark(mark.as_bytes()), "{mark}");
                assert!(value.is_empty() || !mark.contains(value), "{mark}");
            }
        }
        for value in ["", "[redacted:]", "[redacted:a b]", "[hash:12]", "enc:v1:k:short", "[masked:x", "x"] {
            assert!(!is_mark(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn a_hash_needs_the_key() {
        let one = hash(b"1234", &RedactionKey([1; 32]));
        assert_eq!(one, hash(b"1234", &RedactionKey([1; 32])));
        assert_ne!(one, hash(b"1234", &RedactionKey([2; 32])));
        assert_ne!(one, hash(b"1235", &RedactionKey([1; 32])));
    }

    #[test]
    fn a_mask_shows_a_quarter_at_most() {
        assert_eq!(left(&RedactionAction::Mask { visible_chars: 4 }, "hunter2"), "[masked:2]");
        assert_eq!(left(&RedactionAction::Mask { visible_chars: 4 }, "4111111111111234"), "[masked:1234]");
    }

    #[test]
    fn an_encrypted_value_can_be_decrypted_with_the_key() {
        let action = RedactionAction::Encrypt { key_id: "k1".to_owned(), key: RedactionKey([9; 32]) };
        let mark = left(&action, "hunter2");
        let sealed = STANDARD_NO_PAD.decode(mark.strip_prefix("enc:v1:k1:").unwrap()).unwrap();
        let cipher = XChaCha20Poly1305::new(&[9; 32].into());
        let nonce = XNonce::try_from(&sealed[..24]).unwrap();
        assert_eq!(cipher.decrypt(&nonce, &sealed[24..]).unwrap(), b"hunter2");
    }
}
