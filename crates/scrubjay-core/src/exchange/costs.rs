//! Estimates how many tokens of a model's context a message costs: what a host passes to the model, not the JSON-RPC
//! around it.
//!
//! Counted are a call's name and arguments; of its answer the text of the content, or the structured content if there
//! is no text (hosts show one of both); of a list of tools their names, descriptions and input schemas; of anything
//! else the whole parameters or result. An image counts a fixed number of tokens, not its base64.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::{fields, members};
use crate::protocol::method;
use crate::tokens::{IMAGE_TOKENS, estimate_tokens};

/// The tokens around the parts of one tool's definition, such as keys and braces.
const DEFINITION_FRAME: u64 = 8;

/// Estimates what a request or a notification costs.
pub(super) fn of_request(payload: &[u8]) -> u64 {
    let Some(Ok(fields)) = std::str::from_utf8(payload).ok().map(|text| fields(text, ["method", "params"]))
    else {
        return 0;
    };
    let [method, params] = fields.values;
    match method.and_then(|method| method.get().strip_prefix('"')?.strip_suffix('"')) {
        Some(method::TOOLS_CALL) => {
            let [name, arguments] = members(params, ["name", "arguments"]);
            raw(name) + raw(arguments)
        }
        _ => raw(params),
    }
}

/// Estimates what an answer to this method costs.
pub(super) fn of_answer(method: Option<&str>, payload: &[u8]) -> u64 {
    let Some(Ok(fields)) = std::str::from_utf8(payload).ok().map(|text| fields(text, ["result", "error"]))
    else {
        return 0;
    };
    let [result, error] = fields.values;
    let known = result.and_then(|result| match method {
        Some(method::TOOLS_CALL) => of_content(result),
        Some(method::TOOLS_LIST) => {
            let [tools] = members(Some(result), ["tools"]);
            let tools: Vec<&RawValue> = serde_json::from_str(tools?.get()).ok()?;
            Some(tools.into_iter().map(of_definition).sum())
        }
        Some(method::RESOURCES_READ) => {
            let [contents] = members(Some(result), ["contents"]);
            let contents: Vec<Embedded<'_>> = serde_json::from_str(contents?.get()).ok()?;
            Some(contents.iter().map(|one| estimate_tokens(&one.text) as u64).sum())
        }
        _ => None,
    });
    known.unwrap_or_else(|| raw(result) + raw(error))
}

/// Estimates what a tool's definition costs in every request to a model that has the tool.
pub(super) fn of_definition(tool: &RawValue) -> u64 {
    let parts = members(Some(tool), ["name", "description", "inputSchema"]);
    DEFINITION_FRAME + parts.into_iter().map(raw).sum::<u64>()
}

fn raw(value: Option<&RawValue>) -> u64 {
    value.map_or(0, |value| estimate_tokens(value.get()) as u64)
}

/// A block of an answer's content.
#[derive(Deserialize)]
struct ContentBlock<'a> {
    // Borrowed where there are no escapes, because results may have megabytes.
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    text: Cow<'a, str>,
    #[serde(borrow)]
    resource: Option<Embedded<'a>>,
    #[serde(borrow, default)]
    uri: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Embedded<'a> {
    #[serde(borrow, default)]
    text: Cow<'a, str>,
}

fn of_content(result: &RawValue) -> Option<u64> {
    let [content, structured] = members(Some(result), ["content", "structuredContent"]);
    let blocks: Vec<ContentBlock<'_>> = serde_json::from_str(content?.get()).ok()?;
    if blocks.is_empty() {
        return structured.map(|structured| raw(Some(structured)));
    }
    let one = |block: &ContentBlock<'_>| {
        let embedded = block.resource.as_ref().map_or(0, |resource| estimate_tokens(&resource.text));
        let image = if matches!(&*block.kind, "image" | "audio") { IMAGE_TOKENS } else { 0 };
        image + (estimate_tokens(&block.text) + embedded + estimate_tokens(&block.uri)) as u64
    };
    Some(blocks.iter().map(one).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(method: &str, result: &str) -> u64 {
        let line = format!(r#"{{"jsonrpc":"2.0","id":123456789,"result":{result}}}"#);
        of_answer(Some(method), line.as_bytes())
    }

    #[test]
    fn what_a_model_reads_is_counted() {
        let text = "The quick brown fox jumps over the lazy dog.";
        let quoted = serde_json::to_string(&format!("{text}\n\"{text}\"")).unwrap();
        let expected = estimate_tokens(&format!("{text}\n\"{text}\"")) as u64;
        // The text is counted without escapes, and structured content that repeats it is not counted again.
        let block = format!(r#"{{"type":"text","text":{quoted}}}"#);
        assert_eq!(
            answer("tools/call", &format!(r#"{{"content":[{block}],"structuredContent":{{"t":{quoted}}}}}"#)),
            expected
        );
        let structured = answer("tools/call", r#"{"content":[],"structuredContent":{"answer":42}}"#);
        assert_eq!(structured, estimate_tokens(r#"{"answer":42}"#) as u64);
        let image = format!(
            r#"{{"content":[{{"type":"image","mimeType":"image/png","data":"{}"}}]}}"#,
            "A8f/".repeat(20_000)
        );
        assert_eq!(answer("tools/call", &image), IMAGE_TOKENS);
        assert_eq!(
            answer("resources/read", &format!(r#"{{"contents":[{{"uri":"a:b","text":{quoted}}}]}}"#)),
            expected
        );
        let request = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":{"a":1},"_meta":{"progressToken":99999}}}"#;
        assert_eq!(of_request(request), (estimate_tokens(r#""t""#) + estimate_tokens(r#"{"a":1}"#)) as u64);
    }

    #[test]
    fn a_list_costs_what_its_tools_cost() {
        let tool = r#"{"name":"read","description":"Reads a file.","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"x":{"type":"string"}}}}"#;
        let raw: &RawValue = serde_json::from_str(tool).unwrap();
        let one = of_definition(raw);
        assert!((15..40).contains(&one), "{one}");
        assert_eq!(answer("tools/list", &format!(r#"{{"tools":[{tool},{tool}]}}"#)), 2 * one);
    }

    #[test]
    fn malformed_messages_have_an_estimate() {
        assert!(answer("tools/call", r#"{"content":"no list"}"#) > 0);
        assert!(answer("tools/list", r#"{"tools":7}"#) > 0);
        assert!(of_answer(Some("tools/call"), br#"{"id":1,"error":{"code":-1,"message":"no"}}"#) > 0);
        assert_eq!((of_request(b"no JSON"), of_answer(None, b"\xff")), (0, 0));
    }
}
