//! The debug endpoints: logs, messages and state of a running gateway, for its user.
//!
//! They are on loopback only and need a token. Everything is redacted before it is kept, buffers are bounded, and no
//! message waits for them. The binary provides the port, the token and the configuration.

mod answers;
mod guard;
mod live;
mod logs;
mod rate;
mod ring;
mod trace;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header, request};
use scrubjay_core::redact::Redactor;
use scrubjay_tape::clock::{self, Moment};
use scrubjay_tape::recording::Watch;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::config::Secret;
use crate::front::http::body::Response;
use crate::front::http::plain;
use crate::gateway::{self, Gateway};
use crate::listener::{self, ConnectionLimits, Connections, TrackedConnection};
use ring::Ring;

/// How many connections may be open at once.
const CONNECTIONS_MAX: usize = 64;

/// Removes from a text the secrets of the configuration, and escapes what acts on a terminal.
pub type Sanitizer = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Searches all recordings: takes a query as a user types it, returns the answer as JSON.
pub type Search =
    Box<dyn Fn(String) -> Pin<Box<dyn Future<Output = Result<Value, SearchError>> + Send>> + Send + Sync>;

/// Why a search has no answer.
#[derive(Debug)]
pub enum SearchError {
    /// The query is not valid: what is wrong with it.
    Wrong(String),
    /// The search failed: why.
    Failed(String),
}

/// The buffers that the endpoints show.
#[derive(Clone)]
pub struct DebugBuffers {
    logs: Arc<Ring>,
    trace: Arc<Ring>,
    /// How many messages the trace lost, because they came too fast.
    lost: Arc<AtomicU64>,
}

impl DebugBuffers {
    /// Begins to buffer what recordings write.
    ///
    /// # Errors
    /// The thread for it cannot be started, or the recordings have a watcher already.
    pub fn begin(watch: &Watch, clean: &Sanitizer) -> std::io::Result<Self> {
        let buffers = Self { logs: Arc::default(), trace: Arc::default(), lost: Arc::default() };
        let trace = trace::Trace::begin(buffers.trace.clone(), buffers.lost.clone(), clean.clone())?;
        if watch.begin(Box::new(trace)) {
            Ok(buffers)
        } else {
            Err(std::io::Error::other("the recordings are watched already"))
        }
    }

    /// Returns a function that takes log lines, which are redacted JSON objects.
    #[must_use]
    pub fn log_taker(&self) -> Box<dyn Fn(&str) + Send + Sync> {
        let logs = self.logs.clone();
        Box::new(move |line| logs.push(&logs::entry(line, clock::now().wall_ns)))
    }
}

/// Makes a random token.
#[must_use]
pub fn new_token() -> Secret {
    Secret::new(gateway::handle())
}

/// What the endpoints show.
pub struct DebugSources {
    /// The newest log lines and messages.
    pub buffers: DebugBuffers,
    /// The gateway, while it runs.
    pub gateway: Weak<Gateway>,
    /// Returns the current configuration, with secrets masked.
    pub config: Box<dyn Fn() -> Value + Send + Sync>,
    /// Searches the recordings.
    pub search: Search,
    /// Removes secrets from error messages of backends.
    pub redactor: Arc<Redactor>,
    /// Sanitizes everything that is not in the buffers, which are sanitized already.
    pub clean: Sanitizer,
    /// The token that a client must have.
    pub token: Secret,
}

struct DebugServer {
    sources: DebugSources,
    address: SocketAddr,
    started: Moment,
    rate: rate::RateLimiter,
    /// Locked during a search: each takes a thread and reads much, so they run one after the other.
    searching: tokio::sync::Mutex<()>,
}

/// Serves the endpoints on a listener, which is on loopback.
///
/// # Errors
/// The listener fails.
pub async fn serve(sources: DebugSources, listener: TcpListener) -> std::io::Result<()> {
    let address = listener.local_addr()?;
    let rate = rate::RateLimiter::new(rate::REQUESTS);
    let (started, searching) = (clock::now(), tokio::sync::Mutex::default());
    let server = Arc::new(DebugServer { sources, address, started, rate, searching });
    let limits = ConnectionLimits { connections_max: CONNECTIONS_MAX, ..ConnectionLimits::default() };
    let on_close =
        Box::new(|why: &'static str| tracing::debug!(why, "a connection to the debug endpoints was closed"));
    let connections = Connections::new(limits, on_close);
    let make_service = |connection: Arc<TrackedConnection>, _| {
        let server = server.clone();
        move |request| handle(server.clone(), connection.clone(), request)
    };
    listener::serve(listener, connections, make_service).await;
    Ok(())
}

async fn handle(server: Arc<DebugServer>, connection: Arc<TrackedConnection>, request: Request) -> Response {
    let (mut head, _) = request.into_parts();
    let mut response = match guard::check(&server, &head) {
        Err(refused) => *refused,
        Ok(()) => {
            // With the token it is no stranger, so that a flood of strangers does not close it.
            connection.mark_known();
            answer(&server, &mut head).await
        }
    };
    let is_socket = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    if !is_socket {
        // Frees one of the few connections at once.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

async fn answer(server: &Arc<DebugServer>, head: &mut request::Parts) -> Response {
    if head.method != Method::GET {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "use GET");
    }
    let buffers = &server.sources.buffers;
    match head.uri.path() {
        "/api/status" => answers::status(server),
        "/api/backends" => answers::backends(server),
        "/api/config" => answers::config(server),
        "/api/logs" => answers::recent(&buffers.logs, head.uri.query()),
        "/api/mcptrace" => answers::recent(&buffers.trace, head.uri.query()),
        "/api/search" => answers::search(server, &head.uri).await,
        "/ws/logs" => live::follow(head, &buffers.logs).await,
        "/ws/mcptrace" => live::follow(head, &buffers.trace).await,
        _ => plain(
            StatusCode::NOT_FOUND,
            "there are /api/status, /api/backends, /api/config, /api/logs, /api/mcptrace, /api/search, /ws/logs \
             and /ws/mcptrace",
        ),
    }
}

impl DebugBuffers {
    fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}
