//! One client's conversation with the gateway: what it said of itself, what it waits for, its tape.
//!
//! Everything a client says and hears is recorded here before it moves on, and so is what backends are asked
//! on its behalf. A session does not know how its client is connected: it hands lines to an [`Outbox`].

mod standing_stream;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use scrubjay_core::entry::{
    BackendEnded, Direction, End, EntryKind, SessionMoved, Terminator, WhyUndelivered,
};
use scrubjay_core::envelope::{Era, JsonId};
use scrubjay_core::message;
use scrubjay_core::oversize::Oversize;
use scrubjay_core::protocol::{code, version};
use scrubjay_tape::clock;
use scrubjay_tape::format::header::{SessionRef, SessionSource};
use scrubjay_tape::recording::{Item, RecordError, Recording};
use tokio::sync::{Semaphore, mpsc, oneshot};

use self::standing_stream::StandingStream;
use crate::backend::list::{BackendList, ListDigest, ListKind};
use crate::backend::{Answer, Owner};
use crate::budget::{Account, Budget, Charge, Full, PROCESS_KEY, Use};
use crate::delivery::{InTransit, Outgoing, Receipt};
use crate::gateway::{ANSWER_WAIT_MAX, NameTable};
use crate::record_first::{RecordedEntry, record_first, record_first_marking, shared};
use crate::relay::Options;

/// How many lines may wait for a client that does not read.
pub const OUTBOX_MAX: usize = 256;
/// How many requests of one client may be under way.
pub const CALLS_MAX: usize = 1024;
/// How many messages of backends may wait for one client because rules delay them.
pub(crate) const HELD_MAX: usize = 256;

/// The level that lets every log message pass.
pub(crate) const LEAST_LOG_LEVEL: &str = "debug";
/// The levels of log messages, the least first.
const LOG_LEVELS: [&str; 8] =
    [LEAST_LOG_LEVEL, "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// What a session takes besides what its client says: its tables and its tape.
const SESSION_BYTES: usize = 2048;
/// A client need not say more of itself than this.
pub(crate) const FACTS_BYTES_MAX: usize = 64 * 1024;

/// Returns a level of log messages by its name; `None` for what is no level.
pub(crate) fn log_level(name: &str) -> Option<&'static str> {
    LOG_LEVELS.into_iter().find(|level| *level == name)
}

/// How often it is noted that messages were dropped.
const NOTE_AGAIN: std::time::Duration = std::time::Duration::from_secs(1);
/// How long a client that does not read may hold up what others wait for.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);
/// How long it may hold up only what is for itself: a client that pauses for less loses nothing.
const PATIENCE_ALONE: std::time::Duration = std::time::Duration::from_secs(5);

/// How often it is looked whether clients have heard everything.
const LAST_WORDS_LOOK: std::time::Duration = std::time::Duration::from_millis(5);

/// Where lines for a client go: its one stream, or the stream of one request.
pub type Outbox = mpsc::Sender<Outgoing>;

/// Stands for the name and version of a client that gives none.
const UNNAMED: &str = r#"{"name":"unknown","version":"0"}"#;

/// What a client said of itself.
#[derive(Clone, Debug)]
pub struct ClientFacts {
    /// The era it speaks.
    pub era: Era,
    /// The protocol version agreed on.
    pub version: String,
    /// Its capabilities, as JSON.
    pub capabilities: String,
    /// Its name and version, as JSON.
    pub info: String,
}

impl Default for ClientFacts {
    fn default() -> Self {
        Self {
            era: Era::Legacy,
            version: version::LEGACY_NEWEST.to_owned(),
            capabilities: "{}".to_owned(),
            info: UNNAMED.to_owned(),
        }
    }
}

impl ClientFacts {
    /// Returns its name and version as JSON, where it gave them.
    #[must_use]
    pub fn named(&self) -> Option<&str> {
        (self.info != UNNAMED).then_some(self.info.as_str())
    }

