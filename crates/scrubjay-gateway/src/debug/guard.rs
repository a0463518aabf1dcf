//! Checks who may use the endpoints: a client on this machine with the token, and no page of another origin, even if
//! its name resolves to loopback (DNS rebinding).

use axum::http::{HeaderMap, HeaderValue, StatusCode, header, request};

use super::DebugServer;
use crate::front::http::guard::{is_loopback, shows, text, without_port};
use crate::front::http::{Refusal, plain};

/// Refuses a request that may not use the endpoints.
pub(super) fn check(server: &DebugServer, head: &request::Parts) -> Result<(), Refusal> {
    let refuse = |status, why| Err(Box::new(plain(status, why)));
    let headers = &head.headers;
    let host = text(headers, header::HOST.as_str()).or_else(|| head.uri.authority().map(ToString::to_string));
    if !host.is_some_and(|host| is_loopback(without_port(&host))) {
        return refuse(StatusCode::FORBIDDEN, "this Host is not served here: use 127.0.0.1 or localhost");
    }
    if !is_same_origin(headers, server.address.port()) {
        return refuse(StatusCode::FORBIDDEN, "pages of other origins have no access");
    }
    if !server.rate.take() {
        return refuse(StatusCode::TOO_MANY_REQUESTS, "too many requests: wait a moment");
    }
    let token = server.sources.token.reveal();
    if shows(headers, token) || token_in_query(head).is_some_and(|shown| shows(&bearer(shown), token)) {
        return Ok(());
    }
    let mut refused = plain(StatusCode::UNAUTHORIZED, "the token is required: Authorization: Bearer …");
    refused.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Err(Box::new(refused))
}

/// Tells whether a request comes from one of our own pages, or from no page.
fn is_same_origin(headers: &HeaderMap, port: u16) -> bool {
    let ours = |origin: &str| {
        let authority = origin.strip_prefix("http://").and_then(|authority| authority.rsplit_once(':'));
        authority.is_some_and(|(name, at)| is_loopback(name) && at == port.to_string())
    };
    // An origin with bytes beyond ASCII is foreign.
    let origin =
        headers.get(header::ORIGIN).map(|_| text(headers, header::ORIGIN.as_str()).unwrap_or_default());
    let site = text(headers, "sec-fetch-site");
    origin.is_none_or(|origin| ours(&origin))
        && site.is_none_or(|site| site == "same-origin" || site == "none")
}

/// Returns the token in the URL of a WebSocket: browsers cannot set its headers.
fn token_in_query(head: &request::Parts) -> Option<&str> {
    let query = head.uri.query().filter(|_| head.uri.path().starts_with("/ws/"))?;
    query.split('&').find_map(|pair| pair.strip_prefix("token="))
}

fn bearer(token: &str) -> HeaderMap {
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    value.into_iter().map(|value| (header::AUTHORIZATION, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_pages() {
        let asked = |pairs: &[(&'static str, &'static str)]| {
            let headers: HeaderMap = pairs
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
                .map(|(name, value): (header::HeaderName, _)| (name, value))
                .collect();
            is_same_origin(&headers, 3001)
        };
        assert!(asked(&[]) && asked(&[("origin", "http://127.0.0.1:3001")]));
        assert!(asked(&[("origin", "http://localhost:3001"), ("sec-fetch-site", "same-origin")]));
        for foreign in [
            "null",
            "http://localhost:3000",
            "https://localhost:3001",
            "http://evil.example:3001",
            "http://localhost",
        ] {
            assert!(!asked(&[("origin", foreign)]), "{foreign}");
        }
        assert!(!asked(&[("sec-fetch-site", "cross-site")]) && !asked(&[("sec-fetch-site", "same-site")]));
    }
}
