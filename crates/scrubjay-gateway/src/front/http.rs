//! The gateway on Streamable HTTP, both eras on one endpoint: `POST`, `GET` and `DELETE` on `/mcp`.
//!
//! A request is answered with plain JSON when its answer is all there is to say, and with an event stream as
//! soon as something else comes first. Legacy clients have sessions and may take a broken stream up again;
//! modern clients have neither, and leaving calls the request off.

pub(crate) mod body;
mod conversations;
mod cors;
pub(crate) mod guard;
mod headers;
mod idle_memory;
mod legacy;
mod modern;
mod peer;
mod proxy;
mod refused;
mod relief;
mod stream;
mod tcp;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body as RequestBody;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header, request};
use scrubjay_core::framing::one_line;
use scrubjay_core::message;
use scrubjay_core::protocol::code;
use scrubjay_tape::format::header::TapeKind;

use self::body::{Body, Response};
use self::refused::{BodyAllowance, BodyEnd, ReadBody, Reason, because};
use self::tcp::Tcp;
use crate::bridge::endpoint::Endpoint;
use crate::budget::{Budget, Charge, Full, SESSION_KEY, Use};
use crate::client_message::ClientMessage;
use crate::config::HttpConfig;
use crate::gateway::{Gateway, NewTape, unreadable_answer};
use crate::listener::{self, Connections, TrackedConnection};
use crate::session::Session;

/// An answer to a request that goes no further.
pub(crate) type Refusal = Box<Response>;

/// How often idle sessions are looked for: a small part of how long they may be idle, within these bounds.
const SWEEPS_PER_IDLE: u32 = 16;
const SWEEP_MIN: Duration = Duration::from_millis(50);
const SWEEP_MAX: Duration = Duration::from_secs(1);

/// Headers up to this are not counted.
const HEADER_BYTES_FREE: usize = 4 * 1024;

/// How long the answer that ends a session may take.
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// How long what is on its way to clients may take when the gateway is stopped.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What every request handler needs.
pub(crate) struct Front {
    gateway: Arc<Gateway>,
    config: HttpConfig,
    streams: stream::Streams,
    conversations: conversations::Conversations,
    refusals: refused::Refusals,
    /// The one server that requests are passed on to as they are, where it speaks HTTP itself.
    upstream: Option<proxy::Upstream>,
}

/// Serves HTTP on a listener until the future `until` is done.
///
/// # Errors
/// The listener fails.
pub async fn serve(
    gateway: Arc<Gateway>,
    listener: tokio::net::TcpListener,
    config: HttpConfig,
    until: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    run(gateway, None, listener, config, until).await
}

/// Passes requests on to a server that speaks HTTP itself, recording, until the future `until` is done.
///
/// The gateway keeps the tapes and the rules; it answers nothing.
///
/// # Errors
/// The listener fails, or the system's certificates cannot be read.
pub async fn serve_proxy(
    gateway: Arc<Gateway>,
    upstream: Endpoint,
    name: &str,
    listener: tokio::net::TcpListener,
    config: HttpConfig,
    until: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let upstream = proxy::Upstream::new(upstream, name)?;
    run(gateway, Some(upstream), listener, config, until).await
}

async fn run(
    gateway: Arc<Gateway>,
    upstream: Option<proxy::Upstream>,
    listener: tokio::net::TcpListener,
    config: HttpConfig,
    until: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let front = Arc::new(Front {
        refusals: refused::Refusals::new(gateway.new_tape(NewTape {
            name: "refused",
            kind: TapeKind::Refused,
            client: None,
        })),
        gateway: gateway.clone(),
        config,
        streams: stream::Streams::default(),
        conversations: conversations::Conversations::default(),
        upstream,
    });
    tokio::spawn(sweep(Arc::downgrade(&front)));
    let closing = Arc::downgrade(&front);
    let connections = Connections::new(
        front.config.connections,
        Box::new(move |why| {
            if let Some(front) = closing.upgrade() {
                front.note_closed(why);
            }
        }),
    );
    tokio::spawn(relief::relieve(Arc::downgrade(&front), Arc::downgrade(&connections)));
    tokio::spawn(idle_memory::give_back(Arc::downgrade(&connections)));
    let meet = |place: Arc<TrackedConnection>, ends| {
        let (front, tcp) = (front.clone(), Tcp::new(ends));
        move |request| handle(front.clone(), tcp.clone(), place.clone(), request)
    };
    tokio::select! {
        () = listener::serve(listener, connections.clone(), meet) => {}
        () = until => {}
    }
    let reason = "the gateway was stopped";
    front.refusals.end(&gateway, reason);
    front.streams.give_up_left();
    gateway.stopping();
    gateway.last_words(LAST_WORDS).await;
    // What the tapes say was not delivered must not be after all.
    connections.hold();
    gateway.shut_down(reason);
    Ok(())
}