    /// Returns how many bytes it takes to keep them.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        self.version.len() + self.capabilities.len() + self.info.len()
    }

    /// Returns those of a modern client's capabilities that a legacy server can make use of, as JSON.
    #[must_use]
    pub(crate) fn legacy_capabilities(&self) -> String {
        let all = serde_json::from_str::<serde_json::Value>(&self.capabilities).unwrap_or_default();
        let known = ["sampling", "elicitation", "roots", "experimental"];
        let kept = known.iter().filter_map(|key| Some(((*key).to_owned(), all.get(key)?.clone())));
        serde_json::Value::Object(kept.collect()).to_string()
    }

    /// Returns whether the client declared an extension.
    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        serde_json::from_str::<serde_json::Value>(&self.capabilities)
            .is_ok_and(|all| all["extensions"].get(extension).is_some_and(|declared| !declared.is_null()))
    }

    /// Returns whether the client declared a capability.
    #[must_use]
    pub fn can(&self, capability: &str) -> bool {
        serde_json::from_str::<serde_json::Value>(&self.capabilities)
            .is_ok_and(|all| all.get(capability).is_some_and(|c| !c.is_null()))
    }
}

/// One client's conversation.
#[derive(Debug)]
pub struct Session {
    /// The handle by which its client names it; hard to guess.
    pub id: String,
    /// Whose it is: a client with a session is known by that alone, an inferred one by its token, name and
    /// process. Sessions of one client show the same, and share its connections to legacy backends.
    pub client: Arc<str>,
    /// Whether its client is inferred, not named: then several may share it, and their ids.
    pub is_inferred: bool,
    /// Whether clients that nobody can tell apart may share it: no state of a backend is kept for them.
    pub may_be_several: bool,
    /// Who may speak in it: a hash of the credentials that its client showed when it opened it, where it can show any.
    principal: OnceLock<String>,
    recording: Arc<Mutex<Recording>>,
    record_options: Options,
    /// What is kept in memory for it.
    pub(crate) account: Arc<Account>,
    facts: Mutex<ClientFacts>,
    /// The room that the facts take.
    facts_room: Mutex<Charge>,
    /// Whether its client said of itself what it is.
    is_opened: AtomicBool,
    is_over: AtomicBool,
    calls: Mutex<HashMap<Ticket, Arc<Call>>>,
    next_ticket: AtomicU64,
    /// Places for what rules hold back on its way from backends that serve others too.
    pub(crate) held: Arc<Semaphore>,
    asks: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
    next_ask: AtomicU64,
    /// What belongs to no request.
    standing: StandingStream,
    dropped: Mutex<DroppedCount>,
    /// What is recorded and not yet handed over.
    in_transit: Arc<InTransit>,
    seen: Mutex<std::time::Instant>,
    /// The resources whose changes the client wants to hear of, and on whose connection each is followed.
    pub(crate) subscriptions: Mutex<BTreeMap<String, (Owner, Charge)>>,
    /// What the newest lists said, by kind: who owns which name.
    pub(crate) tables: Mutex<HashMap<ListKind, Arc<NameTable>>>,
    /// Lets one call at a time ask all backends for a name, by kind.
    pub(crate) name_lookups: [NameLookup; ListKind::COUNT],
    /// The newest list of each backend, by kind and id.
    pub(crate) lists: Mutex<HashMap<(ListKind, String), RememberedList>>,
    /// The least level of log messages the client asked for, where it did.
    pub log_level: Mutex<Option<&'static str>>,
}

/// A list that a client was given: what stands for it, and itself where there was room for it.
pub(crate) type RememberedList = (ListDigest, Option<Arc<BackendList>>);

/// Calls of one client that look for a name: who waits while another asks all backends goes by what that one heard.
#[derive(Debug, Default)]
pub(crate) struct NameLookup {
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// How often all backends were asked.
    pub(crate) done: AtomicU64,
}

/// What a request under way is known by: its id, and a number where ids may collide.
type Ticket = (JsonId, u64);

/// What was dropped for want of room, and is not on the tape yet.
#[derive(Debug, Default)]
struct DroppedCount {
    messages: usize,
    bytes: usize,
    noted: Option<std::time::Instant>,
}

