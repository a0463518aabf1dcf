//! Which headers pass between a host and the server behind it. Pure.
//!
//! Everything passes but what belongs to one connection, what is ours, and cookies: those of `localhost` are
//! shared by every program that serves there, so passing them on would hand out other programs' secrets.

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::bridge::endpoint::Endpoint;

/// Headers that speak of one connection only.
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
/// Of the host's: made anew for the server, or not for it. Answers must come uncompressed, to be read.
const NOT_UP: [HeaderName; 5] =
    [header::HOST, header::CONTENT_LENGTH, header::EXPECT, header::COOKIE, header::ACCEPT_ENCODING];
/// Of the server's: made anew for the host, or not for it.
const NOT_DOWN: [HeaderName; 2] = [header::CONTENT_LENGTH, header::SET_COOKIE];

/// Returns what is sent to the server: what the host sent, and above it what is configured.
///
/// A token that was shown to us is ours, and goes no further.
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

/// Returns what is sent to the host.
pub(super) fn down(server: &HeaderMap) -> HeaderMap {
    let mut headers = passing(server, &NOT_DOWN);
    // Which pages may read the answer is for the front to say.
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
