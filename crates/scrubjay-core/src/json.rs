//! Picks values out of a JSON object without building a tree of it.
//!
//! `serde_json` does the reading; nested values stay raw text, so depth costs no stack and numbers keep
//! their spelling. Who must find or change places within a text goes by `tree`, `path` and `edit`.

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
    /// One place a key, in the order asked for; the last one wins where a key stands twice.
    pub values: [Option<&'a RawValue>; N],
    /// Whether one of the keys stood there more than once.
    pub repeated: bool,
}

/// Reads the named members of the object that `json` holds.
pub(crate) fn fields<'a, const N: usize>(
    json: &'a str,
    keys: [&str; N],
) -> Result<Fields<'a, N>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let found = reader.deserialize_map(Picker { keys })?;
    reader.end()?;
    Ok(found)
}

/// Reads the named members of a raw value; none where it is no object.
pub(crate) fn members<'a, const N: usize>(
    value: Option<&'a RawValue>,
    keys: [&str; N],
) -> [Option<&'a RawValue>; N] {
    value.and_then(|v| fields(v.get(), keys).ok()).map_or([None; N], |f| f.values)
}

/// Reads every member of an object that goes by one key; a key may stand there more than once.
pub(crate) fn repeated<'a>(json: &'a str, key: &str) -> Result<Vec<&'a RawValue>, serde_json::Error> {
    serde_json::Deserializer::from_str(json).deserialize_map(Gatherer { key })
}

/// Reads every member of an object with its key.
pub(crate) fn all(json: &str) -> Result<Vec<(String, &RawValue)>, serde_json::Error> {
    serde_json::Deserializer::from_str(json).deserialize_map(All)
}

/// Returns the string a raw value holds.
pub(crate) fn text(value: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(value?.get()).ok()
}

struct Picker<'k, const N: usize> {
    keys: [&'k str; N],
}

impl<'de, const N: usize> Visitor<'de> for Picker<'_, N> {
    type Value = Fields<'de, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = [None; N];
        let mut repeated = false;
        while let Some(place) = map.next_key_seed(Place { keys: &self.keys })? {
            match place {
                Some(place) => {
                    repeated |= values[place].is_some();
                    values[place] = Some(map.next_value::<&'de RawValue>()?);
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Fields { values, repeated })
    }
}

struct Gatherer<'k> {
    key: &'k str,
}

impl<'de> Visitor<'de> for Gatherer<'_> {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while let Some(place) = map.next_key_seed(Place { keys: &[self.key] })? {
            let value = map.next_value::<&'de RawValue>()?;
            values.extend(place.map(|_| value));
        }
        Ok(values)
    }
}

struct All;

impl<'de> Visitor<'de> for All {
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

struct Place<'k> {
    keys: &'k [&'k str],
}

impl<'de> serde::de::DeserializeSeed<'de> for Place<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Place<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.keys.iter().position(|k| *k == key))
    }
}