/// A request of the client that is under way.
#[derive(Debug)]
pub struct Call {
    /// Whose it is.
    pub session: Arc<Session>,
    /// The id its client gave it, as JSON.
    pub id: JsonId,
    /// The entry that began it, and the tape that is on.
    pub recorded: Option<RecordedEntry>,
    /// Where what belongs to it goes; changes when its client comes back with a new request.
    outbox: Mutex<Outbox>,
    /// The facts of the client as this request states them.
    pub facts: ClientFacts,
    /// The least level of log messages its client wants; none where it wants none.
    pub log_level: Option<&'static str>,
    /// Where a backend's demands go, for a client that cannot be asked directly.
    pub demands: Option<mpsc::Sender<Demand>>,
    /// Cancelled when the client calls it off.
    pub cancelled: tokio::sync::Notify,
    /// Whether its client has stopped reading what belongs to it.
    is_deaf: AtomicBool,
    /// The room that it and its answers take, for as long as anybody has it.
    rooms: Mutex<Vec<Charge>>,
    /// The room for its answer, where it was taken before the answer was made.
    answer_room: Mutex<Option<Charge>>,
    /// By what its client knows its progress, as JSON.
    progress_token: Option<String>,
}

impl Call {
    /// Describes a request.
    #[must_use]
    pub fn new(
        session: Arc<Session>,
        id: JsonId,
        recorded: Option<RecordedEntry>,
        outbox: Outbox,
        facts: ClientFacts,
        log_level: Option<&'static str>,
        demands: Option<mpsc::Sender<Demand>>,
    ) -> Self {
        let (outbox, cancelled) = (Mutex::new(outbox), tokio::sync::Notify::new());
        Self {
            session,
            id,
            recorded,
            outbox,
            facts,
            log_level,
            demands,
            cancelled,
            is_deaf: AtomicBool::new(false),
            rooms: Mutex::default(),
            answer_room: Mutex::default(),
            progress_token: None,
        }
    }

    /// Keeps room taken for as long as the call is there.
    pub(crate) fn hold(&self, room: Charge) {
        lock(&self.rooms).push(room);
    }

    /// Takes room for an answer of this size before it is made, waiting for some.
    ///
    /// # Errors
    /// There was none for long, which is on the tape.
    pub(crate) async fn take_answer_room(&self, bytes: usize) -> Result<(), Full> {
        let taken = self.session.account.charge_within(Use::Delivery, bytes, ANSWER_WAIT_MAX).await;
        let room = taken.inspect_err(|full| self.session.note_dropped(1, bytes, full.key))?;
        *lock(&self.answer_room) = Some(room);
        Ok(())
    }

    /// Returns the room that was taken for its answer: none, unless it was taken before the answer was made.
    pub(crate) fn answer_room(&self) -> Charge {
        let taken = lock(&self.answer_room).take();
        taken.unwrap_or_else(|| self.session.account.nothing(Use::Delivery))
    }

    /// Notes by what its client knows its progress.
    #[must_use]
    pub(crate) fn with_progress_token(self, progress_token: Option<String>) -> Self {
        Self { progress_token, ..self }
    }

    /// Returns whether another call is of the same client: of its session or, where sessions are inferred, of one with
    /// the same token, name and process. A trace may change from one request to the next; those do not.
    #[must_use]
    pub fn is_of_client_of(&self, other: &Self) -> bool {
        let (one, two) = (&self.session, &other.session);
        Arc::ptr_eq(one, two) || (one.is_inferred && two.is_inferred && one.client == two.client)
    }

    /// Returns where what belongs to it goes.
    #[must_use]
    pub fn outbox(&self) -> Outbox {
        lock(&self.outbox).clone()
    }

    /// Sends a line that belongs to it, recorded first. A client that does not read is waited for once, longer where
    /// `others_wait` says that it holds up nobody else; then its messages are noted as undelivered until it reads.
    pub async fn say(&self, line: String, others_wait: impl Fn() -> bool) {
        let outbox = self.outbox();
        let began = tokio::time::Instant::now();
        let place = loop {
            if self.is_deaf.load(Ordering::Relaxed) {
                break outbox.try_reserve().ok();
            }
            match tokio::time::timeout(PATIENCE, outbox.reserve()).await {
                Ok(place) => break place.ok(),
                Err(_) if began.elapsed() >= PATIENCE_ALONE || others_wait() => break None,
                Err(_) => {}
            }
        };
        let is_deaf = self.is_deaf.load(Ordering::Relaxed) || place.is_none();
        let wait = if is_deaf { std::time::Duration::ZERO } else { PATIENCE };
        let room = self.session.account.charge_within(Use::Delivery, line.len(), wait).await;
        self.is_deaf.store(place.is_none() || room.is_err(), Ordering::Relaxed);
        if let Err(e) = self.session.say_in_room(place, room, line, why_not(&outbox)) {
            tracing::error!(error = %e, "a message to the client could not be recorded");
        }
    }

