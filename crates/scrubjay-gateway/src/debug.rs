//! The debug endpoints: what the gateway logs and says, for a person who looks while it runs.
//!
//! On loopback only, for whoever has the token. What is shown was redacted before it is kept, is bounded, and
//! nobody on the way of a message waits for it. Where the port, the token and the configuration come from is
//! the binary's business.

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

/// No more connections at once.
const CONNECTIONS_MAX: usize = 64;

/// Takes out of a text what must not be seen: the secrets of the configuration, and what acts on a terminal.
pub type Sanitizer = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Searches all recordings: a query as a person types it in, the answer as JSON.
pub type Search =
    Box<dyn Fn(String) -> Pin<Box<dyn Future<Output = Result<Value, SearchError>> + Send>> + Send + Sync>;

/// Why nothing was searched.
#[derive(Debug)]
pub enum SearchError {
    /// The query is wrong; how.
    Wrong(String),
    /// It could not be done; why.
    Failed(String),
}

/// What is kept for the endpoints.
#[derive(Clone)]
pub struct DebugBuffers {
    logs: Arc<Ring>,
    trace: Arc<Ring>,
    /// Messages that came faster than they could be kept.
    lost: Arc<AtomicU64>,
}

impl DebugBuffers {
    /// Begins to keep what recordings write.
    ///
    /// # Errors
    /// The thread that does it cannot be started, or somebody else watches already.
    pub fn begin(watch: &Watch, clean: &Sanitizer) -> std::io::Result<Self> {
        let kept = Self { logs: Arc::default(), trace: Arc::default(), lost: Arc::default() };
        let trace = trace::Trace::begin(kept.trace.clone(), kept.lost.clone(), clean.clone())?;
        if watch.begin(Box::new(trace)) {
            Ok(kept)
        } else {
            Err(std::io::Error::other("the recordings are watched already"))
        }
    }

    /// Returns what takes log lines: JSON objects, redacted.
    #[must_use]
    pub fn log_taker(&self) -> Box<dyn Fn(&str) + Send + Sync> {
        let logs = self.logs.clone();
        Box::new(move |line| logs.push(&logs::entry(line, clock::now().wall_ns)))
    }
}

/// Makes a token that cannot be guessed.
#[must_use]
pub fn new_token() -> Secret {
    Secret::new(gateway::handle())
}

/// What the endpoints tell of.
pub struct DebugSources {
    /// What is kept.
    pub kept: DebugBuffers,
    /// The gateway, while there is one.
    pub gateway: Weak<Gateway>,
    /// The configuration as it is now, secrets masked.
    pub config: Box<dyn Fn() -> Value + Send + Sync>,
    /// Searches the recordings.
    pub search: Search,
    /// Takes secrets out of what backends complain about.
    pub redactor: Arc<Redactor>,
    /// Takes the rest out of everything that is not kept clean already.
    pub clean: Sanitizer,
    /// What a client must show.
    pub token: Secret,
}

struct DebugServer {
    shown: DebugSources,
    address: SocketAddr,
    started: Moment,
    rate: rate::RateLimiter,
    /// A search takes a thread and reads much: one after the other.
    searching: tokio::sync::Mutex<()>,
}

/// Serves the endpoints on a listener, which is on loopback.
///
/// # Errors
/// The listener fails.
pub async fn serve(shown: DebugSources, listener: TcpListener) -> std::io::Result<()> {
    let address = listener.local_addr()?;
    let rate = rate::RateLimiter::new(rate::REQUESTS);
    let (started, searching) = (clock::now(), tokio::sync::Mutex::default());
    let server = Arc::new(DebugServer { shown, address, started, rate, searching });
    let limits = ConnectionLimits { connections_max: CONNECTIONS_MAX, ..ConnectionLimits::default() };
    let told =
        Box::new(|why: &'static str| tracing::debug!(why, "a connection to the debug endpoints was closed"));
    let connections = Connections::new(limits, told);
    let meet = |place: Arc<TrackedConnection>, _| {
        let server = server.clone();
        move |request| handle(server.clone(), place.clone(), request)
    };
    listener::serve(listener, connections, meet).await;
    Ok(())
}

async fn handle(server: Arc<DebugServer>, place: Arc<TrackedConnection>, request: Request) -> Response {
    let (mut head, _) = request.into_parts();
    let mut response = match guard::check(&server, &head) {
        Err(refused) => *refused,
        Ok(()) => {
            place.is_known();
            answer(&server, &mut head).await
        }
    };
    let is_socket = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    if !is_socket {
        // A place among the connections is given back at once.
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
    let kept = &server.shown.kept;
    match head.uri.path() {
        "/api/status" => answers::status(server),
        "/api/backends" => answers::backends(server),
        "/api/config" => answers::config(server),
        "/api/logs" => answers::recent(&kept.logs, head.uri.query()),
        "/api/mcptrace" => answers::recent(&kept.trace, head.uri.query()),
        "/api/search" => answers::search(server, &head.uri).await,
        "/ws/logs" => live::follow(head, &kept.logs).await,
        "/ws/mcptrace" => live::follow(head, &kept.trace).await,
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
