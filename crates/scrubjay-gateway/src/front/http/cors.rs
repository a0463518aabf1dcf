//! Lets pages of allowed origins call the front and read its answers (CORS).
//!
//! An origin is named, never `*`, and no page may send cookies: a page shows the token itself. Asking whether
//! a request may be made needs no token, for browsers send none with the question.

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header, request};

use super::body::{Body, Response};
use super::guard;
use crate::config::HttpConfig;

/// What pages may read of an answer besides its body.
const EXPOSED: &str = "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate";
const METHODS: &str = "GET, POST, DELETE, OPTIONS";
/// What is sent where a page does not say which headers it wants to send.
const HEADERS: &str = "Accept, Authorization, Content-Type, Last-Event-ID, Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name";
/// How long a browser remembers the answer: ten minutes.
const MAX_AGE_S: &str = "600";

/// Returns the origin of a page that may call.
pub(super) fn allowed_origin(config: &HttpConfig, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let allowed = origin.to_str().is_ok_and(|origin| guard::origin_is_ours(config, origin));
    allowed.then(|| origin.clone())
}

/// Tells whether a browser asks on behalf of a page whether it may call.
pub(super) fn is_preflight(head: &request::Parts) -> bool {
    head.method == Method::OPTIONS
        && head.headers.contains_key(header::ORIGIN)
        && head.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Answers such a question; what every answer carries is added by [`add`].
pub(super) fn preflight(asked: &HeaderMap) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    // A tool may want any of its arguments in a header, so the names cannot be listed beforehand.
    let wanted = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        wanted.unwrap_or_else(|| HeaderValue::from_static(HEADERS)),
    );
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE_S));
    if asked.get("access-control-request-private-network").is_some_and(|asked| asked == "true") {
        headers.insert("access-control-allow-private-network", HeaderValue::from_static("true"));
    }
    response
}

/// Lets the page that called read the answer.
pub(super) fn add(response: &mut Response, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}