    /// Returns whether its client wants this log message.
    #[must_use]
    pub fn wants_log(&self, line: &str) -> bool {
        let Some(least) = self.log_level else { return false };
        let level = message::Parts::of(line).ok().and_then(|p| message::string(p.param("level")));
        let rank = |level: &str| LOG_LEVELS.iter().position(|l| *l == level);
        // A level nobody knows is not a reason to keep a message back.
        match (level.as_deref().and_then(rank), rank(least)) {
            (Some(level), Some(least)) => level >= least,
            _ => true,
        }
    }

    /// Calls it off.
    pub fn cancel(&self) {
        self.cancelled.notify_waiters();
        // Noted also for a call that has not begun to wait.
        self.cancelled.notify_one();
    }

    /// Sends what belongs to it elsewhere from now on.
    pub fn redirect(&self, outbox: Outbox) {
        *lock(&self.outbox) = outbox;
    }
}

/// Something a backend wants from the client in the middle of a call.
#[derive(Debug)]
pub struct Demand {
    /// What it wants.
    pub method: String,
    /// With which parameters, as JSON.
    pub params: Option<String>,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Answer>,
}

impl Session {
    /// Begins a session; `client` names who it is inferred to belong to, where it is inferred.
    #[must_use]
    pub fn new(
        id: String,
        recording: Recording,
        record_options: Options,
        budget: &Budget,
        client: Option<&str>,
    ) -> Self {
        let account = budget.session();
        Self {
            facts_room: Mutex::new(account.nothing(Use::State)),
            account,
            is_inferred: client.is_some(),
            may_be_several: false,
            principal: OnceLock::new(),
            client: client.unwrap_or(&id).into(),
            id,
            recording: shared(recording),
            record_options,
            facts: Mutex::default(),
            is_opened: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            calls: Mutex::default(),
            next_ticket: AtomicU64::new(1),
            held: Arc::new(Semaphore::new(HELD_MAX)),
            asks: Mutex::default(),
            next_ask: AtomicU64::new(1),
            standing: StandingStream::default(),
            dropped: Mutex::default(),
            in_transit: Arc::default(),
            seen: Mutex::new(clock::now().instant),
            subscriptions: Mutex::default(),
            tables: Mutex::default(),
            name_lookups: Default::default(),
            lists: Mutex::default(),
            log_level: Mutex::default(),
        }
    }

    /// Binds it to whoever opened it.
    pub(crate) fn bind_to(&self, principal: String) {
        // It is opened once.
        let _ = self.principal.set(principal);
    }

    /// Returns whether somebody may speak in it.
    #[must_use]
    pub(crate) fn is_bound_to(&self, principal: &str) -> bool {
        self.principal.get().is_some_and(|bound| bound == principal)
    }

    /// Notes that the client is there.
    pub fn touch(&self) {
        *lock(&self.seen) = clock::now().instant;
    }

    /// Returns how long the client has said nothing.
    #[must_use]
    pub fn silent(&self) -> std::time::Duration {
        lock(&self.seen).elapsed()
    }

    /// Returns how long the client has been silent, with nothing under way.
    #[must_use]
    pub fn idle(&self) -> std::time::Duration {
        if lock(&self.calls).is_empty() { lock(&self.seen).elapsed() } else { std::time::Duration::ZERO }
    }

    /// Returns what the client said of itself.
    #[must_use]
    pub fn facts(&self) -> ClientFacts {
        lock(&self.facts).clone()
    }

    /// Returns whether the client said of itself what it is.
    #[must_use]
    pub fn is_opened(&self) -> bool {
        self.is_opened.load(Ordering::Acquire)
    }

    /// Returns whether the client is a legacy one that can be told things unasked.
    #[must_use]
    pub fn is_legacy(&self) -> bool {
        self.is_opened.load(Ordering::Acquire) && self.facts().era == Era::Legacy
    }

    /// Notes what the client said of itself when it opened the session.
    ///
    /// # Errors
    /// There is no room for it.
    pub fn set_facts(&self, facts: ClientFacts) -> Result<(), Full> {
        let bytes = facts.bytes();
        if bytes > FACTS_BYTES_MAX {
            let key = "what a client may say of itself";
            return Err(Full { key, bytes_max: FACTS_BYTES_MAX, wanted: bytes });
        }
        lock(&self.facts_room).resize(SESSION_BYTES + bytes)?;
        self.is_opened.store(true, Ordering::Release);
        *lock(&self.facts) = facts;
        Ok(())
    }

