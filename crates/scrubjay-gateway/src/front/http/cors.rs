//! Lets pages of allowed origins call the front and read its answers (CORS).
//!
//! The response names the origin, never `*`, and no page may send cookies: a page sends the token itself. A preflight
//! request needs no token, because browsers send none with it.

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header, request};

use super::body::{Body, Response};
use super::guard;
use crate::config::HttpConfig;

/// Which headers of a response pages may read. In the spelling of the specification; a test compares the names with
/// [`scrubjay_core::protocol::header`].
const EXPOSED: &str = "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate";
const METHODS: &str = "GET, POST, DELETE, OPTIONS";
/// The allowed headers, if a page does not say which it wants to send.
const HEADERS: &str = "Accept, Authorization, Content-Type, Last-Event-ID, Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name";
/// How long a browser may cache the response to a preflight request: ten minutes.
const MAX_AGE_S: &str = "600";

/// Returns the request's origin, if it is allowed.
pub(super) fn allowed_origin(config: &HttpConfig, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let allowed = origin.to_str().is_ok_and(|origin| guard::origin_is_ours(config, origin));
    allowed.then(|| origin.clone())
}

/// Tells whether a request is a browser's preflight.
pub(super) fn is_preflight(head: &request::Parts) -> bool {
    head.method == Method::OPTIONS
        && head.headers.contains_key(header::ORIGIN)
        && head.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Answers a preflight request; [`add`] adds the headers that every response has.
pub(super) fn preflight(request: &HeaderMap) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    // A tool may want any of its arguments in a header, so the names cannot be listed beforehand.
    let wanted = request.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        wanted.unwrap_or_else(|| HeaderValue::from_static(HEADERS)),
    );
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE_S));
    // Chromium asks for this before a page of a public site may call a server on a private network.
    if request.get("access-control-request-private-network").is_some_and(|value| value == "true") {
        headers.insert("access-control-allow-private-network", HeaderValue::from_static("true"));
    }
    response
}

/// Lets the calling page read the response.
pub(super) fn add(response: &mut Response, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    // The headers depend on the origin, so a cache must not use the response for another one.
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}

#[cfg(test)]
mod tests {
    use scrubjay_core::protocol::header::{LAST_EVENT_ID, METHOD, NAME, PROTOCOL_VERSION, SESSION_ID};

    use super::*;

    #[test]
    fn the_headers_of_the_protocol_are_listed() {
        let check = |list: &str, expected: &[&str]| {
            let listed: Vec<String> = list.split(", ").map(str::to_ascii_lowercase).collect();
            assert!(expected.iter().all(|name| listed.iter().any(|other| other == name)), "{list}");
        };
        check(EXPOSED, &[SESSION_ID, PROTOCOL_VERSION]);
        check(HEADERS, &[LAST_EVENT_ID, SESSION_ID, PROTOCOL_VERSION, METHOD, NAME]);
    }
}
