//! The bridge itself: reads lines, POSTs them, and writes what comes back as lines.
//!
//! Requests run concurrently. The greeting of a legacy session is sent alone, and messages without an answer one after
//! the other, so that the server gets them in the client's order.

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
use scrubjay_http::Client;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::{Notify, OnceCell, Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use super::endpoint::Endpoint;
use super::exchange::{Exchange, listen_to_standing_stream};
use super::first_transport::FirstTransport;
use super::mirrored::MirroredHeaders;
use super::outgoing::NegotiatedProtocol;
use super::received::{BridgeOutput, ReceivedLine};
use super::refusal::HttpAnswer;
use crate::budget::{Budget, Charge, MemoryLimits, MemoryUse};
use crate::session::lock;

/// The most requests under way; others get an error.
const REQUESTS_MAX: usize = 256;
/// The most messages without an answer in the queue; the client is not read beyond that.
const ONE_WAY_MAX: usize = 64;
/// How many large answers are read at the same time.
const LARGE_ANSWERS_MAX: usize = 4;
/// The size of the buffer between a client in this process and the bridge.
const STREAM_BYTES: usize = 256 * 1024;
/// How long the greeting may take, while nothing else is sent.
const INITIALIZE_MAX: Duration = Duration::from_secs(60);
/// How long a message without an answer may take to be sent: those behind it wait.
const ONE_WAY_TIME_MAX: Duration = Duration::from_secs(30);
/// How long answers are waited for after the client has closed its stream.
const DRAIN: Duration = Duration::from_secs(10);
/// How long the end of a bridge may wait for the server to end the session.
const END_SESSION_MAX: Duration = Duration::from_secs(2);

/// Why a bridge ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BridgeEnd {
    /// The client closed its stream, or the caller stopped the bridge.
    ByClient,
    /// The client stopped reading.
    Unread,
    /// The server has ended the session.
    SessionLost,
}

/// Reports for each line, by its number in the stream to the bridge, whether it was sent or why not.
pub(crate) type OnSent = Box<dyn Fn(u64, Option<WhyUndelivered>) + Send + Sync>;

/// How many bridges of this process are open.
static OPEN: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::Sender::new(0));

/// Waits until all bridges of this process have ended, at most for `limit`; returns whether they have.
///
/// Without this, a process that exits leaves open sessions at its servers.
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
    pub(super) protocol: Mutex<NegotiatedProtocol>,
    pub(super) mirrored: Mutex<MirroredHeaders>,
    /// Permits to read a large answer.
    pub(super) large_answers: Semaphore,
    output: BridgeOutput,
    /// Where the memory of requests without an answer, and of answers that are being read, is charged.
    pub(super) budget: Budget,
    pub(super) on_sent: OnSent,
    /// The stream of a server that speaks the first HTTP transport, once it is open.
    pub(super) first_transport: OnceCell<Arc<FirstTransport>>,
    /// This bridge, for tasks that read its streams.
    pub(super) own: Weak<Self>,
    /// The modern requests under way; a notification cancels one.
    calls: Mutex<HashMap<JsonId, Arc<Notify>>>,
    ended: Mutex<Option<BridgeEnd>>,
    end: Notify,
    _open_count: OpenBridgeCount,
}

/// The tasks that run while another one reads lines.
#[derive(Default)]
struct Tasks {
    requests: JoinSet<()>,
    /// Those that run until the bridge ends.
    standing: JoinSet<()>,
}

/// A message without an answer, in the queue.
struct QueuedMessage {
    /// Its number in the stream to the bridge.
    number: u64,
    line: Bytes,
    message: Envelope,
    /// Its memory, charged while it waits.
    charge: Charge,
}

/// Presents an HTTP server as a stream to write lines to, and a queue of the lines it sends.
///
/// # Errors
/// The system's certificates cannot be read.
pub fn connect(
    endpoint: Endpoint,
    budget: Budget,
) -> io::Result<(mpsc::Receiver<ReceivedLine>, Box<dyn AsyncWrite + Send + Unpin>)> {
    connect_reporting(endpoint, budget, Box::new(|_, _| ()))
}

/// Like [`connect`], and reports whether each line was sent.
pub(crate) fn connect_reporting(
    endpoint: Endpoint,
    budget: Budget,
    on_sent: OnSent,
) -> io::Result<(mpsc::Receiver<ReceivedLine>, Box<dyn AsyncWrite + Send + Unpin>)> {
    let client = endpoint.client()?;
    let (writer, theirs_to_read) = tokio::io::duplex(STREAM_BYTES);
    let (output, received) = BridgeOutput::queue();
    let bridge = Bridge::new(endpoint, client, output, budget, on_sent);
    tokio::spawn(bridge.run(theirs_to_read, std::future::pending()));
    Ok((received, Box::new(writer)))
}

