//! The gateway on Streamable HTTP, both eras on one endpoint: `POST`, `GET` and `DELETE` on `/mcp`.
//!
//! A request is answered with plain JSON when its answer is all there is to say, and with an event stream as
//! soon as something else comes first. Legacy clients have sessions and may take a broken stream up again;
//! modern clients have neither, and leaving calls the request off.

mod conversations;
mod cors;
pub(crate) mod guard;
mod headers;
mod legacy;
mod modern;
mod peer;
mod proxy;
mod refused;
mod stream;
mod tcp;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header, request};
use axum::response::Response;
use scrubjay_core::message::{self, Parts};
use scrubjay_store::tape::header::TapeKind;

use self::refused::{Reason, Seen, because};
use self::tcp::Tcp;
use crate::bridge::endpoint::Endpoint;
use crate::config::HttpConfig;
use crate::gateway::{Gateway, NewTape, code, unreadable};
use crate::session::Session;

/// An answer to a request that goes no further.
pub(crate) type Refusal = Box<Response>;

/// How often idle sessions are looked for: a small part of how long they may be idle, within these bounds.
const SWEEPS_PER_IDLE: u32 = 16;
const SWEEP_MIN: Duration = Duration::from_millis(50);
const SWEEP_MAX: Duration = Duration::from_secs(1);

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
    let router = Router::new().fallback(handle).with_state(front.clone());
    let service = router.into_make_service_with_connect_info::<Tcp>();
    tokio::select! {
        served = async { axum::serve(listener, service).await } => served?,
        () = until => {}
    }
    let reason = "the gateway was stopped";
    front.refusals.end(&gateway, reason);
    gateway.shut_down(reason);
    Ok(())
}

async fn sweep(front: std::sync::Weak<Front>) {
    loop {
        let Some(idle_max) = front.upgrade().map(|front| front.config.session_idle_max) else { return };
        tokio::time::sleep((idle_max / SWEEPS_PER_IDLE).clamp(SWEEP_MIN, SWEEP_MAX)).await;
        let Some(front) = front.upgrade() else { return };
        for session in front.gateway.idle_sessions(idle_max) {
            if !front.upstream.as_ref().is_some_and(|upstream| upstream.is_busy(&session)) {
                front.close_session(&session, "nothing was said for too long");
            }
        }
        front.gateway.end_idle_connections(front.config.session_idle_max);
        front.streams.keep_only(|session| front.gateway.session(session).is_some());
        front.refusals.flush(&front.gateway);
    }
}

impl Front {
    fn close_session(&self, id: &str, reason: &str) -> bool {
        self.streams.forget(id);
        self.conversations.forget(id);
        if let Some(upstream) = &self.upstream {
            upstream.forget(id);
        }
        self.gateway.close_session(id, reason)
    }

    /// Returns the session that a refused request seems to be part of.
    fn session_of_refused(&self, tcp: &Tcp, headers: &HeaderMap) -> Option<Arc<Session>> {
        let named = match &self.upstream {
            Some(upstream) => upstream.known_session(headers),
            None => headers::text(headers, headers::SESSION).map(str::to_owned),
        };
        let id = named.or_else(|| tcp.only_conversation())?;
        self.gateway.session(&id)
    }
}

async fn handle(
    State(front): State<Arc<Front>>,
    ConnectInfo(tcp): ConnectInfo<Tcp>,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    let mut seen = Seen::default();
    let admitted = admit(&front, &head);
    let is_known = admitted.is_ok();
    let mut response = match admitted {
        Err(refused) => {
            seen = Seen::skim(&head.headers, body).await;
            *refused
        }
        Ok(Some(answer)) => answer,
        Ok(None) => answer(&front, &tcp, &head, body, &mut seen).await,
    };
    if let Some(reason) = response.extensions().get::<Reason>() {
        // Who was not let in has no session, whatever it says.
        let session = is_known.then(|| front.session_of_refused(&tcp, &head.headers)).flatten();
        front.refusals.note(&front.gateway, *reason, response.status(), &head.method, &seen, session);
    }
    if let Some(origin) = cors::allowed_origin(&front.config, &head.headers) {
        cors::add(&mut response, origin);
    }
    response
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
    body: Body,
    seen: &mut Seen,
) -> Response {
    if head.uri.path() != "/mcp" {
        return plain(StatusCode::NOT_FOUND, "there is nothing here: the endpoint is /mcp");
    }
    if let Some(upstream) = &front.upstream {
        return match read(front, &head.headers, body, seen).await {
            Ok(()) => proxy::pass(front, upstream, tcp, head, seen.bytes().clone()).await,
            Err(refused) => *refused,
        };
    }
    if head.method == Method::POST {
        return post(front, tcp, &head.headers, body, seen).await;
    }
    *seen = Seen::skim(&head.headers, body).await;
    match head.method {
        Method::GET => legacy::get(front, &head.headers),
        Method::DELETE => legacy::delete(front, &head.headers),
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, "use POST, GET or DELETE"),
    }
}

/// Reads a body that is not too long.
async fn read(front: &Front, headers: &HeaderMap, body: Body, seen: &mut Seen) -> Result<(), Refusal> {
    let limit = front.config.body_bytes_max;
    let (read, whole) = Seen::read(headers, body, limit).await;
    let full = read.bytes().len() == limit;
    *seen = read;
    if whole {
        return Ok(());
    }
    let refused = if full {
        let why = format!("the body is longer than the limit of {limit} bytes (limits.max_message_size)");
        because("too long", json_error(StatusCode::PAYLOAD_TOO_LARGE, None, code::INVALID_REQUEST, &why))
    } else {
        let why = "the body was cut off";
        because("cut off", json_error(StatusCode::BAD_REQUEST, None, code::INVALID_REQUEST, why))
    };
    Err(Box::new(refused))
}

async fn post(front: &Arc<Front>, tcp: &Tcp, headers: &HeaderMap, body: Body, seen: &mut Seen) -> Response {
    let content = headers::check_content(headers);
    if let Err(refused) = read(front, headers, body, seen).await {
        return *refused;
    }
    if let Err(refused) = content {
        return *refused;
    }
    let bytes = seen.bytes().clone();
    let Ok(line) = std::str::from_utf8(&bytes) else {
        let id = scrubjay_core::oversize::id_of_request(&bytes);
        let why = "the body is not UTF-8";
        return because("not UTF-8", json_error(StatusCode::BAD_REQUEST, id.as_deref(), code::PARSE, why));
    };
    // Line breaks between tokens are JSON, but a line of a tape has none.
    let line = if line.contains(['\n', '\r']) { one_line(line) } else { line.to_owned() };
    let Ok(parts) = Parts::of(&line) else {
        let (reason, answer) = unreadable(&line);
        return because(reason, json(StatusCode::BAD_REQUEST, answer));
    };
    if headers::is_modern(headers, &parts) {
        modern::post(front, tcp, headers, &parts, &line).await
    } else {
        legacy::post(front, headers, &parts, &line).await
    }
}

/// Answers that there is no room for another session.
fn too_many_sessions() -> Response {
    let refused = plain(StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open");
    because("too many sessions", refused)
}

/// Writes JSON without the line breaks between its tokens; within strings there are none.
fn one_line(json: &str) -> String {
    json.replace(['\n', '\r'], " ")
}

/// Answers with JSON.
pub(crate) fn json(status: StatusCode, line: String) -> Response {
    let mut response = Response::new(Body::from(line));
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