    /// Returns the recording of its conversation.
    pub(crate) fn recording(&self) -> Arc<Mutex<Recording>> {
        self.recording.clone()
    }

    /// Returns the session its recording belongs to, once something is recorded.
    #[must_use]
    pub fn recorded_as(&self) -> Option<SessionRef> {
        lock(&self.recording).session()
    }

    /// Returns the host's own id of the conversation, where the host gave one.
    #[must_use]
    pub fn host_session(&self) -> Option<String> {
        lock(&self.recording).host_session().map(str::to_owned)
    }

    /// Notes on the tape that the connection is in another session from here on.
    pub(crate) fn move_to(&self, session: &str) {
        if self.recorded_as().is_some_and(|now| now.id == session) {
            return;
        }
        let note = SessionMoved { session: session.to_owned() }.note();
        self.record_fact(EntryKind::Note, Direction::ServerToClient, &note);
        let session = SessionRef { id: session.to_owned(), told_by: SessionSource::Agent };
        lock(&self.recording).set_session(session);
    }

    /// Returns what toolsets know this connection by; its handle cannot be read off it.
    #[must_use]
    pub fn connection(&self) -> String {
        SessionRef::of_connection(&self.id).id
    }

    /// Records a line of the client; returns where it is.
    ///
    /// # Errors
    /// It could not be recorded, so it must not move on.
    pub fn record_inbound(&self, line: &str) -> Result<Option<RecordedEntry>, RecordError> {
        let item = Item::new(EntryKind::Message, Direction::ClientToServer, Terminator::Lf, line.as_bytes());
        self.record_item(item, |_| ())
    }

    /// Records a line between client and gateway.
    ///
    /// # Errors
    /// It could not be recorded, so it must not move on.
    pub fn record(&self, direction: Direction, line: &str) -> Result<Option<RecordedEntry>, RecordError> {
        self.record_then(direction, line, |_| ())
    }

    /// Records a line between client and gateway, and does something before anything else is recorded.
    ///
    /// # Errors
    /// It could not be recorded, and nothing was done.
    pub fn record_then(
        &self,
        direction: Direction,
        line: &str,
        then: impl FnOnce(Option<RecordedEntry>),
    ) -> Result<Option<RecordedEntry>, RecordError> {
        let item = Item::new(EntryKind::Message, direction, Terminator::Lf, line.as_bytes());
        self.record_item(item, then)
    }

