//! The keys that checkpoints are signed with: ed25519, a file of one line in hex, readable by its owner alone.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use scrubjay_tape::checkpoint::Signature;

use scrubjay_config::owned_file;

const SEED_BYTES: usize = 32;
/// What the line of a key file begins with.
const MARK: &str = "scrubjay-ed25519-key ";

/// A key that signs.
pub(super) struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    fn of_seed(seed: &[u8; SEED_BYTES]) -> anyhow::Result<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed);
        Ok(Self(pair.map_err(|e| anyhow::anyhow!("the key cannot be used: {e}"))?))
    }

    pub(super) fn sign(&self, message: &[u8]) -> Signature {
        let public_key = hex(self.0.public_key().as_ref());
        Signature { public_key, signature: hex(self.0.sign(message).as_ref()) }
    }
}

/// Makes a key in a file that is not there yet.
pub(super) fn create(path: &Path) -> anyhow::Result<SigningKey> {
    let mut seed = [0; SEED_BYTES];
    getrandom::fill(&mut seed).context("cannot get random numbers from the system")?;
    let key = SigningKey::of_seed(&seed)?;
    // `create_new`, because an existing file may be a key that is in use.
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot make a new key in {}", path.display()))?;
    file.write_all(format!("{MARK}{}\n", hex(&seed)).as_bytes())?;
    // So that no checkpoint is signed with a key that a loss of power takes away.
    file.sync_all()?;
    Ok(key)
}

/// Reads a key from a file that only its owner can read.
pub(super) fn read(path: &Path) -> anyhow::Result<SigningKey> {
    let named = || format!("cannot use the key in {}", path.display());
    let text = owned_file::read_secret(path).with_context(|| match path.exists() {
        true => named(),
        false => format!("{}: make one with --new-key", named()),
    })?;
    let text = String::from_utf8_lossy(&text);
    let seed = text.trim().strip_prefix(MARK).and_then(bytes);
    let seed = seed.with_context(|| format!("{}: it is not a key that --new-key makes", named()))?;
    SigningKey::of_seed(&seed)
}

/// A key that proves who signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicKey([u8; SEED_BYTES]);

impl PublicKey {
    /// Takes a key as it was typed: in hex, or a file that holds that.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let of_file = || bytes(std::fs::read_to_string(text).ok()?.trim());
        let key = bytes(text).or_else(of_file).map(Self);
        key.context("a public key is 64 hexadecimal digits, or a file that holds them")
    }

    /// Tells whether a signature is of this message and by this key.
    pub(crate) fn has_signed(&self, message: &[u8], signature: &Signature) -> bool {
        let Some(signature) = bytes::<64>(&signature.signature) else { return false };
        UnparsedPublicKey::new(&ED25519, &self.0).verify(message, &signature).is_ok()
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn bytes<const N: usize>(hex: &str) -> Option<[u8; N]> {
    if hex.len() != N * 2 || !hex.is_ascii() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, digits) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_valid_for_one_message_and_one_key() {
        let [one, other] = [[7; SEED_BYTES], [8; SEED_BYTES]].map(|seed| SigningKey::of_seed(&seed).unwrap());
        let (signed, by_other) = (one.sign(b"root"), other.sign(b"root"));
        let key = PublicKey::parse(&signed.public_key).unwrap();
        assert!(key.has_signed(b"root", &signed));
        assert!(!key.has_signed(b"roof", &signed) && !key.has_signed(b"root", &by_other));
        let claimed = Signature { public_key: signed.public_key.clone(), ..by_other };
        assert!(!key.has_signed(b"root", &claimed), "the key that a signature claims must not be trusted");
        assert!(!key.has_signed(b"root", &Signature { signature: "00".to_owned(), ..signed }));
        assert!(PublicKey::parse("zz").is_err());
    }

    #[test]
    fn a_key_file_must_be_private() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let made = create(&path).unwrap().sign(b"m");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read(&path).unwrap().sign(b"m"), made);
        assert!(create(&path).is_err(), "a key is never written over");
        for mode in [0o644, 0o640, 0o660, 0o606] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let message = format!("{:#}", read(&path).err().unwrap());
            assert!(message.contains("chmod 600"), "{message}");
        }
    }
}
