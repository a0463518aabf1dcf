//! What a message says, short enough for one line: what was asked, and what went wrong.
//!
//! For listings. Slices of the message's own text where that is possible; whoever prints them makes them
//! inert and cuts them to the room there is.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::envelope::Envelope;
use crate::json::{fields, members, text};
use crate::protocol::method;

/// Returns what a request or notification asks for, as JSON: a call's arguments, else its parameters.
///
/// Nothing where there is no more to it than method and name.
#[must_use]
pub fn arguments(payload: &[u8]) -> Option<&str> {
    let [method, params] = fields(utf8(payload)?, ["method", "params"]).ok()?.values;
    // As it is written: none that matters here has an escape in it.
    let method = method?.get().trim_matches('"');
    let [call_arguments, uri, meta] = members(params, ["arguments", "uri", "_meta"]);
    let wanted = match method {
        method::TOOLS_CALL | method::PROMPTS_GET => call_arguments,
        // The name of the row is all there is to it.
        method::RESOURCES_READ | method::RESOURCES_SUBSCRIBE | method::RESOURCES_UNSUBSCRIBE
            if uri.is_some() =>
        {
            None
        }
        // Versions and tokens are not what was asked.
        _ => params.filter(|params| meta.is_none() || !is_only_meta(params)),
    };
    wanted.map(RawValue::get).filter(|json| !matches!(*json, "{}" | "[]" | "null"))
}

/// Tells whether an object has no other member than `_meta`.
fn is_only_meta(params: &RawValue) -> bool {
    let members: Result<std::collections::BTreeMap<Cow<'_, str>, &RawValue>, _> =
        serde_json::from_str(params.get());
    members.is_ok_and(|members| members.keys().all(|key| key == "_meta"))
}

/// Returns what a failed answer says went wrong: the error's message, or the first text of the result.
#[must_use]
pub fn failure(envelope: &Envelope, payload: &[u8]) -> Option<String> {
    if let Some(message) = &envelope.error_message {
        return Some(message.clone());
    }
    let [result] = fields(utf8(payload)?, ["result"]).ok()?.values;
    let [content, structured] = members(result, ["content", "structuredContent"]);
    let content: Vec<&RawValue> =
        content.and_then(|c| serde_json::from_str(c.get()).ok()).unwrap_or_default();
    let said = content.into_iter().find_map(|part| text(members(Some(part), ["text"])[0]));
    said.filter(|said| !said.trim().is_empty()).or_else(|| structured.map(|s| s.get().to_owned()))
}

fn utf8(payload: &[u8]) -> Option<&str> {
    std::str::from_utf8(payload).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_is_the_arguments_or_the_parameters() {
        let check = |line: &str, expected: Option<&str>| {
            assert_eq!(arguments(line.as_bytes()), expected, "{line}");
        };
        check(
            r#"{"method":"tools/call","params":{"name":"t","arguments":{"b":1,"a":[2]},"_meta":{}}}"#,
            Some(r#"{"b":1,"a":[2]}"#),
        );
        check(r#"{"method":"tools/call","params":{"name":"t","arguments":{}}}"#, None);
        check(r#"{"method":"tools/call","params":{"name":"t"}}"#, None);
        check(r#"{"method":"resources/read","params":{"uri":"file:///a"}}"#, None);
        check(r#"{"method":"tools/list","params":{"_meta":{"v":1}}}"#, None);
        check(
            r#"{"method":"tools/list","params":{"_meta":{},"cursor":"2"}}"#,
            Some(r#"{"_meta":{},"cursor":"2"}"#),
        );
        check(r#"{"method":"notifications/progress","params":{"progress":1}}"#, Some(r#"{"progress":1}"#));
        check(r#"{"id":1,"result":{}}"#, None);
        check("not JSON", None);
    }

    #[test]
    fn a_failure_says_what_went_wrong() {
        let check = |line: &str, expected: Option<&str>| {
            let envelope = Envelope::parse(line.as_bytes());
            assert_eq!(failure(&envelope, line.as_bytes()).as_deref(), expected, "{line}");
        };
        check(r#"{"id":1,"error":{"code":-1,"message":"no such thing"}}"#, Some("no such thing"));
        check(
            r#"{"id":1,"result":{"isError":true,"content":[{"type":"image"},{"type":"text","text":"on fire"}]}}"#,
            Some("on fire"),
        );
        check(
            r#"{"id":1,"result":{"isError":true,"structuredContent":{"error":"E"}}}"#,
            Some(r#"{"error":"E"}"#),
        );
        check(r#"{"id":1,"result":{"isError":true}}"#, None);
    }
}
