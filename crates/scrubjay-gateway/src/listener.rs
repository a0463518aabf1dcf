//! Accepts HTTP connections and keeps them within limits: how many there are, and how long each may dawdle.
//!
//! A connection whose client has no session is a stranger's. Strangers have a part of all places; one more takes the
//! place of the oldest of them, so that a flood of connections cannot lock out who has a session, nor who comes new.
//! It knows neither what is said on a connection nor who has a session.

mod watched;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use hyper::body::{Body as AnswerBody, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::watched::{Answering, Watched};
use crate::session::lock;

/// Headers may have this much, as with Node.js. Each connection keeps a buffer of this size as long as it is open, which no
/// budget counts: 64 MiB for all that may be open by default.
const HEADER_BYTES_MAX: usize = 16 * 1024;
/// The system doubles it: enough for a fast reader far away, and little for one that does not read.
const SEND_BUFFER_BYTES: usize = 256 * 1024;
/// How often it is looked for connections that dawdle: a small part of how long they may.
const SWEEPS_PER_TIMEOUT: u32 = 8;
const SWEEP_MIN: Duration = Duration::from_millis(20);
const SWEEP_MAX: Duration = Duration::from_secs(1);
/// After a failure to accept, mostly for want of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// One in this many connections is reserved for clients without a session.
const STRANGERS_PART: usize = 4;

/// How many connections there may be, and how long each may dawdle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// No more at once.
    pub connections_max: usize,
    /// The headers of a request must be complete within this.
    pub header_timeout: Duration,
    /// A connection without a request is closed after this.
    pub idle_timeout: Duration,
    /// A client that takes nothing of what waits for it is left after this.
    pub write_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
            write_timeout: Duration::from_secs(60),
        }
    }
}

/// Hears why a connection was closed from our side.
pub(crate) type OnClose = Box<dyn Fn(&'static str) + Send + Sync>;

/// The connections of one listener.
pub(crate) struct Connections {
    limits: ConnectionLimits,
    open: Mutex<OpenConnections>,
    next: AtomicU64,
    /// Whether nothing is written any more.
    is_held: AtomicBool,
    on_close: OnClose,
}

/// By number, so that the oldest come first.
#[derive(Default)]
struct OpenConnections {
    strangers: BTreeMap<u64, Arc<TrackedConnection>>,
    known: BTreeMap<u64, Arc<TrackedConnection>>,
}

impl OpenConnections {
    fn all(&self) -> impl Iterator<Item = &Arc<TrackedConnection>> {
        self.strangers.values().chain(self.known.values())
    }
}

/// One connection.
pub(crate) struct TrackedConnection {
    number: u64,
    connections: Arc<Connections>,
    doing: Mutex<ConnectionActivity>,
    close: Notify,
}

#[derive(Clone, Copy)]
struct ConnectionActivity {
    stage: Stage,
    since: Instant,
    /// Since when the client takes nothing of what is written.
    stalled: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing is under way.
    Idle,
    /// Some of a request's headers are there, or none of the first.
    Heading,
    /// A request is being answered.
    Answering,
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits, on_close: OnClose) -> Arc<Self> {
        let (next, is_held) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { limits, open: Mutex::default(), next, is_held, on_close })
    }

    /// Finds a place for one more; `None` where nobody can be asked to leave.
    fn enter(self: &Arc<Self>) -> Option<Arc<TrackedConnection>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let doing = ConnectionActivity { stage: Stage::Heading, since: Instant::now(), stalled: None };
        let (doing, close) = (Mutex::new(doing), Notify::new());
        let place = Arc::new(TrackedConnection { number, connections: self.clone(), doing, close });
        let mut open = lock(&self.open);
        let max = self.limits.connections_max;
        let strangers_max = (max / STRANGERS_PART).max(1);
        let crowded = open.strangers.len() >= strangers_max;
        let evicted = if crowded || open.strangers.len() + open.known.len() >= max {
            Some(Self::least_missed(&open)?)
        } else {
            None
        };
        open.strangers.insert(number, place.clone());
        drop(open);
        if let Some(evicted) = evicted {
            self.close(&evicted, Some("too many connections"));
        }
        Some(place)
    }

    /// Returns the oldest stranger without a request, else the oldest stranger, else the oldest idle connection of all.
    fn least_missed(open: &OpenConnections) -> Option<Arc<TrackedConnection>> {
        let waits = |place: &&Arc<TrackedConnection>| lock(&place.doing).stage != Stage::Answering;
        let stranger = open.strangers.values().find(waits).or_else(|| open.strangers.values().next());
        stranger.or_else(|| open.known.values().find(waits)).cloned()
    }

    fn leave(&self, number: u64) {
        let mut open = lock(&self.open);
        open.strangers.remove(&number);
        open.known.remove(&number);
    }

    /// Closes the connections that dawdle, for as long as somebody holds this.
    async fn sweep(connections: std::sync::Weak<Self>) {
        loop {
            let Some(limits) = connections.upgrade().map(|connections| connections.limits) else { return };
            let shortest = limits.header_timeout.min(limits.idle_timeout).min(limits.write_timeout);
            tokio::time::sleep((shortest / SWEEPS_PER_TIMEOUT).clamp(SWEEP_MIN, SWEEP_MAX)).await;
            let Some(connections) = connections.upgrade() else { return };
            let late: Vec<_> = {
                let open = lock(&connections.open);
                open.all().filter_map(|place| Some((place.clone(), place.is_late(&limits)?))).collect()
            };
            for (place, why) in late {
                connections.close(&place, why);
            }
        }
    }

    fn close(&self, place: &TrackedConnection, why: Option<&'static str>) {
        place.close.notify_one();
        self.leave(place.number);
        if let Some(why) = why {
            (self.on_close)(why);
        }
    }

    /// Lets nothing be written any more; what waits stays where it is.
    pub(crate) fn hold(&self) {
        self.is_held.store(true, Ordering::Relaxed);
    }

    /// Closes the connection that has been stalled for longest, and at least for so long; returns whether there was one.
    pub(crate) fn close_most_stalled(&self, at_least: Duration) -> bool {
        let stalled = {
            let open = lock(&self.open);
            let since = |place: &Arc<TrackedConnection>| lock(&place.doing).stalled;
            open.all()
                .filter_map(|place| Some((since(place)?, place.clone())))
                .min_by_key(|(since, _)| *since)
        };
        let Some((_, place)) = stalled.filter(|(since, _)| since.elapsed() >= at_least) else { return false };
        self.close(&place, Some("does not read, and memory is short"));
        true
    }
}

