//! Forwards a server's event stream to the host: each event once it is complete and on tape.

use std::collections::VecDeque;
use std::io;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::json;

use super::events::{self, EventSplitter};
use super::{Exchange, HostDelivery};
use crate::front::http::body::BodyChunk;

/// A stream of the server that is forwarded to the host.
pub(super) struct ForwardedEvents {
    exchange: Exchange,
    body: Incoming,
    splitter: EventSplitter,
    /// Events that the host has not got yet.
    ready: VecDeque<BodyChunk>,
    over: bool,
}

impl ForwardedEvents {
    pub(super) fn new(exchange: Exchange, body: Incoming) -> Self {
        Self { exchange, body, splitter: EventSplitter::new(), ready: VecDeque::new(), over: false }
    }

    /// Returns the next bytes for the host; nothing follows an error.
    pub(super) async fn next(&mut self) -> Option<io::Result<BodyChunk>> {
        let next = self.read().await?;
        self.over |= next.is_err();
        Some(next)
    }

    async fn read(&mut self) -> Option<io::Result<BodyChunk>> {
        let limit = self.exchange.front.gateway.message_limit();
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(Ok(ready));
            }
            if self.over {
                return None;
            }
            let data = match self.body.frame().await {
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                Some(Err(e)) => return Some(Err(io::Error::other(e))),
                None => {
                    self.over = true;
                    // By the specification clients drop an incomplete event, so it is forwarded unrecorded. With rules in
                    // force it is dropped here, in case a lenient client reads it.
                    let rest = self.splitter.rest();
                    if !self.exchange.is_strict() {
                        self.ready.push_back(BodyChunk::new(rest, None));
                    }
                    continue;
                }
            };
            for event in self.splitter.feed(&data) {
                let is_strict = self.exchange.is_strict();
                let (event, receipt) = match events::message(&event, limit) {
                    None if is_strict => (events::without_message(&event), None),
                    None => (event, None),
                    Some(line) => match self.exchange.take_message(&line).await {
                        // Exactly what was judged, in an event that all parsers read alike.
                        HostDelivery::Unchanged(receipt) if is_strict => {
                            (events::with_message(&event, Some(&line)), receipt)
                        }
                        HostDelivery::Unchanged(receipt) => (event, receipt),
                        HostDelivery::Changed(other, receipt) => {
                            (events::with_message(&event, Some(&other)), receipt)
                        }
                        HostDelivery::Nothing => (events::with_message(&event, None), None),
                    },
                };
                self.ready.push_back(BodyChunk::new(event, receipt));
            }
            if self.splitter.is_too_long(limit) {
                let partial = self.splitter.rest();
                let hash = blake3::hash(&partial).to_hex();
                let note =
                    json!({ "event": "too_long", "hashed_bytes": partial.len(), "blake3": hash.as_str() });
                self.exchange.session.record_note(&note);
                return Some(Err(io::Error::other("an event of the server is too long")));
            }
        }
    }
}
