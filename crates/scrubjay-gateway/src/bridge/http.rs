//! The bridge itself: lines in, messages sent; what comes back, lines out.
//!
//! Requests run side by side. What opens a legacy session is sent alone, and messages without an answer one
//! after the other, so that the server hears them in the client's order.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request};
use scrubjay_core::entry::WhyUndelivered;
use scrubjay_core::envelope::{Envelope, JsonId, MessageKind};
use scrubjay_core::framing::{Framer, FramerOutput};
use scrubjay_core::message;
use scrubjay_core::protocol::{code, method};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::{Notify, OnceCell, Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use super::client::Client;
use super::endpoint::Endpoint;
use super::exchange::{Exchange, listen_aside};
use super::first_transport::FirstTransport;
use super::mirrored::MirroredHeaders;
use super::outgoing::NegotiatedProtocol;
use super::received::{Received, Sink};
use super::refusal::HttpAnswer;
use crate::budget::{Budget, Charge, MemoryLimits, Use};
use crate::session::lock;

/// How many requests may be under way.
const REQUESTS_MAX: usize = 256;
/// How many messages without an answer may wait for their turn.
const QUIET_MAX: usize = 64;
/// How many large answers are read at once.
const LARGE_MAX: usize = 4;
/// How much a client and the bridge may be apart.
const STREAM_BYTES: usize = 256 * 1024;
const INITIALIZE_MAX: Duration = Duration::from_secs(60);
const QUIET_ONE_MAX: Duration = Duration::from_secs(30);
/// How long answers are waited for once the client says nothing more.
const DRAIN: Duration = Duration::from_secs(10);
const GOODBYE_MAX: Duration = Duration::from_secs(2);

/// Why a bridge came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BridgeEnd {
    /// The client closed its stream, or was told to stop.
    ByClient,
    /// The client does not read any more.
    Unread,
    /// The server does not know the session any more.
    SessionLost,
}

/// Hears what became of each line, by its number on the stream to the bridge: it was sent, or why not.
pub(crate) type OnSent = Box<dyn Fn(u64, Option<WhyUndelivered>) + Send + Sync>;

/// How many bridges of this process have not ended.
static OPEN: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::Sender::new(0));

/// Waits until all bridges of this process have ended, but not longer than `limit`; returns whether they have.
///
/// A process that exits before leaves sessions behind at its servers.
pub async fn all_ended(limit: Duration) -> bool {
    let mut open = OPEN.subscribe();
    tokio::time::timeout(limit, open.wait_for(|open| *open == 0)).await.is_ok()
}

/// Counts a bridge as open.
struct OpenBridgeCount;

impl OpenBridgeCount {
    fn new() -> Self {
        OPEN.send_modify(|open| *open += 1);
        Self
    }
}

impl Drop for OpenBridgeCount {
    fn drop(&mut self) {
        OPEN.send_modify(|open| *open -= 1);
    }
}

pub(super) struct Bridge {
    pub(super) endpoint: Endpoint,
    pub(super) client: Client,
    pub(super) talk: Mutex<NegotiatedProtocol>,
    pub(super) mirrored: Mutex<MirroredHeaders>,
    /// Held while a large answer is read.
    pub(super) large: Semaphore,
    sink: Sink,
    /// What is kept in memory: messages that the server has not answered, answers that are being read.
    pub(super) budget: Budget,
    pub(super) on_sent: OnSent,
    /// The stream of a server that speaks the first HTTP transport, once it is known to.
    pub(super) first: OnceCell<Arc<FirstTransport>>,
    /// This bridge, for what listens beside it.
    pub(super) own: Weak<Self>,
    /// The modern requests under way, and how to call them off.
    calls: Mutex<HashMap<JsonId, Arc<Notify>>>,
    ended: Mutex<Option<BridgeEnd>>,
    end: Notify,
    _counted: OpenBridgeCount,
}

/// What runs beside the reading.
#[derive(Default)]
struct Tasks {
    requests: JoinSet<()>,
    /// Those that have no end of their own.
    standing: JoinSet<()>,
}

