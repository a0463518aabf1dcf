//! One life of a backend: its streams, the calls under way, and what it says by itself.
//!
//! Ids towards the backend are numbers of our own, so that no two clients can be mistaken for each other.

mod clients_seen;
mod inbound;
mod notes;
mod rules;
mod single_flight;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use scrubjay_core::entry::{Direction, Transport};
use scrubjay_core::envelope::Era;
use scrubjay_core::message::{self, Splice};
use scrubjay_core::protocol::method;
use scrubjay_core::rules::Onward;
use scrubjay_tape::recording::{Item, Leg, RecordError};
use serde_json::value::RawValue;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc, oneshot};

pub use self::clients_seen::ClientsSeen;
pub(super) use self::inbound::Incoming;
pub(crate) use self::single_flight::SingleFlight;
use super::caller::with_caller;
use super::leg_tape::LegTape;
use super::list::{BackendList, ListKind};
use super::process::{Complaints, Exit, Program};
use super::questions::Questions;
use super::slots::Owner;
use super::{Answer, CallError, Event};
use crate::budget::{Account, Budget, Queued, Use};
use crate::delivery::{HandedOver, LineBatch, Outgoing};
use crate::record_first::record_first;
use crate::relay::Options;
use crate::ruled_line::RuledLine;
use crate::rules_in_force::ConnectionJudge;
use crate::session::{Call, HELD_MAX, Session, lock};

/// How many calls may be under way on one backend.
const CALLS_MAX: usize = 65_536;
/// How many lines may wait to be read by the backend.
const LINES_MAX: usize = 64;
/// How much a backend may say before it answers its greeting: some print their logs, but one that floods is ended.
const BEFORE_GREETING_BYTES_MAX: usize = 4 << 20;
/// How many questions of a backend may have no answer yet; it is not heard beyond that.
const OPEN_ENDS_MAX: usize = 1024;
/// How long a line may wait for room because its backend does not read; calls have deadlines of their own.
const QUEUE_WAIT_MAX: Duration = Duration::from_secs(300);
/// How many bytes of waiting lines go out in one write.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// The capabilities of a backend that decide what it is asked.
const CAPABILITIES: [&str; 4] = ["tools", "prompts", "resources", "logging"];

type Writer = Box<dyn AsyncWrite + Send + Unpin>;
/// The lines whose delivery a bridge reports later, where there is a bridge.
type InBridge = Option<Arc<Mutex<HandedOver>>>;

/// One life of a backend.
pub struct Connection {
    /// Whose it is.
    pub backend: String,
    /// The era it speaks.
    pub era: Era,
    /// Those of `CAPABILITIES` that it declared: what else it said of itself is kept once for all of them.
    declared: Vec<&'static str>,
    /// Whether somebody looked at how it greets, and listens to it for changes, already.
    attended: AtomicBool,
    /// How many resources are followed on it: it is not idle while there is one.
    followed: AtomicU64,
    used: Mutex<tokio::time::Instant>,
    /// The lists that are being read from it, so that nobody asks for one twice at the same time.
    pub(crate) list_reads: SingleFlight,
    /// The newest list of definitions of each kind that was read from it, where there was room to keep it.
    newest: Mutex<HashMap<ListKind, Arc<BackendList>>>,
    channel: Arc<RpcChannel>,
}

