//! One client's conversation with the gateway: the facts it stated, its calls under way, its tape.
//!
//! All messages from and to the client are recorded here before they move on, and so are the messages to and from
//! backends that belong to them. A session does not know how its client is connected: it hands lines to an [`Outbox`].

mod call;
mod client_facts;
mod delivery;
mod log_level;
mod questions;
mod recorded;
mod standing_stream;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use scrubjay_core::envelope::Era;
use scrubjay_tape::clock;
use scrubjay_tape::format::header::SessionRef;
use scrubjay_tape::recording::Recording;
use tokio::sync::{Semaphore, mpsc, oneshot};

use self::call::CallKey;
pub use self::call::{Call, CallGuard, Demand};
pub use self::client_facts::ClientFacts;
use self::delivery::DroppedCount;
pub(crate) use self::delivery::why_not;
pub(crate) use self::log_level::{LEAST_LOG_LEVEL, log_level};
use self::recorded::end_recording;
pub(crate) use self::recorded::{Sealing, seal};
use self::standing_stream::StandingStream;
use crate::backend::list::{BackendList, ListDigest, ListKind};
use crate::backend::{Answer, Owner};
use crate::budget::{Account, Budget, Charge, MemoryUse, OverBudget};
use crate::delivery::{InTransit, Outgoing};
use crate::gateway::NameTable;
use crate::record_first::shared;
use crate::relay::Options;

/// How many lines may wait for a client that does not read. The budget limits their bytes.
pub(crate) const OUTBOX_MAX: usize = 256;
/// How many requests of one client may be under way: each has a task, and may hold a call of a backend.
pub const CALLS_MAX: usize = 1024;
/// How many messages of backends may wait for one client because rules delay them.
pub(crate) const HELD_MAX: usize = 256;

/// The memory a session takes besides its client's messages: its tables and its tape.
const SESSION_BYTES: usize = 2048;
/// How many bytes of facts a client may state about itself: names and capabilities of real clients are far below it.
pub(crate) const FACTS_BYTES_MAX: usize = 64 * 1024;

/// How often it is checked whether everything was delivered: only when a session or the gateway ends.
const DELIVERY_POLL: std::time::Duration = std::time::Duration::from_millis(5);

/// Where lines for a client go: its one stream, or the stream of one request.
pub type Outbox = mpsc::Sender<Outgoing>;

/// One client's conversation.
#[derive(Debug)]
pub struct Session {
    /// The handle that its client sends; it cannot be guessed.
    pub id: String,
    /// The client's identity: the session's own id, or for an inferred session what its token, name and process give.
    /// Sessions with the same identity share the client's connections to legacy backends.
    pub client: Arc<str>,
    /// Whether its client is inferred, not named. Then several clients may share it, and use the same request ids.
    pub is_inferred: bool,
    /// Whether clients that cannot be told apart may share it. They may not use backends that keep state for a client.
    pub may_be_several: bool,
    /// A hash of the credentials that opened it: requests with others are refused in it.
    principal: OnceLock<String>,
    recording: Arc<Mutex<Recording>>,
    record_options: Options,
    /// The memory that is charged to it.
    pub(crate) account: Arc<Account>,
    facts: Mutex<Arc<ClientFacts>>,
    /// The memory that the facts take.
    facts_charge: Mutex<Charge>,
    /// Whether its client has stated its facts.
    is_opened: AtomicBool,
    is_over: AtomicBool,
    calls: Mutex<HashMap<CallKey, Arc<Call>>>,
    next_call_number: AtomicU64,
    /// Permits for messages that rules delay on their way from backends that serve others too.
    pub(crate) held: Arc<Semaphore>,
    asks: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
    next_ask: AtomicU64,
    /// The stream for what belongs to no request.
    standing: StandingStream,
    dropped: Mutex<DroppedCount>,
    /// The messages that are recorded and not yet delivered.
    in_transit: Arc<InTransit>,
    /// When its client sent something last.
    seen: Mutex<std::time::Instant>,
    /// The resources that the client subscribed to, and whose connection each is followed on.
    pub(crate) subscriptions: Mutex<BTreeMap<String, (Owner, Charge)>>,
    /// The owners of names as of the newest lists, by kind.
    pub(crate) tables: Mutex<HashMap<ListKind, Arc<NameTable>>>,
    /// Lets one call at a time ask all backends for a name, by kind.
    pub(crate) name_lookups: [NameLookup; ListKind::COUNT],
    /// The newest list of each backend, by kind and id.
    pub(crate) lists: Mutex<HashMap<(ListKind, String), RememberedList>>,
    /// The least level of log messages that the client asked for with `logging/setLevel`.
    pub log_level: Mutex<Option<&'static str>>,
}

/// A list that a client got: its digest, and the list itself if there was memory for it.
pub(crate) type RememberedList = (ListDigest, Option<Arc<BackendList>>);

/// Lookups of a name by one client's calls: a call that waited while another asked all backends uses its answers.
#[derive(Debug, Default)]
pub(crate) struct NameLookup {
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// How often all backends were asked.
    pub(crate) done: AtomicU64,
}

impl Session {
    /// Begins a session. `client` is the identity of an inferred client; without it, the session's id is the identity.
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
            facts_charge: Mutex::new(account.nothing(MemoryUse::State)),
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
            next_call_number: AtomicU64::new(1),
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