impl TrackedConnection {
    /// Notes that its client has a session: it is no stranger any more.
    pub(crate) fn is_known(&self) {
        let mut open = lock(&self.connections.open);
        if let Some(place) = open.strangers.remove(&self.number) {
            open.known.insert(self.number, place);
        }
    }

    fn is_late(&self, limits: &ConnectionLimits) -> Option<Option<&'static str>> {
        let ConnectionActivity { stage, since, stalled } = *lock(&self.doing);
        if stalled.is_some_and(|since| since.elapsed() > limits.write_timeout) {
            return Some(Some("does not read"));
        }
        match stage {
            Stage::Heading if since.elapsed() > limits.header_timeout => Some(Some("headers too slow")),
            Stage::Idle if since.elapsed() > limits.idle_timeout => Some(None),
            _ => None,
        }
    }

    fn begin(&self, stage: Stage) {
        let mut doing = lock(&self.doing);
        (doing.stage, doing.since) = (stage, Instant::now());
    }

    /// Notes that bytes have come in.
    fn heard(&self) {
        if lock(&self.doing).stage == Stage::Idle {
            self.begin(Stage::Heading);
        }
    }

    /// Returns whether nothing is written to it any more.
    fn is_held(&self) -> bool {
        self.connections.is_held.load(Ordering::Relaxed)
    }

    /// Notes whether the client takes what is written.
    fn wrote(&self, is_stalled: bool) {
        let mut doing = lock(&self.doing);
        match (is_stalled, doing.stalled) {
            (true, None) => doing.stalled = Some(Instant::now()),
            (false, Some(_)) => doing.stalled = None,
            _ => {}
        }
    }
}

/// The two ends of a connection, theirs first.
pub(crate) type Ends = Option<(SocketAddr, SocketAddr)>;

/// Serves connections until the future is dropped; `meet` makes what answers the requests of each.
pub(crate) async fn serve<M, S, F, B>(listener: TcpListener, connections: Arc<Connections>, meet: M)
where
    M: Fn(Arc<TrackedConnection>, Ends) -> S,
    S: Fn(Request) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: AnswerBody<Data: Send, Error = std::io::Error> + Send + Unpin + 'static,
{
    tokio::spawn(Connections::sweep(Arc::downgrade(&connections)));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(e) => {
                if !is_of_one_connection(&e) {
                    tracing::warn!(error = %e, "no connection can be accepted");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
                continue;
            }
        };
        let Some(place) = connections.enter() else {
            (connections.on_close)("too many connections");
            continue;
        };
        // Without it, small answers wait for one another; where it is refused, they do.
        let _ = stream.set_nodelay(true);
        // What a client does not read waits where it is counted, not in the system's buffers.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES);
        let ends = stream.peer_addr().ok().zip(stream.local_addr().ok());
        tokio::spawn(attend(stream, place.clone(), meet(place, ends)));
        // Heard before the next is let in: one that has said what it wants is not the first to make room.
        tokio::task::yield_now().await;
    }
}

async fn attend<S, F, B>(stream: TcpStream, place: Arc<TrackedConnection>, answer: S)
where
    S: Fn(Request) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: AnswerBody<Data: Send, Error = std::io::Error> + Send + Unpin + 'static,
{
    let watched = TokioIo::new(Watched::new(stream, place.clone()));
    let place_of_service = place.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let answering = Answering::begin(place_of_service.clone());
        let answered = answer(request.map(Body::new));
        async move {
            let response = answered.await;
            // One that is no HTTP any more stays busy until it is closed.
            let is_upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
            Ok::<_, Infallible>(response.map(|body| answering.until_read(body, is_upgraded)))
        }
    });
    let connection = http1::Builder::new()
        .max_buf_size(HEADER_BYTES_MAX)
        // Each piece of an answer is kept until the system has taken it, and hears of that; copied, it would not.
        .writev(true)
        .serve_connection(watched, service)
        .with_upgrades();
    tokio::select! {
        // How a client leaves is its own business.
        _ = connection => {}
        () = place.close.notified() => {}
    }
}

/// Tells whether a failure to accept concerns only the connection that was to be accepted.
fn is_of_one_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset
    )
}
