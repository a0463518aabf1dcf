//! Sends one message and passes on everything that comes back for it: JSON, events, or an HTTP error.
//!
//! A legacy event stream that breaks before the answer is resumed where it broke. Every request of the message is
//! answered exactly once: by the server, or by an error that says why the server did not.

mod answer;
mod first_transport;
mod stream;

use std::sync::Mutex;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use scrubjay_core::entry::WhyUndelivered;
use scrubjay_core::envelope::{Envelope, MessageKind};
use scrubjay_core::protocol::method;
use tokio::sync::Notify;
use tokio::time::Instant;

pub(super) use self::stream::{listen_to_standing_stream, next_data};
use super::first_transport::FirstTransport;
use super::http::{Bridge, BridgeEnd};
use super::outgoing::SESSION;
use super::refusal::{HttpAnswer, excerpt};
use super::unanswered::{UnansweredRequests, is_message};
use crate::session::lock;

/// The longest session id that is taken from a server, in bytes: it is kept as long as the connection.
const SESSION_BYTES_MAX: usize = 4096;
/// How long a server may send nothing at all.
const SILENCE_MAX: Duration = Duration::from_secs(300);
/// A larger answer needs one of the `LARGE_ANSWERS_MAX` permits while it is read.
const LARGE_BYTES: usize = 1 << 20;
/// How long an answer waits for memory.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(10);

/// Why a message was not answered by its server.
#[derive(Debug)]
pub(super) enum Failure {
    /// The client cancelled it, and waits for no answer.
    Cancelled,
    /// The reason, with the HTTP answer if there was one.
    Unanswered(String, Option<Box<HttpAnswer>>),
}

impl Failure {
    fn unanswered(why: impl Into<String>) -> Self {
        Self::Unanswered(why.into(), None)
    }
}