/// The part of a connection that exists before the handshake.
pub(crate) struct RpcChannel {
    backend: String,
    /// What its entries name it: its id, without a secret that somebody put there.
    recorded_as: String,
    /// Which connection to the backend it is, counted from 1.
    number: u32,
    transport: Transport,
    /// Whether each request to it says who calls: it is a toolset of this process.
    is_own: bool,
    /// The one client that everything is passed to as it is, where there is one.
    passes_to: Option<Arc<Session>>,
    /// The era it speaks and the client whose it is, once it has been greeted.
    settled: OnceLock<(Era, Owner)>,
    questions: Arc<Questions>,
    record_options: Options,
    /// The rules at work on it.
    judge: ConnectionJudge,
    /// The clients that have spoken on it.
    clients_seen: Mutex<ClientsSeen>,
    /// Places for what rules hold back and is no one client's of several.
    held: Arc<Semaphore>,
    /// Lines on their way to the backend; dropped, its input ends.
    lines: Mutex<Option<mpsc::Sender<Outgoing>>>,
    budget: Budget,
    /// What waits for the backend to read it.
    queue: Arc<Account>,
    /// Room for questions of the backend that have no answer yet, and for calls that are called off.
    open_ends: Arc<Semaphore>,
    pending: Mutex<HashMap<u64, PendingCall>>,
    /// Makes progress tokens that nobody but this connection's backend knows.
    token_key: [u8; 32],
    next_id: AtomicU64,
    /// How many bytes it has said before it was greeted.
    bytes_before: AtomicUsize,
    open: AtomicBool,
    closed: tokio::sync::watch::Sender<bool>,
    why_closed: Mutex<String>,
    complaints: Complaints,
    events: mpsc::Sender<Event>,
    tape: Arc<LegTape>,
    /// Kept alive with the connection: dropped, the process ends.
    program: Mutex<Option<Program>>,
}

struct PendingCall {
    call: Option<Arc<Call>>,
    /// Whether its answer may demand input of a modern client.
    may_demand: bool,
    reply: oneshot::Sender<Answer>,
    /// The client's own token, where it wants progress.
    progress_token: Option<String>,
    /// Notified of progress: a call that makes progress does not time out.
    moves: Arc<tokio::sync::Notify>,
}

impl Connection {
    pub(super) fn new(channel: Arc<RpcChannel>, era: Era, capabilities: &str) -> Self {
        let all = serde_json::from_str::<&RawValue>(capabilities).ok();
        let is_declared = |name: &&str| message::member(all, name).is_some_and(|c| c.get() != "null");
        Self {
            backend: channel.backend.clone(),
            era,
            declared: CAPABILITIES.into_iter().filter(is_declared).collect(),
            attended: AtomicBool::new(false),
            followed: AtomicU64::new(0),
            used: Mutex::new(tokio::time::Instant::now()),
            list_reads: SingleFlight::default(),
            newest: Mutex::default(),
            channel,
        }
    }

    /// Returns the client whose it is; `None` where it serves all clients.
    #[must_use]
    pub fn owner(&self) -> Option<Arc<str>> {
        self.channel.settled.get().and_then(|(_, owner)| owner.clone())
    }

    /// Notes the newest list of definitions that was read from it.
    pub(crate) fn learn_list(&self, kind: ListKind, offer: &Arc<BackendList>) {
        if kind.is_definition() && offer.may_be_kept() {
            lock(&self.newest).insert(kind, offer.clone());
        } else {
            lock(&self.newest).remove(&kind);
        }
    }

    /// Returns the newest list of definitions that was read from it, as far as it was kept.
    pub(crate) fn newest_list(&self, kind: ListKind) -> Option<Arc<BackendList>> {
        lock(&self.newest).get(&kind).cloned()
    }

    /// Forgets what lists said: rules may leave them otherwise now.
    pub(crate) fn forget_lists(&self) {
        lock(&self.newest).clear();
    }

    /// Returns what its backend asked, and no request of the client has taken along.
    pub(crate) fn questions(&self) -> Arc<Questions> {
        self.channel.questions.clone()
    }

    /// Notes that a client speaks on it.
    pub(crate) fn note_client(&self, session: &Session) {
        lock(&self.channel.clients_seen).add(session);
    }

    /// Notes that its client needs it.
    pub(crate) fn touch(&self) {
        *lock(&self.used) = tokio::time::Instant::now();
    }