/// Carries lines between these streams and a server, until the client's stream ends or the future `stop` is ready;
/// reports whether each line was sent.
///
/// # Errors
/// The system's certificates cannot be read.
pub(crate) async fn run(
    endpoint: Endpoint,
    reader: impl AsyncRead + Send + Unpin,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    stop: impl Future<Output = ()> + Send,
    on_sent: OnSent,
) -> io::Result<BridgeEnd> {
    let client = endpoint.client()?;
    let usual = MemoryLimits::default();
    let least = endpoint.message_limit.bytes_max().saturating_mul(MemoryLimits::MESSAGES_MIN);
    let budget = Budget::new(MemoryLimits { process_bytes_max: usual.process_bytes_max.max(least), ..usual });
    let output = BridgeOutput::stream(Box::new(writer));
    Ok(Bridge::new(endpoint, client, output, budget, on_sent).run(reader, stop).await)
}

impl Bridge {
    fn new(
        endpoint: Endpoint,
        client: Client,
        output: BridgeOutput,
        budget: Budget,
        on_sent: OnSent,
    ) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            endpoint,
            client,
            protocol: Mutex::default(),
            mirrored: Mutex::default(),
            large_answers: Semaphore::new(LARGE_ANSWERS_MAX),
            output,
            budget,
            on_sent,
            first_transport: OnceCell::new(),
            own: own.clone(),
            calls: Mutex::default(),
            ended: Mutex::default(),
            end: Notify::new(),
            _open_count: OpenBridgeCount::new(),
        })
    }

    async fn run(
        self: Arc<Self>,
        reader: impl AsyncRead + Send + Unpin,
        stop: impl Future<Output = ()> + Send,
    ) -> BridgeEnd {
        let mut tasks = Tasks::default();
        // One task for all messages without an answer, so that they reach the server in their order.
        let (one_way, waiting) = mpsc::channel(ONE_WAY_MAX);
        tasks.requests.spawn(self.clone().send_one_way(waiting));
        let mut stop = std::pin::pin!(stop);
        let whole = async {
            self.read(reader, &mut tasks, one_way).await;
            // These would never end by themselves.
            tasks.standing.abort_all();
            let drained = async { while tasks.requests.join_next().await.is_some() {} };
            // A client that closed its stream waits no longer than this for answers.
            let _ = tokio::time::timeout(DRAIN, drained).await;
        };
        tokio::select! {
            () = whole => {}
            () = &mut stop => {}
            () = self.end.notified() => {}
        }
        drop(tasks);
        if let Some(first) = self.first_transport.get() {
            first.leave();
        }
        self.end_session().await;
        lock(&self.ended).unwrap_or(BridgeEnd::ByClient)
    }

    async fn read(
        self: &Arc<Self>,
        mut reader: impl AsyncRead + Send + Unpin,
        tasks: &mut Tasks,
        one_way: mpsc::Sender<QueuedMessage>,
    ) {
        let mut next = 0;
        let mut framer = Framer::new(self.endpoint.message_limit);
        loop {
            // A read that fails means the same as the end of the stream.
            let read = reader.read_buf(framer.room()).await.unwrap_or(0);
            loop {
                let lines: Vec<Bytes> = match if read == 0 { framer.finish() } else { framer.step() } {
                    FramerOutput::Batch(batch) => {
                        batch.lines().map(|l| Bytes::copy_from_slice(l.bytes)).collect()
                    }
                    FramerOutput::Oversize(line) => {
                        let limit = self.endpoint.message_limit.bytes_max();
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
                        // An empty line is no message: there is nothing to send.
                        (self.on_sent)(number, None);
                    } else {
                        self.dispatch(number, line, tasks, &one_way).await;
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
        one_way: &mpsc::Sender<QueuedMessage>,
    ) {
        while tasks.requests.try_join_next().is_some() || tasks.standing.try_join_next().is_some() {}
        let message = Envelope::parse(&line);
        match (message.kind, message.method.as_deref()) {
            (MessageKind::Request, Some(method::INITIALIZE)) => {
                // Awaited here: later messages need the session and version that it agrees on.
                let never = Notify::new();
                Exchange::new(self, number, &message, &never).bounded(INITIALIZE_MAX).run(line).await;
            }
            (MessageKind::Notification, Some(method::NOTIFICATIONS_INITIALIZED)) => {
                let never = Notify::new();
                let sent = Exchange::new(self, number, &message, &never).bounded(ONE_WAY_TIME_MAX);
                let sent = sent.run(line).await;
                // A server of the first transport has no other stream than the one that is open.
                if sent && lock(&self.protocol).version.is_some() && !self.first_transport.initialized() {
                    let bridge = self.clone();
                    tasks.standing.spawn(async move { listen_to_standing_stream(&bridge).await });
                }
            }
            (MessageKind::Notification, Some(method::NOTIFICATIONS_CANCELLED))
                if self.cancel_call(&message) =>
            {
                // Done by closing the request's stream, so there is nothing to send.
                (self.on_sent)(number, None);
            }
            (MessageKind::Notification | MessageKind::Response | MessageKind::Error, _) => {
                // Waiting for room stops the reading, which slows the client instead of dropping its messages.
                let mut charge = self.budget.nothing(MemoryUse::Backend, true);
                match charge.resize_within(line.len(), ONE_WAY_TIME_MAX).await {
                    Ok(()) => drop(one_way.send(QueuedMessage { number, line, message, charge }).await),
                    Err(full) => {
                        tracing::warn!(error = %full, "a message did not reach the server");
                        (self.on_sent)(number, Some(WhyUndelivered::DroppedByLimit));
                    }
                }
            }
            _ => self.begin(number, line, message, tasks).await,
        }
    }

    /// Sends a message that may be answered, in a task of its own.
    async fn begin(self: &Arc<Self>, number: u64, line: Bytes, message: Envelope, tasks: &mut Tasks) {
        if tasks.requests.len() + tasks.standing.len() > REQUESTS_MAX {
            (self.on_sent)(number, Some(WhyUndelivered::DroppedByLimit));
            let why = format!("{REQUESTS_MAX} requests are under way already");
            self.refuse(message.id.as_ref().map_or("null", JsonId::as_raw), &why, None).await;
            return;
        }
        let charge = match self.budget.charge(MemoryUse::Backend, line.len()) {
            Ok(charge) => charge,
            Err(full) => {
                (self.on_sent)(number, Some(WhyUndelivered::DroppedByLimit));
                let id = message.id.as_ref().map_or("null", JsonId::as_raw);
                self.refuse(id, &full.to_string(), None).await;
                return;
            }
        };
        let modern = lock(&self.protocol).modern_version(&message);
        let cancelled = Arc::new(Notify::new());
        if let (Some(version), Some(id)) = (modern, &message.id) {
            lock(&self.protocol).modern = Some(version);
            lock(&self.calls).insert(id.clone(), cancelled.clone());
        }
        let stands = message.method.as_deref() == Some(method::SUBSCRIPTIONS_LISTEN);
        let bridge = self.clone();
        let task = async move {
            Exchange::new(&bridge, number, &message, &cancelled).run(line).await;
            drop(charge);
            if let Some(id) = &message.id {
                let mut calls = lock(&bridge.calls);
                // A later request may have used the same id.
                if calls.get(id).is_some_and(|own| Arc::ptr_eq(own, &cancelled)) {
                    calls.remove(id);
                }
            }
        };
        // Apart from the others: at the end requests are waited for, and this one never ends by itself.
        if stands {
            tasks.standing.spawn(task)
        } else {
            tasks.requests.spawn(task)
        };
    }

    /// Cancels a modern request by closing its stream; returns whether no notification has to be sent.
    fn cancel_call(&self, message: &Envelope) -> bool {
        let call = message.references.cancels.as_ref().and_then(|id| lock(&self.calls).remove(id));
        let is_modern = call.is_some();
        if let Some(cancelled) = call {
            cancelled.notify_one();
        }
        // A modern server gets no such notification: a request that is not under way has been answered.
        is_modern || lock(&self.protocol).version.is_none()
    }

    async fn send_one_way(self: Arc<Self>, mut waiting: mpsc::Receiver<QueuedMessage>) {
        while let Some(QueuedMessage { number, line, message, charge: _charge }) = waiting.recv().await {
            let never = Notify::new();
            Exchange::new(&self, number, &message, &never).bounded(ONE_WAY_TIME_MAX).run(line).await;
        }
    }

    pub(super) fn request(
        &self,
        method: Method,
        protocol_headers: HeaderMap,
        body: Bytes,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.endpoint.url.clone();
        let own = concat!("scrubjay/", env!("CARGO_PKG_VERSION"));
        request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static(own));
        request.headers_mut().extend(self.endpoint.headers.clone());
        // Last, so that a configured header cannot replace those of the protocol, such as the session.
        request.headers_mut().extend(protocol_headers);
        request
    }

    /// Passes a line to the client, with the id of the request on whose stream it came.
    pub(super) async fn emit(&self, line: &[u8], stream_of: Option<u64>) {
        if !self.output.put(line, stream_of).await {
            self.end(BridgeEnd::Unread);
        }
    }

    /// Answers a request with an error, instead of the server.
    pub(super) async fn refuse(&self, id: &str, why: &str, answered: Option<&HttpAnswer>) {
        let data = answered.map(HttpAnswer::data);
        let error = message::error(code::INTERNAL, why, data.as_ref());
        self.emit(message::raw_error(id, &error).as_bytes(), None).await;
    }

    pub(super) fn end(&self, why: BridgeEnd) {
        lock(&self.ended).get_or_insert(why);
        self.end.notify_one();
    }

    /// Ends the legacy session, unless the server has ended it.
    async fn end_session(&self) {
        if *lock(&self.ended) == Some(BridgeEnd::SessionLost) {
            return;
        }
        let protocol = lock(&self.protocol).clone();
        if protocol.session.is_some() {
            let request = self.request(Method::DELETE, protocol.session_headers(), Bytes::new());
            // A server may refuse it (HTTP 405), and the bridge ends in any case.
            let _ = tokio::time::timeout(END_SESSION_MAX, self.client.send(request)).await;
        }
    }
}
