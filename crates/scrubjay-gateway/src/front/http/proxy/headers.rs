//! Chooses the headers that the proxy forwards. Pure.
//!
//! All are forwarded but those of one connection, our own, and cookies: all programs that serve on `localhost` share
//! its cookies, so forwarding them would leak other programs' secrets.

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::bridge::endpoint::Endpoint;

/// Headers that concern one connection only.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// Headers of the host that are replaced or dropped. Responses must be uncompressed, or they could not be recorded.
const NOT_UP: [HeaderName; 5] =
    [header::HOST, header::CONTENT_LENGTH, header::EXPECT, header::COOKIE, header::ACCEPT_ENCODING];
/// Headers of the server that are replaced or dropped.
const NOT_DOWN: [HeaderName; 2] = [header::CONTENT_LENGTH, header::SET_COOKIE];

/// Returns the headers for the server: the host's, and the configured ones, which replace those of the same name.
///
/// If clients authenticate to us with a token, it is not forwarded.
pub(super) fn up(host: &HeaderMap, token_is_ours: bool, endpoint: &Endpoint) -> HeaderMap {
    let mut headers = passing(host, &NOT_UP);
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if token_is_ours {
        headers.remove(header::AUTHORIZATION);
    }
    for (name, value) in &endpoint.headers {
        headers.insert(name.clone(), value.clone());
    }
    headers
}

/// Returns the headers for the host.
pub(super) fn down(server: &HeaderMap) -> HeaderMap {
    let mut headers = passing(server, &NOT_DOWN);
    // The front decides which pages may read the response, and adds its own.
    let cors: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("access-control-")).cloned().collect();
    for name in cors {
        headers.remove(name);
    }
    headers
}

fn passing(all: &HeaderMap, but: &[HeaderName]) -> HeaderMap {
    let listed = all.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let listed: Vec<String> =
        listed.flat_map(|value| value.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect();
    let stays = |name: &HeaderName| {
        HOP_BY_HOP.contains(name) || but.contains(name) || listed.iter().any(|listed| listed == name.as_str())
    };
    let passing = all.iter().filter(|(name, _)| !stays(name));
    passing.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn what_belongs_to_one_connection_stays_there() {
        let endpoint = Endpoint::new("http://x/", [("X-Key", "configured")]).unwrap();
        let host = map(&[
            ("authorization", "Bearer host"),
            ("x-key", "host"),
            ("mcp-param-region", "eu"),
            ("connection", "close, X-Local"),
            ("x-local", "1"),
            ("host", "localhost"),
            ("content-length", "3"),
            ("cookie", "a=b"),
            ("te", "trailers"),
        ]);
        let configured = ("x-key", "configured");
        let region = ("mcp-param-region", "eu");
        let own = ("accept-encoding", "identity");
        let token = ("authorization", "Bearer host");
        assert_eq!(up(&host, false, &endpoint), map(&[token, configured, region, own]));
        assert_eq!(up(&host, true, &endpoint), map(&[configured, region, own]));
        let server = map(&[
            ("www-authenticate", "Bearer"),
            ("set-cookie", "a=b"),
            ("access-control-allow-origin", "*"),
            ("transfer-encoding", "chunked"),
        ]);
        assert_eq!(down(&server), map(&[("www-authenticate", "Bearer")]));
    }
}
