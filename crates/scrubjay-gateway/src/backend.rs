//! A backend: an MCP server behind the gateway. Requests to it get ids of our own.
//!
//! A legacy server has a connection for each client, a modern one serves all clients on one (`slots.rs`). A connection
//! opens when it is first needed, is opened again with back-off when it fails, and no request waits for it beyond a
//! deadline. An answer reaches only the call that asked; a message that answers no call goes to the connection's owner.

pub(crate) mod caller;
mod connecting;
pub(crate) mod connection;
mod handshake;
mod leg_tape;
pub(crate) mod list;
mod process;
mod profile;
pub(crate) mod questions;
mod retiring;
mod slots;
mod state;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use scrubjay_core::entry::Transport;
use scrubjay_core::envelope::Era;
use scrubjay_core::message;
use scrubjay_core::message_limit::MessageLimit;
use scrubjay_core::protocol::version;
use scrubjay_tape::recording::Recording;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::budget::{Budget, Charge, MemoryLimits};
use crate::config::{BackendConfig, BackendLink};
use crate::profile_store::ProfileStore;
use crate::record_first::shared;
use crate::relay::Options;
use crate::rules_in_force::{ConnectionJudge, RulesInForce};
use crate::session::{Call, Session, lock, seal};
use connection::{ClientsSeen, Connection};
pub(crate) use handshake::ConnectError;
pub(crate) use handshake::modern_meta;
use profile::BackendProfile;
pub(crate) use profile::Greeting;
use questions::Questions;
use slots::ConnectionSlots;
pub(crate) use slots::Owner;

/// How long a backend may take to start, its greeting included.
pub(crate) const START_MAX: Duration = Duration::from_secs(20);

/// The answer to a request, as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The result.
    Result(String),
    /// The error.
    Error(String),
}

impl Answer {
    /// Makes a JSON-RPC error.
    #[must_use]
    pub fn error(code: i64, message: &str) -> Self {
        Self::Error(message::error(code, message, None))
    }
}

/// Why a backend gave no answer.
#[derive(Clone, Debug, Error)]
pub enum CallError {
    /// It is not running.
    #[error("backend \"{0}\" is not available: {1}")]
    Unavailable(String, String),
    /// It keeps state for each client, and the caller cannot be told apart from other clients.
    #[error(
        "backend \"{0}\" keeps state for each client, and the clients that come from other machines or through a \
         proxy with the same token cannot be told apart: give each a token of its own (several lines in \
         serve.auth_token_file), use the protocol version {legacy} with its sessions, or set shared: true for the \
         backend if all clients may share its state",
        legacy = version::LEGACY_NEWEST
    )]
    SeveralClients(String),
    /// It took too long.
    #[error("backend \"{0}\" did not answer within {1:?}")]
    TimedOut(String, Duration),
    /// The call could not be recorded.
    #[error("the call was not made, because it could not be recorded: {0}")]
    NotRecorded(String),
}

/// A message of a backend that answers no request.
#[derive(Debug)]
pub enum Event {
    /// A notification that belongs to no call.
    Notification {
        /// The backend's id.
        backend: String,
        /// The client whose connection it came on; `None` for a connection that serves all clients.
        owner: Option<Arc<str>>,
        /// The era of the connection it came on.
        era: Era,
        /// Its method.
        method: String,
        /// The message, as one line of JSON.
        line: String,
        /// The calls under way on the connection, newest first.
        busy: Vec<Arc<Call>>,
        /// The clients that have spoken on the connection.
        clients_seen: ClientsSeen,
        /// Its memory, charged to the budget while it waits in the queue.
        charge: Charge,
    },
    /// A request.
    Request(Question),
    /// A connection was opened, for the first time or again.
    Ready {
        /// The backend's id.
        backend: String,
        /// The client whose connection it is; `None` where it serves all clients.
        owner: Option<Arc<str>>,
    },
}

/// A request of a backend to a client.
#[derive(Debug)]
pub struct Question {
    /// The backend's id.
    pub(crate) backend: String,
    /// The client whose connection it came on; `None` for a connection that serves all clients.
    pub(crate) owner: Option<Arc<str>>,
    /// Whether it came while no call was under way that it could be part of.
    pub(crate) outside_calls: bool,
    /// Where it waits for the next call of a client that can only be asked by the result of a call.
    pub(crate) questions: Arc<Questions>,
    /// Its method.
    pub(crate) method: String,
    /// Its parameters.
    pub(crate) params: Option<String>,
    /// The calls under way on the connection, newest first.
    pub(crate) busy: Vec<Arc<Call>>,
    /// The one of them that it belongs to, if that is known.
    pub(crate) only: Option<Arc<Call>>,
    /// The clients that have spoken on the connection.
    pub(crate) clients_seen: ClientsSeen,
    /// Where the answer goes.
    pub(crate) reply: tokio::sync::oneshot::Sender<Answer>,
}

