//! The transparent proxy, with HTTP on both sides: requests and responses pass with their status, headers and bodies.
//!
//! Only rules and the limit on a message's length change that. Every message is on a tape before it is forwarded: a
//! tape for each session of the server, and one for each inferred conversation of requests without a session. Headers
//! are never recorded.

mod events;
mod forwarded_events;
mod headers;
mod mirrored;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::http::{
    HeaderMap, HeaderValue, Method, Request, Response as HttpResponse, StatusCode, header, request,
};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use scrubjay_core::entry::{Direction, Terminator, WhyUndelivered};
use scrubjay_core::envelope::{Envelope, JsonId};
use scrubjay_core::framing::one_line;
use scrubjay_core::message::Parts;
use scrubjay_core::protocol::header::SESSION_ID;
use scrubjay_core::protocol::{code, method};
use scrubjay_core::rules::{Forwarded, Judge, Judgement};
use scrubjay_http::{Client, SendError, root_cause};
use serde_json::json;

use self::forwarded_events::ForwardedEvents;
use super::body::{Body, BodyChunk, Response, json_line};
use super::conversations::Sender;
use super::refused::because;
use super::tcp::Tcp;
use super::{Front, Refusal, accepted, json_error, no_such_session, too_many_sessions};
use crate::bridge::endpoint::Endpoint;
use crate::budget::{Charge, MemoryUse};
use crate::client_message::ClientMessage;
use crate::delivery::Receipt;
use crate::record_first::RecordedEntry;
use crate::session::{Session, lock};
use crate::{notice, ruled_line};

/// The server that requests are forwarded to.
pub(super) struct Upstream {
    endpoint: Endpoint,
    client: Client,
    /// The name that rules know it by.
    name: String,
    state: Mutex<UpstreamState>,
}

#[derive(Default)]
struct UpstreamState {
    /// From the server's session ids to the ids of our sessions, which have the tapes.
    sessions: HashMap<Vec<u8>, String>,
    /// The rules' state in each of our sessions.
    judges: HashMap<String, Arc<Mutex<Judge>>>,
    /// How many requests of each session are under way.
    under_way: HashMap<String, usize>,
}

impl Upstream {
    pub(super) fn new(endpoint: Endpoint, name: &str) -> io::Result<Self> {
        let client = endpoint.client()?;
        Ok(Self { endpoint, client, name: name.to_owned(), state: Mutex::default() })
    }

    /// Tells whether a session has requests or streams under way.
    pub(super) fn is_busy(&self, session: &str) -> bool {
        lock(&self.state).under_way.contains_key(session)
    }

    /// Returns the session on whose tape a request belongs, if it names one that is known.
    pub(super) fn known_session(&self, headers: &HeaderMap) -> Option<String> {
        lock(&self.state).sessions.get(headers.get(SESSION_ID)?.as_bytes()).cloned()
    }

    pub(super) fn forget(&self, session: &str) {
        let mut state = lock(&self.state);
        state.sessions.retain(|_, id| id != session);
        state.judges.remove(session);
    }

    /// Returns the session on whose tape a request belongs; opens one if needed.
    async fn session(
        &self,
        front: &Front,
        tcp: &Tcp,
        headers: &HeaderMap,
        line: &[u8],
        opens: bool,
    ) -> Result<Arc<Session>, Refusal> {
        self.check_named(front, headers)?;
        if opens {
            return front.open_session(headers);
        }
        let Some(named) = headers.get(SESSION_ID) else {
            let inferred = front.conversation(tcp, &sender(front, headers, line)).await;
            return inferred.ok_or_else(|| Box::new(too_many_sessions()));
        };
        // Locked until the new session is stored, so that simultaneous requests do not open two.
        let mut state = lock(&self.state);
        if let Some(session) = live(&state, front, named) {
            return Ok(session);
        }
        // Opened with the server before this process started, or idle here for too long.
        let session = front.open_session(headers)?;
        state.sessions.insert(named.as_bytes().to_vec(), session.id.clone());
        Ok(session)
    }

    /// With several tokens, checks that the session a request names belongs to its sender: the server does not get the
    /// tokens, so it cannot check that. A session that was not opened here is refused, because its owner is unknown.
    fn check_named(&self, front: &Front, headers: &HeaderMap) -> Result<(), Refusal> {
        if front.config.auth_tokens.len() < 2 {
            return Ok(());
        }
        let mut named = headers.get_all(SESSION_ID).iter();
        let is_own = match (named.next(), named.next()) {
            (None, _) => true,
            (Some(named), None) => {
                live(&lock(&self.state), front, named).is_some_and(|own| front.is_open_to(&own, headers))
            }
            (Some(_), Some(_)) => false,
        };
        if is_own && mirrored::disguised(headers).is_none() {
            Ok(())
        } else {
            Err(Box::new(no_such_session()))
        }
    }