    /// Records what passes between gateway and backend, and does something before anything else is recorded.
    ///
    /// # Errors
    /// It could not be recorded, so it must not move on, and nothing was done.
    pub fn record_backend(
        &self,
        items: &[Item<'_>],
        marked: usize,
        then: impl FnOnce(Option<RecordedEntry>),
    ) -> Result<Option<RecordedEntry>, RecordError> {
        record_first_marking(&self.recording, self.record_options, items, marked, then)
    }

    /// Returns the receipt of something recorded here; `why` is noted if it is dropped before it is delivered.
    #[must_use]
    pub fn receipt(&self, kept: Option<RecordedEntry>, why: WhyUndelivered) -> Option<Receipt> {
        let receipt = |mark| Receipt::new(self.recording.clone(), mark, why).listed_in(&self.in_transit);
        kept.map(|place| receipt(place.mark))
    }

    /// Records a line for the client; it counts as undelivered until it is handed over.
    ///
    /// # Errors
    /// It could not be recorded, so it must not be sent.
    pub fn record_outgoing(&self, line: String) -> Result<Outgoing, RecordError> {
        let kept = self.record(Direction::ServerToClient, &line)?;
        Ok(Outgoing::recorded(line, self.receipt(kept, WhyUndelivered::ClientLeft)))
    }

    /// Records a refusal for the client, which hears it in any case: it would wait for ever otherwise, and what cannot
    /// be recorded may be the very reason.
    pub fn record_refusal(&self, line: String) -> Outgoing {
        self.record_outgoing(line.clone()).unwrap_or_else(|e| {
            tracing::error!(error = %e, "a refusal could not be recorded");
            Outgoing::unrecorded(line)
        })
    }

    /// Records something worth knowing that is not a message.
    pub fn record_note(&self, facts: &serde_json::Value) {
        let facts = facts.to_string();
        self.record_fact(EntryKind::Note, Direction::ServerToClient, facts.as_bytes());
    }

    /// Records that something its client said was turned away: a client of which that is told did more than greet.
    pub(crate) fn record_turned_away(&self, facts: &serde_json::Value) {
        self.record_fact(EntryKind::Note, Direction::ClientToServer, facts.to_string().as_bytes());
    }

    /// Records that a backend ended on which it had calls under way.
    pub(crate) fn record_ended(&self, ended: &BackendEnded) {
        self.record_fact(EntryKind::Note, Direction::ServerToClient, &ended.note());
    }

    /// Records that its client said something that is too long to be taken.
    pub fn note_too_long(&self, line: &Oversize) {
        let facts = serde_json::to_vec(line).expect("an oversize is plain data");
        self.record_fact(EntryKind::Oversize, Direction::ClientToServer, &facts);
    }

    fn record_fact(&self, kind: EntryKind, direction: Direction, facts: &[u8]) {
        let fact = Item::new(kind, direction, Terminator::Eof, facts);
        if let Err(e) = self.record_item(fact, |_| ()) {
            tracing::error!(error = %e, "a note could not be recorded");
        }
    }

    fn record_item(
        &self,
        item: Item<'_>,
        then: impl FnOnce(Option<RecordedEntry>),
    ) -> Result<Option<RecordedEntry>, RecordError> {
        record_first(&self.recording, self.record_options, &[item], then)
    }

    /// Sends a line to the client, recorded first; returns whether it is on its way. What cannot be recorded is not sent.
    pub async fn say(&self, outbox: &Outbox, line: String) -> bool {
        let place = tokio::time::timeout(PATIENCE, outbox.reserve()).await.ok().and_then(Result::ok);
        let has_place = place.is_some();
        let said = self.say_in(place, line, why_not(outbox));
        if let Err(e) = &said {
            tracing::error!(error = %e, "a message to the client could not be recorded");
        }
        has_place && said.is_ok()
    }

    /// Tells the client that something is not done.
    pub async fn refuse(&self, outbox: &Outbox, line: String) {
        let place = tokio::time::timeout(PATIENCE, outbox.reserve()).await;
        let refusal = self.record_refusal(line);
        match place {
            Ok(Ok(place)) => place.send(refusal),
            _ => refusal.drop_because(why_not(outbox)),
        }
    }

    /// Takes room for a line until the client has read it.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn room_for(&self, line: &str) -> Result<Charge, Full> {
        self.account.charge(Use::Delivery, line.len())
    }

    /// Records that something for the client was dropped that is not on its own side of the tape, for want of room.
    ///
    /// Each second once: a flood must not fill the tape with notes as well.
    pub(crate) fn note_dropped(&self, messages: usize, bytes: usize, key: &str) {
        tracing::debug!(session = self.id, messages, bytes, key, "messages to the client were dropped");
        let now = clock::now().instant;
        let due = {
            let mut dropped = lock(&self.dropped);
            dropped.messages += messages;
            dropped.bytes += bytes;
            if dropped.noted.is_some_and(|noted| now.duration_since(noted) < NOTE_AGAIN) {
                return;
            }
            std::mem::replace(&mut *dropped, DroppedCount { noted: Some(now), ..DroppedCount::default() })
        };
        self.record_note(&serde_json::json!({
            "event": "undelivered", "why": "dropped by limit", "limit": key,
            "messages": due.messages, "bytes": due.bytes,
        }));
    }

    /// Puts a line in its place on the way to the client: on the tape in the same order. Without a place it is not
    /// sent, and `why` is noted on the tape.
    ///
    /// # Errors
    /// It could not be recorded, and was not sent.
    pub fn say_in(
        &self,
        place: Option<mpsc::Permit<'_, Outgoing>>,
        line: String,
        why: WhyUndelivered,
    ) -> Result<Option<RecordedEntry>, RecordError> {
        let room = self.room_for(&line);
        self.say_in_room(place, room, line, why)
    }