/// A reading and a writing end of a stream of lines.
pub type Streams = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>);

/// Starts a toolset inside this process, and returns the streams to talk to it.
pub type Mount = Arc<dyn Fn() -> Streams + Send + Sync>;

/// How a backend is reached.
#[derive(Clone)]
pub(crate) enum Link {
    /// As the configuration says.
    Configured(BackendLink),
    /// A toolset inside this process.
    Mounted(Mount),
}

/// One backend.
pub struct Backend {
    /// Its id.
    pub id: String,
    /// A name for people, in addition to the id.
    pub(crate) display_name: Option<String>,
    /// Whether it is a toolset of this process: its tools keep their names, and each request to it says who calls.
    pub(crate) is_own: bool,
    /// Its configuration; `None` for a toolset.
    config: Option<BackendConfig>,
    /// Why it was retired, once it is.
    retired: OnceLock<String>,
    link: Link,
    /// How many connections to it were ever opened: the newest one has this number.
    connections: AtomicU32,
    call_timeout: Duration,
    workspace: Option<std::path::PathBuf>,
    /// Whether one legacy connection serves all clients.
    is_shared: bool,
    connections_max: usize,
    slots: ConnectionSlots,
    pub(crate) known: BackendProfile,
    /// The connections whose handshake is under way. Weak: only their own start decides when they end.
    starting: Mutex<Vec<std::sync::Weak<connection::RpcChannel>>>,
    /// Held while one client finds out whether it speaks the modern era: the others wait for the answer.
    probing: tokio::sync::Mutex<()>,
    /// The only client, where `gateway/transparent.rs` passes everything to it unchanged.
    owner: Option<Arc<Session>>,
    record_options: Options,
    budget: Budget,
    /// The rules for messages to and from it.
    rules: Arc<RulesInForce>,
    /// The name by which rules refer to it, if that is not its id.
    known_as: Option<String>,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) recording: Arc<Mutex<Recording>>,
}

impl Backend {
    /// Describes a configured backend; it starts when it is first needed.
    #[must_use]
    pub fn new(
        config: &BackendConfig,
        workspace: Option<std::path::PathBuf>,
        recording: Recording,
        events: mpsc::Sender<Event>,
    ) -> Self {
        Self {
            display_name: config.display_name.clone(),
            config: Some(config.clone()),
            call_timeout: config.call_timeout,
            workspace,
            is_shared: config.is_shared,
            connections_max: config.connections_max,
            ..Self::described(&config.id, Link::Configured(config.link.clone()), recording, events)
        }
    }

    /// Describes a toolset of this process.
    #[must_use]
    pub fn mounted(id: &str, mount: Mount, recording: Recording, events: mpsc::Sender<Event>) -> Self {
        Self {
            is_own: true,
            // Safe for a toolset, because each request to it names its caller.
            is_shared: true,
            ..Self::described(id, Link::Mounted(mount), recording, events)
        }
    }

    /// Lets a toolset stand for a server outside this process: tests hold the other end of its streams.
    #[doc(hidden)]
    #[must_use]
    pub fn outside(self) -> Self {
        Self { is_own: false, is_shared: false, ..self }
    }

    fn described(id: &str, link: Link, recording: Recording, events: mpsc::Sender<Event>) -> Self {
        let budget = Budget::new(MemoryLimits::default());
        Self {
            id: id.to_owned(),
            display_name: None,
            is_own: false,
            link,
            connections: AtomicU32::new(0),
            config: None,
            call_timeout: Duration::from_secs(300),
            workspace: None,
            is_shared: false,
            connections_max: BackendConfig::CONNECTIONS_MAX,
            slots: ConnectionSlots::default(),
            known: BackendProfile::new(budget.backend()),
            starting: Mutex::default(),
            probing: tokio::sync::Mutex::default(),
            owner: None,
            record_options: Options::default(),
            budget,
            rules: Arc::default(),
            retired: OnceLock::new(),
            known_as: None,
            events,
            recording: shared(recording),
        }
    }

    /// Sets when a message counts as recorded, and how long one may be.
    #[must_use]
    pub(crate) fn record_options(self, record_options: Options) -> Self {
        Self { record_options, ..self }
    }

    /// Charges the memory for its messages to this budget.
    #[must_use]
    pub(crate) fn within(self, budget: Budget) -> Self {
        Self { known: BackendProfile::new(budget.backend()), budget, ..self }
    }

    /// Sets the name by which rules refer to it.
    #[must_use]
    pub(crate) fn known_as(self, name: Option<String>) -> Self {
        Self { known_as: name, ..self }
    }