    /// Stores the session id that the server assigned; returns whether another client already has that session.
    fn opened(&self, front: &Front, given: &HeaderValue, session: &Session, headers: &HeaderMap) -> bool {
        let mut state = lock(&self.state);
        if live(&state, front, given).is_some_and(|other| !front.is_open_to(&other, headers)) {
            return true;
        }
        state.sessions.insert(given.as_bytes().to_vec(), session.id.clone());
        false
    }

    fn judge(&self, front: &Front, session: &Session) -> Option<Arc<Mutex<Judge>>> {
        let rules = front.gateway.rules()?;
        let new = || Judge::new(rules, &self.name, front.gateway.message_limit().bytes_max());
        if session.is_inferred {
            // Several clients may share an inferred session and use the same ids, so each request is judged only with
            // its own answer.
            return Some(Arc::new(Mutex::new(new())));
        }
        let judge = || Arc::new(Mutex::new(new()));
        Some(lock(&self.state).judges.entry(session.id.clone()).or_insert_with(judge).clone())
    }

    fn request(&self, method: Method, headers: HeaderMap, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.endpoint.url.clone();
        *request.headers_mut() = headers;
        request
    }
}

/// Returns our open session for a session id of the server.
fn live(state: &UpstreamState, front: &Front, named: &HeaderValue) -> Option<Arc<Session>> {
    state.sessions.get(named.as_bytes()).and_then(|id| front.gateway.session(id))
}

fn sender(front: &Front, headers: &HeaderMap, line: &[u8]) -> Sender {
    let message = std::str::from_utf8(line).ok().and_then(|line| ClientMessage::parse(line.into()).ok());
    message.map_or_else(|| Sender::unknown(headers), |message| Sender::of(&front.config, headers, &message))
}

/// Forwards a request, and its response back.
pub(super) async fn pass(
    front: &Arc<Front>,
    upstream: &Upstream,
    tcp: &Tcp,
    head: &request::Parts,
    body: Bytes,
) -> Response {
    let line = line_of(&body);
    let message = Envelope::parse(&line);
    let opens = message.method.as_deref() == Some(method::INITIALIZE);
    let session = match upstream.session(front, tcp, &head.headers, &line, opens).await {
        Ok(session) => session,
        Err(refused) => return *refused,
    };
    session.touch();
    let token_is_ours = !front.config.auth_tokens.is_empty();
    let exchange = Exchange {
        judge: upstream.judge(front, &session),
        headers: headers::up(&head.headers, token_is_ours, &upstream.endpoint),
        id: message.id,
        _busy: BusyGuard::new(front, &session.id),
        front: front.clone(),
        session,
    };
    let ForwardedRequest { headers, body, receipt } = match exchange.take_request(&line, body).await {
        Ok(forwarded) => forwarded,
        Err(answer) => return answer,
    };
    // The message may be large and the answer may take long: its memory is free meanwhile.
    drop(line);
    let request = upstream.request(head.method.clone(), headers, body);
    let response = upstream.client.send(request).await;
    // When its response begins, or fails to: until then it is unknown whether the server got the request.
    settle(receipt, response.as_ref().err());
    let response = match response {
        Ok(response) => response,
        Err(failure) => return exchange.fail(&failure.to_string()),
    };
    let status = response.status();
    let given = response.headers().get(SESSION_ID).cloned();
    if opens && status.is_success() {
        match given {
            Some(given) => {
                if upstream.opened(front, &given, &exchange.session, &head.headers) {
                    let why = "the server gave a session that another client has";
                    let answer = exchange.fail(why);
                    front.close_behind_answer(&exchange.session, why);
                    return answer;
                }
            }
            // A server without sessions: later requests are recognised by their connection and client.
            None => front.adopt(tcp, &Sender::unknown(&head.headers), &exchange.session).await,
        }
    }
    let named = head.headers.contains_key(SESSION_ID);
    let over = if opens && !status.is_success() {
        Some("the server opened no session")
    } else if named && status == StatusCode::NOT_FOUND {
        Some("the server does not know the session")
    } else if named && head.method == Method::DELETE && status.is_success() {
        Some("the client ended the session")
    } else {
        None
    };
    let session = exchange.session.clone();
    let answer = exchange.answer(response).await;
    if let Some(over) = over {
        front.close_behind_answer(&session, over);
    }
    answer
}

