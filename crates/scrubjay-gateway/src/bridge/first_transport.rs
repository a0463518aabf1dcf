//! The first HTTP transport of MCP (2024-11-05): one event stream for all messages of the server.
//!
//! The stream is opened with GET; its first event, `endpoint`, names the address for POSTs, and all answers come on
//! the stream. A server that refuses a POST of `initialize` may speak this transport. Messages go only to the origin
//! that the user named.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::Uri;
use hyper::body::Incoming;
use scrubjay_core::envelope::{Envelope, MessageKind};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::exchange::next_data;
use super::http::{Bridge, BridgeEnd};
use super::refusal::excerpt;
use super::sse::{Event, Parser};
use super::unanswered::{BridgedLine, UnansweredRequests};
use crate::session::lock;

/// How long a server may take to name the address for messages.
pub(super) const ENDPOINT_MAX: Duration = Duration::from_secs(10);

/// The one stream of such a server.
#[derive(Debug)]
pub(super) struct FirstTransport {
    /// The address for messages.
    pub(super) post: Uri,
    /// The requests of all exchanges that have no answer yet.
    pub(super) waiting: Mutex<UnansweredRequests>,
    /// Notified of each answer.
    pub(super) answered: Notify,
    reader: Mutex<Option<AbortHandle>>,
}

/// A stream whose first event has been read.
pub(super) struct OpenedStream {
    pub(super) post: Uri,
    pub(super) body: Incoming,
    pub(super) parser: Parser,
    /// Events that arrived together with the first.
    pub(super) more: Vec<Event>,
}

impl FirstTransport {
    /// Begins to listen.
    pub(super) fn begin(bridge: &Bridge, opened: OpenedStream) -> Arc<Self> {
        let OpenedStream { post, body, parser, more } = opened;
        let (waiting, answered, reader) = (Mutex::default(), Notify::new(), Mutex::default());
        let this = Arc::new(Self { post, waiting, answered, reader });
        let (own, listener) = (bridge.own.clone(), this.clone());
        let reader = tokio::spawn(async move {
            // Fails only if the bridge ended before this task ran.
            if let Some(bridge) = own.upgrade() {
                listen(&bridge, &listener, body, parser, more).await;
            }
        });
        *lock(&this.reader) = Some(reader.abort_handle());
        this
    }

    /// Closes the stream, which ends the session.
    pub(super) fn leave(&self) {
        if let Some(reader) = lock(&self.reader).take() {
            reader.abort();
        }
    }
}

async fn listen(
    bridge: &Bridge,
    this: &FirstTransport,
    mut body: Incoming,
    mut parser: Parser,
    mut events: Vec<Event>,
) {
    loop {
        for event in events {
            match event {
                Event::Message(line) => receive(bridge, this, &line).await,
                Event::Endpoint(_) => tracing::warn!("the server names another endpoint; it is not used"),
                Event::TooLong(bytes) => {
                    tracing::warn!(bytes, "an event of the server is too long, and was dropped");
                    let why = format!("the server's answer of {bytes} bytes is longer than the limit");
                    // With several requests open it is not known which one it answers.
                    let only = lock(&this.waiting).only();
                    if let Some(id) = only {
                        bridge.refuse(id.as_raw(), &why, None).await;
                        this.answered.notify_waiters();
                    }
                }
            }
        }
        match next_data(&mut body).await {
            Some(Ok(data)) => events = parser.feed(&data),
            Some(Err(())) | None => break,
        }
    }
    let unanswered = lock(&this.waiting).give_up();
    for id in unanswered {
        bridge.refuse(id.as_raw(), "the server closed its stream before it answered", None).await;
    }
    this.answered.notify_waiters();
    bridge.end(BridgeEnd::SessionLost);
}

async fn receive(bridge: &Bridge, this: &FirstTransport, line: &[u8]) {
    let taken = lock(&this.waiting).take(line, false);
    match taken {
        BridgedLine::Line(line) => {
            let answer = Envelope::parse(&line);
            if answer.kind == MessageKind::Response && lock(&bridge.protocol).version.is_none() {
                // Only the answer to `initialize` has one.
                lock(&bridge.protocol).version = answer.protocol_version;
            }
            bridge.emit(&line, None).await;
        }
        BridgedLine::NoAnswer(id) => {
            let why = format!("the server's answer is no JSON-RPC message{}", excerpt(line));
            bridge.refuse(id.as_raw(), &why, None).await;
        }
    }
    this.answered.notify_waiters();
}

/// Returns the address for messages: `named`, relative to the stream's address, if it has the same origin.
pub(super) fn resolve(stream: &Uri, named: &[u8]) -> Option<Uri> {
    let named = std::str::from_utf8(named).ok()?.trim();
    let origin = format!("{}://{}", stream.scheme_str()?, stream.authority()?);
    let absolute = match named {
        _ if named.contains("://") || named.starts_with("//") => {
            let named: Uri = match named.strip_prefix("//") {
                Some(rest) => format!("{}://{rest}", stream.scheme_str()?).parse().ok()?,
                None => named.parse().ok()?,
            };
            let port = |uri: &Uri| {
                let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
                uri.port_u16().unwrap_or(default)
            };
            let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
            let same = named.scheme() == stream.scheme()
                && host(&named) == host(stream)
                && port(&named) == port(stream);
            // A user name and password before the host would not come from the user.
            let plain = !named.authority()?.as_str().contains('@');
            return Some(named).filter(|_| same && plain);
        }
        _ if named.starts_with('/') => format!("{origin}{named}"),
        _ if named.starts_with('?') => format!("{origin}{}{named}", stream.path()),
        _ => {
            let folder = stream.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{origin}{folder}/{named}")
        }
    };
    absolute.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_the_same_origin_only() {
        let check = |named: &str, expected: Option<&str>| {
            let stream = "http://mcp.example:8080/v1/sse?x=1".parse().unwrap();
            let found = resolve(&stream, named.as_bytes()).map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), expected, "{named}");
        };
        check("/messages/?session_id=1", Some("http://mcp.example:8080/messages/?session_id=1"));
        check("messages?id=1", Some("http://mcp.example:8080/v1/messages?id=1"));
        check("?id=1", Some("http://mcp.example:8080/v1/sse?id=1"));
        check("http://MCP.example:8080/m", Some("http://MCP.example:8080/m"));
        check("//mcp.example:8080/m", Some("http://mcp.example:8080/m"));
        for foreign in [
            "http://evil.example/m",
            "https://mcp.example:8080/m",
            "http://mcp.example/m",
            "//evil.example/m",
            "http://mcp.example:8080@evil.example/m",
            "http://me@mcp.example:8080/m",
        ] {
            check(foreign, None);
        }
    }
}