async fn sweep(front: std::sync::Weak<Front>) {
    loop {
        let Some((idle_max, grace)) =
            front.upgrade().map(|front| (front.config.session_idle_max, front.config.disconnect_grace))
        else {
            return;
        };
        tokio::time::sleep((idle_max.min(grace) / SWEEPS_PER_IDLE).clamp(SWEEP_MIN, SWEEP_MAX)).await;
        let Some(front) = front.upgrade() else { return };
        for session in front.gateway.idle_sessions(idle_max) {
            if !front.upstream.as_ref().is_some_and(|upstream| upstream.is_busy(&session)) {
                front.close_session(&session, "nothing was said for too long");
            }
        }
        front.close_left_sessions();
        front.gateway.end_idle_connections(front.config.session_idle_max);
        front.streams.keep_only(|session| front.gateway.session(session).is_some());
        front.refusals.flush(&front.gateway);
    }
}

impl Front {
    fn close_session(&self, id: &str, reason: &str) -> bool {
        self.forget_session(id);
        self.gateway.close_session(id, reason)
    }

    /// Ends a session with the answer that is on its way to its client: the tape ends when that is written, or lost.
    fn close_behind_answer(&self, session: &Arc<Session>, reason: &'static str) {
        self.forget_session(&session.id);
        let (gateway, session) = (self.gateway.clone(), session.clone());
        tokio::spawn(async move {
            // What is not taken in time is noted as undelivered.
            let _ = tokio::time::timeout(LAST_ANSWER, session.all_said()).await;
            gateway.close_session(&session.id, reason);
        });
    }

    fn forget_session(&self, id: &str) {
        self.streams.forget(id);
        self.conversations.forget(id);
        if let Some(upstream) = &self.upstream {
            upstream.forget(id);
        }
    }

    /// Ends the sessions of clients that left without a word: all their streams broke off, and nothing came since.
    fn close_left_sessions(&self) {
        let grace = if self.gateway.is_transparent() {
            // Each has a server of its own, which nobody else can use.
            self.config.disconnect_grace.min(self.config.session_idle_max)
        } else {
            self.config.session_idle_max
        };
        for id in self.streams.left_for(grace) {
            if self.gateway.session(&id).is_some_and(|session| session.silent() > grace) {
                self.close_session(&id, "its client left");
            }
        }
    }

    /// Keeps on a tape that a connection was closed from our side.
    fn note_closed(&self, why: &'static str) {
        let (status, seen) = (StatusCode::REQUEST_TIMEOUT, ReadBody::default());
        self.refusals.note(&self.gateway, Reason(why), status, &Method::CONNECT, &seen, None);
    }

    /// Opens a session bound to the request's credentials; requests with other credentials are refused in it.
    fn open_session(&self, headers: &HeaderMap) -> Result<Arc<Session>, Refusal> {
        if self.gateway.session_count() >= self.config.sessions_max {
            return Err(Box::new(too_many_sessions()));
        }
        let session = self.gateway.open_session("http");
        session.bind_to(conversations::principal(headers));
        if let Some(name) = guard::principal_name(&self.config, headers) {
            session.record_note(&serde_json::json!({ "event": "session_principal", "principal": name }));
        }
        Ok(session)
    }

    /// Tells whether whoever sends a request may speak in a session. Before a server that is shown the credentials
    /// itself, that is for the server to say.
    fn is_open_to(&self, session: &Session, headers: &HeaderMap) -> bool {
        let is_told_here = self.upstream.is_none() || self.config.auth_tokens.len() > 1;
        !is_told_here || session.is_inferred || session.is_bound_to(&conversations::principal(headers))
    }

    /// Returns the room for the body of a request.
    fn body_room(&self, session: Option<&Session>, headers: &HeaderMap) -> Charge {
        match session.filter(|session| self.is_open_to(session, headers)) {
            Some(session) => session.account.nothing(Use::Body),
            None => self.gateway.budget().nothing(Use::Body, false),
        }
    }

