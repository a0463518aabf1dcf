//! Picks values out of a JSON object without building a tree of it.
//!
//! `serde_json` does the parsing; nested values stay raw text, so depth costs no stack and numbers keep their spelling.
//! `tree`, `path` and `edit` find and change values in place.

pub(crate) mod canonical;
pub(crate) mod edit;
pub(crate) mod escape;
pub(crate) mod fold;
pub(crate) mod path;
pub(crate) mod strict;
pub(crate) mod tree;

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The values found for a fixed set of keys.
pub(crate) struct Fields<'a, const N: usize> {
    /// The value of each key, in the order of the request; of a repeated key the last value.
    pub values: [Option<&'a RawValue>; N],
    /// Whether one of the keys occurs more than once.
    pub repeated: bool,
}

/// Reads the named members of the object that `json` holds.
pub(crate) fn fields<'a, const N: usize>(
    json: &'a str,
    keys: [&str; N],
) -> Result<Fields<'a, N>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let found = reader.deserialize_map(FieldsVisitor { keys })?;
    reader.end()?;
    Ok(found)
}

/// Reads the named members of a raw value; all `None` if it is not an object.
pub(crate) fn members<'a, const N: usize>(
    value: Option<&'a RawValue>,
    keys: [&str; N],
) -> [Option<&'a RawValue>; N] {
    value.and_then(|v| fields(v.get(), keys).ok()).map_or([None; N], |f| f.values)
}

/// Reads every member of an object with this key, which may occur more than once.
pub(crate) fn repeated<'a>(json: &'a str, key: &str) -> Result<Vec<&'a RawValue>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let found = reader.deserialize_map(RepeatedVisitor { key })?;
    reader.end()?;
    Ok(found)
}

/// Reads every member of an object with its key.
pub(crate) fn all(json: &str) -> Result<Vec<(String, &RawValue)>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let found = reader.deserialize_map(AllVisitor)?;
    reader.end()?;
    Ok(found)
}

/// Returns the string in a raw value.
pub(crate) fn text(value: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(value?.get()).ok()
}

struct FieldsVisitor<'k, const N: usize> {
    keys: [&'k str; N],
}

impl<'de, const N: usize> Visitor<'de> for FieldsVisitor<'_, N> {
    type Value = Fields<'de, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = [None; N];
        let mut repeated = false;
        while let Some(index) = map.next_key_seed(KeyIndex { keys: &self.keys })? {
            match index {
                Some(index) => {
                    repeated |= values[index].is_some();
                    values[index] = Some(map.next_value::<&'de RawValue>()?);
                }
                None => {
                    // Checks the syntax of the other members without keeping them.
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Fields { values, repeated })
    }
}

struct RepeatedVisitor<'k> {
    key: &'k str,
}

impl<'de> Visitor<'de> for RepeatedVisitor<'_> {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some(index) = map.next_key_seed(KeyIndex { keys: &[self.key] })? {
            let value = map.next_value::<&'de RawValue>()?;
            values.extend(index.map(|_| value));
        }
        Ok(values)
    }
}

struct AllVisitor;

impl<'de> Visitor<'de> for AllVisitor {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(member) = map.next_entry()? {
            all.push(member);
        }
        Ok(all)
    }
}

struct KeyIndex<'k> {
    keys: &'k [&'k str],
}

impl<'de> serde::de::DeserializeSeed<'de> for KeyIndex<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyIndex<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    // Keys arrive here unescaped: every JSON reader takes `\u0069d` for `id`.
    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.keys.iter().position(|k| *k == key))
    }
}
