//! Extracts what a listing shows of a message: what a request asks for, and why an answer failed.
//!
//! Returns slices of the message's own text if possible; the caller makes them inert and cuts them to the width.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::envelope::Envelope;
use crate::json::{fields, members, text};
use crate::protocol::method;

/// Returns the arguments of a call, or the parameters of another request or notification, as JSON.
///
/// None if they say no more than the method and the name.
#[must_use]
pub fn arguments(payload: &[u8]) -> Option<&str> {
    let [method, params] = fields(utf8(payload)?, ["method", "params"]).ok()?.values;
    // Without unescaping: no method compared here has an escape.
    let method = method?.get().trim_matches('"');
    let [call_arguments, uri, meta] = members(params, ["arguments", "uri", "_meta"]);
    let wanted = match method {
        method::TOOLS_CALL | method::PROMPTS_GET => call_arguments,
        // The address is the row's name already.
        method::RESOURCES_READ | method::RESOURCES_SUBSCRIBE | method::RESOURCES_UNSUBSCRIBE
            if uri.is_some() =>
        {
            None
        }
        // `_meta` has versions and tokens, not what is asked for.
        _ => params.filter(|params| meta.is_none() || !is_only_meta(params)),
    };
    wanted.map(RawValue::get).filter(|json| !matches!(*json, "{}" | "[]" | "null"))
}

/// Returns whether an object has no member but `_meta`.
fn is_only_meta(params: &RawValue) -> bool {
    let members: Result<std::collections::BTreeMap<Cow<'_, str>, &RawValue>, _> =
        serde_json::from_str(params.get());
    members.is_ok_and(|members| members.keys().all(|key| key == "_meta"))
}

/// Returns the reason that a failed answer gives: the error's message, or the first text of the result.
#[must_use]
pub fn failure(envelope: &Envelope, payload: &[u8]) -> Option<String> {
    if let Some(message) = &envelope.error_message {
        return Some(message.clone());
    }
    let [result] = fields(utf8(payload)?, ["result"]).ok()?.values;
    let [content, structured] = members(result, ["content", "structuredContent"]);
    let content: Vec<&RawValue> =
        content.and_then(|c| serde_json::from_str(c.get()).ok()).unwrap_or_default();
    let reason = content.into_iter().find_map(|part| text(members(Some(part), ["text"])[0]));
    reason.filter(|reason| !reason.trim().is_empty()).or_else(|| structured.map(|s| s.get().to_owned()))
}

fn utf8(payload: &[u8]) -> Option<&str> {
    std::str::from_utf8(payload).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_shown_by_its_arguments_or_parameters() {
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
    fn a_failure_is_shown_by_its_message_or_text() {
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
