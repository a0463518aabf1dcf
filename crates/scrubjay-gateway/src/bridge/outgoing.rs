//! The headers of a message to a Streamable HTTP server, derived from the message. Pure.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use scrubjay_core::envelope::{Envelope, Era, MessageKind};
use scrubjay_core::protocol::{header, method};

use crate::mirrored_headers::{NamedParam, header_value};

pub(super) const SESSION: HeaderName = HeaderName::from_static(header::SESSION_ID);
const VERSION: HeaderName = HeaderName::from_static(header::PROTOCOL_VERSION);
const METHOD: HeaderName = HeaderName::from_static(header::METHOD);
const NAME: HeaderName = HeaderName::from_static(header::NAME);

/// The sessions and versions agreed with the server.
#[derive(Clone, Debug, Default)]
pub(super) struct NegotiatedProtocol {
    /// The id of the legacy session.
    pub(super) session: Option<HeaderValue>,
    /// The legacy version agreed on.
    pub(super) version: Option<String>,
    /// The modern version of the last request.
    pub(super) modern: Option<String>,
    /// Whether the server has answered a modern request.
    pub(super) answers_modern: bool,
}

impl NegotiatedProtocol {
    /// Returns the modern version a message belongs to; legacy messages have none.
    pub(super) fn modern_version(&self, message: &Envelope) -> Option<String> {
        if message.era == Some(Era::Modern) {
            // In a legacy session, a server that never answered a modern request needs the session's header on every
            // message.
            let probes = message.method.as_deref() == Some(method::SERVER_DISCOVER);
            let modern = self.answers_modern || self.version.is_none() || probes;
            return message.protocol_version.clone().filter(|_| modern);
        }
        // A notification does not name its version; without a legacy session it must be modern.
        let unsaid = message.kind != MessageKind::Request && self.version.is_none();
        self.modern.clone().filter(|_| unsaid)
    }

    /// Returns the headers for a message.
    pub(super) fn headers(&self, message: &Envelope) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(version) = self.modern_version(message) {
            headers.insert(VERSION, header_value(&version));
            if let Some(method) = &message.method {
                headers.insert(METHOD, header_value(method));
            }
            if let Some(name) = name(message) {
                headers.insert(NAME, header_value(name));
            }
        } else if message.method.as_deref() != Some(method::INITIALIZE) {
            headers = self.session_headers();
        }
        headers
    }

    /// Returns the headers that name the legacy session.
    pub(super) fn session_headers(&self) -> HeaderMap {
        let session = self.session.clone().map(|session| (SESSION, session));
        let version = self.version.as_deref().map(|version| (VERSION, header_value(version)));
        session.into_iter().chain(version).collect()
    }
}

fn name(message: &Envelope) -> Option<&str> {
    let method = message.method.as_deref()?;
    match NamedParam::of(method) {
        Some(NamedParam::Name | NamedParam::Uri) => message.name.as_deref(),
        // For any method of tasks that names one, as other versions may have more of them.
        _ if method.starts_with(method::TASKS_PREFIX) => message.references.task.as_deref(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(protocol: &NegotiatedProtocol, message: &str, expected: &[(&str, &str)]) {
        let headers = protocol.headers(&Envelope::parse(message.as_bytes()));
        let mut said: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        said.sort_unstable();
        assert_eq!(said, expected, "{message}");
    }

    #[test]
    fn modern_headers_say_what_the_body_says() {
        let protocol =
            NegotiatedProtocol { modern: Some("2026-07-28".into()), ..NegotiatedProtocol::default() };
        let modern = |method: &str, more: &str| {
            let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{more}{meta}}}}}"#)
        };
        let version = ("mcp-protocol-version", "2026-07-28");
        check(&protocol, &modern("tools/list", ""), &[("mcp-method", "tools/list"), version]);
        for (method, more, name) in [
            ("tools/call", r#""name":"add","#, "add"),
            ("prompts/get", r#""name":"=?base64?x","#, "=?base64?PT9iYXNlNjQ/eA==?="),
            ("resources/read", r#""uri":"file:///\u00e9","#, "=?base64?ZmlsZTovLy/DqQ==?="),
            ("tasks/get", r#""taskId":" t","#, "=?base64?IHQ=?="),
        ] {
            let message = modern(method, more);
            check(&protocol, &message, &[("mcp-method", method), ("mcp-name", name), version]);
        }
        let note = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
        check(&protocol, note, &[("mcp-method", "notifications/x"), version]);
    }

    #[test]
    fn legacy_headers_name_the_session() {
        let protocol = NegotiatedProtocol {
            session: Some(HeaderValue::from_static("s")),
            version: Some("2025-06-18".into()),
            modern: Some("2026-07-28".into()),
            answers_modern: false,
        };
        let both = [("mcp-protocol-version", "2025-06-18"), ("mcp-session-id", "s")];
        check(&protocol, r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#, &both);
        check(&protocol, r#"{"jsonrpc":"2.0","method":"notifications/x"}"#, &both);
        let passed_on = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        check(&protocol, passed_on, &both);
        let both_eras = NegotiatedProtocol { answers_modern: true, ..protocol.clone() };
        check(&both_eras, passed_on, &[("mcp-method", "m"), ("mcp-protocol-version", "2026-07-28")]);
        check(&protocol, r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#, &[]);
        check(&NegotiatedProtocol::default(), r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, &[]);
    }
}
