//! The gateway on Streamable HTTP, both eras on one endpoint: `POST`, `GET` and `DELETE` on `/mcp`.
//!
//! A request is answered with plain JSON when its answer is all there is to say, and with an event stream as
//! soon as something else comes first. Legacy clients have sessions and may take a broken stream up again;
//! modern clients have neither, and leaving calls the request off.

pub(crate) mod guard;
mod headers;
mod legacy;
mod modern;
mod stream;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::Response;
use scrubjay_core::message::{self, Parts};

use crate::config::HttpConfig;
use crate::gateway::{Gateway, code};
use crate::session::lock;

/// An answer to a request that goes no further.
pub(crate) type Refusal = Box<Response>;

/// How often idle sessions are looked for.
const SWEEP: Duration = Duration::from_secs(30);

/// What every request handler needs.
pub(crate) struct Front {
    gateway: Arc<Gateway>,
    config: HttpConfig,
    streams: stream::Streams,
    /// The logical sessions of modern clients, by who they seem to be.
    logical: Mutex<HashMap<String, String>>,
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
    let front = Arc::new(Front {
        gateway: gateway.clone(),
        config,
        streams: stream::Streams::default(),
        logical: Mutex::default(),
    });
    tokio::spawn(sweep(Arc::downgrade(&front)));
    let router = Router::new().fallback(handle).with_state(front);
    let listener = axum::serve::ListenerExt::tap_io(listener, |tcp| {
        // Without it, small answers wait for one another; where it is refused, they do.
        let _ = tcp.set_nodelay(true);
    });
    tokio::select! {
        served = async { axum::serve(listener, router).await } => served?,
        () = until => {}
    }
    gateway.shut_down("the gateway was stopped");
    Ok(())
}

async fn sweep(front: std::sync::Weak<Front>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(front) = front.upgrade() else { return };
        for session in front.gateway.idle_sessions(front.config.session_idle_max) {
            front.close_session(&session, "nothing was said for too long");
        }
        front.gateway.end_idle_connections(front.config.session_idle_max);
        front.streams.keep_only(|session| front.gateway.session(session).is_some());
    }
}

impl Front {
    fn close_session(&self, id: &str, reason: &str) -> bool {
        self.streams.forget(id);
        lock(&self.logical).retain(|_, session| session != id);
        self.gateway.close_session(id, reason)
    }
}

async fn handle(State(front): State<Arc<Front>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    if let Err(refused) = guard::check(&front.config, &head) {
        return *refused;
    }
    if head.uri.path() != "/mcp" {
        return plain(StatusCode::NOT_FOUND, "there is nothing here: the endpoint is /mcp");
    }
    match head.method {
        Method::POST => post(&front, &head.headers, body).await,
        Method::GET => legacy::get(&front, &head.headers),
        Method::DELETE => legacy::delete(&front, &head.headers),
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, "use POST, GET or DELETE"),
    }
}

async fn post(front: &Arc<Front>, headers: &HeaderMap, body: Body) -> Response {
    if let Err(refused) = headers::check_content(headers) {
        return *refused;
    }
    let Ok(bytes) = to_bytes(body, front.config.body_bytes_max).await else {
        let why = format!("the body is longer than {} bytes, or was cut off", front.config.body_bytes_max);
        return json_error(StatusCode::PAYLOAD_TOO_LARGE, None, code::INVALID_REQUEST, &why);
    };
    let Ok(line) = std::str::from_utf8(&bytes) else {
        return json_error(StatusCode::BAD_REQUEST, None, code::PARSE, "the body is not UTF-8");
    };
    // Line breaks between tokens are JSON, but a line of a tape has none.
    let line = if line.contains(['\n', '\r']) { one_line(line) } else { line.to_owned() };
    let Ok(parts) = Parts::of(&line) else {
        let (code, why) = if serde_json::from_str::<serde::de::IgnoredAny>(&line).is_ok() {
            (code::INVALID_REQUEST, "not a JSON-RPC message: batches are not supported")
        } else {
            (code::PARSE, "not JSON")
        };
        return json_error(StatusCode::BAD_REQUEST, None, code, why);
    };
    if headers::is_modern(headers, &parts) {
        modern::post(front, headers, &parts, &line).await
    } else {
        legacy::post(front, headers, &parts, &line).await
    }
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
