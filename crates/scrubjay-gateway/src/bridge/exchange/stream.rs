//! Reads streams of events, resumes them where they break, and opens the standing stream.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use scrubjay_core::envelope::Envelope;
use scrubjay_core::protocol;
use tokio::sync::Notify;

use super::{Exchange, Failure, LARGE_BYTES, ROOM_WAIT_MAX, is_event_stream};
use crate::bridge::http::Bridge;
use crate::bridge::refusal::HttpAnswer;
use crate::bridge::sse::{Event, Parser};
use crate::budget::MemoryUse;
use crate::session::lock;

/// How many attempts in a row to resume a broken stream may fail.
const RESUMES_MAX: u32 = 5;
/// The pause before a stream is resumed, if the server does not state one. Doubled with each failure.
const RESUME_PAUSE: Duration = Duration::from_secs(1);
/// A server may state a pause of 0, which would make the bridge a busy loop.
const RESUME_PAUSE_MIN: Duration = Duration::from_millis(100);
/// A server may also state one that is longer than any client waits.
const RESUME_PAUSE_MAX: Duration = Duration::from_secs(30);
const LAST_EVENT_ID: HeaderName = HeaderName::from_static(protocol::header::LAST_EVENT_ID);

impl Exchange<'_> {
    /// Reads a stream of events until it ends with all requests answered, and resumes it where it breaks.
    pub(super) async fn follow(&mut self, mut body: Incoming) -> Result<(), Failure> {
        let mut parser = Parser::new(self.bridge.endpoint.message_limit);
        let mut failures = 0;
        loop {
            let before = parser.last_id().map(str::to_owned);
            let broken = self.read_events(&mut body, &mut parser).await?;
            if self.waiting.is_empty() {
                return Ok(());
            }
            // A stream that made progress before it broke starts the count again.
            failures = if broken && parser.last_id() == before.as_deref() { failures + 1 } else { 0 };
            parser.restart();
            body = loop {
                // The modern era has no resumption, and without an event id there is no place to resume at.
                if self.is_modern || parser.last_id().is_none() || failures > RESUMES_MAX {
                    return Err(Failure::unanswered("the server closed the stream before it answered"));
                }
                let pause = pause(parser.retry(), failures);
                self.unless_stopped(tokio::time::sleep(pause)).await?;
                match self.open_stream(parser.last_id()).await {
                    Ok(body) => break body,
                    Err(Failure::Unanswered(_, None)) => failures += 1,
                    Err(failure) => return Err(failure),
                }
            };
        }
    }

    /// Opens the server's standing stream, or resumes a stream after an event.
    pub(super) async fn open_stream(&self, last_event_id: Option<&str>) -> Result<Incoming, Failure> {
        let mut headers = lock(&self.bridge.protocol).session_headers();
        if let Some(id) = last_event_id.and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(LAST_EVENT_ID, id);
        }
        let mut request = self.bridge.request(Method::GET, headers, Bytes::new());
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        let response = self.send(request).await?;
        if response.status().is_success() && is_event_stream(&response) {
            return Ok(response.into_body());
        }
        let status = response.status();
        let why = format!("the server does not take up a broken stream: it answered HTTP {status}");
        Err(Failure::Unanswered(why, Some(Box::new(HttpAnswer::of(&response)))))
    }

    /// Passes on messages until the stream ends; returns whether it broke.
    async fn read_events(&mut self, body: &mut Incoming, parser: &mut Parser) -> Result<bool, Failure> {
        let bridge = self.bridge;
        let mut permit = None;
        let mut charge = bridge.budget.nothing(MemoryUse::Backend, true);
        loop {
            let data = match self.unless_stopped(next_data(body)).await? {
                None => return Ok(false),
                Some(Err(())) => return Ok(true),
                Some(Ok(data)) => data,
            };
            for event in parser.feed(&data) {
                match event {
                    Event::Message(line) => self.pass(&line, false).await,
                    Event::Endpoint(_) => {}
                    Event::TooLong(bytes) => {
                        tracing::warn!(bytes, "an event of the server is too long, and was dropped");
                        if !self.waiting.is_empty() {
                            return Err(self.too_long());
                        }
                    }
                }
                if self.ends_with_answer && self.waiting.is_empty() {
                    return Ok(false);
                }
            }
            if parser.held_bytes() <= LARGE_BYTES {
                permit = None;
            } else if permit.is_none() {
                permit = self.unless_stopped(bridge.large_answers.acquire()).await?.ok();
            }
            let held = charge.resize_within(parser.held_bytes(), ROOM_WAIT_MAX).await;
            held.map_err(|full| Failure::unanswered(full.to_string()))?;
        }
    }
}

/// Listens to a legacy server's standing stream for as long as the server offers one.
pub(in crate::bridge) async fn listen_to_standing_stream(bridge: &Bridge) {
    let (nothing, never) = (Envelope::default(), Notify::new());
    let mut listener = Exchange::listening(bridge, &nothing, &never);
    let mut parser = Parser::new(bridge.endpoint.message_limit);
    let mut failures = 0;
    loop {
        match listener.open_stream(parser.last_id()).await {
            Ok(mut body) => {
                failures = 0;
                // However it ended, it is opened again.
                let _ = listener.read_events(&mut body, &mut parser).await;
                parser.restart();
            }
            // It answered, but offers no stream, or not any more.
            Err(Failure::Cancelled | Failure::Unanswered(_, Some(_))) => return,
            Err(Failure::Unanswered(_, None)) => failures += 1,
        }
        tokio::time::sleep(pause(parser.retry(), failures)).await;
    }
}

/// Returns the pause that the server wants, doubled with each failure.
fn pause(wanted: Option<Duration>, failures: u32) -> Duration {
    let pause = wanted.unwrap_or(RESUME_PAUSE).max(RESUME_PAUSE_MIN);
    pause.saturating_mul(1 << failures.min(5)).min(RESUME_PAUSE_MAX)
}

/// Reads more of a body; an error means that it broke.
pub(in crate::bridge) async fn next_data(body: &mut Incoming) -> Option<Result<Bytes, ()>> {
    loop {
        match body.frame().await? {
            Err(_) => return Some(Err(())),
            Ok(frame) => {
                if let Ok(data) = frame.into_data() {
                    return Some(Ok(data));
                }
            }
        }
    }
}