/// A message without an answer that waits for its turn.
struct QueuedMessage {
    /// Its number on the stream to the bridge.
    number: u64,
    line: Bytes,
    message: Envelope,
    /// The room it takes while it waits.
    room: Charge,
}

/// Presents an HTTP server as a stream of lines to write and a queue of what it says.
///
/// # Errors
/// The system's certificates cannot be read.
pub fn connect(
    endpoint: Endpoint,
    budget: Budget,
) -> io::Result<(mpsc::Receiver<Received>, Box<dyn AsyncWrite + Send + Unpin>)> {
    connect_telling(endpoint, budget, Box::new(|_, _| ()))
}

/// Like [`connect`], and tells what became of each line.
pub(crate) fn connect_telling(
    endpoint: Endpoint,
    budget: Budget,
    on_sent: OnSent,
) -> io::Result<(mpsc::Receiver<Received>, Box<dyn AsyncWrite + Send + Unpin>)> {
    let client = Client::new(&endpoint.url)?;
    let (writer, theirs_to_read) = tokio::io::duplex(STREAM_BYTES);
    let (sink, received) = Sink::queue();
    let bridge = Bridge::new(endpoint, client, sink, budget, on_sent);
    tokio::spawn(bridge.run(theirs_to_read, std::future::pending()));
    Ok((received, Box::new(writer)))
}

/// Carries lines between these ends and a server, until the client's end or the future `stop` is done.
///
/// # Errors
/// The system's certificates cannot be read.
pub async fn run(
    endpoint: Endpoint,
    reader: impl AsyncRead + Send + Unpin,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    stop: impl Future<Output = ()> + Send,
) -> io::Result<BridgeEnd> {
    run_telling(endpoint, reader, writer, stop, Box::new(|_, _| ())).await
}

/// Like [`run`], and tells what became of each line.
pub(crate) async fn run_telling(
    endpoint: Endpoint,
    reader: impl AsyncRead + Send + Unpin,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    stop: impl Future<Output = ()> + Send,
    on_sent: OnSent,
) -> io::Result<BridgeEnd> {
    let client = Client::new(&endpoint.url)?;
    let usual = MemoryLimits::default();
    let least = endpoint.message_bytes_max.saturating_mul(MemoryLimits::MESSAGES_MIN);
    let budget = Budget::new(MemoryLimits { process_bytes_max: usual.process_bytes_max.max(least), ..usual });
    let sink = Sink::stream(Box::new(writer));
    Ok(Bridge::new(endpoint, client, sink, budget, on_sent).run(reader, stop).await)
}

