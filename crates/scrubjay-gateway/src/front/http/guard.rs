//! Checks who may use the gateway: the `Host`, the `Origin`, and the token if there is one.
//!
//! Every page in a browser can reach a local server. Foreign origins, and names that were made to resolve to loopback
//! (DNS rebinding), are refused before the body is read.

use axum::http::{HeaderMap, StatusCode, header, request};

use super::refused::because;
use super::{Refusal, plain};
use crate::config::{AuthToken, HttpConfig};

/// Refuses a request to a foreign host, or from a foreign page.
pub(super) fn check_place(config: &HttpConfig, head: &request::Parts) -> Result<(), Refusal> {
    let headers = &head.headers;
    let host = text(headers, header::HOST.as_str()).or_else(|| head.uri.host().map(str::to_owned));
    if !host.as_deref().is_some_and(|host| host_is_ours(config, host)) {
        let why = "this Host is not served here: allow it with serve.allowed_hosts";
        return Err(forbidden("foreign host", why));
    }
    // An origin with bytes beyond ASCII is never one of ours.
    if let Some(origin) = headers.get(header::ORIGIN)
        && !origin.to_str().is_ok_and(|origin| origin_is_ours(config, origin))
    {
        let why = "this Origin may not call: allow it with serve.allowed_origins";
        return Err(forbidden("foreign origin", why));
    }
    // Browsers send no `Origin` with some cross-site requests, such as navigations; this header still tells.
    if text(headers, "sec-fetch-site").is_some_and(|site| site == "cross-site")
        && !headers.contains_key(header::ORIGIN)
    {
        return Err(forbidden("cross-site", "cross-site requests are not answered"));
    }
    Ok(())
}

fn forbidden(reason: &'static str, why: &str) -> Refusal {
    Box::new(because(reason, plain(StatusCode::FORBIDDEN, why)))
}

/// Refuses a request without one of the tokens, if any are configured.
pub(super) fn check_token(config: &HttpConfig, headers: &HeaderMap) -> Result<(), Refusal> {
    if config.auth_tokens.is_empty() || shown_token(config, headers).is_some() {
        return Ok(());
    }
    let mut refused = plain(StatusCode::UNAUTHORIZED, "a bearer token is required");
    let wanted = header::HeaderValue::from_static("Bearer");
    refused.headers_mut().insert(header::WWW_AUTHENTICATE, wanted);
    let shown = headers.contains_key(header::AUTHORIZATION);
    Err(Box::new(because(if shown { "wrong token" } else { "no token" }, refused)))
}

/// Returns the token that a request has. All are compared, so that the time does not tell which one matched.
fn shown_token<'a>(config: &'a HttpConfig, headers: &HeaderMap) -> Option<&'a AuthToken> {
    let matching = |found: Option<&'a AuthToken>, token: &'a AuthToken| {
        if shows(headers, token.secret.reveal()) { Some(token) } else { found }
    };
    config.auth_tokens.iter().fold(None, matching)
}

/// Returns the name that the user gave to a request's token.
pub(super) fn principal_name<'a>(config: &'a HttpConfig, headers: &HeaderMap) -> Option<&'a str> {
    shown_token(config, headers)?.name.as_deref()
}

/// Tells whether a proxy forwarded a request: then the other end of the connection is not its client.
pub(super) fn is_forwarded(headers: &HeaderMap) -> bool {
    ["forwarded", "x-forwarded-for", "via"].iter().any(|name| headers.contains_key(*name))
}

/// Returns a header that is text.
pub(crate) fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned)
}

fn host_is_ours(config: &HttpConfig, host: &str) -> bool {
    let name = without_port(host);
    is_loopback(name)
        || name == config.address.ip().to_string()
        || config.allowed_hosts.iter().any(|allowed| allowed == name || allowed == host)
}

pub(super) fn origin_is_ours(config: &HttpConfig, origin: &str) -> bool {
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    authority.is_some_and(|a| is_loopback(without_port(a)))
        || config.allowed_origins.iter().any(|o| o == origin)
}

/// Tells whether a host name always means this machine.
pub(crate) fn is_loopback(name: &str) -> bool {
    matches!(name, "localhost" | "127.0.0.1" | "[::1]")
}

/// Cuts the port off a host; an IPv6 address keeps its brackets.
pub(crate) fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    }
}

/// Tells whether a request has a token. Compares hashes: the time does not tell how much of the token was right.
pub(crate) fn shows(headers: &HeaderMap, token: &str) -> bool {
    let shown = text(headers, header::AUTHORIZATION.as_str());
    let shown = shown.as_deref().and_then(|value| value.split_once(' '));
    // RFC 9110: the scheme's case does not matter.
    let shown = shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    shown.is_some_and(|(_, shown)| blake3::hash(shown.as_bytes()) == blake3::hash(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_hosts() {
        let config = HttpConfig {
            address: "127.0.0.1:7420".parse().unwrap(),
            auth_tokens: Vec::new(),
            allowed_hosts: vec!["box.local".to_owned()],
            allowed_origins: vec!["https://app.example".to_owned()],
            body_bytes_max: 1,
            sessions_max: 1,
            session_idle_max: std::time::Duration::ZERO,
            disconnect_grace: std::time::Duration::ZERO,
            body_timeout: std::time::Duration::ZERO,
            connections: crate::config::ConnectionLimits::default(),
        };
        for ours in ["localhost", "localhost:7420", "127.0.0.1:1", "[::1]:7420", "[::1]", "box.local:80"] {
            assert!(host_is_ours(&config, ours), "{ours}");
        }
        for foreign in
            ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:7420", "", "10.0.0.1"]
        {
            assert!(!host_is_ours(&config, foreign), "{foreign}");
        }
        assert!(origin_is_ours(&config, "http://localhost:3000"));
        assert!(origin_is_ours(&config, "https://app.example"));
        for foreign in ["null", "https://evil.example", "http://localhost.evil.example", "localhost"] {
            assert!(!origin_is_ours(&config, foreign), "{foreign}");
        }
    }

    #[test]
    fn the_scheme_of_a_token_is_written_in_any_case() {
        let check = |value: &str| {
            shows(&[(header::AUTHORIZATION, value.parse().unwrap())].into_iter().collect(), "the token")
        };
        for right in ["Bearer the token", "bearer the token", "BEARER the token"] {
            assert!(check(right), "{right}");
        }
        for wrong in
            ["Bearer", "Bearer ", "the token", "Basic the token", "Bearer The token", "Bearerthe token"]
        {
            assert!(!check(wrong), "{wrong}");
        }
    }
}