/// A message under way.
pub(super) struct Exchange<'a> {
    pub(super) bridge: &'a Bridge,
    pub(super) message: &'a Envelope,
    /// The message's number in the stream to the bridge, until its delivery is reported; `None` if the exchange only
    /// listens.
    number: Mutex<Option<u64>>,
    waiting: UnansweredRequests,
    /// Notified when the client cancels the message.
    cancelled: &'a Notify,
    deadline: Option<Instant>,
    /// Whether the stream is left at the answer, because nobody needs what follows.
    ends_with_answer: bool,
    is_modern: bool,
    session_lost: bool,
    /// The id of the request, if it is a number: lines on its stream are passed on with it.
    stream_of: Option<u64>,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(bridge: &'a Bridge, number: u64, message: &'a Envelope, cancelled: &'a Notify) -> Self {
        Self { number: Mutex::new(Some(number)), ..Self::listening(bridge, message, cancelled) }
    }

    fn listening(bridge: &'a Bridge, message: &'a Envelope, cancelled: &'a Notify) -> Self {
        let waiting = UnansweredRequests::for_requests(message);
        let is_modern = lock(&bridge.protocol).modern_version(message).is_some();
        let (deadline, ends_with_answer, session_lost) = (None, false, false);
        let stream_of = message.id.as_ref().filter(|_| message.kind == MessageKind::Request);
        let stream_of = stream_of.and_then(|id| id.as_raw().parse().ok());
        let number = Mutex::default();
        Self {
            bridge,
            message,
            number,
            waiting,
            cancelled,
            deadline,
            ends_with_answer,
            is_modern,
            session_lost,
            stream_of,
        }
    }

    /// Limits the exchange in time, and ends it with the answer.
    pub(super) fn bounded(mut self, limit: Duration) -> Self {
        self.deadline = Some(Instant::now() + limit);
        self.ends_with_answer = true;
        self
    }

    /// Sends the message and passes on what comes back; returns whether the server accepted it.
    pub(super) async fn run(mut self, body: Bytes) -> bool {
        let posted = self.post(body).await;
        self.was_sent(None);
        let taken = self.settle(posted).await;
        if self.session_lost {
            // The end of the stream tells the client, which may begin another session.
            self.bridge.end(BridgeEnd::SessionLost);
        }
        taken
    }

    /// Answers the requests that still wait, instead of the server.
    async fn settle(&mut self, posted: Result<(), Failure>) -> bool {
        let failure = match posted {
            Ok(()) if self.waiting.is_empty() => return true,
            Ok(()) => Failure::unanswered("the server accepted the request, but gave no answer"),
            Err(failure) => failure,
        };
        if let Failure::Unanswered(why, answered) = &failure {
            for id in self.waiting.give_up() {
                self.bridge.refuse(id.as_raw(), why, answered.as_deref()).await;
            }
            tracing::debug!(method = self.message.method, why, "a message was not answered by its server");
        }
        false
    }

    async fn post(&mut self, body: Bytes) -> Result<(), Failure> {
        if self.bridge.endpoint.first_transport || self.bridge.first_transport.initialized() {
            let open =
                || async { Ok(FirstTransport::begin(self.bridge, self.open_first_transport().await?)) };
            let first = self.bridge.first_transport.get_or_try_init(open).await?.clone();
            return self.post_to(&first, body).await;
        }
        let opens = self.message.method.as_deref() == Some(method::INITIALIZE);
        let request = self.post_request(body.clone());
        let response = self.send(request).await?;
        if opens && response.status().is_success() {
            lock(&self.bridge.protocol).session = session_of(&response);
        }
        if response.status().is_success() && is_event_stream(&response) {
            return self.follow(response.into_body()).await;
        }
        let answered = HttpAnswer::of(&response);
        let redirect = response.status().is_redirection().then(|| redirect_text(&response));
        self.session_lost = response.status() == StatusCode::NOT_FOUND && self.names_session();
        let (text, _permit) = self.collect(response.into_body()).await?;
        // A server that refuses `initialize`, and not in JSON-RPC, may speak the first transport.
        if opens && may_be_first(answered.status) && !is_message(&Envelope::parse(&text)) {
            match self.open_first_transport().await {
                Ok(opened) => {
                    let begin = || async { FirstTransport::begin(self.bridge, opened) };
                    let first = self.bridge.first_transport.get_or_init(begin).await.clone();
                    return self.post_to(&first, body).await;
                }
                Err(Failure::Cancelled) => return Err(Failure::Cancelled),
                Err(Failure::Unanswered(why, _)) => {
                    tracing::debug!(why, "the server has no event stream either")
                }
            }
        }
        self.take_text(answered, redirect, text).await
    }

    /// Reports, once, whether the message was sent. The first HTTP request of an exchange carries the message or opens
    /// the stream it goes to, so its outcome counts.
    fn was_sent(&self, why_not: Option<WhyUndelivered>) {
        let number = lock(&self.number).take();
        if let Some(number) = number {
            (self.bridge.on_sent)(number, why_not);
        }
    }

    fn post_request(&self, body: Bytes) -> Request<Full<Bytes>> {
        let mut headers = lock(&self.bridge.protocol).headers(self.message);
        if self.is_modern {
            headers.extend(lock(&self.bridge.mirrored).headers(self.message, &body));
        }
        let mut request = self.bridge.request(Method::POST, headers, body);
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json);
        let either = HeaderValue::from_static("application/json, text/event-stream");
        request.headers_mut().insert(header::ACCEPT, either);
        request
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failure> {
        let is_post = request.method() == Method::POST;
        let sent = tokio::time::timeout(SILENCE_MAX, self.bridge.client.send(request));
        match self.unless_stopped(sent).await? {
            Ok(answered) => {
                match &answered {
                    Ok(_) if !is_post => {}
                    // Nothing was sent. After any other failure the server may have got it, which counts as sent.
                    Err(failure) if failure.is_unreachable || !is_post => {
                        self.was_sent(Some(WhyUndelivered::ServerUnreachable));
                    }
                    _ => self.was_sent(None),
                }
                answered.map_err(|failure| Failure::unanswered(failure.to_string()))
            }
            Err(_) => Err(Failure::unanswered(format!("the server said nothing for {SILENCE_MAX:?}"))),
        }
    }

    /// Waits for the server, unless the client cancels or the deadline passes.
    async fn unless_stopped<T>(&self, future: impl Future<Output = T>) -> Result<T, Failure> {
        let deadline = async {
            match self.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            done = future => Ok(done),
            () = self.cancelled.notified() => Err(Failure::Cancelled),
            () = deadline => Err(Failure::unanswered("the server did not answer in time")),
        }
    }

    fn names_session(&self) -> bool {
        let legacy = !self.is_modern && self.message.method.as_deref() != Some(method::INITIALIZE);
        legacy && lock(&self.bridge.protocol).session.is_some()
    }
}

/// Returns whether servers of the first transport refuse a POST to their stream with this status.
fn may_be_first(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED)
}

/// Returns the id of the session that a server opened. It is copied: the header shares its buffer with the whole
/// response.
fn session_of(response: &Response<Incoming>) -> Option<HeaderValue> {
    let session = response.headers().get(SESSION)?.as_bytes();
    if session.len() > SESSION_BYTES_MAX {
        tracing::warn!(bytes = session.len(), "the name that the server gave the session is too long");
        return None;
    }
    HeaderValue::from_bytes(session).ok()
}

fn is_event_stream(response: &Response<Incoming>) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
}

fn redirect_text(response: &Response<Incoming>) -> String {
    let to = response.headers().get(header::LOCATION).map(|to| to.as_bytes()).unwrap_or_default();
    // A query or fragment may hold a secret.
    let to = to.split(|b| matches!(b, b'?' | b'#')).next().unwrap_or_default();
    let status = response.status();
    format!("the server answered HTTP {status}{}: redirects are not followed", excerpt(to))
}
