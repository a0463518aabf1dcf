//! Accepts HTTP connections and keeps them within limits: their number, and how long each may idle or stall.
//!
//! A connection whose client has no session is a stranger. Strangers may have only a part of all connections, and a new
//! one replaces the oldest of them, so a flood of connections locks out neither clients with a session nor new ones.
//! The callers serve the requests and report which clients have a session ([`TrackedConnection::mark_known`]).

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

use self::watched::{RequestInProgress, Watched};
use crate::session::lock;

/// The longest headers of a request, as in Node.js. Each open connection keeps a buffer of this size, which no budget
/// counts: 64 MiB for the default number of connections.
const HEADER_BYTES_MAX: usize = 16 * 1024;
/// The kernel doubles it: enough for a fast client far away, and little for a client that does not read.
const SEND_BUFFER_BYTES: usize = 256 * 1024;
/// How often connections are checked: this many times in the shortest time limit, within these bounds. A limit is then
/// exceeded by an eighth at most, and thousands of connections are not checked all the time.
const SWEEPS_PER_TIMEOUT: u32 = 8;
const SWEEP_MIN: Duration = Duration::from_millis(20);
const SWEEP_MAX: Duration = Duration::from_secs(1);
/// How long to wait after a failure to accept: usually the descriptors are used up, and an immediate retry would spin.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Strangers may have one in this many of all connections: new clients are strangers too, and need some.
const STRANGERS_SHARE: usize = 4;

/// How long a stranger may take to send its request before a newer connection replaces it. Many connect and then send from
/// a busy thread; without this, a flood closes them in between. 50 ms: a flood gets in at 20 times its share a second,
/// and the rest waits in the system's queue.
const REQUEST_WITHIN: Duration = Duration::from_millis(50);

/// How many connections there may be, and how long each may idle or stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// How many may be open at once.
    pub connections_max: usize,
    /// How long the headers of a request may take.
    pub header_timeout: Duration,
    /// How long a connection may have no request.
    pub idle_timeout: Duration,
    /// How long a client may read nothing while bytes wait for it.
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

/// Called with the reason when we close a connection.
pub(crate) type OnClose = Box<dyn Fn(&'static str) + Send + Sync>;

/// The connections of one listener.
pub(crate) struct Connections {
    limits: ConnectionLimits,
    open: Mutex<OpenConnections>,
    next: AtomicU64,
    /// Whether writing has stopped on all connections.
    writes_stopped: AtomicBool,
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
    activity: Mutex<ConnectionActivity>,
    close: Notify,
}

#[derive(Clone, Copy)]
struct ConnectionActivity {
    stage: Stage,
    since: Instant,
    /// Since when a write waits for the client to read.
    stalled: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No request.
    Idle,
    /// The headers of a request have begun to arrive, or the connection is new.
    Heading,
    /// A request is being answered.
    Answering,
}

/// Whether there is a place for a new connection.
enum Admission {
    Admitted(Arc<TrackedConnection>),
    /// Ask again after this time: every stranger that could be replaced is new itself.
    Later(Duration),
    /// No connection can be closed for it.
    Full,
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits, on_close: OnClose) -> Arc<Self> {
        let (next, writes_stopped) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { limits, open: Mutex::default(), next, writes_stopped, on_close })
    }

    /// Admits one more connection, closing another if there are too many.
    fn enter(self: &Arc<Self>) -> Admission {
        let mut open = lock(&self.open);
        let max = self.limits.connections_max;
        let strangers_max = (max / STRANGERS_SHARE).max(1);
        let is_full_of_strangers = open.strangers.len() >= strangers_max;
        let evicted = if is_full_of_strangers || open.strangers.len() + open.known.len() >= max {
            let Some(evicted) = Self::least_needed(&open) else { return Admission::Full };
            let ConnectionActivity { stage, since, .. } = *lock(&evicted.activity);
            let age = since.elapsed();
            if stage == Stage::Heading && age < REQUEST_WITHIN {
                return Admission::Later(REQUEST_WITHIN - age);
            }
            Some(evicted)
        } else {
            None
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let activity = ConnectionActivity { stage: Stage::Heading, since: Instant::now(), stalled: None };
        let (activity, close) = (Mutex::new(activity), Notify::new());
        let connection = Arc::new(TrackedConnection { number, connections: self.clone(), activity, close });
        open.strangers.insert(number, connection.clone());
        // `close` takes the lock again.
        drop(open);
        if let Some(evicted) = evicted {
            self.close(&evicted, Some("too many connections"));
        }
        Admission::Admitted(connection)
    }

    /// Returns the oldest stranger without a request, or else the oldest stranger, or else the oldest idle connection.
    fn least_needed(open: &OpenConnections) -> Option<Arc<TrackedConnection>> {
        let waits =
            |connection: &&Arc<TrackedConnection>| lock(&connection.activity).stage != Stage::Answering;
        let stranger = open.strangers.values().find(waits).or_else(|| open.strangers.values().next());
        stranger.or_else(|| open.known.values().find(waits)).cloned()
    }

    fn leave(&self, number: u64) {
        let mut open = lock(&self.open);
        open.strangers.remove(&number);
        open.known.remove(&number);
    }

    /// Closes late connections until this is dropped.
    async fn sweep(connections: std::sync::Weak<Self>) {
        loop {
            let Some(limits) = connections.upgrade().map(|connections| connections.limits) else { return };
            let shortest = limits.header_timeout.min(limits.idle_timeout).min(limits.write_timeout);
            tokio::time::sleep((shortest / SWEEPS_PER_TIMEOUT).clamp(SWEEP_MIN, SWEEP_MAX)).await;
            let Some(connections) = connections.upgrade() else { return };
            // Collected first: `close` takes the lock again.
            let late: Vec<_> = {
                let open = lock(&connections.open);
                open.all()
                    .filter_map(|connection| Some((connection.clone(), connection.is_late(&limits)?)))
                    .collect()
            };
            for (connection, why) in late {
                connections.close(&connection, why);
            }
        }
    }

    fn close(&self, connection: &TrackedConnection, why: Option<&'static str>) {
        connection.close.notify_one();
        self.leave(connection.number);
        if let Some(why) = why {
            (self.on_close)(why);
        }
    }

    /// Stops writing on all connections; bytes that wait stay where they are.
    pub(crate) fn stop_writes(&self) {
        self.writes_stopped.store(true, Ordering::Relaxed);
    }

    /// Closes the connection that has been stalled the longest, and at least this long; returns whether there was one.
    pub(crate) fn close_most_stalled(&self, at_least: Duration) -> bool {
        let stalled = {
            let open = lock(&self.open);
            let since = |connection: &Arc<TrackedConnection>| lock(&connection.activity).stalled;
            open.all()
                .filter_map(|connection| Some((since(connection)?, connection.clone())))
                .min_by_key(|(since, _)| *since)
        };
        let Some((_, connection)) = stalled.filter(|(since, _)| since.elapsed() >= at_least) else {
            return false;
        };
        self.close(&connection, Some("does not read, and memory is short"));
        true
    }
}

