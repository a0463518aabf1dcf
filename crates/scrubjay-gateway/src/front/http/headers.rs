//! Checks the headers of a request, and those that repeat parts of its body.
//!
//! The body decides what is done; a request whose headers contradict it is refused.

use axum::http::{HeaderMap, StatusCode, header};
use scrubjay_core::message::{member, raw_error};
use scrubjay_core::protocol::{self, code, meta, version};

use super::refused::because;
use super::{Refusal, json as answer, json_error, plain};
use crate::client_message::{ClientMessage, text_in};
use crate::gateway::ClientFactsError;
use crate::mirrored_headers::{MirroredArgument, NamedParam, OPTIONAL_SPACE, parse_mirrored};

pub(super) fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(|value| value.trim_matches(OPTIONAL_SPACE))
}

/// Checks that a body is JSON and that its sender accepts both forms of our responses.
pub(super) fn check_content(headers: &HeaderMap) -> Result<(), Refusal> {
    let kind = text(headers, header::CONTENT_TYPE.as_str()).unwrap_or_default();
    if !kind.split(';').next().is_some_and(|k| k.trim().eq_ignore_ascii_case("application/json")) {
        let refused = plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be application/json");
        return Err(Box::new(because("wrong content type", refused)));
    }
    let takes = |wanted: &str| {
        headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(',')).any(
            |v| {
                let kind = v.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
                kind == wanted
                    || kind == "*/*"
                    || wanted.split('/').next().is_some_and(|t| kind == format!("{t}/*"))
            },
        )
    };
    if takes("application/json") && takes("text/event-stream") {
        Ok(())
    } else {
        let why = "Accept must name application/json and text/event-stream";
        Err(Box::new(because("wrong accept", plain(StatusCode::NOT_ACCEPTABLE, why))))
    }
}

/// Tells whether a request is of the modern era: by its body or by its header.
pub(super) fn is_modern(headers: &HeaderMap, message: &ClientMessage) -> bool {
    message.meta(meta::PROTOCOL_VERSION).is_some()
        || text(headers, protocol::header::PROTOCOL_VERSION) == Some(version::MODERN)
}

/// Checks the headers of a modern request against its body.
pub(super) fn check_modern(
    headers: &HeaderMap,
    message: &ClientMessage,
    takes_any_version: bool,
) -> Result<(), Refusal> {
    let id = message.id();
    let stated_version = text(headers, protocol::header::PROTOCOL_VERSION);
    if message.id().is_some() {
        let Some(version) = message.meta(meta::PROTOCOL_VERSION) else {
            let why = format!("params._meta[\"{}\"] is required", meta::PROTOCOL_VERSION);
            let refused = json_error(StatusCode::BAD_REQUEST, id, code::INVALID_PARAMS, &why);
            return Err(Box::new(because("no version", refused)));
        };
        let version = text_in(Some(version)).unwrap_or_default();
        if stated_version != Some(version.as_str()) {
            return Err(mismatch(id, "MCP-Protocol-Version"));
        }
        if version != version::MODERN && !takes_any_version {
            let refused = ClientFactsError::UnsupportedVersion { requested: version }.to_json_rpc();
            let line = raw_error(id.unwrap_or("null"), &refused);
            return Err(Box::new(because("unsupported version", answer(StatusCode::BAD_REQUEST, line))));
        }
    }
    let method = message.method();
    if method.is_some() && text(headers, protocol::header::METHOD) != method {
        return Err(mismatch(id, "Mcp-Method"));
    }
    if let Some(named) = method.and_then(NamedParam::of) {
        let name = message.param(named.key()).filter(|name| text_in(Some(name)).is_some());
        let stated = text(headers, protocol::header::NAME).and_then(parse_mirrored);
        if name.is_some_and(|name| !stated.is_some_and(|stated| stated.matches(name))) {
            return Err(mismatch(id, "Mcp-Name"));
        }
    }
    for (name, value) in headers {
        if name.as_str().starts_with(protocol::header::PARAM_PREFIX)
            && value.to_str().ok().and_then(parse_mirrored).is_none()
        {
            return Err(mismatch(id, name.as_str()));
        }
    }
    Ok(())
}

/// Checks the headers that repeat a tool's arguments (`x-mcp-header`): each must be there and have the argument's
/// value.
pub(super) fn check_mirrored(
    headers: &HeaderMap,
    message: &ClientMessage,
    mirrored: &[MirroredArgument],
) -> Result<(), Refusal> {
    for MirroredArgument { header, path } in mirrored {
        let name = format!("{}{}", protocol::header::PARAM_PREFIX, header.to_ascii_lowercase());
        let mut argument = message.param("arguments").and_then(|all| serde_json::from_str(all).ok());
        for key in path {
            argument = member(argument, key);
        }
        // An argument that is null is repeated by no header, like one that is missing.
        let argument = argument.filter(|a| a.get() != "null");
        let agree = match (argument, text(headers, &name).and_then(parse_mirrored)) {
            (None, None) => !headers.contains_key(&name),
            (Some(argument), Some(stated)) => stated.matches(argument.get()),
            _ => false,
        };
        if !agree {
            return Err(mismatch(message.id(), &format!("Mcp-Param-{header}")));
        }
    }
    Ok(())
}

pub(super) fn mismatch(id: Option<&str>, header: &str) -> Refusal {
    let why = format!("the header {header} is missing, malformed, or does not match the body");
    let refused = json_error(StatusCode::BAD_REQUEST, id, code::HEADER_MISMATCH, &why);
    Box::new(because("header mismatch", refused))
}