    /// Returns the session that a request seems to be part of.
    fn session_of(&self, tcp: &Tcp, headers: &HeaderMap) -> Option<Arc<Session>> {
        let named = match &self.upstream {
            Some(upstream) => upstream.known_session(headers),
            None => headers::text(headers, headers::SESSION).map(str::to_owned),
        };
        let id = named.or_else(|| tcp.only_conversation())?;
        self.gateway.session(&id)
    }
}

async fn handle(front: Arc<Front>, tcp: Tcp, place: Arc<TrackedConnection>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let mut seen = ReadBody::default();
    let admitted = admit(&front, &head);
    let is_admitted = admitted.is_ok();
    // A request that was refused belongs to no session, even if it names one.
    let session = || is_admitted.then(|| front.session_of(&tcp, &head.headers)).flatten();
    let known = session();
    if known.is_some() {
        place.is_known();
    }
    let room = front.body_room(known.as_deref(), &head.headers);
    let header_room = header_room(front.gateway.budget(), &head.headers);
    let admitted = match &header_room {
        Err(full) if is_admitted => Ok(Some(closing(no_room(full)))),
        _ => admitted,
    };
    let mut response = match admitted {
        Err(refused) => {
            seen = ReadBody::skim(&head.headers, body, room).await;
            *refused
        }
        Ok(Some(answer)) => answer,
        Ok(None) => answer(&front, &tcp, &head, (body, room), &mut seen).await,
    };
    if response.status().is_success()
        && (response.headers().contains_key(headers::SESSION) || session().is_some())
    {
        place.is_known();
    }
    if let Some(reason) = response.extensions().get::<Reason>() {
        let session = session();
        front.refusals.note(&front.gateway, *reason, response.status(), &head.method, &seen, session);
    }
    if let Some(origin) = cors::allowed_origin(&front.config, &head.headers) {
        cors::add(&mut response, origin);
    }
    response
}

/// Takes room for headers, which are there until the request is answered. The few that clients ordinarily send are not
/// worth it: all connections together keep no more than 16 MiB of those.
fn header_room(budget: &Budget, headers: &HeaderMap) -> Result<Option<Charge>, Full> {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes <= HEADER_BYTES_FREE { Ok(None) } else { budget.charge(Use::Call, bytes).map(Some) }
}

/// Lets a request in, turns it away, or answers what needs nobody behind the front.
fn admit(front: &Front, head: &request::Parts) -> Result<Option<Response>, Refusal> {
    guard::check_place(&front.config, head)?;
    if cors::is_preflight(head) {
        return Ok(Some(cors::preflight(&head.headers)));
    }
    guard::check_token(&front.config, &head.headers)?;
    Ok(None)
}

async fn answer(
    front: &Arc<Front>,
    tcp: &Tcp,
    head: &request::Parts,
    (body, room): (RequestBody, Charge),
    seen: &mut ReadBody,
) -> Response {
    if head.uri.path() != "/mcp" {
        return plain(StatusCode::NOT_FOUND, "there is nothing here: the endpoint is /mcp");
    }
    if let Some(upstream) = &front.upstream {
        return match read(front, &head.headers, (body, room), seen).await {
            Ok(()) => proxy::pass(front, upstream, tcp, head, seen.bytes().clone()).await,
            Err(refused) => *refused,
        };
    }
    if head.method == Method::POST {
        return post(front, tcp, &head.headers, (body, room), seen).await;
    }
    *seen = ReadBody::skim(&head.headers, body, room).await;
    match head.method {
        Method::GET => legacy::get(front, &head.headers),
        Method::DELETE => legacy::delete(front, &head.headers),
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, "use POST, GET or DELETE"),
    }
}

/// Reads a body that is not too long, for which there is room, and that comes in time.
async fn read(
    front: &Front,
    headers: &HeaderMap,
    (body, room): (RequestBody, Charge),
    seen: &mut ReadBody,
) -> Result<(), Refusal> {
    let (limit, timeout) = (front.config.body_bytes_max, front.config.body_timeout);
    let (read, end) = ReadBody::read(headers, body, limit, BodyAllowance { room, timeout }).await;
    *seen = read;
    let invalid = |status, why: &str| json_error(status, None, code::INVALID_REQUEST, why);
    let refused = match end {
        BodyEnd::Whole => return Ok(()),
        BodyEnd::TooLong => {
            let why = format!("the body is longer than the limit of {limit} bytes (limits.max_message_size)");
            because("too long", invalid(StatusCode::PAYLOAD_TOO_LARGE, &why))
        }
        BodyEnd::CutOff => because("cut off", invalid(StatusCode::BAD_REQUEST, "the body was cut off")),
        BodyEnd::TooSlow => {
            let why = format!("the body did not come within {timeout:?} (serve.body_timeout)");
            because("body too slow", closing(invalid(StatusCode::REQUEST_TIMEOUT, &why)))
        }
        BodyEnd::Full(full) => {
            seen.forget();
            closing(no_room(&full))
        }
    };
    Err(Box::new(refused))
}

