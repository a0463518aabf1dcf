//! One life of a backend: its streams, the calls under way, and what it says by itself.
//!
//! Ids towards the backend are numbers of our own, so that no two clients can be mistaken for each other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scrubjay_core::entry::{Direction, EntryKind, Terminator};
use scrubjay_core::envelope::Era;
use scrubjay_core::framing::{Framer, Step};
use scrubjay_core::message::{self, Parts, Splice};
use scrubjay_store::recording::{Item, RecordError, Recording};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};

use super::caller::with_caller;
use super::process::{Complaints, Program};
use super::{Answer, CallError, Event};
use crate::keeping::keep;
use crate::relay::Options;
use crate::session::{Call, Session, lock};

const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// How many calls may be under way on one backend.
const CALLS_MAX: usize = 65_536;
/// How many lines may wait to be read by the backend.
const LINES_MAX: usize = 64;
/// How many bytes of waiting lines go out in one write.
const WRITE_BYTES_MAX: usize = 64 * 1024;
/// How long what a backend said last may take to arrive after it has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// One life of a backend.
pub struct Connection {
    /// Whose it is.
    pub backend: String,
    /// The era it speaks.
    pub era: Era,
    /// What it offers: `capabilities` of its handshake, as JSON.
    pub capabilities: String,
    /// What it tells a client to do, where it does.
    pub instructions: Option<String>,
    /// Whether somebody listens to it for changes already.
    attended: AtomicBool,
    wire: Arc<Wire>,
}

/// The part of a connection that exists before the handshake.
pub(super) struct Wire {
    backend: String,
    /// Whether it is told who calls.
    is_own: bool,
    /// The one client it serves, where it serves one.
    owner: Option<Arc<Session>>,
    keeping: Options,
    era: Era,
    /// Lines on their way to the backend; dropped, its input ends.
    lines: Mutex<Option<mpsc::Sender<String>>>,
    pending: Mutex<HashMap<u64, Pending>>,
    next_id: AtomicU64,
    open: AtomicBool,
    closed: tokio::sync::watch::Sender<bool>,
    why_closed: Mutex<String>,
    complaints: Complaints,
    events: mpsc::Sender<Event>,
    recording: Arc<Mutex<Recording>>,
    /// Kept alive with the connection: dropped, the process ends.
    program: Mutex<Option<Program>>,
}

struct Pending {
    call: Option<Arc<Call>>,
    reply: oneshot::Sender<Answer>,
    /// The client's own token, where it wants progress.
    progress_token: Option<String>,
    /// Told when there is progress: a call that moves is not too slow.
    moves: Arc<tokio::sync::Notify>,
}

impl Connection {
    pub(super) fn new(wire: Arc<Wire>, era: Era, capabilities: String, instructions: Option<String>) -> Self {
        Self {
            backend: wire.backend.clone(),
            era,
            capabilities,
            instructions,
            attended: AtomicBool::new(false),
            wire,
        }
    }

    /// Returns whether nobody listened to it for changes before this call.
    pub(crate) fn begin_to_attend(&self) -> bool {
        !self.attended.swap(true, Ordering::AcqRel)
    }

