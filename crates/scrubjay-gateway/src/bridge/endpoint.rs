//! The address of a server and the headers for every request to it, checked before anything is sent.

use std::{fmt, io};

use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use scrubjay_core::message_limit::MessageLimit;
use scrubjay_core::protocol;
use scrubjay_http::Client;
use thiserror::Error;

/// How many idle connections to a server are kept.
const IDLE_CONNECTIONS_MAX: usize = 16;

/// Headers that the bridge sets itself.
const RESERVED: [&str; 14] = [
    "accept",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    protocol::header::LAST_EVENT_ID,
    protocol::header::METHOD,
    protocol::header::NAME,
    protocol::header::PROTOCOL_VERSION,
    protocol::header::SESSION_ID,
    "transfer-encoding",
    "upgrade",
];

/// A server on HTTP.
#[derive(Clone)]
pub struct Endpoint {
    pub(crate) url: Uri,
    pub(crate) headers: HeaderMap,
    pub(super) message_limit: MessageLimit,
    /// Whether the user says that it speaks the first HTTP transport.
    pub(super) first_transport: bool,
}

/// Why an address or a header cannot be used. The texts never contain a header's value, which may be a secret.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// Not an address.
    #[error("\"{0}\" is not an http:// or https:// address")]
    Url(String),
    /// A password in the address would show in lists and logs.
    #[error("the address holds a user name or password: put them into a header instead")]
    Credentials,
    /// Not a header.
    #[error("\"{0}\" is not the name of a header")]
    Name(String),
    /// Not a header's value.
    #[error("the value of the header {0} has characters a header cannot hold")]
    Value(String),
    /// A header that the protocol defines.
    #[error("the header {0} is set by Scrubjay itself")]
    Reserved(String),
}

impl Endpoint {
    /// Checks an address and the headers to send to it.
    ///
    /// # Errors
    /// One of them cannot be used.
    pub fn new<'a>(
        url: &str,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, EndpointError> {
        let bad = || EndpointError::Url(url.to_owned());
        // Before the address is parsed: the error about an address that cannot be parsed quotes it.
        if url.split_once("://").is_some_and(|(_, rest)| {
            rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
        }) {
            return Err(EndpointError::Credentials);
        }
        let uri: Uri = url.parse().map_err(|_| bad())?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
            return Err(bad());
        }
        let headers = headers.into_iter().map(|(name, value)| header(name, value));
        let headers = headers.collect::<Result<HeaderMap, _>>()?;
        Ok(Self { url: uri, headers, message_limit: MessageLimit::DEFAULT, first_transport: false })
    }

    /// Sets the length of the longest message.
    #[must_use]
    pub fn with_message_bytes_max(mut self, message_bytes_max: usize) -> Self {
        self.message_limit = message_bytes_max.into();
        self
    }

    /// Sets whether it speaks the first HTTP transport, with one event stream (`sse`); otherwise the bridge finds out.
    #[must_use]
    pub fn with_first_transport(mut self, first_transport: bool) -> Self {
        self.first_transport = first_transport;
        self
    }

    /// Makes an HTTP client for the server.
    pub(crate) fn client(&self) -> io::Result<Client> {
        Client::new(&self.url, IDLE_CONNECTIONS_MAX)
    }

    /// Returns the server's host, and its port where the address names one.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.url.authority().map_or("", |authority| authority.as_str())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A query may hold a key; headers often do.
        f.debug_struct("Endpoint").field("authority", &self.authority()).finish_non_exhaustive()
    }
}

fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), EndpointError> {
    let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| EndpointError::Name(name.to_owned()))?;
    if RESERVED.contains(&parsed.as_str()) || parsed.as_str().starts_with(protocol::header::PARAM_PREFIX) {
        return Err(EndpointError::Reserved(name.to_owned()));
    }
    let mut value = HeaderValue::from_str(value).map_err(|_| EndpointError::Value(name.to_owned()))?;
    // Keeps it out of debug output.
    value.set_sensitive(true);
    Ok((parsed, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_used() {
        let check = |url: &str, headers: &[(&str, &str)]| {
            Endpoint::new(url, headers.iter().copied()).map_err(|e| e.to_string())
        };
        let usable = check("https://mcp.example:8443/mcp?x=1", &[("Authorization", "Bearer canary")]);
        let usable = usable.expect("usable");
        assert_eq!(usable.authority(), "mcp.example:8443");
        assert!(!format!("{usable:?} {:?}", usable.headers).contains("canary"));
        for url in ["", "mcp.example/mcp", "ftp://x/", "/mcp", "http://", "http:///mcp"] {
            assert!(check(url, &[]).is_err(), "{url}");
        }
        assert!(check("http://me:secret@x/", &[]).is_err_and(|e| !e.contains("secret")));
        for (name, value) in [("Host", "x"), ("mcp-session-id", "x"), ("a b", "x"), ("x", "canary\n")] {
            assert!(check("http://x/", &[(name, value)]).is_err_and(|e| !e.contains("canary")), "{name}");
        }
    }
}