/// What is sent to the server.
struct ForwardedRequest {
    headers: HeaderMap,
    body: Bytes,
    receipt: Option<Receipt>,
}

/// One request, with everything that comes back for it.
struct Exchange {
    front: Arc<Front>,
    session: Arc<Session>,
    judge: Option<Arc<Mutex<Judge>>>,
    /// The headers for the server.
    headers: HeaderMap,
    /// The request's id.
    id: Option<JsonId>,
    _busy: BusyGuard,
}

impl Exchange {
    /// Tells whether rules apply to this server: then exactly the bytes that were judged are forwarded.
    fn is_strict(&self) -> bool {
        self.judge.as_ref().is_some_and(|judge| lock(judge).is_strict())
    }

    fn judge_line(&self, direction: Direction, line: &[u8]) -> Judgement {
        self.judge.as_ref().map(|judge| lock(judge).line(direction, line)).unwrap_or_default()
    }

    /// Records a line with the rules' judgement. Returns the receipts of what is forwarded and of what is sent back; if
    /// recording failed, the error for the client.
    fn record(
        &self,
        direction: Direction,
        line: &[u8],
        judgement: &Judgement,
    ) -> Result<(Option<Receipt>, Option<Receipt>), Vec<u8>> {
        let items = ruled_line::items(direction, Terminator::Lf, line, judgement);
        let recorded = self.session.record_backend(&items, ruled_line::forwarded_index(judgement), |_| ());
        let entry = recorded.map_err(|e| {
            let notice = notice::not_recorded(direction, line, &e.to_string()).into_iter().next();
            notice.map(|notice| notice.line.trim_ascii_end().to_vec()).unwrap_or_default()
        })?;
        let (forwarded, back) = match direction {
            Direction::ClientToServer => (WhyUndelivered::ServerLeft, WhyUndelivered::ClientLeft),
            Direction::ServerToClient => (WhyUndelivered::ClientLeft, WhyUndelivered::ServerLeft),
        };
        let goes_on = entry.filter(|_| judgement.forwarded != Forwarded::Nothing);
        let goes_back = entry.filter(|_| judgement.back.is_some());
        let goes_back = goes_back.map(|entry| RecordedEntry { mark: entry.mark.next(), ..entry });
        Ok((self.session.receipt(goes_on, forwarded), self.session.receipt(goes_back, back)))
    }

    /// Judges and records the host's message; returns what is sent to the server, or the response if nothing is.
    async fn take_request(&self, line: &[u8], body: Bytes) -> Result<ForwardedRequest, Response> {
        if body.is_empty() {
            return Ok(ForwardedRequest { headers: self.headers.clone(), body, receipt: None });
        }
        let is_strict = self.is_strict();
        if is_strict {
            self.check_readable(line).map_err(|refused| *refused)?;
        }
        let judgement = self.judge_line(Direction::ClientToServer, line);
        let headers = match &judgement.forwarded {
            Forwarded::Changed(other) => {
                mirrored::update(&self.headers, line, other).map_err(|refused| *refused)?
            }
            Forwarded::Unchanged | Forwarded::Nothing => self.headers.clone(),
        };
        let (receipt, back_receipt) = match self.record(Direction::ClientToServer, line, &judgement) {
            Ok(receipts) => receipts,
            Err(error) => return Err(json_body(StatusCode::INTERNAL_SERVER_ERROR, error, None)),
        };
        tokio::time::sleep(judgement.delay).await;
        let is_refused = judgement.marks.is_refused();
        match (judgement.forwarded, judgement.back) {
            // Rules answered a part of a batch, and the server would answer the rest: one response cannot hold both.
            (Forwarded::Unchanged | Forwarded::Changed(_), Some(_)) => {
                let why = "rules stop part of this batch: send its messages one by one";
                Err(json_error(StatusCode::BAD_REQUEST, None, code::INVALID_REQUEST, why))
            }
            // Without an id the client cannot match the error to its request, so the status must say it.
            (Forwarded::Nothing, Some(back)) if is_refused && !has_id(&back) => {
                Err(json_body(StatusCode::BAD_REQUEST, back, back_receipt))
            }
            (Forwarded::Nothing, Some(back)) => Err(json_body(StatusCode::OK, back, back_receipt)),
            (Forwarded::Nothing, None) => Err(accepted()),
            (Forwarded::Changed(other), None) => {
                Ok(ForwardedRequest { headers, body: other.into(), receipt })
            }
            // The line, not the body: it is what was judged.
            (Forwarded::Unchanged, None) if is_strict => {
                Ok(ForwardedRequest { headers, body: Bytes::copy_from_slice(line), receipt })
            }
            (Forwarded::Unchanged, None) => Ok(ForwardedRequest { headers, body, receipt }),
        }
    }

