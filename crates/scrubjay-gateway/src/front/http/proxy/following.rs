//! A server's event stream on its way to the host: each event passes once it is complete and on the tape.

use std::collections::VecDeque;
use std::io;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::json;

use super::events::{self, Cutter};
use super::{Exchange, HostDelivery};
use crate::front::http::body::BodyChunk;

/// A stream of the server's on its way to the host.
pub(super) struct Following {
    exchange: Exchange,
    body: Incoming,
    cutter: Cutter,
    /// Events for the host.
    ready: VecDeque<BodyChunk>,
    over: bool,
}

impl Following {
    pub(super) fn new(exchange: Exchange, body: Incoming) -> Self {
        Self { exchange, body, cutter: Cutter::new(), ready: VecDeque::new(), over: false }
    }

    /// Returns the next bytes for the host; an error is the last.
    pub(super) async fn next(&mut self) -> Option<io::Result<BodyChunk>> {
        let next = self.read().await?;
        self.over |= next.is_err();
        Some(next)
    }

    async fn read(&mut self) -> Option<io::Result<BodyChunk>> {
        let limit = self.exchange.front.gateway.message_bytes_max();
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
                    // What is not complete counts for nobody, and passes; under rules no reader may try.
                    let rest = self.cutter.rest();
                    if !self.exchange.is_strict() {
                        self.ready.push_back(BodyChunk::new(rest, None));
                    }
                    continue;
                }
            };
            for event in self.cutter.feed(&data) {
                let is_strict = self.exchange.is_strict();
                let (event, receipt) = match events::message(&event, limit) {
                    None if is_strict => (events::without_message(&event), None),
                    None => (event, None),
                    Some(line) => match self.exchange.say(&line).await {
                        // Exactly what was judged, in an event that every reader reads alike.
                        HostDelivery::AsItCame(receipt) if is_strict => {
                            (events::with_message(&event, Some(&line)), receipt)
                        }
                        HostDelivery::AsItCame(receipt) => (event, receipt),
                        HostDelivery::Other(other, receipt) => {
                            (events::with_message(&event, Some(&other)), receipt)
                        }
                        HostDelivery::Nothing => (events::with_message(&event, None), None),
                    },
                };
                self.ready.push_back(BodyChunk::new(event, receipt));
            }
            if self.cutter.is_too_long(limit) {
                let held = self.cutter.rest();
                let hash = blake3::hash(&held).to_hex();
                let note =
                    json!({ "event": "too_long", "hashed_bytes": held.len(), "blake3": hash.as_str() });
                self.exchange.session.record_note(&note);
                return Some(Err(io::Error::other("an event of the server is too long")));
            }
        }
    }
}