impl TrackedConnection {
    /// Notes that the client has a session: the connection no longer counts as a stranger.
    pub(crate) fn mark_known(&self) {
        let mut open = lock(&self.connections.open);
        if let Some(connection) = open.strangers.remove(&self.number) {
            open.known.insert(self.number, connection);
        }
    }

    /// Returns whether a time limit has passed, and the reason to report: closing an idle connection needs none.
    fn is_late(&self, limits: &ConnectionLimits) -> Option<Option<&'static str>> {
        let ConnectionActivity { stage, since, stalled } = *lock(&self.activity);
        if stalled.is_some_and(|since| since.elapsed() > limits.write_timeout) {
            return Some(Some("does not read"));
        }
        match stage {
            Stage::Heading if since.elapsed() > limits.header_timeout => Some(Some("headers too slow")),
            // Usual between HTTP peers, so it is no refusal to report.
            Stage::Idle if since.elapsed() > limits.idle_timeout => Some(None),
            // An answer may take as long as its call: only a stalled write ends it.
            _ => None,
        }
    }

    fn begin(&self, stage: Stage) {
        let mut activity = lock(&self.activity);
        (activity.stage, activity.since) = (stage, Instant::now());
    }

    /// Notes that bytes were read.
    fn note_read(&self) {
        if lock(&self.activity).stage == Stage::Idle {
            self.begin(Stage::Heading);
        }
    }

    /// Returns whether writing has stopped.
    fn writes_stopped(&self) -> bool {
        self.connections.writes_stopped.load(Ordering::Relaxed)
    }

    /// Notes whether a write waits for the client to read.
    fn note_write(&self, is_stalled: bool) {
        let mut activity = lock(&self.activity);
        match (is_stalled, activity.stalled) {
            // The first pending write counts: hyper polls again and again while the client does not read.
            (true, None) => activity.stalled = Some(Instant::now()),
            (false, Some(_)) => activity.stalled = None,
            _ => {}
        }
    }
}

/// The addresses of a connection: the client's, then ours.
pub(crate) type ConnectionAddresses = Option<(SocketAddr, SocketAddr)>;