    /// Puts a line in its place on the way to the client, in the room that was taken for it.
    ///
    /// # Errors
    /// It could not be recorded, and was not sent.
    pub(crate) fn say_in_room(
        &self,
        place: Option<mpsc::Permit<'_, Outgoing>>,
        room: Result<Charge, Full>,
        line: String,
        why: WhyUndelivered,
    ) -> Result<Option<RecordedEntry>, RecordError> {
        let why = if place.is_some() && room.is_err() { WhyUndelivered::DroppedByLimit } else { why };
        let Some((place, room)) = place.zip(room.ok()) else {
            let kept = self.record(Direction::ServerToClient, &line)?;
            drop(self.receipt(kept, why));
            return Ok(kept);
        };
        let said = line.clone();
        self.record_then(Direction::ServerToClient, &line, |kept| {
            let receipt = self.receipt(kept, WhyUndelivered::ClientLeft);
            place.send(Outgoing::recorded(said, receipt).in_room(room));
        })
    }

    /// Sends what belongs to no request: on the client's standing stream, or kept until there is one.
    pub fn say_on_standing_stream(&self, line: String) {
        let room = self.room_for(&line);
        let line = match self.record_outgoing(line) {
            Ok(line) => line,
            Err(e) => {
                tracing::error!(error = %e, "a message to the client could not be recorded");
                return;
            }
        };
        let line = match room {
            Ok(room) => line.in_room(room),
            Err(_) => return line.drop_because(WhyUndelivered::DroppedByLimit),
        };
        self.standing.say(line);
    }

    /// Gives up what waits for a client that listens to nothing.
    pub(crate) fn drop_kept(&self) {
        self.standing.drop_kept();
    }

    /// Takes a standing stream, and returns what is to go out on it first.
    pub fn attach(&self, outbox: Outbox) -> VecDeque<Outgoing> {
        self.standing.attach(outbox)
    }

    /// Ends the standing stream, and returns what was kept for it: it is newer than what is on the stream.
    pub(crate) fn detach(&self) -> VecDeque<Outgoing> {
        self.standing.detach()
    }

    /// Returns where the client can be asked something now: its standing stream, or that of a request under way.
    #[must_use]
    pub fn reachable(&self) -> Option<Outbox> {
        self.standing.outbox().or_else(|| lock(&self.calls).values().next().map(|call| call.outbox()))
    }

    /// Asks the client something, and waits for its answer: on a stream, or on the standing one, once it has
    /// one.
    pub async fn ask(&self, outbox: Option<&Outbox>, method: &str, params: Option<&str>) -> Answer {
        let number = self.next_ask.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        {
            let mut asks = lock(&self.asks);
            if asks.len() >= CALLS_MAX {
                return Answer::error(code::INTERNAL, "too many questions wait for the client");
            }
            asks.insert(number, reply);
        }
        let _forget = AskGuard { session: self, number };
        let question = message::request(&format!("\"scrubjay-{number}\""), method, params);
        let is_on_its_way = match outbox {
            Some(outbox) => self.say(outbox, question).await,
            None => {
                self.say_on_standing_stream(question);
                true
            }
        };
        if !is_on_its_way {
            return Answer::error(code::INTERNAL, "the question did not reach the client");
        }
        answer
            .await
            .unwrap_or_else(|_| Answer::error(code::INTERNAL, "the client went away before it answered"))
    }

    /// Takes the client's answer to something it was asked; returns whether it was asked.
    pub fn take_answer(&self, id: &JsonId, answer: Answer) -> bool {
        let number = id.as_raw().trim_matches('"').strip_prefix("scrubjay-").and_then(|n| n.parse().ok());
        let Some(reply) = number.and_then(|n: u64| lock(&self.asks).remove(&n)) else { return false };
        reply.send(answer).is_ok()
    }

    /// Notes a request as under way; `None` where there are too many, or one has that id.
    pub fn begin_call(self: &Arc<Self>, id: JsonId, call: Arc<Call>) -> Option<CallGuard> {
        let mut calls = lock(&self.calls);
        let number = if self.is_inferred { self.next_ticket.fetch_add(1, Ordering::Relaxed) } else { 0 };
        let ticket = (id, number);
        if calls.len() >= CALLS_MAX || calls.contains_key(&ticket) {
            return None;
        }
        calls.insert(ticket.clone(), call);
        Some(CallGuard { session: self.clone(), ticket })
    }

    /// Returns whether the progress of another request under way goes by the same token: its client could not tell them
    /// apart. Where several clients may share the session each has a stream of its own, and their tokens may be the same.
    #[must_use]
    pub(crate) fn has_live_token(&self, call: &Call) -> bool {
        let is_same = |other: &Arc<Call>| other.progress_token == call.progress_token;
        call.progress_token.is_some() && !self.is_inferred && lock(&self.calls).values().any(is_same)
    }