impl Bridge {
    fn new(endpoint: Endpoint, client: Client, sink: Sink, budget: Budget, on_sent: OnSent) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            endpoint,
            client,
            talk: Mutex::default(),
            mirrored: Mutex::default(),
            large: Semaphore::new(LARGE_MAX),
            sink,
            budget,
            on_sent,
            first: OnceCell::new(),
            own: own.clone(),
            calls: Mutex::default(),
            ended: Mutex::default(),
            end: Notify::new(),
            _counted: OpenBridgeCount::new(),
        })
    }

    async fn run(
        self: Arc<Self>,
        reader: impl AsyncRead + Send + Unpin,
        stop: impl Future<Output = ()> + Send,
    ) -> BridgeEnd {
        let mut tasks = Tasks::default();
        let (quiet, waiting) = mpsc::channel(QUIET_MAX);
        tasks.requests.spawn(self.clone().send_quietly(waiting));
        let mut stop = std::pin::pin!(stop);
        let whole = async {
            self.read(reader, &mut tasks, quiet).await;
            // What has no end of its own does not hold up the end.
            tasks.standing.abort_all();
            let drained = async { while tasks.requests.join_next().await.is_some() {} };
            // A client that has no answer by then has given up.
            let _ = tokio::time::timeout(DRAIN, drained).await;
        };
        tokio::select! {
            () = whole => {}
            () = &mut stop => {}
            () = self.end.notified() => {}
        }
        drop(tasks);
        if let Some(first) = self.first.get() {
            first.leave();
        }
        self.say_goodbye().await;
        lock(&self.ended).unwrap_or(BridgeEnd::ByClient)
    }

    async fn read(
        self: &Arc<Self>,
        mut reader: impl AsyncRead + Send + Unpin,
        tasks: &mut Tasks,
        quiet: mpsc::Sender<QueuedMessage>,
    ) {
        let mut next = 0;
        let mut framer = Framer::new(self.endpoint.message_bytes_max);
        loop {
            // A stream that cannot be read has ended.
            let read = reader.read_buf(framer.room()).await.unwrap_or(0);
            loop {
                let lines: Vec<Bytes> = match if read == 0 { framer.finish() } else { framer.step() } {
                    FramerOutput::Batch(batch) => {
                        batch.lines().map(|l| Bytes::copy_from_slice(l.bytes)).collect()
                    }
                    FramerOutput::Oversize(line) => {
                        let limit = self.endpoint.message_bytes_max;
                        let why = format!("a message of {} bytes is over the limit of {limit}", line.bytes);
                        (self.on_sent)(next, Some(WhyUndelivered::DroppedByLimit));
                        next += 1;
                        self.refuse(line.id.as_deref().unwrap_or("null"), &why, None).await;
                        continue;
                    }
                    FramerOutput::Starved => break,
                };
                for line in lines {
                    let number = next;
                    next += 1;
                    if line.trim_ascii().is_empty() {
                        // There is nothing in it that a server could be told.
                        (self.on_sent)(number, None);
                    } else {
                        self.dispatch(number, line, tasks, &quiet).await;
                    }
                }
            }
            framer.shrink(STREAM_BYTES);
            if read == 0 {
                return;
            }
        }
    }

    async fn dispatch(
        self: &Arc<Self>,
        number: u64,
        line: Bytes,
        tasks: &mut Tasks,
        quiet: &mpsc::Sender<QueuedMessage>,
    ) {
        while tasks.requests.try_join_next().is_some() || tasks.standing.try_join_next().is_some() {}
        let message = Envelope::parse(&line);
        match (message.kind, message.method.as_deref()) {
            (MessageKind::Request, Some(method::INITIALIZE)) => {
                // Everything after it needs what it agrees on.
                let never = Notify::new();
                Exchange::new(self, number, &message, &never).brief(INITIALIZE_MAX).run(line).await;
            }
            (MessageKind::Notification, Some(method::NOTIFICATIONS_INITIALIZED)) => {
                let never = Notify::new();
                let sent = Exchange::new(self, number, &message, &never).brief(QUIET_ONE_MAX);
                let sent = sent.run(line).await;
                // A server of the first transport has said where its one stream is.
                if sent && lock(&self.talk).version.is_some() && !self.first.initialized() {
                    let bridge = self.clone();
                    tasks.standing.spawn(async move { listen_aside(&bridge).await });
                }
            }
            (MessageKind::Notification, Some(method::NOTIFICATIONS_CANCELLED)) if self.call_off(&message) => {
                // By leaving the request's stream.
                (self.on_sent)(number, None);
            }
            (MessageKind::Notification | MessageKind::Response | MessageKind::Error, _) => {
                // Waits for room: the client is to slow down, and nothing is lost.
                let mut room = self.budget.nothing(Use::Backend, true);
                match room.resize_within(line.len(), QUIET_ONE_MAX).await {
                    Ok(()) => drop(quiet.send(QueuedMessage { number, line, message, room }).await),
                    Err(full) => {
                        tracing::warn!(error = %full, "a message did not reach the server");
                        (self.on_sent)(number, Some(WhyUndelivered::DroppedByLimit));
                    }
                }
            }
            _ => self.begin(number, line, message, tasks).await,
        }
    }

    /// Sends what may be answered, beside everything else.
    async fn begin(self: &Arc<Self>, number: u64, line: Bytes, message: Envelope, tasks: &mut Tasks) {
        if tasks.requests.len() + tasks.standing.len() > REQUESTS_MAX {
            (self.on_sent)(number, Some(WhyUndelivered::DroppedByLimit));
            let why = format!("{REQUESTS_MAX} requests are under way already");
            self.refuse(message.id.as_ref().map_or("null", JsonId::as_raw), &why, None).await;
            return;
        }
        let room = match self.budget.charge(Use::Backend, line.len()) {
            Ok(room) => room,
            Err(full) => {
                (self.on_sent)(number, Some(WhyUndelivered::DroppedByLimit));
                let id = message.id.as_ref().map_or("null", JsonId::as_raw);
                self.refuse(id, &full.to_string(), None).await;
                return;
            }
        };
        let modern = lock(&self.talk).modern_version(&message);
        let cancelled = Arc::new(Notify::new());
        if let (Some(version), Some(id)) = (modern, &message.id) {
            lock(&self.talk).modern = Some(version);
            lock(&self.calls).insert(id.clone(), cancelled.clone());
        }
        let stands = message.method.as_deref() == Some(method::SUBSCRIPTIONS_LISTEN);
        let bridge = self.clone();
        let task = async move {
            Exchange::new(&bridge, number, &message, &cancelled).run(line).await;
            drop(room);
            if let Some(id) = &message.id {
                let mut calls = lock(&bridge.calls);
                // Another of the same id may have taken its place.
                if calls.get(id).is_some_and(|own| Arc::ptr_eq(own, &cancelled)) {
                    calls.remove(id);
                }
            }
        };
        if stands {
            tasks.standing.spawn(task)
        } else {
            tasks.requests.spawn(task)
        };
    }

    /// Calls a modern request off by leaving its stream; returns whether nothing needs to be sent.
    fn call_off(&self, message: &Envelope) -> bool {
        let call = message.references.cancels.as_ref().and_then(|id| lock(&self.calls).remove(id));
        let is_modern = call.is_some();
        if let Some(cancelled) = call {
            cancelled.notify_one();
        }
        // A modern server is never told otherwise: what is not under way has been answered.
        is_modern || lock(&self.talk).version.is_none()
    }

    async fn send_quietly(self: Arc<Self>, mut waiting: mpsc::Receiver<QueuedMessage>) {
        while let Some(QueuedMessage { number, line, message, room: _room }) = waiting.recv().await {
            let never = Notify::new();
            Exchange::new(&self, number, &message, &never).brief(QUIET_ONE_MAX).run(line).await;
        }
    }

    pub(super) fn request(&self, method: Method, said: HeaderMap, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.endpoint.url.clone();
        let own = concat!("scrubjay/", env!("CARGO_PKG_VERSION"));
        request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static(own));
        request.headers_mut().extend(self.endpoint.headers.clone());
        request.headers_mut().extend(said);
        request
    }

    /// Passes a line on to the client, with the request on whose stream it came.
    pub(super) async fn emit(&self, line: &[u8], on: Option<u64>) {
        if !self.sink.put(line, on).await {
            self.end(BridgeEnd::Unread);
        }
    }

    /// Answers a request in the server's place.
    pub(super) async fn refuse(&self, id: &str, why: &str, answered: Option<&HttpAnswer>) {
        let data = answered.map(HttpAnswer::data);
        let error = message::error(code::INTERNAL, why, data.as_ref());
        self.emit(message::raw_error(id, &error).as_bytes(), None).await;
    }

    pub(super) fn end(&self, why: BridgeEnd) {
        lock(&self.ended).get_or_insert(why);
        self.end.notify_one();
    }

    /// Ends the legacy session, where there is one that may still be known.
    async fn say_goodbye(&self) {
        if *lock(&self.ended) == Some(BridgeEnd::SessionLost) {
            return;
        }
        let talk = lock(&self.talk).clone();
        if talk.session.is_some() {
            let request = self.request(Method::DELETE, talk.session_headers(), Bytes::new());
            // A server need not listen to this, and we are leaving.
            let _ = tokio::time::timeout(GOODBYE_MAX, self.client.send(request)).await;
        }
    }
}