    /// Binds it to the credentials that opened it.
    pub(crate) fn bind_to(&self, principal: String) {
        // It is opened once.
        let _ = self.principal.set(principal);
    }

    /// Returns whether these are the credentials that opened it.
    #[must_use]
    pub(crate) fn is_bound_to(&self, principal: &str) -> bool {
        self.principal.get().is_some_and(|bound| bound == principal)
    }

    /// Notes that the client sent something now.
    pub(crate) fn touch(&self) {
        *lock(&self.seen) = clock::now().instant;
    }

    /// Returns how long ago the client sent something.
    #[must_use]
    pub(crate) fn silent(&self) -> std::time::Duration {
        lock(&self.seen).elapsed()
    }

    /// Returns how long the session is idle: no message, and no request under way.
    #[must_use]
    pub fn idle(&self) -> std::time::Duration {
        if lock(&self.calls).is_empty() { lock(&self.seen).elapsed() } else { std::time::Duration::ZERO }
    }

    /// Returns what the client stated about itself.
    #[must_use]
    pub(crate) fn facts(&self) -> Arc<ClientFacts> {
        lock(&self.facts).clone()
    }

    /// Returns whether the client has stated its facts.
    #[must_use]
    pub(crate) fn is_opened(&self) -> bool {
        self.is_opened.load(Ordering::Acquire)
    }

    /// Returns whether it is a legacy client, which is sent notifications without a request.
    #[must_use]
    pub(crate) fn is_legacy(&self) -> bool {
        self.is_opened.load(Ordering::Acquire) && self.facts().era == Era::Legacy
    }

    /// Keeps what the client stated about itself when it opened the session.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) fn set_facts(&self, facts: impl Into<Arc<ClientFacts>>) -> Result<(), OverBudget> {
        let facts = facts.into();
        let bytes = facts.bytes();
        if bytes > FACTS_BYTES_MAX {
            let key = "what a client may say of itself";
            return Err(OverBudget { key, bytes_max: FACTS_BYTES_MAX, wanted: bytes });
        }
        lock(&self.facts_charge).resize(SESSION_BYTES + bytes)?;
        // Only now: without memory for its facts a session counts as not opened, and is ended.
        self.is_opened.store(true, Ordering::Release);
        *lock(&self.facts) = facts;
        Ok(())
    }

    /// Returns the recording of its conversation.
    pub(crate) fn recording(&self) -> Arc<Mutex<Recording>> {
        self.recording.clone()
    }

    /// Returns the id by which toolsets know this connection; the handle cannot be derived from it.
    #[must_use]
    pub(crate) fn connection(&self) -> String {
        SessionRef::of_connection(&self.id).id
    }

    /// Drops what waits for a standing stream.
    pub(crate) fn drop_queued(&self) {
        self.standing.drop_queued();
    }

    /// Takes a standing stream, and returns what is to go out on it first.
    pub fn attach(&self, outbox: Outbox) -> VecDeque<Outgoing> {
        self.standing.attach(outbox)
    }

    /// Ends the standing stream, and returns what was queued for it: it is newer than what is on the stream.
    pub(crate) fn detach(&self) -> VecDeque<Outgoing> {
        self.standing.detach()
    }

    /// Returns where the client can be asked something now: its standing stream, or that of a request under way.
    #[must_use]
    pub(crate) fn reachable(&self) -> Option<Outbox> {
        self.standing.outbox().or_else(|| lock(&self.calls).values().next().map(|call| call.outbox()))
    }

    /// Remembers a list the client was given; returns whether it differs from the last. A list without room is
    /// asked for again when it is needed.
    pub(crate) fn remember_list(&self, kind: ListKind, backend: &str, offer: &Arc<BackendList>) -> bool {
        let kept = offer.may_be_kept().then(|| offer.clone());
        if kept.is_none() {
            let (list, bytes) = (kind.method(), offer.bytes());
            self.note_not_kept(&serde_json::json!({ "list": list, "backend": backend, "bytes": bytes }));
        }
        // The digest is kept in any case: it tells the client of a change even if there is no room for the list.
        let remembered = (offer.digest(), kept);
        let before = lock(&self.lists).insert((kind, backend.to_owned()), remembered);
        before.is_none_or(|(digest, _)| digest != offer.digest())
    }

    /// Notes that the gateway is about to stop: a message that is not delivered from here on has that as its reason.
    pub(crate) fn stopping(&self) {
        self.in_transit.stopping();
    }

    /// Waits until everything for its client is delivered or dropped.
    pub(crate) async fn all_delivered(&self) {
        while !self.in_transit.is_empty() {
            tokio::time::sleep(DELIVERY_POLL).await;
        }
    }

    /// Marks it as over: no backend is started for it any more.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Returns whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Ends the session: what is under way, its standing stream and its recording.
    pub(crate) fn finish(&self, replacement: Recording, reason: &str, sealing: Sealing) {
        // What was never delivered is noted before the tape ends.
        drop(self.standing.detach());
        // Dropped senders: the backends that asked get an error instead of waiting.
        lock(&self.asks).clear();
        for call in lock(&self.calls).values() {
            call.cancel();
        }
        // Before the recording ends: later marks would go on the tape that replaces it.
        self.in_transit.give_up(&self.recording);
        end_recording(&self.recording, replacement, reason, sealing);
    }
}

/// Locks a mutex, ignoring poison: what we guard is plain data that a panic leaves usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