    /// Returns the request with that id, where it is under way.
    #[must_use]
    pub fn call(&self, id: &JsonId) -> Option<Arc<Call>> {
        lock(&self.calls).get(&(id.clone(), 0)).cloned()
    }

    /// Remembers a list the client was given; returns whether it is another than before. What there was no room for is
    /// asked for again when it is needed.
    pub(crate) fn remember_list(&self, kind: ListKind, backend: &str, offer: &Arc<BackendList>) -> bool {
        let kept = offer.may_be_kept().then(|| offer.clone());
        if kept.is_none() {
            let (list, bytes) = (kind.method(), offer.bytes());
            self.note_not_kept(&serde_json::json!({ "list": list, "backend": backend, "bytes": bytes }));
        }
        let remembered = (offer.digest(), kept);
        let before = lock(&self.lists).insert((kind, backend.to_owned()), remembered);
        before.is_none_or(|(digest, _)| digest != offer.digest())
    }

    /// Notes that there was no room to keep something of a backend.
    pub(crate) fn note_not_kept(&self, what: &serde_json::Value) {
        tracing::warn!(session = self.id, %what, limit = PROCESS_KEY, "there is no room to keep what a backend says");
        self.record_note(&serde_json::json!({ "event": "not_kept", "limit": PROCESS_KEY, "what": what }));
    }

    /// Notes that we are about to stop: what its client does not take from here on it did not leave behind.
    pub(crate) fn stopping(&self) {
        self.in_transit.stopping();
    }

    /// Waits until nothing is on its way to its client any more.
    pub(crate) async fn all_said(&self) {
        while !self.in_transit.is_empty() {
            tokio::time::sleep(LAST_WORDS_LOOK).await;
        }
    }

    /// Notes that it is over: nothing is started for it any more.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Returns whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Ends the session: what is under way, its standing stream and its recording.
    pub(crate) fn finish(&self, replacement: Recording, reason: &str, sealing: Sealing) {
        // What nobody came for is noted before the tape ends.
        drop(self.standing.detach());
        lock(&self.asks).clear();
        for call in lock(&self.calls).values() {
            call.cancel();
        }
        self.in_transit.give_up(&self.recording);
        end_recording(&self.recording, replacement, reason, sealing);
    }
}

/// Forgets a question when nobody waits for its answer any more.
struct AskGuard<'a> {
    session: &'a Session,
    number: u64,
}

impl Drop for AskGuard<'_> {
    fn drop(&mut self) {
        lock(&self.session.asks).remove(&self.number);
    }
}

/// Keeps a request listed as under way.
#[derive(Debug)]
pub struct CallGuard {
    session: Arc<Session>,
    ticket: Ticket,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        lock(&self.session.calls).remove(&self.ticket);
    }
}

/// Returns why there was no place for a message to a client.
pub(crate) fn why_not(outbox: &Outbox) -> WhyUndelivered {
    if outbox.is_closed() { WhyUndelivered::ClientLeft } else { WhyUndelivered::ClientDidNotRead }
}

/// Whether a tape that ends is sealed now. One that is not is complete, and the next start seals it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sealing {
    Now,
    Later,
}

/// Ends a recording and seals its tape; whatever comes after goes to its replacement.
pub(crate) fn seal(recording: &Mutex<Recording>, replacement: Recording, reason: &str) {
    end_recording(recording, replacement, reason, Sealing::Now);
}

fn end_recording(recording: &Mutex<Recording>, replacement: Recording, reason: &str, sealing: Sealing) {
    let ended = std::mem::replace(&mut *lock(recording), replacement);
    let end = End { reason: reason.to_owned(), exit_code: None, signal: None, continues_on: None };
    match sealing {
        Sealing::Now => {
            if let Err(e) = ended.finish(&end) {
                tracing::error!(error = %e, "a tape could not be sealed; the next start seals it");
            }
        }
        Sealing::Later => {
            if let Err(e) = ended.finish_unsealed(&end) {
                tracing::error!(error = %e, "the end of a session is not on its tape");
            }
        }
    }
}

/// Locks; a thread that panicked while holding it left plain data, which is still good.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
