//! Headers that repeat parts of a body (`Mcp-Method`, `Mcp-Name`, `Mcp-Param-*`), with rules in force: they must match
//! the body, and follow it when rules change it. Pure.

use std::collections::HashMap;

use axum::http::{HeaderMap, HeaderName};
use scrubjay_core::message::{self, Parts};
use scrubjay_core::protocol::header::{METHOD, NAME, PARAM_PREFIX};
use serde_json::value::RawValue;

use crate::front::http::Refusal;
use crate::front::http::headers::{mismatch, text};
use crate::mirrored_headers::{MirroredValue, NamedParam, header_text, header_value, parse_mirrored};

/// How deep arguments are searched; a header cannot repeat deeper ones.
const DEPTH_MAX: usize = 16;

/// Returns a header whose name some servers take for one of the protocol's: those that turn headers into variables
/// (CGI, WSGI) do not distinguish `_` from `-`.
pub(super) fn disguised(headers: &HeaderMap) -> Option<&HeaderName> {
    headers.keys().find(|name| {
        let read = name.as_str().replace('_', "-");
        read != name.as_str()
            && (read.starts_with("mcp-") || read == "content-type" || read == "content-encoding")
    })
}

/// Removes the headers that repeat parts of a body, for use with another body.
pub(super) fn remove(headers: &mut HeaderMap) {
    let names = headers.keys().filter(|name| is_about_body(name)).cloned();
    for name in names.collect::<Vec<_>>() {
        headers.remove(name);
    }
}

fn is_about_body(name: &HeaderName) -> bool {
    let name = name.as_str();
    name == METHOD || name == NAME || name.starts_with(PARAM_PREFIX)
}

/// Checks that the headers match the body.
pub(super) fn check(headers: &HeaderMap, line: &[u8]) -> Result<(), Refusal> {
    if let Some(name) = disguised(headers) {
        return Err(mismatch(None, name.as_str()));
    }
    let Some(parts) = parts(line) else {
        // Not a message: the rules refuse it. A batch has several methods and names, so no header can match it.
        let repeating = headers.keys().find(|name| is_about_body(name) && line.first() == Some(&b'['));
        return repeating.map_or(Ok(()), |name| Err(mismatch(None, name.as_str())));
    };
    let wrong = |name: &str| Err(mismatch(parts.id.map(|id| id.get()), name));
    // Servers differ on which of two equal headers counts.
    let twice = headers.keys().find(|name| is_about_body(name) && headers.get_all(*name).iter().count() > 1);
    if let Some(name) = twice {
        return wrong(name.as_str());
    }
    let says = |method: &str| text(headers, METHOD) == Some(method);
    if headers.contains_key(METHOD) && !parts.method.as_deref().is_some_and(says) {
        return wrong("Mcp-Method");
    }
    if headers.contains_key(NAME) && named(headers, &parts).is_none() {
        return wrong("Mcp-Name");
    }
    let mut repeated = headers.keys().filter(|name| name.as_str().starts_with(PARAM_PREFIX)).peekable();
    if repeated.peek().is_none() {
        return Ok(());
    }
    let arguments = arguments(&parts);
    match repeated.find(|name| argument_paths(headers, name, &arguments).is_empty()) {
        Some(name) => wrong(name.as_str()),
        None => Ok(()),
    }
}

/// Returns the headers for a message that rules changed, or refuses it if it is unclear which argument a header
/// repeats.
pub(super) fn update(headers: &HeaderMap, before: &[u8], after: &[u8]) -> Result<HeaderMap, Refusal> {
    let mut updated = headers.clone();
    let (Some(before), Some(after)) = (parts(before), parts(after)) else { return Ok(updated) };
    let mut put = |name: &HeaderName, value: Option<&RawValue>| match value.and_then(header_text) {
        Some(value) => drop(updated.insert(name, header_value(&value))),
        None => drop(updated.remove(name)),
    };
    if let Some(key) = named(headers, &before) {
        put(&HeaderName::from_static(NAME), after.param(key));
    }
    let (old, new) = (arguments(&before), arguments(&after));
    for name in headers.keys().filter(|name| name.as_str().starts_with(PARAM_PREFIX)) {
        let mut values = argument_paths(headers, name, &old).into_iter().map(|path| new.get(path).copied());
        let first = values.next().flatten();
        // Several arguments had the header's value. If they differ now, it is unknown which of them it repeats.
        if values.any(|other| other.map(RawValue::get) != first.map(RawValue::get)) {
            return Err(mismatch(before.id.map(|id| id.get()), name.as_str()));
        }
        put(name, first);
    }
    Ok(updated)
}

fn parts(line: &[u8]) -> Option<Parts<'_>> {
    std::str::from_utf8(line).ok().and_then(|line| Parts::of(line).ok())
}