    /// Sets the rules for messages to and from it. They may change while it runs.
    #[must_use]
    pub(crate) fn ruled_by(self, rules: Arc<RulesInForce>) -> Self {
        Self { rules, ..self }
    }

    /// Loads what earlier runs learned of it, and stores what this one learns. A toolset comes with this program and
    /// needs no profile.
    pub(crate) fn remember_in(&self, memory: &Arc<ProfileStore>) {
        if let Link::Configured(link) = &self.link {
            // Another command or directory under the same id is another server, and gets a profile of its own.
            let name = memory.name(&self.id, &format!("{:?} {}", self.workspace, link.spelled()));
            self.known.remember_in(memory.clone(), name);
        }
    }

    /// Returns a judge for the lines of a new connection.
    fn judge(&self) -> ConnectionJudge {
        // Each connection has a judge of its own, which remembers the calls that are open there: ids begin again with
        // each.
        let name = self.known_as.as_deref().unwrap_or(&self.id);
        ConnectionJudge::new(self.rules.clone(), name, self.record_options.message_bytes_max)
    }

    /// Makes it serve one client alone, which gets every message unchanged.
    #[must_use]
    pub(crate) fn belonging_to(self, owner: Option<Arc<Session>>) -> Self {
        Self { owner, ..self }
    }

    /// Opens a connection without a handshake: the client greets the server itself.
    pub(crate) fn open_without_handshake(&self, era: Era) -> Result<Arc<Connection>, ConnectError> {
        handshake::open_without_handshake(self, era)
    }

    /// Adds a connection whose handshake begins.
    fn note_start(&self, channel: &Arc<connection::RpcChannel>) {
        let mut starting = lock(&self.starting);
        // Ended ones are removed here: the list is read only while something starts.
        starting.retain(|channel| channel.strong_count() > 0);
        starting.push(Arc::downgrade(channel));
    }

    /// Returns how much processor time its starting processes have used that have not written anything yet; `None` if
    /// there is none. A list waits longer for a server that is busy starting.
    pub(crate) fn starting_ticks(&self) -> Option<u64> {
        let starting: Vec<_> = lock(&self.starting).iter().filter_map(std::sync::Weak::upgrade).collect();
        starting
            .iter()
            .filter(|channel| channel.is_open())
            .filter_map(|channel| channel.silent_ticks())
            .reduce(|a, b| a + b)
    }

    /// Makes the error for a backend that gives no answer. Clients get the reason, so it is redacted.
    fn unavailable(&self, why: &str) -> CallError {
        let why = lock(&self.recording).redactor().redact_text(why).into_owned();
        CallError::Unavailable(self.id.clone(), why)
    }

    /// Returns the open connections, without opening any.
    #[must_use]
    pub fn open_connections(&self) -> Vec<Arc<Connection>> {
        self.slots.open()
    }

    /// Returns the open connections that serve a client.
    pub(crate) fn connections_of(&self, session: &Session, era: Era) -> Vec<Arc<Connection>> {
        self.slots.open_for(&session.client, era)
    }

    /// Closes the connection of a client that has left.
    pub(crate) fn end_client(&self, client: &Arc<str>, reason: &str) {
        // With the slot gone, a start that is under way closes its connection when it is done.
        if let Some(connection) = self.slots.remove(&Some(client.clone())) {
            connection.close(reason);
        }
    }

    /// Closes connections of clients that were not used for this long; the next call opens another.
    pub(crate) fn end_idle(&self, silence: Duration) {
        for connection in self.slots.remove_idle(silence) {
            connection.revoke("it was not used for a while");
        }
    }

    /// Returns its name for people and models.
    #[must_use]
    pub(crate) fn title(&self) -> String {
        match &self.display_name {
            Some(name) => format!("{name} ({})", self.id),
            None => self.id.clone(),
        }
    }

    /// Returns the budget to which the memory for its messages is charged.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns the length of the longest message that is passed on.
    pub(crate) fn message_limit(&self) -> MessageLimit {
        self.record_options.message_bytes_max.into()
    }

    /// Returns how long a call may take.
    #[must_use]
    pub(crate) fn call_timeout(&self) -> Duration {
        self.call_timeout
    }

    /// Seals the backend's own tape, and continues on another.
    pub(crate) fn finish_recording(&self, replacement: Recording, reason: &str) {
        seal(&self.recording, replacement, reason);
    }

    /// Returns the number of a new connection, from 1.
    fn next_connection(&self) -> u32 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn transport(&self) -> Transport {
        match &self.link {
            Link::Configured(BackendLink::Stdio { .. }) => Transport::Stdio,
            Link::Configured(BackendLink::Http { .. }) => Transport::Http,
            Link::Mounted(_) => Transport::Memory,
        }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    pub(crate) fn workspace(&self) -> Option<&std::path::Path> {
        self.workspace.as_deref()
    }
}