    /// Returns whether the backend still listens.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.wire.open.load(Ordering::Acquire)
    }

    /// Waits until it does not any more.
    pub async fn closed(&self) {
        // The sender lives as long as the wire, and so longer than this.
        let _ = self.wire.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Returns why it does not.
    #[must_use]
    pub fn why_closed(&self) -> String {
        self.wire.why_closed()
    }

    /// Returns whether the backend declared a capability.
    #[must_use]
    pub fn offers(&self, capability: &str) -> bool {
        serde_json::from_str::<&RawValue>(&self.capabilities)
            .is_ok_and(|all| message::member(Some(all), capability).is_some_and(|c| c.get() != "null"))
    }

    /// Calls a method and waits for the answer.
    ///
    /// # Errors
    /// The backend went away or is too slow, or the call could not be recorded.
    pub async fn call(
        &self,
        call: Option<&Arc<Call>>,
        method: &str,
        params: Option<&str>,
        timeout: Duration,
    ) -> Result<Answer, CallError> {
        self.wire.call(call, method, params, timeout).await
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// The backend went away, or the notification could not be recorded.
    pub async fn notify(
        &self,
        call: Option<&Arc<Call>>,
        method: &str,
        params: Option<&str>,
    ) -> Result<(), CallError> {
        self.wire.send(call, message::notification(method, params)).await
    }

    /// Sends a notification at once; gives it back where it would have to wait.
    pub(crate) fn notify_now(&self, method: &str, params: Option<&str>) -> Result<(), String> {
        self.wire.send_now(message::notification(method, params))
    }

    /// Sends a line that could not be sent at once.
    pub(crate) async fn send_later(&self, line: String) -> Result<(), CallError> {
        self.wire.send(None, line).await
    }

    /// Ends the backend.
    pub fn close(&self) {
        self.wire.close("it was stopped");
    }
}

impl Wire {
    pub(super) fn new(
        backend: &super::Backend,
        era: Era,
        writer: Writer,
        program: Option<Program>,
        complaints: Complaints,
    ) -> Arc<Self> {
        let (lines, queue) = mpsc::channel(LINES_MAX);
        let wire = Arc::new(Self {
            backend: backend.id.clone(),
            is_own: backend.is_own,
            owner: backend.owner.clone(),
            keeping: backend.keeping,
            era,
            lines: Mutex::new(Some(lines)),
            pending: Mutex::default(),
            next_id: AtomicU64::new(1),
            open: AtomicBool::new(true),
            closed: tokio::sync::watch::Sender::new(false),
            why_closed: Mutex::default(),
            complaints,
            events: backend.events.clone(),
            recording: backend.recording.clone(),
            program: Mutex::new(program),
        });
        tokio::spawn(write(Arc::downgrade(&wire), writer, queue));
        wire
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    pub(super) fn why_closed(&self) -> String {
        let why = lock(&self.why_closed).clone();
        let complaints: Vec<String> = lock(&self.complaints).iter().cloned().collect();
        if complaints.is_empty() { why } else { format!("{why} (it said: {})", complaints.join(" | ")) }
    }

    pub(super) async fn call(
        self: &Arc<Self>,
        call: Option<&Arc<Call>>,
        method: &str,
        params: Option<&str>,
        timeout: Duration,
    ) -> Result<Answer, CallError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let told = call.filter(|_| self.is_own).map(|call| with_caller(call, params));
        let params = told.as_ref().map_or(params, |told| told.as_deref());
        let (params, progress_token) = with_own_token(params, id);
        let (reply, mut answer) = oneshot::channel();
        let moves = Arc::new(tokio::sync::Notify::new());
        {
            let mut pending = lock(&self.pending);
            if !self.is_open() || pending.len() >= CALLS_MAX {
                drop(pending);
                return Err(CallError::Unavailable(self.backend.clone(), self.why_closed()));
            }
            let call = call.cloned();
            pending.insert(id, Pending { call, reply, progress_token, moves: moves.clone() });
        }
        // Dropped before the answer is there, it calls the backend off.
        let mut guard = Abandon { wire: self, id, call, armed: true };
        let timed_out = || CallError::TimedOut(self.backend.clone(), timeout);
        let sent = self.send(call, message::request(&id.to_string(), method, params.as_deref()));
        tokio::time::timeout(timeout, sent).await.map_err(|_| timed_out())??;
        let answered = loop {
            tokio::select! {
                answered = &mut answer => break answered,
                () = moves.notified() => {}
                () = tokio::time::sleep(timeout) => return Err(timed_out()),
            }
        };
        guard.armed = false;
        answered.map_err(|_| CallError::Unavailable(self.backend.clone(), self.why_closed()))
    }

    /// Records a line and sends it; given up on, it is neither recorded nor sent.
    pub(super) async fn send(&self, call: Option<&Arc<Call>>, line: String) -> Result<(), CallError> {
        let gone = || CallError::Unavailable(self.backend.clone(), self.why_closed());
        let lines = lock(&self.lines).clone().ok_or_else(gone)?;
        let place = lines.reserve().await.map_err(|_| gone())?;
        // Recorded and queued in one step: lines leave in the order of the tape.
        let leaving = format!("{line}\n");
        self.record_then(Direction::ClientToServer, call, &line, || place.send(leaving))
            .map_err(|e| CallError::NotRecorded(e.to_string()))
    }

    fn send_now(&self, line: String) -> Result<(), String> {
        let lines = lock(&self.lines).clone();
        let Some(place) = lines.as_ref().and_then(|lines| lines.try_reserve().ok()) else { return Err(line) };
        let leaving = format!("{line}\n");
        if let Err(e) = self.record_then(Direction::ClientToServer, None, &line, || place.send(leaving)) {
            tracing::error!(backend = self.backend, error = %e, "a notification was not passed on");
        }
        Ok(())
    }

    fn record(&self, direction: Direction, call: Option<&Arc<Call>>, line: &str) -> Result<(), RecordError> {
        self.record_then(direction, call, line, || ())
    }

    fn record_then(
        &self,
        direction: Direction,
        call: Option<&Arc<Call>>,
        line: &str,
        then: impl FnOnce(),
    ) -> Result<(), RecordError> {
        if let Some(call) = call {
            let (session, operation) = (&call.session, call.recorded.map(|(entry, _)| entry));
            return session.record_backend(direction, &self.backend, operation, line, then).map(|_| ());
        }
        let item = Item::new(EntryKind::Message, direction, Terminator::Lf, line.as_bytes());
        self.record_item(item, then)
    }

    /// Records on the backend's own tape.
    fn record_item<'a>(&'a self, mut item: Item<'a>, then: impl FnOnce()) -> Result<(), RecordError> {
        item.via = Some(&self.backend);
        keep(&self.recording, self.keeping, item, then).map(|_| ())
    }

    /// Reads what the backend says until it stops.
    pub(super) async fn listen(self: Arc<Self>, mut reader: Box<dyn AsyncRead + Send + Unpin>) {
        let mut framer = Framer::new(self.keeping.message_bytes_max);
        let mut closed = self.closed.subscribe();
        loop {
            let read = tokio::select! {
                read = reader.read_buf(framer.room()) => read.unwrap_or(0),
                // Closed from our side: what is still said is said to nobody.
                _ = closed.wait_for(|closed| *closed) => return,
            };
            loop {
                let lines: Vec<Vec<u8>> = match if read == 0 { framer.finish() } else { framer.step() } {
                    Step::Batch(batch) => batch.lines().map(|l| l.bytes.to_vec()).collect(),
                    Step::Oversize(line) => {
                        self.too_long(&line);
                        continue;
                    }
                    Step::Starved => break,
                };
                for line in lines {
                    self.hear(&line).await;
                }
            }
            if read == 0 {
                let status = self.exit_status().await;
                self.close(&status);
                return;
            }
        }
    }

    /// Describes how the process ended, waiting a moment for it to.
    async fn exit_status(&self) -> String {
        let ended = lock(&self.program).as_ref().map(|program| program.ended.clone());
        if let Some(mut ended) = ended
            && let Ok(Ok(status)) =
                tokio::time::timeout(LAST_WORDS, ended.wait_for(|ended| ended.is_some())).await
        {
            return status.clone().unwrap_or_default();
        }
        "it closed its stream".to_owned()
    }

    /// Closes the connection of a program that has ended, though something it started may hold its streams.
    pub(super) async fn close_after(
        wire: std::sync::Weak<Self>,
        mut ended: tokio::sync::watch::Receiver<Option<String>>,
    ) {
        let status = match ended.wait_for(|ended| ended.is_some()).await {
            Ok(status) => status.clone().unwrap_or_default(),
            Err(_) => return,
        };
        tokio::time::sleep(LAST_WORDS).await;
        if let Some(wire) = wire.upgrade() {
            wire.close(&status);
        }
    }

    fn too_long(&self, line: &scrubjay_core::oversize::Oversize) {
        tracing::warn!(backend = self.backend, bytes = line.bytes, "a line of the backend is too long");
        let facts = serde_json::to_vec(line).expect("an oversize is plain data");
        let item = Item::new(EntryKind::Oversize, Direction::ServerToClient, Terminator::Lf, &facts);
        if let Err(e) = self.record_item(item, || ()) {
            tracing::error!(backend = self.backend, error = %e, "cannot record that a line was too long");
        }
        let id = line.id.as_deref().and_then(|id| id.parse::<u64>().ok());
        if let Some(pending) = id.and_then(|id| lock(&self.pending).remove(&id)) {
            let why = format!("the backend's answer of {} bytes is beyond the limit", line.bytes);
            let _ = pending.reply.send(Answer::error(-32603, &why));
        }
    }

    async fn hear(self: &Arc<Self>, bytes: &[u8]) {
        let line = String::from_utf8_lossy(bytes);
        // Some systems put a byte order mark before the first thing a program says.
        let line = line.strip_prefix('\u{feff}').unwrap_or(&line).to_owned();
        if line.as_bytes() != bytes {
            // Understood as well as can be; what it really said is on its own tape.
            self.record_own(bytes);
        }
        let Ok(parts) = Parts::of(&line) else {
            // Stray text on the stream: kept on the backend's own tape, and nobody else is bothered.
            if !line.trim().is_empty() {
                self.record_own(line.as_bytes());
                tracing::debug!(backend = self.backend, "the backend said something that is no message");
            }
            return;
        };
        match (&parts.method, parts.id) {
            (None, Some(id)) => self.hear_answer(id, &parts, &line),
            (Some(method), Some(id)) => {
                let (method, id) = (method.clone(), id.get().to_owned());
                let params = parts.params.map(|p| p.get().to_owned());
                self.clone().hear_request(method, id, params, line).await;
            }
            (Some(method), None) => {
                let method = method.clone();
                self.hear_notification(method, &line).await;
            }
            (None, None) => self.record_own(line.as_bytes()),
        }
    }

    fn record_own(&self, line: &[u8]) {
        let item = Item::new(EntryKind::Message, Direction::ServerToClient, Terminator::Lf, line);
        if let Err(e) = self.record_item(item, || ()) {
            tracing::error!(backend = self.backend, error = %e, "cannot record what the backend said");
        }
    }

    fn hear_answer(&self, id: &RawValue, parts: &Parts<'_>, line: &str) {
        let pending = id.get().parse::<u64>().ok().and_then(|id| lock(&self.pending).remove(&id));
        let Some(pending) = pending else {
            // Late, repeated or made up: on tape, and to nobody.
            self.record_own(line.as_bytes());
            return;
        };
        if let Err(e) = self.record(Direction::ServerToClient, pending.call.as_ref(), line) {
            let why = format!("the answer was not passed on, because it could not be recorded: {e}");
            let _ = pending.reply.send(Answer::error(-32603, &why));
            return;
        }
        let answer = match (parts.result, parts.error) {
            (_, Some(error)) => Answer::Error(error.get().to_owned()),
            (Some(result), None) => Answer::Result(result.get().to_owned()),
            (None, None) => Answer::error(-32603, "the backend's answer has neither result nor error"),
        };
        // Whoever asked may have gone.
        let _ = pending.reply.send(answer);
    }

    async fn hear_request(self: Arc<Self>, method: String, id: String, params: Option<String>, line: String) {
        let busy = self.busy();
        let only = only_session(&busy);
        if let Err(e) = self.record(Direction::ServerToClient, only.as_ref(), &line) {
            tracing::error!(backend = self.backend, error = %e, "cannot record what the backend asks");
            return;
        }
        // Answered beside the reading: the call it belongs to may be answered first.
        tokio::spawn(async move {
            let answer = if let Some(owner) = &self.owner {
                let outbox = only.as_ref().map(|call| call.outbox());
                owner.ask(outbox.as_ref(), &method, params.as_deref()).await
            } else if method == "ping" {
                Answer::Result("{}".to_owned())
            } else {
                let (reply, answer) = oneshot::channel();
                let backend = self.backend.clone();
                let event = Event::Request { backend, method, params, busy, reply };
                match self.events.send(event).await {
                    Ok(()) => answer.await.unwrap_or_else(|_| Answer::error(-32603, "nobody answered")),
                    Err(_) => Answer::error(-32603, "the gateway is shutting down"),
                }
            };
            let line = match answer {
                Answer::Result(result) => message::result(&id, &result),
                Answer::Error(error) => message::raw_error(&id, &error),
            };
            if let Err(e) = self.send(only.as_ref(), line).await {
                tracing::warn!(backend = self.backend, error = %e, "an answer did not reach the backend");
            }
        });
    }

    async fn hear_notification(&self, method: String, line: &str) {
        if method == "notifications/progress"
            && let Ok(parts) = Parts::of(line)
            && let Some(token) = parts.param("progressToken")
            && let Some((call, own)) = self.progressing(token)
        {
            if let Err(e) = self.record(Direction::ServerToClient, Some(&call), line) {
                tracing::error!(backend = self.backend, error = %e, "cannot record progress");
                return;
            }
            let line = Splice::new(line).replace(Some(token), &own).finish();
            call.say(line).await;
            return;
        }
        if let Some((call, line)) = self.subscribed(line) {
            call.say(line).await;
            return;
        }
        let busy = self.busy();
        let only = only_session(&busy);
        if let Err(e) = self.record(Direction::ServerToClient, only.as_ref(), line) {
            tracing::error!(backend = self.backend, error = %e, "cannot record a notification");
            return;
        }
        if let Some(call) = only.filter(|_| !concerns_all(&method)) {
            // At once, not through the queue: the answer behind it must not overtake it.
            if method != "notifications/message" || call.wants_log(line) {
                call.say(line.to_owned()).await;
            }
            return;
        }
        if let Some(owner) = &self.owner {
            owner.say_aside(line.to_owned());
            return;
        }
        let event = Event::Notification {
            backend: self.backend.clone(),
            era: self.era,
            method,
            line: line.to_owned(),
            busy,
        };
        // Waits when the gateway cannot keep up: nothing is dropped silently.
        let _ = self.events.send(event).await;
    }

    fn progressing(&self, token: &RawValue) -> Option<(Arc<Call>, String)> {
        let id = token.get().parse::<u64>().ok()?;
        let pending = lock(&self.pending);
        let pending = pending.get(&id)?;
        pending.moves.notify_one();
        Some((pending.call.clone()?, pending.progress_token.clone()?))
    }

    /// Returns whose subscription a notification is part of, and how that client knows it; recorded.
    fn subscribed(&self, line: &str) -> Option<(Arc<Call>, String)> {
        let parts = Parts::of(line).ok()?;
        let subscription = parts.meta(META_SUBSCRIPTION)?;
        let id = subscription.get().parse::<u64>().ok()?;
        let call = lock(&self.pending).get(&id)?.call.clone()?;
        // What cannot be recorded is not passed on; whoever tries again says why.
        self.record(Direction::ServerToClient, Some(&call), line).ok()?;
        let line = Splice::new(line).replace(Some(subscription), call.id.as_raw()).finish();
        Some((call, line))
    }

    /// Returns the calls under way, one for each session, newest first.
    fn busy(&self) -> Vec<Arc<Call>> {
        let pending = lock(&self.pending);
        let mut calls: Vec<(u64, Arc<Call>)> =
            pending.iter().filter_map(|(id, p)| Some((*id, p.call.clone()?))).collect();
        calls.sort_by_key(|(id, _)| std::cmp::Reverse(*id));
        calls.into_iter().map(|(_, call)| call).collect()
    }

    pub(super) fn close(&self, why: &str) {
        if self.open.swap(false, Ordering::AcqRel) {
            why.clone_into(&mut lock(&self.why_closed));
        }
        // Dropped, the waiting calls learn that nobody answers.
        lock(&self.pending).clear();
        self.closed.send_replace(true);
        lock(&self.lines).take();
        lock(&self.program).take();
    }
}