fn stated_value(headers: &HeaderMap, name: &str) -> Option<MirroredValue> {
    text(headers, name).and_then(parse_mirrored)
}

/// Returns the parameter that `Mcp-Name` repeats.
fn named(headers: &HeaderMap, parts: &Parts<'_>) -> Option<&'static str> {
    let stated_value = stated_value(headers, NAME)?;
    NamedParam::ALL
        .into_iter()
        .map(NamedParam::key)
        .find(|key| parts.param(key).is_some_and(|name| stated_value.matches(name.get())))
}

/// The keys that lead to an argument.
type ArgumentPath = Vec<String>;

/// Returns the arguments that a header could repeat: plain values, not within arrays.
fn arguments<'a>(parts: &Parts<'a>) -> HashMap<ArgumentPath, &'a RawValue> {
    let mut found = HashMap::new();
    let mut open: Vec<(ArgumentPath, &RawValue)> =
        parts.param("arguments").map(|all| (Vec::new(), all)).into_iter().collect();
    while let Some((path, value)) = open.pop() {
        if value.get().starts_with('{') && path.len() < DEPTH_MAX {
            let members = message::all_members(value.get()).unwrap_or_default();
            open.extend(members.into_iter().map(|(key, value)| ([path.clone(), vec![key]].concat(), value)));
        } else if header_text(value).is_some() {
            found.insert(path, value);
        }
    }
    found
}

/// Returns the paths of the arguments that a header may repeat: those with its value.
fn argument_paths<'p>(
    headers: &HeaderMap,
    name: &HeaderName,
    arguments: &'p HashMap<ArgumentPath, &RawValue>,
) -> Vec<&'p ArgumentPath> {
    let Some(stated_value) = stated_value(headers, name.as_str()) else { return Vec::new() };
    arguments.iter().filter(|(_, value)| stated_value.matches(value.get())).map(|(path, _)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            (name.parse::<HeaderName>().expect("a name"), value.parse().expect("a value"))
        });
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(name, value);
        }
        map
    }

    fn call(name: &str, arguments: &str) -> Vec<u8> {
        let params = format!(r#"{{"name":"{name}","arguments":{arguments}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#).into_bytes()
    }

    #[test]
    fn headers_say_what_the_body_says() {
        let body = call("get", r#"{"region":"eu","in":{"n":7}}"#);
        let check = |pairs: &[(&str, &str)], expected: bool| {
            assert_eq!(check(&map(pairs), &body).is_ok(), expected, "{pairs:?}");
        };
        check(&[("mcp-method", "tools/call"), ("mcp-name", "get"), ("mcp-param-n", "7")], true);
        check(&[("mcp-param-region", "=?base64?ZXU=?=")], true);
        check(&[("mcp-param-region", "us")], false);
        check(&[("mcp-param-region", "eu"), ("mcp-param-region", "eu")], false);
        check(&[("mcp-method", "tools/call"), ("mcp-method", "tools/call")], false);
        check(&[("mcp-name", "other")], false);
        check(&[("mcp_name", "get")], false);
        check(&[("content_encoding", "identity")], false);
    }

    #[test]
    fn a_batch_has_no_name() {
        let batch = [b"[".as_slice(), &call("get", "{}"), b"]"].concat();
        assert!(super::check(&map(&[("mcp-name", "get")]), &batch).is_err());
        assert!(super::check(&map(&[("x-own", "get")]), &batch).is_ok());
    }

    #[test]
    fn headers_follow_a_change() {
        let stated = [("mcp-method", "tools/call"), ("mcp-name", "get"), ("mcp-param-region", "eu")];
        let before = r#"{"region":"eu","lang":"de"}"#;
        let check = |before: &str, (name, after): (&str, &str), expected: Option<&[(&str, &str)]>| {
            let followed = update(&map(&stated), &call("get", before), &call(name, after)).ok();
            assert_eq!(followed, expected.map(map), "{after}");
        };
        let region = |value| [stated[0], stated[1], ("mcp-param-region", value)];
        check(before, ("get", r#"{"region":"eu","lang":"fr"}"#), Some(&stated));
        check(before, ("get", r#"{"region":"us","lang":"de"}"#), Some(&region("us")));
        check(before, ("get", r#"{"region":"é","lang":"de"}"#), Some(&region("=?base64?w6k=?=")));
        check(before, ("get", r#"{"lang":"de"}"#), Some(&stated[..2]));
        check(before, ("put", before), Some(&[stated[0], ("mcp-name", "put"), stated[2]]));
        // Which of the two the header repeats is not known.
        let both = r#"{"region":"eu","lang":"eu"}"#;
        check(both, ("get", r#"{"region":"us","lang":"us"}"#), Some(&region("us")));
        check(both, ("get", r#"{"region":"eu","lang":"fr"}"#), None);
    }
}
