//! Repeats arguments in headers where a modern server wants that (`x-mcp-header` in a tool's schema). Pure.
//!
//! The tools are learned from the lists that the bridge passes on: a client on a stream of lines sends no headers, and
//! the server refuses a call without them.

use std::collections::HashMap;

use hyper::header::{HeaderMap, HeaderName};
use scrubjay_core::envelope::Envelope;
use scrubjay_core::message::{self, Parts};
use scrubjay_core::protocol::header::{PARAM_PREFIX, SCHEMA_KEY};
use scrubjay_core::protocol::method;
use serde_json::Value;

use crate::mirrored_headers::{header_text, header_value, mirrored_arguments};

/// The most tools that are remembered; others are called without such headers.
const TOOLS_MAX: usize = 10_000;

/// The arguments that go into headers, by tool.
#[derive(Debug, Default)]
pub(super) struct MirroredHeaders {
    /// By tool: the path of each argument, and its header.
    tools: HashMap<String, Vec<(Vec<String>, HeaderName)>>,
}

impl MirroredHeaders {
    /// Learns from a list of tools.
    pub(super) fn learn(&mut self, answer: &[u8]) {
        let Ok(text) = std::str::from_utf8(answer) else { return };
        // Most servers have none: their lists need not be parsed.
        if self.tools.is_empty() && !text.contains(SCHEMA_KEY) {
            return;
        }
        let Ok(answer) = serde_json::from_str::<Value>(text) else { return };
        for tool in answer["result"]["tools"].as_array().into_iter().flatten() {
            let Some(name) = tool["name"].as_str() else { continue };
            let marked = marked_arguments(&tool["inputSchema"]);
            if marked.is_empty() {
                self.tools.remove(name);
            } else if self.tools.len() < TOOLS_MAX {
                self.tools.insert(name.to_owned(), marked);
            }
        }
    }

    /// Returns the headers that repeat the arguments of a call.
    pub(super) fn headers(&self, message: &Envelope, body: &[u8]) -> HeaderMap {
        let called = message.name.as_ref().filter(|_| message.method.as_deref() == Some(method::TOOLS_CALL));
        let Some(marked) = called.and_then(|tool| self.tools.get(tool)) else { return HeaderMap::new() };
        let parts = std::str::from_utf8(body).ok().and_then(|text| Parts::of(text).ok());
        let arguments = parts.and_then(|parts| parts.param("arguments"));
        let headers = marked.iter().filter_map(|(path, header)| {
            let value = path.iter().fold(arguments, |within, key| message::member(within, key))?;
            Some((header.clone(), header_value(&header_text(value)?)))
        });
        headers.collect()
    }
}

/// Returns the path of each argument that goes into a header, and the header. Only texts, whole numbers and booleans do,
/// and only if the header's name is valid.
fn marked_arguments(schema: &Value) -> Vec<(Vec<String>, HeaderName)> {
    let mirrored = mirrored_arguments(schema).into_iter();
    let plain = mirrored
        .filter(|(_, property)| matches!(property["type"].as_str(), Some("string" | "integer" | "boolean")));
    plain
        .filter_map(|(argument, _)| {
            let header = format!("{PARAM_PREFIX}{}", argument.header).parse().ok()?;
            Some((argument.path, header))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_arguments_are_repeated() {
        let list = r#"{"id":1,"result":{"tools":[{"name":"t","inputSchema":{"properties":{
            "region":{"type":"string","x-mcp-header":"Region"},
            "plain":{"type":"string"},
            "ratio":{"type":"number","x-mcp-header":"Ratio"},
            "bad":{"type":"string","x-mcp-header":"a b"},
            "in":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}}}]}}"#;
        let mut mirrored = MirroredHeaders::default();
        mirrored.learn(list.as_bytes());
        let check = |mirrored: &MirroredHeaders, tool: &str, arguments: &str, expected: &[(&str, &str)]| {
            let call = format!(
                r#"{{"id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
            );
            let headers = mirrored.headers(&Envelope::parse(call.as_bytes()), call.as_bytes());
            let mut said: Vec<_> = headers.iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap())).collect();
            said.sort_unstable();
            assert_eq!(said, expected, "{call}");
        };
        let arguments = r#"{"region":"é","plain":"x","ratio":1,"bad":"x","in":{"n":10}}"#;
        check(&mirrored, "t", arguments, &[("mcp-param-n", "10"), ("mcp-param-region", "=?base64?w6k=?=")]);
        check(&mirrored, "t", r#"{"region":null,"in":3}"#, &[]);
        check(&mirrored, "other", arguments, &[]);
        mirrored.learn(br#"{"id":2,"result":{"tools":[{"name":"t","inputSchema":{}}]}}"#);
        check(&mirrored, "t", arguments, &[]);
    }
}