    /// Counts a resource that is followed on it.
    pub(crate) fn follow(&self) {
        self.followed.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a resource that is followed no more.
    pub(crate) fn unfollow(&self) {
        self.followed.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns for how long it was not used; `None` while it is.
    pub(super) fn idle(&self) -> Option<Duration> {
        let in_use = self.followed.load(Ordering::Acquire) > 0 || !lock(&self.channel.pending).is_empty();
        (!in_use).then(|| lock(&self.used).elapsed())
    }

    /// Returns how many calls of clients are under way on it.
    #[must_use]
    pub fn open_calls(&self) -> usize {
        lock(&self.channel.pending).values().filter(|pending| pending.call.is_some()).count()
    }

    /// Returns whether nobody looked at how it greets, and listened to it for changes, before this call.
    pub(crate) fn begin_to_attend(&self) -> bool {
        !self.attended.swap(true, Ordering::AcqRel)
    }

    /// Returns whether the connection is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.channel.open.load(Ordering::Acquire)
    }

    /// Waits until it is closed.
    pub async fn closed(&self) {
        // The sender lives as long as the channel, and so longer than this.
        let _ = self.channel.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Returns why it was closed.
    #[must_use]
    pub fn why_closed(&self) -> String {
        self.channel.why_closed()
    }

    /// Returns whether the backend declared one of `CAPABILITIES`.
    #[must_use]
    pub fn offers(&self, capability: &str) -> bool {
        self.declared.contains(&capability)
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
        self.channel.call(call, method, params, timeout).await
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
        self.channel.send(call, message::notification(method, params)).await
    }

    /// Sends a notification at once; gives it back where it would have to wait.
    pub(crate) fn notify_now(&self, method: &str, params: Option<&str>) -> Result<(), String> {
        self.channel.send_now(message::notification(method, params))
    }

    /// Sends a line that could not be sent at once.
    pub(crate) async fn send_later(&self, line: String) -> Result<(), CallError> {
        self.channel.send(None, line).await
    }

    /// Ends it with its client or the gateway, whose tape says so.
    pub fn close(&self, why: &str) {
        self.channel.close(why, !self.channel.busy().is_empty());
    }

    /// Ends it though its client goes on, which is on tape: what its server kept for the client is lost.
    pub(super) fn take_away(&self, why: &str) {
        self.channel.close(why, true);
    }
}

impl RpcChannel {
    pub(super) fn new(
        backend: &super::Backend,
        (writer, in_bridge): (Writer, InBridge),
        program: Option<Program>,
        complaints: Complaints,
        tape: Arc<LegTape>,
    ) -> Arc<Self> {
        let (lines, queue) = mpsc::channel(LINES_MAX);
        let redactor = lock(&tape.recording()).redactor();
        let channel = Arc::new(Self {
            backend: backend.id.clone(),
            recorded_as: redactor.text(&backend.id).to_string(),
            number: backend.next_connection(),
            transport: backend.transport(),
            is_own: backend.is_own,
            passes_to: backend.owner.clone(),
            settled: OnceLock::new(),
            questions: Arc::default(),
            record_options: backend.record_options,
            judge: backend.judge(),
            clients_seen: Mutex::default(),
            held: Arc::new(Semaphore::new(HELD_MAX)),
            lines: Mutex::new(Some(lines)),
            queue: backend.budget.backend(),
            budget: backend.budget.clone(),
            open_ends: Arc::new(Semaphore::new(OPEN_ENDS_MAX)),
            pending: Mutex::default(),
            token_key: random_key(),
            next_id: AtomicU64::new(1),
            bytes_before: AtomicUsize::new(0),
            open: AtomicBool::new(true),
            closed: tokio::sync::watch::Sender::new(false),
            why_closed: Mutex::default(),
            complaints,
            events: backend.events.clone(),
            tape,
            program: Mutex::new(program),
        });
        tokio::spawn(write(Arc::downgrade(&channel), writer, in_bridge, queue));
        channel
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Notes what the greeting showed: which era it speaks, and so whether it serves all clients.
    pub(super) fn settle(&self, era: Era, owner: Owner) {
        if owner.is_none() {
            self.tape.leave_session();
        }
        // A connection is greeted once.
        let _ = self.settled.set((era, owner));
    }

    /// Returns whether it has been greeted, or greets for itself.
    fn is_greeted(&self) -> bool {
        self.settled.get().is_some()
    }

    fn era(&self) -> Era {
        self.settled.get().map_or(Era::Legacy, |(era, _)| *era)
    }

    fn owner(&self) -> Owner {
        self.settled.get().and_then(|(_, owner)| owner.clone())
    }

    /// Returns whether it is one client's own.
    fn is_one_clients(&self) -> bool {
        self.passes_to.is_some() || self.owner().is_some()
    }

    /// Returns how much processor time its program has used, where it has one that has said nothing yet.
    pub(super) fn silent_ticks(&self) -> Option<u64> {
        let is_silent = self.bytes_before.load(Ordering::Relaxed) == 0;
        is_silent.then(|| lock(&self.program).as_ref().and_then(Program::busy_ticks)).flatten()
    }

    pub(super) fn why_closed(&self) -> String {
        let why = lock(&self.why_closed).clone();
        let complaints: Vec<String> = lock(&self.complaints).iter().cloned().collect();
        let why =
            if complaints.is_empty() { why } else { format!("{why} (it said: {})", complaints.join(" | ")) };
        // It is sent to clients, and may quote secrets from the server's output or address.
        let redactor = lock(&self.tape.recording()).redactor();
        redactor.redact_text(&why).into_owned()
    }

    /// Returns the progress token of a call towards the backend, as JSON: its id, and 128 bits that cannot be guessed.
    fn progress_token(&self, id: u64) -> String {
        let code = blake3::keyed_hash(&self.token_key, &id.to_le_bytes()).to_hex();
        format!("\"{id}-{}\"", &code[..32])
    }

    /// Returns the call that a progress token was made for.
    fn call_of_token(&self, token: &RawValue) -> Option<u64> {
        let text = message::string(Some(token))?;
        let id = text.split_once('-')?.0.parse().ok()?;
        (message::string(serde_json::from_str(&self.progress_token(id)).ok())? == text).then_some(id)
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
        let (request, progress_token) = request_line(id, method, params, || self.progress_token(id));
        drop(told);
        // Dropped before the answer came, it cancels the call at the backend.
        let mut guard = AbandonGuard { channel: self, id, call, is_under_way: false, is_answered: false };
        let line = self.judge(Direction::ClientToServer, request);
        line.hold().await;
        if let Some(answer) = line.answer() {
            let recorded = self.record_then(Direction::ClientToServer, call, &line, None);
            return recorded.map(|()| answer).map_err(|e| CallError::NotRecorded(e.to_string()));
        }
        if let Some(call) = call {
            lock(&self.clients_seen).add(&call.session);
        }
        let (reply, mut answer) = oneshot::channel();
        let moves = Arc::new(tokio::sync::Notify::new());
        {
            let mut pending = lock(&self.pending);
            if !self.is_open() || pending.len() >= CALLS_MAX {
                drop(pending);
                return Err(CallError::Unavailable(self.backend.clone(), self.why_closed()));
            }
            let call = call.cloned();
            let may_demand =
                matches!(method, method::TOOLS_CALL | method::PROMPTS_GET | method::RESOURCES_READ);
            pending.insert(id, PendingCall { call, may_demand, reply, progress_token, moves: moves.clone() });
        }
        guard.is_under_way = true;
        let timed_out = || CallError::TimedOut(self.backend.clone(), timeout);
        let sent = self.send_judged(call, &line);
        tokio::time::timeout(timeout, sent).await.map_err(|_| timed_out())??;
        // Freed now: the answer may take long, and the request may be large.
        drop(line);
        let answered = loop {
            tokio::select! {
                answered = &mut answer => break answered,
                () = moves.notified() => {}
                () = tokio::time::sleep(timeout) => return Err(timed_out()),
            }
        };
        guard.is_answered = true;
        answered.map_err(|_| CallError::Unavailable(self.backend.clone(), self.why_closed()))
    }

    /// Judges a line, records it and sends it; given up on, it is neither recorded nor sent.
    pub(super) async fn send(&self, call: Option<&Arc<Call>>, line: String) -> Result<(), CallError> {
        let line = self.judge(Direction::ClientToServer, line);
        line.hold().await;
        self.send_judged(call, &line).await
    }

    async fn send_judged(&self, call: Option<&Arc<Call>>, line: &RuledLine) -> Result<(), CallError> {
        let goes_on = line.judgement.onward != Onward::Nothing;
        let leaving = goes_on.then(|| line.text().into_owned());
        self.record_and_send(Direction::ClientToServer, call, line, leaving).await
    }

    fn send_now(&self, line: String) -> Result<(), String> {
        let lines = lock(&self.lines).clone();
        let Some(place) = lines.as_ref().and_then(|lines| lines.try_reserve().ok()) else { return Err(line) };
        let line = self.judge(Direction::ClientToServer, line);
        if line.judgement.delay > Duration::ZERO {
            return Err(line.came);
        }
        let mut leaving = None;
        if line.judgement.onward != Onward::Nothing {
            let text = line.text().into_owned();
            let Ok(room) = self.queue.charge(Use::Backend, text.len()) else { return Err(line.came) };
            leaving = Some((place, Queued::new(text, room)));
        }
        if let Err(e) = self.record_then(Direction::ClientToServer, None, &line, leaving) {
            tracing::error!(backend = self.backend, error = %e, "a notification was not passed on");
        }
        Ok(())
    }

    fn record(
        &self,
        direction: Direction,
        call: Option<&Arc<Call>>,
        line: &RuledLine,
    ) -> Result<(), RecordError> {
        self.record_then(direction, call, line, None)
    }

    /// Returns the leg that entries of this connection belong to.
    fn leg(&self) -> Leg<'_> {
        Leg { backend: &self.recorded_as, connection: self.number, transport: self.transport }
    }

    /// Records on the backend's own tape.
    fn record_item<'a>(&'a self, mut item: Item<'a>) -> Result<(), RecordError> {
        item.via = Some(self.leg());
        record_first(&self.tape.recording(), self.record_options, &[item], |_| ()).map(|_| ())
    }

    pub(super) fn close(&self, why: &str, is_noted: bool) {
        if self.open.swap(false, Ordering::AcqRel) {
            why.clone_into(&mut lock(&self.why_closed));
            if is_noted {
                self.note_end(why, None);
            }
        }
        self.let_go();
    }

    /// Closes because its program has ended or left its stream.
    fn close_ended(&self, exit: Option<Exit>) {
        if self.open.swap(false, Ordering::AcqRel) {
            let why = exit.map_or_else(|| "it closed its stream".to_owned(), |exit| exit.to_string());
            lock(&self.why_closed).clone_from(&why);
            self.note_end(&why, exit);
        }
        self.let_go();
    }

    fn let_go(&self) {
        // Dropping the reply senders fails the calls that wait.
        lock(&self.pending).clear();
        self.closed.send_replace(true);
        lock(&self.lines).take();
        lock(&self.program).take();
    }
}

/// Writes lines to a backend, each of them whole even if its sender was dropped meanwhile.
async fn write(
    channel: std::sync::Weak<RpcChannel>,
    mut writer: Writer,
    in_bridge: InBridge,
    mut lines: mpsc::Receiver<Outgoing>,
) {
    while let Some(line) = lines.recv().await {
        let mut batch = LineBatch::default();
        batch.push(line);
        while batch.bytes() < WRITE_BYTES_MAX
            && let Ok(more) = lines.try_recv()
        {
            batch.push(more);
        }
        if let Some(in_bridge) = &in_bridge {
            batch.hand_over(in_bridge);
        }
        if let Err(e) = batch.write_to(&mut writer).await {
            // The lines that were not written are noted on tape before the end of the backend is.
            drop(batch);
            lines.close();
            while lines.try_recv().is_ok() {}
            if let Some(channel) = channel.upgrade() {
                // Mostly because it has exited, and its exit status tells more.
                match channel.exit().await {
                    Some(exit) => channel.close_ended(Some(exit)),
                    None => channel.close(&format!("it does not read any more: {e}"), true),
                }
            }
            return;
        }
    }
    // What is no process learns from its stream that it is over; it may have left already.
    let _ = writer.shutdown().await;
}

/// Returns the newest call, where all calls under way are of one client.
pub(crate) fn only_session(busy: &[Arc<Call>]) -> Option<Arc<Call>> {
    let first = busy.first()?;
    // Who only seems to be one client may be several.
    let surely_one = busy.len() == 1 || !first.session.is_inferred;
    let same = surely_one && busy.iter().all(|call| Arc::ptr_eq(&call.session, &first.session));
    same.then(|| first.clone())
}

/// Writes a request to a backend under our own id, with our own progress token in place of the client's; returns that
/// one, too.
fn request_line(
    id: u64,
    method: &str,
    params: Option<&str>,
    own: impl FnOnce() -> String,
) -> (String, Option<String>) {
    let id = id.to_string();
    // Without `_meta`, spelled so or with an escape, there is no token: most calls have none.
    let may_have_token = |params: &&str| params.contains("_meta") || params.contains('\\');
    let object = params.filter(may_have_token).and_then(|text| serde_json::from_str::<&RawValue>(text).ok());
    // All of them are replaced: which of several a backend reads is not known.
    let metas = message::members_named(object, "_meta");
    let tokens: Vec<&RawValue> =
        metas.into_iter().flat_map(|meta| message::members_named(Some(meta), "progressToken")).collect();
    let (Some(object), Some(theirs)) = (object, tokens.last().map(|token| token.get().to_owned())) else {
        return (message::request(&id, method, params), None);
    };
    let own = own();
    let spliced =
        tokens.iter().fold(Splice::new(object.get()), |params, token| params.replace(Some(token), &own));
    (message::request(&id, method, Some(&spliced.finish())), Some(theirs))
}

fn random_key() -> [u8; 32] {
    let mut key = [0; 32];
    getrandom::fill(&mut key).expect("the system has a source of randomness");
    key
}

/// Cancels a call at the backend when its caller is dropped before the answer.
struct AbandonGuard<'a> {
    channel: &'a Arc<RpcChannel>,
    id: u64,
    call: Option<&'a Arc<Call>>,
    /// Whether the request may have reached the backend.
    is_under_way: bool,
    is_answered: bool,
}