    /// Refuses a body that the server may read differently than rules do: some servers guess encodings, decompress, or
    /// trust the headers that repeat parts of the body.
    fn check_readable(&self, line: &[u8]) -> Result<(), Box<Response>> {
        if is_compressed(&self.headers) || !is_utf8(&self.headers) {
            let why = "with rules in force, a body must be JSON in UTF-8 and not compressed";
            let refused = json_error(StatusCode::UNSUPPORTED_MEDIA_TYPE, None, code::INVALID_REQUEST, why);
            return Err(Box::new(because("unreadable for rules", refused)));
        }
        mirrored::check(&self.headers, line)
    }

    /// Makes the response to a request that the server did not answer.
    fn fail(&self, why: &str) -> Response {
        let id = self.id.as_ref().map_or("null", JsonId::as_raw);
        let error = scrubjay_core::message::error(code::INTERNAL, why, None);
        let line = scrubjay_core::message::raw_error(id, &error);
        json_line(StatusCode::BAD_GATEWAY, self.session.record_refusal(line))
    }

    async fn answer(self, response: HttpResponse<Incoming>) -> Response {
        let (head, body) = response.into_parts();
        let is_readable =
            !is_compressed(&head.headers) && (!head.status.is_success() || is_utf8(&head.headers));
        if self.is_strict() && !is_readable {
            return self.fail("the server's answer is compressed or not in UTF-8, and rules cannot read it");
        }
        let is_stream = head.status.is_success() && is_event_stream(&head.headers);
        // The status is part of no message, so without a note the tape would not show it.
        if !head.status.is_success() {
            let status = head.status.as_u16();
            self.session.record_note(&json!({ "event": "http_status", "status": status }));
        }
        let mut answer = if is_stream {
            Response::new(Body::parts(self.events(body)))
        } else {
            match self.collect(body).await {
                Ok(body) => Response::new(body.into()),
                Err(failed) => return failed,
            }
        };
        *answer.status_mut() = head.status;
        *answer.headers_mut() = headers::down(&head.headers);
        answer
    }

    /// Reads and records an answer that is not a stream.
    async fn collect(&self, mut body: Incoming) -> Result<BodyChunk, Response> {
        let limit = self.front.gateway.message_limit();
        let mut text = Vec::new();
        let mut charge = self.front.gateway.budget().nothing(MemoryUse::Backend, true);
        while let Some(frame) = body.frame().await {
            let frame = frame
                .map_err(|e| self.fail(&format!("the server's answer broke off: {}", root_cause(&e))))?;
            let Ok(data) = frame.into_data() else { continue };
            if limit.is_exceeded_by(text.len() + data.len()) {
                return Err(self.fail(&format!("the server's answer is longer than the limit of {limit}")));
            }
            // Twice: the text as it came, and as a line for the tape.
            if let Err(full) = charge.resize_within(2 * (text.len() + data.len()), ROOM_WAIT_MAX).await {
                return Err(self.fail(&format!("the server's answer was not read to its end: {full}")));
            }
            text.extend_from_slice(&data);
        }
        let line = line_of(&text);
        if line.is_empty() {
            return Ok(BodyChunk::new(text, None));
        }
        let (answer, receipt) = match self.take_message(&line).await {
            // The line that was judged; without rules the bytes as they came.
            HostDelivery::Unchanged(receipt) if self.is_strict() => (line, receipt),
            HostDelivery::Unchanged(receipt) => (text, receipt),
            HostDelivery::Changed(other, receipt) => (other, receipt),
            HostDelivery::Nothing => return Ok(BodyChunk::new(Bytes::new(), None)),
        };
        // It shrinks, which cannot fail.
        let _ = charge.resize(answer.len());
        Ok(BodyChunk::new(Bytes::from_owner(ChargedAnswer { answer, _charge: charge }), receipt))
    }

    /// Judges and records a message of the server; returns what the host gets.
    async fn take_message(&self, line: &[u8]) -> HostDelivery {
        self.session.touch();
        let judgement = self.judge_line(Direction::ServerToClient, line);
        let (receipt, back_receipt) = match self.record(Direction::ServerToClient, line, &judgement) {
            Ok(receipts) => receipts,
            Err(error) => return HostDelivery::Changed(error, None),
        };
        tokio::time::sleep(judgement.delay).await;
        if let Some(back) = judgement.back {
            self.answer_server(back, back_receipt);
        }
        match judgement.forwarded {
            Forwarded::Unchanged => HostDelivery::Unchanged(receipt),
            Forwarded::Changed(other) => HostDelivery::Changed(other, receipt),
            Forwarded::Nothing => HostDelivery::Nothing,
        }
    }

