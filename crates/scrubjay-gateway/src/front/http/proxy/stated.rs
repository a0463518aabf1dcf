//! What headers say of a body, with rules in force: the same as the body, before it is changed and after. Pure.

use std::collections::HashMap;

use axum::http::{HeaderMap, HeaderName};
use scrubjay_core::message::{self, Parts};
use serde_json::value::RawValue;

use crate::bridge::mirrored::spelled;
use crate::bridge::outgoing::safe;
use crate::front::http::Refusal;
use crate::front::http::headers::{StatedValue, mismatch, stated, text};

const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";
/// What begins the name of a header that repeats an argument.
const PARAM: &str = "mcp-param-";
/// What `Mcp-Name` may repeat.
const NAMES: [&str; 3] = ["name", "uri", "taskId"];
/// Arguments that lie deeper are not looked for.
const DEPTH_MAX: usize = 16;

/// Returns a header that some servers read under a name of the protocol though it is spelled otherwise: to those that
/// pass headers on as variables (CGI, WSGI), `_` is `-`.
pub(super) fn disguised(headers: &HeaderMap) -> Option<&HeaderName> {
    headers.keys().find(|name| {
        let read = name.as_str().replace('_', "-");
        read != name.as_str()
            && (read.starts_with("mcp-") || read == "content-type" || read == "content-encoding")
    })
}

/// Takes out what speaks of one body, for another one that goes the same way.
pub(super) fn remove(headers: &mut HeaderMap) {
    let names = headers.keys().filter(|name| is_about_body(name)).cloned();
    for name in names.collect::<Vec<_>>() {
        headers.remove(name);
    }
}

fn is_about_body(name: &HeaderName) -> bool {
    let name = name.as_str();
    name == METHOD || name == NAME || name.starts_with(PARAM)
}

/// Checks that headers which say what a body is about do not say other than the body.
pub(super) fn check(headers: &HeaderMap, line: &[u8]) -> Result<(), Refusal> {
    if let Some(name) = disguised(headers) {
        return Err(mismatch(None, name.as_str()));
    }
    let Some(parts) = parts(line) else {
        // What is no message is refused by its own name; a batch has no name that a header could say.
        let told = headers.keys().find(|name| is_about_body(name) && line.first() == Some(&b'['));
        return told.map_or(Ok(()), |name| Err(mismatch(None, name.as_str())));
    };
    let wrong = |name: &str| Err(mismatch(parts.id.map(|id| id.get()), name));
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
    let mut repeated = headers.keys().filter(|name| name.as_str().starts_with(PARAM)).peekable();
    if repeated.peek().is_none() {
        return Ok(());
    }
    let arguments = arguments(&parts);
    match repeated.find(|name| places(headers, name, &arguments).is_empty()) {
        Some(name) => wrong(name.as_str()),
        None => Ok(()),
    }
}

/// Returns the headers for a message that rules changed, where it is clear what each of them is to say.
pub(super) fn follow(headers: &HeaderMap, before: &[u8], after: &[u8]) -> Result<HeaderMap, Refusal> {
    let mut following = headers.clone();
    let (Some(before), Some(after)) = (parts(before), parts(after)) else { return Ok(following) };
    let mut put = |name: &HeaderName, value: Option<&RawValue>| match value.and_then(spelled) {
        Some(value) => drop(following.insert(name, safe(&value))),
        None => drop(following.remove(name)),
    };
    if let Some(key) = named(headers, &before) {
        put(&HeaderName::from_static(NAME), after.param(key));
    }
    let (old, new) = (arguments(&before), arguments(&after));
    for name in headers.keys().filter(|name| name.as_str().starts_with(PARAM)) {
        let mut values = places(headers, name, &old).into_iter().map(|place| new.get(place).copied());
        let first = values.next().flatten();
        if values.any(|other| other.map(RawValue::get) != first.map(RawValue::get)) {
            return Err(mismatch(before.id.map(|id| id.get()), name.as_str()));
        }
        put(name, first);
    }
    Ok(following)
}

fn parts(line: &[u8]) -> Option<Parts<'_>> {
    std::str::from_utf8(line).ok().and_then(|line| Parts::of(line).ok())
}

fn said(headers: &HeaderMap, name: &str) -> Option<StatedValue> {
    text(headers, name).and_then(stated)
}

/// Returns the key of what `Mcp-Name` repeats.
fn named(headers: &HeaderMap, parts: &Parts<'_>) -> Option<&'static str> {
    let said = said(headers, NAME)?;
    NAMES.into_iter().find(|key| parts.param(key).is_some_and(|name| said.says(name.get())))
}

/// Where an argument lies: the keys that lead to it.
type Place = Vec<String>;

/// Returns the arguments that a header could repeat: those that names alone lead to.
fn arguments<'a>(parts: &Parts<'a>) -> HashMap<Place, &'a RawValue> {
    let mut found = HashMap::new();
    let mut open: Vec<(Place, &RawValue)> =
        parts.param("arguments").map(|all| (Vec::new(), all)).into_iter().collect();
    while let Some((place, value)) = open.pop() {
        if value.get().starts_with('{') && place.len() < DEPTH_MAX {
            let members = message::all_members(value.get()).unwrap_or_default();
            open.extend(members.into_iter().map(|(key, value)| ([place.clone(), vec![key]].concat(), value)));
        } else if spelled(value).is_some() {
            found.insert(place, value);
        }
    }
    found
}

/// Returns where the arguments lie that a header may repeat: those that are what it says.
fn places<'p>(
    headers: &HeaderMap,
    name: &HeaderName,
    arguments: &'p HashMap<Place, &RawValue>,
) -> Vec<&'p Place> {
    let Some(said) = said(headers, name.as_str()) else { return Vec::new() };
    arguments.iter().filter(|(_, value)| said.says(value.get())).map(|(place, _)| place).collect()
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
            let followed = follow(&map(&stated), &call("get", before), &call(name, after)).ok();
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
