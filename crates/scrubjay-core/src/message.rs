//! Takes messages apart into slices of their text, and replaces some of these slices.
//!
//! A gateway must change an id, a name or a token, and nothing else. [`Parts`] are slices of the original text;
//! [`Splice`] replaces some of them and keeps every other byte.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::envelope::JsonId;
use crate::json::fold::fold;
use crate::json::{all, fields, members, repeated, text};

/// A JSON-RPC message as slices of its text.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    /// The id, unless it is null.
    pub id: Option<&'a RawValue>,
    /// Whether there is an id, even null.
    pub has_id: bool,
    /// The method of a request or notification.
    pub method: Option<String>,
    /// The parameters.
    pub params: Option<&'a RawValue>,
    /// The result of an answer.
    pub result: Option<&'a RawValue>,
    /// The error of an answer.
    pub error: Option<&'a RawValue>,
    /// Whether `jsonrpc` is `"2.0"`.
    pub is_version_2: bool,
}

impl<'a> Parts<'a> {
    /// Takes a message apart.
    ///
    /// # Errors
    /// The text is not a JSON object.
    pub fn of(json: &'a str) -> Result<Self, serde_json::Error> {
        let [version, id, method, params, result, error] =
            fields(json, ["jsonrpc", "id", "method", "params", "result", "error"])?.values;
        Ok(Self {
            id: id.filter(|id| id.get() != "null"),
            has_id: id.is_some(),
            method: text(method),
            params,
            result,
            error,
            is_version_2: version.map(RawValue::get) == Some("\"2.0\""),
        })
    }

    /// Returns the id, spelled as it was.
    #[must_use]
    pub fn json_id(&self) -> Option<JsonId> {
        self.id.map(|id| JsonId::from_raw(id.get()))
    }

    /// Returns a member of the parameters.
    #[must_use]
    pub fn param(&self, key: &str) -> Option<&'a RawValue> {
        member(self.params, key)
    }

    /// Returns a member of the parameters' `_meta`.
    #[must_use]
    pub fn meta(&self, key: &str) -> Option<&'a RawValue> {
        member(self.param("_meta"), key)
    }
}

/// Returns a member of an object.
#[must_use]
pub fn member<'a>(object: Option<&'a RawValue>, key: &str) -> Option<&'a RawValue> {
    let [found] = members(object, [key]);
    found
}

/// Some members of an object, found in one pass over it.
#[derive(Clone, Copy, Debug)]
pub struct Members<'a, const N: usize> {
    /// The value of each key, in the order of the keys; of a repeated key the last, as with [`member`].
    pub values: [Option<&'a RawValue>; N],
    /// Whether one of the keys occurs more than once.
    pub is_repeated: bool,
    /// Whether the object can be parsed, as [`is_readable`] returns it.
    pub is_readable: bool,
}

/// Finds several members of an object in one pass.
#[must_use]
pub fn members_of<'a, const N: usize>(object: &'a RawValue, keys: [&str; N]) -> Members<'a, N> {
    match fields(object.get(), keys) {
        Ok(found) => Members { values: found.values, is_repeated: found.repeated, is_readable: true },
        Err(_) => {
            let is_readable = !object.get().starts_with('{');
            Members { values: [None; N], is_repeated: false, is_readable }
        }
    }
}

/// Returns all members of an object with this key, because JSON readers differ on which of several counts.
#[must_use]
pub fn members_named<'a>(object: Option<&'a RawValue>, key: &str) -> Vec<&'a RawValue> {
    object.and_then(|o| repeated(o.get(), key).ok()).unwrap_or_default()
}

/// Returns all members of an object with their keys; none if it is not a valid object.
#[must_use]
pub fn all_members(object: &str) -> Option<Vec<(String, &RawValue)>> {
    all(object).ok()
}

/// Returns all members of an object that some JSON reader takes for this key: some readers ignore case.
#[must_use]
pub fn members_like<'a>(object: &'a str, key: &str) -> Vec<(String, &'a RawValue)> {
    let folded = |key: &str| fold(&Cow::Borrowed(key.as_bytes())).into_owned();
    let wanted = folded(key);
    let mut members = all_members(object).unwrap_or_default();
    members.retain(|(key, _)| folded(key) == wanted);
    members
}

/// Returns whether the members of a value can be parsed; a value that is not an object has none.
#[must_use]
pub fn is_readable(value: &RawValue) -> bool {
    !value.get().starts_with('{') || fields(value.get(), []).is_ok()
}

/// Returns the string that a raw value is.
#[must_use]
pub fn string(value: Option<&RawValue>) -> Option<String> {
    text(value)
}

/// Returns a text as a JSON string.
#[must_use]
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns the elements of an array.
#[must_use]
pub fn elements(array: Option<&RawValue>) -> Vec<&RawValue> {
    array.and_then(|a| serde_json::from_str(a.get()).ok()).unwrap_or_default()
}

/// Returns whether a value is an error of JSON-RPC: an object whose code is an integer.
#[must_use]
pub fn is_error(error: &RawValue) -> bool {
    member(Some(error), "code").is_some_and(|code| code.get().parse::<i64>().is_ok())
}

/// A text with some of its slices replaced.
#[derive(Debug)]
pub struct Splice<'a> {
    base: &'a str,
    /// Start, end, replacement.
    edits: Vec<(usize, usize, String)>,
}

impl<'a> Splice<'a> {
    /// Begins with a text.
    #[must_use]
    pub fn new(base: &'a str) -> Self {
        Self { base, edits: Vec::new() }
    }

    /// Replaces a slice of the text by another.
    ///
    /// # Panics
    /// The slice is not part of the text.
    #[must_use]
    pub fn replace(self, slice: Option<&RawValue>, with: &str) -> Self {
        self.replace_text(slice.map(RawValue::get), with)
    }