    /// Sends the server the answer that rules give in place of the host.
    fn answer_server(&self, answer: Vec<u8>, receipt: Option<Receipt>) {
        let front = self.front.clone();
        let mut headers = self.headers.clone();
        mirrored::remove(&mut headers);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        tokio::spawn(async move {
            let Some(upstream) = &front.upstream else { return };
            let sent = upstream.client.send(upstream.request(Method::POST, headers, answer.into())).await;
            settle(receipt, sent.as_ref().err());
            if let Err(failure) = sent {
                tracing::warn!(why = %failure, "an answer did not reach the server");
            }
        });
    }

    /// Forwards events, each as soon as it is complete and on tape.
    fn events(self, body: Incoming) -> impl futures_util::Stream<Item = io::Result<BodyChunk>> {
        let state = ForwardedEvents::new(self, body);
        futures_util::stream::unfold(state, |mut state| async move {
            let next = state.next().await?;
            Some((next, state))
        })
    }
}

/// How long an answer waits for memory.
const ROOM_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(10);

/// An answer, with its charge until it is written to the host.
struct ChargedAnswer {
    answer: Vec<u8>,
    _charge: Charge,
}

impl AsRef<[u8]> for ChargedAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}

/// What the host gets of a message.
enum HostDelivery {
    Unchanged(Option<Receipt>),
    Changed(Vec<u8>, Option<Receipt>),
    Nothing,
}

/// Notes whether a message was delivered to the server. It counts as delivered unless no connection could be made:
/// after that the server may have read it.
fn settle(receipt: Option<Receipt>, failure: Option<&SendError>) {
    let Some(receipt) = receipt else { return };
    if failure.is_some_and(|failure| failure.is_unreachable) {
        receipt.undelivered(WhyUndelivered::ServerUnreachable);
    } else {
        receipt.delivered();
    }
}

/// Keeps a session counted as busy.
struct BusyGuard {
    front: Arc<Front>,
    session: String,
}

impl BusyGuard {
    fn new(front: &Arc<Front>, session: &str) -> Self {
        if let Some(upstream) = &front.upstream {
            *lock(&upstream.state).under_way.entry(session.to_owned()).or_default() += 1;
        }
        Self { front: front.clone(), session: session.to_owned() }
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        let Some(upstream) = &self.front.upstream else { return };
        let mut state = lock(&upstream.state);
        if let Some(count) = state.under_way.get_mut(&self.session) {
            *count -= 1;
            if *count == 0 {
                state.under_way.remove(&self.session);
            }
        }
    }
}

/// Returns a body as one line for the tape: without the line breaks between the tokens of JSON.
fn line_of(body: &[u8]) -> Vec<u8> {
    let mut line = body.trim_ascii().to_vec();
    one_line(&mut line);
    line
}

fn is_compressed(headers: &HeaderMap) -> bool {
    let is_identity = |coding: &str| matches!(coding.trim().to_ascii_lowercase().as_str(), "" | "identity");
    let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
    codings.any(|codings| !codings.to_str().is_ok_and(|codings| codings.split(',').all(is_identity)))
}

/// Tells whether the headers say that a body is UTF-8, or name no encoding.
fn is_utf8(headers: &HeaderMap) -> bool {
    let mut kinds = headers.get_all(header::CONTENT_TYPE).iter();
    let (kind, others) = (kinds.next(), kinds.next());
    let kind = kind.map_or("", |kind| kind.to_str().unwrap_or("charset=?")).to_ascii_lowercase();
    let mut charsets = kind.split(';').filter_map(|part| part.trim().strip_prefix("charset"));
    others.is_none()
        && charsets.all(|charset| {
            let charset = charset.trim().trim_start_matches('=').trim().trim_matches('"');
            matches!(charset, "utf-8" | "utf8" | "us-ascii")
        })
}

/// Tells whether an answer has the id of its request.
fn has_id(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    Parts::of(&text).map_or(true, |parts| parts.id.is_some())
}

fn json_body(status: StatusCode, line: Vec<u8>, receipt: Option<Receipt>) -> Response {
    let mut response = Response::new(BodyChunk::new(line, receipt).into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
}