/// Answers that there is no room for a request now. No session's tape has that answer: the refusal names the limit.
fn no_room(full: &Full) -> Response {
    let reason = match full.key {
        SESSION_KEY => "no memory (limits.max_session_memory)",
        _ => "no memory (limits.max_memory)",
    };
    let answer = json_error(StatusCode::SERVICE_UNAVAILABLE, None, code::INTERNAL, &full.to_string());
    because(reason, retry_later(answer))
}

/// Marks an answer as one for want of memory: the same request may be answered a moment later.
fn retry_later(mut response: Response) -> Response {
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    because("no memory", response)
}

/// Closes the connection behind an answer: what is left of the request is not read.
fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// What becomes of a message that was taken in.
enum Next {
    /// It is answered.
    Done(Response),
    /// A request of the legacy era.
    Legacy(legacy::LegacyRequest),
    /// A request of the modern era.
    Modern(modern::ModernRequest),
}

async fn post(
    front: &Arc<Front>,
    tcp: &Tcp,
    headers: &HeaderMap,
    body: (RequestBody, Charge),
    seen: &mut ReadBody,
) -> Response {
    let next = take_in(front, tcp, headers, body, seen).await;
    if !matches!(next, Next::Done(_)) {
        // The answer may take long, and this may be large.
        seen.forget();
    }
    match next {
        Next::Done(response) => response,
        Next::Legacy(asked) => legacy::answer(front, asked).await,
        Next::Modern(asked) => modern::answer(front, asked).await,
    }
}

async fn take_in(
    front: &Arc<Front>,
    tcp: &Tcp,
    headers: &HeaderMap,
    body: (RequestBody, Charge),
    seen: &mut ReadBody,
) -> Next {
    let content = headers::check_content(headers);
    if let Err(refused) = read(front, headers, body, seen).await {
        return Next::Done(*refused);
    }
    if let Err(refused) = content {
        return Next::Done(*refused);
    }
    let mut bytes = Cow::from(&seen.bytes()[..]);
    // Line breaks between tokens are JSON, but a line of a tape has none.
    if bytes.iter().any(|b| matches!(b, b'\n' | b'\r')) {
        one_line(bytes.to_mut());
    }
    let Ok(line) = std::str::from_utf8(&bytes) else {
        let id = scrubjay_core::oversize::id_of_request(&bytes);
        let why = "the body is not UTF-8";
        let refused = json_error(StatusCode::BAD_REQUEST, id.as_deref(), code::PARSE, why);
        return Next::Done(because("not UTF-8", refused));
    };
    let message = match ClientMessage::parse(line.into()) {
        Ok(message) => message,
        Err(line) => {
            let (reason, answer) = unreadable_answer(&line);
            return Next::Done(because(reason, json(StatusCode::BAD_REQUEST, answer)));
        }
    };
    if headers::is_modern(headers, &message) {
        modern::take_in(front, tcp, headers, &message).await
    } else {
        legacy::take_in(front, headers, &message)
    }
}

/// Answers that there is no room for another session.
fn too_many_sessions() -> Response {
    let refused = plain(StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open");
    because("too many sessions", refused)
}

/// Answers that there is no such session. Who shows other credentials than opened it is told the same as who made the id
/// up.
fn no_such_session() -> Response {
    let why = "no such session: open a new one with initialize";
    because("unknown session", plain(StatusCode::NOT_FOUND, why))
}

/// Answers with JSON.
pub(crate) fn json(status: StatusCode, line: impl Into<Body>) -> Response {
    let mut response = Response::new(line.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// Answers with a JSON-RPC error.
pub(crate) fn json_error(status: StatusCode, id: Option<&str>, code: i64, why: &str) -> Response {
    json(status, message::raw_error(id.unwrap_or("null"), &message::error(code, why, None)))
}

/// Answers with a sentence.
pub(crate) fn plain(status: StatusCode, why: &str) -> Response {
    let mut response = Response::new(Body::from(format!("{why}\n")));
    *response.status_mut() = status;
    response
}

/// Answers that there is nothing to say.
pub(crate) fn accepted() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}