    /// Replaces a slice of the text, given as text, by another.
    ///
    /// # Panics
    /// The slice is not part of the text.
    #[must_use]
    pub fn replace_text(mut self, slice: Option<&str>, with: &str) -> Self {
        if let Some(slice) = slice {
            let start = self.offset(slice);
            self.edits.push((start, start + slice.len(), with.to_owned()));
        }
        self
    }

    /// Adds a member at the beginning of an object within the text.
    #[must_use]
    pub fn add_member(mut self, object: Option<&RawValue>, key: &str, value: &str) -> Self {
        if let Some(object) = object.filter(|o| o.get().starts_with('{')) {
            let at = self.offset(object.get()) + 1;
            let is_empty = object.get()[1..].trim_start().starts_with('}');
            // All members are added at one place. If the object is empty, the last one gets no comma, so an earlier one
            // needs its comma now.
            let earlier = self.edits.iter_mut().rev().find(|(start, end, _)| (*start, *end) == (at, at));
            if let Some((.., earlier)) = earlier.filter(|_| is_empty) {
                earlier.push(',');
            }
            let comma = if is_empty { "" } else { "," };
            self.edits.push((at, at, format!("{}:{value}{comma}", serde_json::Value::from(key))));
        }
        self
    }

    /// Returns the text with its replacements.
    #[must_use]
    pub fn finish(mut self) -> String {
        // A stable sort: members that were added at one place keep their order.
        self.edits.sort_by_key(|(start, ..)| *start);
        let mut out = String::with_capacity(self.base.len() + 64);
        let mut at = 0;
        for (start, end, with) in &self.edits {
            out.push_str(&self.base[at..*start]);
            out.push_str(with);
            at = *end;
        }
        out.push_str(&self.base[at..]);
        out
    }

    fn offset(&self, slice: &str) -> usize {
        // The slice of another text wraps to an offset beyond the end, which the assertion catches.
        let start = (slice.as_ptr() as usize).wrapping_sub(self.base.as_ptr() as usize);
        assert!(start + slice.len() <= self.base.len(), "a slice of another text");
        start
    }
}

/// Writes a request.
#[must_use]
pub fn request(id: &str, method: &str, params: Option<&str>) -> String {
    let method = serde_json::Value::from(method);
    match params {
        Some(params) => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#),
        None => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method}}}"#),
    }
}

/// Writes a notification.
#[must_use]
pub fn notification(method: &str, params: Option<&str>) -> String {
    let method = serde_json::Value::from(method);
    match params {
        Some(params) => format!(r#"{{"jsonrpc":"2.0","method":{method},"params":{params}}}"#),
        None => format!(r#"{{"jsonrpc":"2.0","method":{method}}}"#),
    }
}

/// Writes an answer with a result.
#[must_use]
pub fn result(id: &str, result: &str) -> String {
    // In one piece: a text that grows on demand takes up to twice its bytes, and results may be long.
    [r#"{"jsonrpc":"2.0","id":"#, id, r#","result":"#, result, "}"].concat()
}

/// The longest id that is kept and repeated in our own answers. Real ones are numbers and UUIDs; without a limit a
/// client could make us keep megabytes.
pub const ID_BYTES_MAX: usize = 1024;

/// Writes an answer with an error in JSON. An id longer than [`ID_BYTES_MAX`] becomes null.
#[must_use]
pub fn raw_error(id: &str, error: &str) -> String {
    let id = if id.len() > ID_BYTES_MAX { "null" } else { id };
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}

/// Writes an error object.
#[must_use]
pub fn error(code: i64, message: &str, data: Option<&serde_json::Value>) -> String {
    let mut error = serde_json::json!({ "code": code, "message": message });
    if let Some(data) = data {
        error["data"] = data.clone();
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_replaced_changes() {
        let line = r#"{ "params" : {"n":1.0, "_meta":{"progressToken":"p" ,"x":1e400},"name":"a"}, "id":7,"method":"tools/call","jsonrpc":"2.0"}"#;
        let parts = Parts::of(line).unwrap();
        let changed = Splice::new(line)
            .replace(parts.id, "42")
            .replace(parts.meta("progressToken"), "42")
            .replace(parts.param("name"), "\"b\"")
            .add_member(parts.param("_meta"), "y", "true")
            .finish();
        assert_eq!(
            changed,
            r#"{ "params" : {"n":1.0, "_meta":{"y":true,"progressToken":42 ,"x":1e400},"name":"b"}, "id":42,"method":"tools/call","jsonrpc":"2.0"}"#
        );
    }

    #[test]
    fn all_members_with_a_repeated_key_are_found() {
        let parts = Parts::of(r#"{"params":{"a":1,"b":2,"\u0061":{"a":3}}}"#).unwrap();
        let found = members_named(parts.params, "a");
        assert_eq!(found.iter().map(|v| v.get()).collect::<Vec<_>>(), ["1", r#"{"a":3}"#]);
        assert!(members_named(parts.param("b"), "a").is_empty());
    }

    #[test]
    fn members_are_added_to_empty_objects_too() {
        let parts = Parts::of(r#"{"params":{ }}"#).unwrap();
        let params = parts.params.unwrap();
        assert_eq!(Splice::new(params.get()).add_member(Some(params), "a", "1").finish(), r#"{"a":1 }"#);
        let added = ["a", "b", "c"]
            .into_iter()
            .fold(Splice::new(params.get()), |splice, key| splice.add_member(Some(params), key, "1"));
        assert_eq!(added.finish(), r#"{"a":1,"b":1,"c":1 }"#);
    }
}
