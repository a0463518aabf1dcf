//! HTTP headers that repeat parts of a message's body, `Mcp-Name` and `Mcp-Param-*`: what they repeat, and how a value
//! is written, read and compared. Pure.
//!
//! The front checks the headers of clients, the proxy also lets them follow a changed body, and the bridge writes them
//! for servers. When a header must be there, and what follows if it is wrong, is decided by each of them.

use axum::http::HeaderValue;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use scrubjay_core::message;
use scrubjay_core::protocol::{header, method};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::client_message::text_in;

/// The white space that HTTP allows around a header's value; it is not part of the value.
pub(crate) const OPTIONAL_SPACE: [char; 2] = [' ', '\t'];

/// What surrounds a value that is in base64.
const WRAPPING: (&str, &str) = ("=?base64?", "?=");

/// The parameter of a request that `Mcp-Name` repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedParam {
    Name,
    Uri,
    TaskId,
}

impl NamedParam {
    pub(crate) const ALL: [Self; 3] = [Self::Name, Self::Uri, Self::TaskId];

    /// Returns the parameter that `Mcp-Name` repeats for a method; `None` if requests with it have no such header.
    pub(crate) fn of(method: &str) -> Option<Self> {
        match method {
            method::TOOLS_CALL | method::PROMPTS_GET => Some(Self::Name),
            method::RESOURCES_READ => Some(Self::Uri),
            method::TASKS_GET | method::TASKS_UPDATE | method::TASKS_CANCEL => Some(Self::TaskId),
            _ => None,
        }
    }

    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Uri => "uri",
            Self::TaskId => "taskId",
        }
    }
}

/// An argument of a tool that is repeated in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MirroredArgument {
    /// The header's name after `Mcp-Param-`.
    pub(crate) header: String,
    /// The property's place among the arguments.
    pub(crate) path: Vec<String>,
}

/// Returns the arguments for which a tool's schema asks for a header (`x-mcp-header`), each with its own schema.
pub(crate) fn mirrored_arguments(schema: &Value) -> Vec<(MirroredArgument, &Value)> {
    let mut found = Vec::new();
    find_mirrored(schema, &mut Vec::new(), &mut found);
    found
}

fn find_mirrored<'s>(
    schema: &'s Value,
    path: &mut Vec<String>,
    found: &mut Vec<(MirroredArgument, &'s Value)>,
) {
    // Only what `properties` alone leads to has one fixed place among the arguments.
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        path.push(name.clone());
        if let Some(header) = property[header::SCHEMA_KEY].as_str() {
            found.push((MirroredArgument { header: header.to_owned(), path: path.clone() }, property));
        }
        find_mirrored(property, path, found);
        path.pop();
    }
}

/// Returns the text of a string, number or boolean for a header; `None` for other values.
pub(crate) fn header_text(value: &RawValue) -> Option<String> {
    match value.get().bytes().next()? {
        b'"' => message::string(Some(value)),
        b'{' | b'[' | b'n' => None,
        _ => Some(value.get().to_owned()),
    }
}

/// Encodes a text for a header: as it is or, if it has other than visible ASCII characters, in base64.
pub(crate) fn header_value(text: &str) -> HeaderValue {
    let (before, after) = WRAPPING;
    let plain =
        text.bytes().all(|b| matches!(b, 0x20..=0x7e)) && text.trim() == text && !text.starts_with(before);
    let value =
        if plain { text.to_owned() } else { format!("{before}{}{after}", BASE64_STANDARD.encode(text)) };
    HeaderValue::from_str(&value).expect("made of visible ASCII")
}

/// The value of a header that repeats a value of the body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MirroredValue {
    /// It was in base64, because a header could not hold it as it is: white space counts.
    Wrapped(String),
    /// The plain text, without the white space around it.
    Plain(String),
}

/// Parses the value of a header that repeats a value of the body; `None` if its base64 is invalid.
pub(crate) fn parse_mirrored(value: &str) -> Option<MirroredValue> {
    let value = value.trim_matches(OPTIONAL_SPACE);
    let (before, after) = WRAPPING;
    match value.strip_prefix(before).and_then(|v| v.strip_suffix(after)) {
        Some(wrapped) => {
            Some(MirroredValue::Wrapped(String::from_utf8(BASE64_STANDARD.decode(wrapped).ok()?).ok()?))
        }
        None => Some(MirroredValue::Plain(value.to_owned())),
    }
}

impl MirroredValue {
    /// Compares it with a value of the body: numbers by value, everything else by its text.
    pub(crate) fn matches(&self, argument: &str) -> bool {
        let (Self::Wrapped(stated) | Self::Plain(stated)) = self;
        match (text_in(Some(argument)), self) {
            (Some(text), Self::Wrapped(_)) => text == *stated,
            // HTTP drops white space around a header's value.
            (Some(text), Self::Plain(_)) => text.trim_matches(OPTIONAL_SPACE) == stated,
            (None, _) if argument == stated => true,
            (None, _) => {
                matches!((argument.parse::<f64>(), stated.parse::<f64>()), (Ok(a), Ok(b)) if a == b)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_values_are_read() {
        assert_eq!(parse_mirrored(" plain\t"), Some(MirroredValue::Plain("plain".to_owned())));
        assert_eq!(parse_mirrored("=?base64?w6k=?="), Some(MirroredValue::Wrapped("é".to_owned())));
        assert_eq!(parse_mirrored("=?base64?w6k?="), None);
        assert_eq!(parse_mirrored("=?base64?!!!!?="), None);
    }

    #[test]
    fn values_are_compared_character_by_character() {
        let check = |header: &str, body: &str, expected: bool| {
            assert_eq!(parse_mirrored(header).unwrap().matches(body), expected, "{header} {body}");
        };
        check("=?base64?IHVzLXdlc3Qx?=", "\" us-west1\"", true);
        check("=?base64?IHVzLXdlc3Qx?=", "\"us-west1\"", false);
        check("=?base64?dXMtd2VzdDE=?=", "\" us-west1\"", false);
        check("us-west1", "\"us-west1\"", true);
        check("  us-west1\t", "\"us-west1\"", true);
        check("us-west1", "\"\\u00a0us-west1\"", false);
        check("7.0", "7", true);
        check("true", "true", true);
        check("8", "7", false);
    }

    #[test]
    fn what_is_written_matches_its_body() {
        for text in ["plain", " padded\t", "é", "=?base64?x", "=?base64??=", "", "two\nlines"] {
            let body = Value::from(text).to_string();
            let value = header_value(text);
            let stated = parse_mirrored(value.to_str().expect("ASCII"));
            assert!(stated.is_some_and(|stated| stated.matches(&body)), "{body} {value:?}");
        }
    }
}