/// Writes lines to a backend, each of them whole: whoever sent one may have left half-way.
async fn write(wire: std::sync::Weak<Wire>, mut writer: Writer, mut lines: mpsc::Receiver<String>) {
    while let Some(mut line) = lines.recv().await {
        while line.len() < WRITE_BYTES_MAX
            && let Ok(more) = lines.try_recv()
        {
            line.push_str(&more);
        }
        let written = async {
            writer.write_all(line.as_bytes()).await?;
            writer.flush().await
        };
        if let Err(e) = written.await {
            if let Some(wire) = wire.upgrade() {
                wire.close(&format!("it does not read any more: {e}"));
            }
            return;
        }
    }
    // What is no process learns from its stream that it is over; it may have left already.
    let _ = writer.shutdown().await;
}

/// Tells whether a notification is for everyone, whoever has calls under way.
fn concerns_all(method: &str) -> bool {
    method.ends_with("/list_changed")
        || matches!(method, "notifications/resources/updated" | "notifications/subscriptions/acknowledged")
}

/// Returns the newest call, where all calls under way are of one client.
pub(crate) fn only_session(busy: &[Arc<Call>]) -> Option<Arc<Call>> {
    let first = busy.first()?;
    // Who only seems to be one client may be several.
    let surely_one = busy.len() == 1 || !first.session.is_inferred;
    let same = surely_one && busy.iter().all(|call| Arc::ptr_eq(&call.session, &first.session));
    same.then(|| first.clone())
}

