//! The gateway on Streamable HTTP, both eras on one endpoint: `POST`, `GET` and `DELETE` on `/mcp`.
//!
//! A request is answered with JSON if nothing comes before its response, and otherwise with an event stream. Legacy
//! clients have sessions and can resume a broken stream. Modern clients have neither: disconnecting cancels the
//! request.

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
use scrubjay_core::message_limit::MessageLimit;
use scrubjay_core::protocol::code;
use scrubjay_core::protocol::header::SESSION_ID;
use scrubjay_tape::format::header::TapeKind;

use self::body::{Body, Response};
use self::refused::{BodyAllowance, BodyEnd, ReadBody, Reason, because};
use self::tcp::Tcp;
use crate::bridge::endpoint::Endpoint;
use crate::budget::{Budget, Charge, MemoryUse, OverBudget, SESSION_KEY};
use crate::client_message::ClientMessage;
use crate::config::HttpConfig;
use crate::gateway::{Gateway, NewTape, unreadable_answer};
use crate::listener::{self, Connections, TrackedConnection};
use crate::session::Session;

/// The response to a request that is refused.
pub(crate) type Refusal = Box<Response>;

/// How often sessions are checked: this many times in the shortest time limit, within these bounds.
const SWEEPS_PER_IDLE: u32 = 16;
const SWEEP_MIN: Duration = Duration::from_millis(50);
const SWEEP_MAX: Duration = Duration::from_secs(1);

/// Headers up to this size take nothing from the budget: see [`header_charge`].
const HEADER_BYTES_FREE: usize = 4 * 1024;

/// How long the response that ends a session may take to be written, before the session ends without it.
const LAST_ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long lines on their way to clients may take when the gateway stops.
const LAST_LINES_MAX: Duration = Duration::from_millis(200);

/// What every request handler needs.
pub(crate) struct Front {
    gateway: Arc<Gateway>,
    config: HttpConfig,
    streams: stream::Streams,
    conversations: conversations::Conversations,
    refusals: refused::Refusals,
    /// The one server that requests are forwarded to, in front of a server that speaks HTTP itself.
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

/// Records and forwards requests to a server that speaks HTTP itself, until the future `until` is done.
///
/// The gateway only keeps the tapes and the rules; the server answers.
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
    let make_service = |connection: Arc<TrackedConnection>, ends| {
        let (front, tcp) = (front.clone(), Tcp::new(ends));
        move |request| handle(front.clone(), tcp.clone(), connection.clone(), request)
    };
    tokio::select! {
        () = listener::serve(listener, connections.clone(), make_service) => {}
        () = until => {}
    }
    // Nothing is accepted any more. The order of what follows decides what tapes say of the last messages.
    let reason = "the gateway was stopped";
    front.refusals.end(&gateway, reason);
    // Before `stopping`: their clients had left before the gateway stopped, and that is the reason on the tape.
    front.streams.give_up_abandoned();
    gateway.stopping();
    gateway.wait_for_deliveries(LAST_LINES_MAX).await;
    // From here on tapes note messages as undelivered; none of those may be delivered after all.
    connections.stop_writes();
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
        // The front is not held while this sleeps, so that it can be dropped.
        tokio::time::sleep((idle_max.min(grace) / SWEEPS_PER_IDLE).clamp(SWEEP_MIN, SWEEP_MAX)).await;
        let Some(front) = front.upgrade() else { return };
        for session in front.gateway.idle_sessions(idle_max) {
            // A proxied request is no call of the gateway, so the session counts as idle during a long one.
            if !front.upstream.as_ref().is_some_and(|upstream| upstream.is_busy(&session)) {
                front.close_session(&session, "nothing was said for too long");
            }
        }
        front.close_abandoned_sessions();
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

