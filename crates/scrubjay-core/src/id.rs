//! Identifiers that people can read aloud: random, lower-case, without letters that look alike.
//!
//! The random bytes come from the caller.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Crockford's base 32, which has no i, l, o or u.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 16;

/// Identifies a tape: 80 random bits, written as 16 characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TapeId([u8; LENGTH]);

impl TapeId {
    /// Makes an id from ten random bytes.
    #[must_use]
    pub fn from_random(random: [u8; 10]) -> Self {
        let mut characters = [0; LENGTH];
        for (place, character) in characters.iter_mut().enumerate() {
            // Five bits may span two bytes; the last five end with the last byte.
            let bit = place * 5;
            let pair = u16::from_be_bytes([random[bit / 8], *random.get(bit / 8 + 1).unwrap_or(&0)]);
            *character = ALPHABET[usize::from(pair >> (11 - bit % 8) & 31)];
        }
        Self(characters)
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("the alphabet is ASCII")
    }

    /// Returns the first six characters, which are enough to tell a person's tapes apart.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.as_str()[..6]
    }
}

/// The text is not a tape id.
#[derive(Debug, PartialEq, Eq)]
pub struct NotATapeId;

impl fmt::Display for NotATapeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tape id is 16 characters of 0-9 and a-z")
    }
}

impl std::error::Error for NotATapeId {}

impl FromStr for TapeId {
    type Err = NotATapeId;

    fn from_str(text: &str) -> Result<Self, NotATapeId> {
        let characters: [u8; LENGTH] = text.as_bytes().try_into().map_err(|_| NotATapeId)?;
        if characters.iter().all(|c| ALPHABET.contains(c)) { Ok(Self(characters)) } else { Err(NotATapeId) }
    }
}

impl fmt::Display for TapeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for TapeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for TapeId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for TapeId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_random_bit_changes_the_id() {
        assert_eq!(TapeId::from_random([0; 10]).as_str(), "0000000000000000");
        assert_eq!(TapeId::from_random([255; 10]).as_str(), "zzzzzzzzzzzzzzzz");
        assert_eq!(TapeId::from_random([0, 0, 0, 0, 0, 0, 0, 0, 0, 1]).as_str(), "0000000000000001");
        assert_eq!(TapeId::from_random([8, 0, 0, 0, 0, 0, 0, 0, 0, 0]).as_str(), "1000000000000000");
    }

    #[test]
    fn an_id_round_trips_and_other_texts_are_refused() {
        let id = TapeId::from_random(*b"scrub jay!");
        assert_eq!(id.as_str().parse(), Ok(id));
        assert_eq!("short".parse::<TapeId>(), Err(NotATapeId));
        assert_eq!("../../etc/passwd".parse::<TapeId>(), Err(NotATapeId));
        assert_eq!("iiiiiiiiiiiiiiii".parse::<TapeId>(), Err(NotATapeId));
    }
}