/// Serves connections until the future is dropped. `make_service` returns the function that answers the requests of one
/// connection.
pub(crate) async fn serve<M, S, F, B>(listener: TcpListener, connections: Arc<Connections>, make_service: M)
where
    M: Fn(Arc<TrackedConnection>, ConnectionAddresses) -> S,
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
        let connection = loop {
            match connections.enter() {
                Admission::Admitted(connection) => break Some(connection),
                Admission::Later(wait) => tokio::time::sleep(wait).await,
                Admission::Full => break None,
            }
        };
        let Some(connection) = connection else {
            (connections.on_close)("too many connections");
            continue;
        };
        // Without it, Nagle's algorithm delays small responses. If it fails, they are only slower.
        let _ = stream.set_nodelay(true);
        // So that bytes for a slow client wait here, where the budget counts them, and not in the kernel. If it fails,
        // the kernel keeps some more.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES);
        let ends = stream.peer_addr().ok().zip(stream.local_addr().ok());
        tokio::spawn(attend(stream, connection.clone(), make_service(connection, ends)));
        // Lets the new connection read its request before the next is accepted: strangers without a request are closed
        // first.
        tokio::task::yield_now().await;
    }
}

async fn attend<S, F, B>(stream: TcpStream, connection: Arc<TrackedConnection>, answer: S)
where
    S: Fn(Request) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: AnswerBody<Data: Send, Error = std::io::Error> + Send + Unpin + 'static,
{
    let watched = TokioIo::new(Watched::new(stream, connection.clone()));
    let service_connection = connection.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let answering = RequestInProgress::begin(service_connection.clone());
        let answered = answer(request.map(Body::new));
        async move {
            let response = answered.await;
            // After an upgrade (WebSocket) it is no longer HTTP: it counts as answering until it is closed, never as
            // idle.
            let is_upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
            Ok::<_, Infallible>(response.map(|body| answering.until_taken(body, is_upgraded)))
        }
    });
    let served = http1::Builder::new()
        .max_buf_size(HEADER_BYTES_MAX)
        // With `writev` hyper keeps the chunks of a body and reports to each what was written (see
        // `front/http/body.rs`); without it, hyper would copy them into a buffer of its own.
        .writev(true)
        .serve_connection(watched, service)
        .with_upgrades();
    tokio::select! {
        // Errors of a connection concern only its client, which is gone.
        _ = served => {}
        () = connection.close.notified() => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Admits a connection, and returns how long it had to wait.
    async fn admit(connections: &Arc<Connections>) -> (Arc<TrackedConnection>, Duration) {
        let begun = Instant::now();
        loop {
            match connections.enter() {
                Admission::Admitted(connection) => return (connection, begun.elapsed()),
                Admission::Later(wait) => tokio::time::sleep(wait).await,
                Admission::Full => panic!("a stranger can always be closed"),
            }
        }
    }

    fn is_open(connections: &Connections, connection: &TrackedConnection) -> bool {
        lock(&connections.open).all().any(|open| open.number == connection.number)
    }

    /// Room for two strangers.
    fn connections() -> Arc<Connections> {
        let limits = ConnectionLimits { connections_max: 2 * STRANGERS_SHARE, ..ConnectionLimits::default() };
        Connections::new(limits, Box::new(|_| ()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_has_time_to_send_its_request_in_a_flood() {
        let connections = connections();
        let (first, _) = admit(&connections).await;
        tokio::time::advance(REQUEST_WITHIN / 2).await;
        let (second, waited) = admit(&connections).await;
        assert_eq!(waited, Duration::ZERO, "there is room for two");
        let (third, waited) = admit(&connections).await;
        assert!((REQUEST_WITHIN / 2..REQUEST_WITHIN).contains(&waited), "{waited:?}");
        assert!(!is_open(&connections, &first), "it had its time");
        assert!(is_open(&connections, &second) && is_open(&connections, &third));
    }

    #[tokio::test(start_paused = true)]
    async fn connections_without_a_request_are_replaced_first() {
        let connections = connections();
        let (asking, _) = admit(&connections).await;
        asking.begin(Stage::Answering);
        let (silent, _) = admit(&connections).await;
        admit(&connections).await;
        assert!(is_open(&connections, &asking) && !is_open(&connections, &silent));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_a_session_is_not_replaced_by_strangers() {
        let connections = connections();
        let (known, _) = admit(&connections).await;
        known.mark_known();
        for _ in 0..10 {
            admit(&connections).await;
        }
        assert!(is_open(&connections, &known));
        assert_eq!(lock(&connections.open).strangers.len(), 2);
    }
}