impl Drop for AbandonGuard<'_> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        // What is open in the judge is what is pending here: else calls that nobody waits for push out others.
        self.channel.judge.forget_call(self.id);
        if !self.is_under_way {
            return;
        }
        lock(&self.channel.pending).remove(&self.id);
        // A backend that does not read gets at most `OPEN_ENDS_MAX` cancellations.
        let end = self.channel.open_ends.clone().try_acquire_owned().ok();
        if let Some(end) = end.filter(|_| self.channel.is_open()) {
            let (channel, call, id) = (self.channel.clone(), self.call.cloned(), self.id);
            tokio::spawn(async move {
                let _end = end;
                let params = format!(r#"{{"requestId":{id},"reason":"the caller left"}}"#);
                let line = message::notification(method::NOTIFICATIONS_CANCELLED, Some(&params));
                // A backend that is gone has nothing to cancel.
                let _ = channel.send(call.as_ref(), line).await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_gets_our_token_wherever_the_client_put_its_own_and_the_rest_as_it_came() {
        let check = |params: Option<&str>, expected: Option<&str>, token: Option<&str>| {
            let (line, theirs) = request_line(7, "tools/call", params, || "\"own\"".to_owned());
            assert_eq!(line, message::request("7", "tools/call", expected), "{params:?}");
            assert_eq!(theirs.as_deref(), token, "{params:?}");
        };
        check(None, None, None);
        check(Some(r#"{ "n":1.0}"#), Some(r#"{ "n":1.0}"#), None);
        check(Some(r#"{"_meta":{"x": 1}}"#), Some(r#"{"_meta":{"x": 1}}"#), None);
        check(
            Some(r#"{"_meta":{"progressToken":1}, "n":1.0}"#),
            Some(r#"{"_meta":{"progressToken":"own"}, "n":1.0}"#),
            Some("1"),
        );
        check(
            Some(r#"{"\u005fmeta":{"progress\u0054oken":"a"}}"#),
            Some(r#"{"\u005fmeta":{"progress\u0054oken":"own"}}"#),
            Some("\"a\""),
        );
        check(
            Some(r#"{"_meta":{"progressToken":1},"_meta":{"progressToken":2,"progressToken":3}}"#),
            Some(
                r#"{"_meta":{"progressToken":"own"},"_meta":{"progressToken":"own","progressToken":"own"}}"#,
            ),
            Some("3"),
        );
        check(Some(r#"["_meta"]"#), Some(r#"["_meta"]"#), None);
    }
}