/// Puts our id in place of the client's progress token, and returns that token.
fn with_own_token(params: Option<&str>, id: u64) -> (Option<String>, Option<String>) {
    let Some(text) = params else { return (None, None) };
    let object = serde_json::from_str::<&RawValue>(text).ok();
    let meta = message::member(object, "_meta");
    match (object, message::member(meta, "progressToken")) {
        (Some(object), Some(token)) => (
            Some(Splice::new(object.get()).replace(Some(token), &id.to_string()).finish()),
            Some(token.get().to_owned()),
        ),
        _ => (Some(text.to_owned()), None),
    }
}

/// Calls a backend off when its caller leaves before the answer.
struct Abandon<'a> {
    wire: &'a Arc<Wire>,
    id: u64,
    call: Option<&'a Arc<Call>>,
    armed: bool,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        lock(&self.wire.pending).remove(&self.id);
        if self.wire.is_open() {
            let (wire, call, id) = (self.wire.clone(), self.call.cloned(), self.id);
            tokio::spawn(async move {
                let params = format!(r#"{{"requestId":{id},"reason":"the caller left"}}"#);
                let line = message::notification("notifications/cancelled", Some(&params));
                // A backend that is gone needs no calling off.
                let _ = wire.send(call.as_ref(), line).await;
            });
        }
    }
}