    /// Ends a session after the response that is on its way to its client: the tape ends when that is written or lost.
    fn close_behind_answer(&self, session: &Arc<Session>, reason: &'static str) {
        self.forget_session(&session.id);
        let (gateway, session) = (self.gateway.clone(), session.clone());
        tokio::spawn(async move {
            // After a time-out, closing the session notes what was not written as undelivered.
            let _ = tokio::time::timeout(LAST_ANSWER_MAX, session.all_delivered()).await;
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

    /// Ends the sessions of clients that disconnected without ending them: all their streams broke off, and nothing
    /// came since.
    fn close_abandoned_sessions(&self) {
        let grace = if self.gateway.is_transparent() {
            // Each session has a server process of its own, which no other client can use.
            self.config.disconnect_grace.min(self.config.session_idle_max)
        } else {
            self.config.session_idle_max
        };
        for id in self.streams.abandoned_for(grace) {
            if self.gateway.session(&id).is_some_and(|session| session.silent() > grace) {
                self.close_session(&id, "its client left");
            }
        }
    }

    /// Records that we closed a connection.
    fn note_closed(&self, why: &'static str) {
        let (status, seen) = (StatusCode::REQUEST_TIMEOUT, ReadBody::default());
        self.refusals.note(&self.gateway, Reason(why), status, &Method::CONNECT, &seen, None);
    }

    /// Opens a session that is bound to the request's credentials: requests with others are refused in it.
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

    /// Tells whether a request may use a session. In front of a server that gets the credentials itself, the server
    /// decides that.
    fn is_open_to(&self, session: &Session, headers: &HeaderMap) -> bool {
        let is_checked_here = self.upstream.is_none() || self.config.auth_tokens.len() > 1;
        !is_checked_here || session.is_inferred || session.is_bound_to(&conversations::principal(headers))
    }

    /// Returns an empty charge for the body of a request, against its session's budget if it may use that session.
    fn body_charge(&self, session: Option<&Session>, headers: &HeaderMap) -> Charge {
        match session.filter(|session| self.is_open_to(session, headers)) {
            Some(session) => session.account.nothing(MemoryUse::Body),
            None => self.gateway.budget().nothing(MemoryUse::Body, false),
        }
    }

    /// Returns the session that a request seems to be part of.
    fn session_of(&self, tcp: &Tcp, headers: &HeaderMap) -> Option<Arc<Session>> {
        let named = match &self.upstream {
            Some(upstream) => upstream.known_session(headers),
            None => headers::text(headers, SESSION_ID).map(str::to_owned),
        };
        let id = named.or_else(|| tcp.only_conversation())?;
        self.gateway.session(&id)
    }
}

async fn handle(
    front: Arc<Front>,
    tcp: Tcp,
    connection: Arc<TrackedConnection>,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    let mut seen = ReadBody::default();
    // Before the body is read: a stranger must not make this process buffer one.
    let admitted = admit(&front, &head);
    let is_admitted = admitted.is_ok();
    // A refused request belongs to no session, even if it names one.
    let session = || is_admitted.then(|| front.session_of(&tcp, &head.headers)).flatten();
    let known = session();
    let is_known = known.is_some();
    if is_known {
        connection.mark_known();
    }
    let charge = front.body_charge(known.as_deref(), &head.headers);
    let header_charge = header_charge(front.gateway.budget(), &head.headers);
    let admitted = match &header_charge {
        Err(full) if is_admitted => Ok(Some(closing(memory_full(full)))),
        _ => admitted,
    };
    let mut response = match admitted {
        Err(refused) => {
            seen = ReadBody::skim(&head.headers, body, charge).await;
            *refused
        }
        Ok(Some(answer)) => answer,
        Ok(None) => answer(&front, &tcp, &head, (body, charge), &mut seen).await,
    };
    // Looked up again: answering may have opened the session.
    if !is_known
        && response.status().is_success()
        && (response.headers().contains_key(SESSION_ID) || session().is_some())
    {
        connection.mark_known();
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

/// Charges headers to the budget until the request is answered. Ordinary requests have few, which are not counted: at
/// most 16 MiB over all connections.
fn header_charge(budget: &Budget, headers: &HeaderMap) -> Result<Option<Charge>, OverBudget> {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes <= HEADER_BYTES_FREE { Ok(None) } else { budget.charge(MemoryUse::Call, bytes).map(Some) }
}

/// Admits a request, refuses it, or answers it if that needs no session and no backend (CORS preflight).
fn admit(front: &Front, head: &request::Parts) -> Result<Option<Response>, Refusal> {
    guard::check_place(&front.config, head)?;
    // Browsers send a preflight without credentials, so it is answered before the token is checked.
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
    (body, charge): (RequestBody, Charge),
    seen: &mut ReadBody,
) -> Response {
    if head.uri.path() != "/mcp" {
        return plain(StatusCode::NOT_FOUND, "there is nothing here: the endpoint is /mcp");
    }
    if let Some(upstream) = &front.upstream {
        return match read(front, &head.headers, (body, charge), seen).await {
            // Boxed: requests that the gateway answers itself must not carry its room.
            Ok(()) => Box::pin(proxy::pass(front, upstream, tcp, head, seen.bytes().clone())).await,
            Err(refused) => *refused,
        };
    }
    if head.method == Method::POST {
        return post(front, tcp, &head.headers, (body, charge), seen).await;
    }
    *seen = ReadBody::skim(&head.headers, body, charge).await;
    match head.method {
        Method::GET => legacy::get(front, &head.headers),
        Method::DELETE => legacy::delete(front, &head.headers),
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, "use POST, GET or DELETE"),
    }
}

/// Reads a body, within the limits of size, memory and time.
async fn read(
    front: &Front,
    headers: &HeaderMap,
    (body, charge): (RequestBody, Charge),
    seen: &mut ReadBody,
) -> Result<(), Refusal> {
    let (limit, timeout) = (MessageLimit::from(front.config.body_bytes_max), front.config.body_timeout);
    let (read, end) = ReadBody::read(headers, body, limit, BodyAllowance { charge, timeout }).await;
    *seen = read;
    let invalid = |status, why: &str| json_error(status, None, code::INVALID_REQUEST, why);
    let refused = match end {
        BodyEnd::Whole => return Ok(()),
        BodyEnd::TooLong => {
            let why = format!("the body is longer than the limit of {limit} (limits.max_message_size)");
            because("too long", invalid(StatusCode::PAYLOAD_TOO_LARGE, &why))
        }
        BodyEnd::CutOff => because("cut off", invalid(StatusCode::BAD_REQUEST, "the body was cut off")),
        BodyEnd::TooSlow => {
            let why = format!("the body did not come within {timeout:?} (serve.body_timeout)");
            because("body too slow", closing(invalid(StatusCode::REQUEST_TIMEOUT, &why)))
        }
        BodyEnd::Full(full) => {
            seen.forget();
            closing(memory_full(&full))
        }
    };
    Err(Box::new(refused))
}

/// Makes the response to a request for which there is no memory. It is on no session's tape, so the refusal that is
/// recorded names the limit.
fn memory_full(full: &OverBudget) -> Response {
    let reason = match full.key {
        SESSION_KEY => "no memory (limits.max_session_memory)",
        _ => "no memory (limits.max_memory)",
    };
    let answer = json_error(StatusCode::SERVICE_UNAVAILABLE, None, code::INTERNAL, &full.to_string());
    because(reason, retry_later(answer))
}

/// Marks a response as a refusal for lack of memory, so that the client retries the request a moment later.
fn retry_later(mut response: Response) -> Response {
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    because("no memory", response)
}

/// Closes the connection after a response: the rest of the request is not read.
fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// What to do with a message that was read.
enum Next {
    /// Send this response.
    Done(Response),
    /// Answer a request of the legacy era.
    Legacy(legacy::LegacyRequest),
    /// Answer a request of the modern era.
    Modern(modern::ModernRequest),
}

async fn post(
    front: &Arc<Front>,
    tcp: &Tcp,
    headers: &HeaderMap,
    body: (RequestBody, Charge),
    seen: &mut ReadBody,
) -> Response {
    let next = accept(front, tcp, headers, body, seen).await;
    if !matches!(next, Next::Done(_)) {
        // The body may be large and the answer may take long: its memory is free meanwhile.
        seen.forget();
    }
    match next {
        Next::Done(response) => response,
        Next::Legacy(request) => legacy::answer(front, request).await,
        Next::Modern(request) => modern::answer(front, request).await,
    }
}

async fn accept(
    front: &Arc<Front>,
    tcp: &Tcp,
    headers: &HeaderMap,
    body: (RequestBody, Charge),
    seen: &mut ReadBody,
) -> Next {
    // A refusal waits until the body is read: its hash and length are recorded with the refusal.
    let content = headers::check_content(headers);
    if let Err(refused) = read(front, headers, body, seen).await {
        return Next::Done(*refused);
    }
    if let Err(refused) = content {
        return Next::Done(*refused);
    }
    let mut bytes = Cow::from(&seen.bytes()[..]);
    // JSON allows line breaks between tokens, but an entry of a tape is one line.
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
        modern::accept(front, tcp, headers, &message).await
    } else {
        legacy::accept(front, headers, &message)
    }
}

/// Makes the response to a client when there are too many sessions.
fn too_many_sessions() -> Response {
    let refused = plain(StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open");
    because("too many sessions", refused)
}

/// Makes the response to an unknown session id. Requests with the wrong credentials get it too, so that it does not
/// reveal which ids exist.
fn no_such_session() -> Response {
    let why = "no such session: open a new one with initialize";
    because("unknown session", plain(StatusCode::NOT_FOUND, why))
}

/// Makes a response of JSON.
pub(crate) fn json(status: StatusCode, line: impl Into<Body>) -> Response {
    let mut response = Response::new(line.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// Makes a response of a JSON-RPC error.
pub(crate) fn json_error(status: StatusCode, id: Option<&str>, code: i64, why: &str) -> Response {
    json(status, message::raw_error(id.unwrap_or("null"), &message::error(code, why, None)))
}

/// Makes a response of plain text.
pub(crate) fn plain(status: StatusCode, why: &str) -> Response {
    let mut response = Response::new(Body::from(format!("{why}\n")));
    *response.status_mut() = status;
    response
}

/// Makes the response to a message that needs no answer.
pub(crate) fn accepted() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}
