//! A backend: an MCP server behind the gateway, kept running and spoken to under our own ids.
//!
//! A legacy server has a connection for each client, a modern one serves all clients on one (`slots.rs`). Each
//! starts when first needed, is restarted with back-off when it fails, and never makes anyone wait longer than a
//! deadline. Its answers reach only the call that asked; what it says of its own accord goes to its owner.

pub mod caller;
mod connecting;
pub mod connection;
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
use handshake::ConnectError;
pub(crate) use handshake::modern_meta;
use profile::BackendProfile;
pub(crate) use profile::Greeting;
use questions::Questions;
use slots::ConnectionSlots;
pub(crate) use slots::Owner;
pub use state::BackendState;

/// How long a backend may take to start.
pub(crate) const START_MAX: Duration = Duration::from_secs(20);

/// An answer: a result or an error, as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The result.
    Result(String),
    /// The error.
    Error(String),
}

impl Answer {
    /// Makes an error.
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
    /// It keeps state for each client, and the caller may be any of several.
    #[error(
        "backend \"{0}\" keeps state for each client, and the clients that come from other machines or through a \
         proxy with the same token cannot be told apart: give each a token of its own (several lines in \
         serve.auth_token_file), use the protocol version 2025-11-25 with its sessions, or set shared: true for the \
         backend if all clients may share its state"
    )]
    SeveralClients(String),
    /// It took too long.
    #[error("backend \"{0}\" did not answer within {1:?}")]
    TimedOut(String, Duration),
    /// The call could not be recorded.
    #[error("the call was not made, because it could not be recorded: {0}")]
    NotRecorded(String),
}

/// What a backend says of its own accord.
#[derive(Debug)]
pub enum Event {
    /// A notification that belongs to no call.
    Notification {
        /// Which backend.
        backend: String,
        /// The client whose connection it came on, unless that serves all.
        owner: Option<Arc<str>>,
        /// The era of the connection it came on.
        era: Era,
        /// Its method.
        method: String,
        /// The whole line.
        line: String,
        /// The calls under way on it.
        busy: Vec<Arc<Call>>,
        /// The clients that have spoken on it.
        clients_seen: ClientsSeen,
        /// The room it takes while it waits.
        room: Charge,
    },
    /// A request; the reply goes where it says.
    Request(Question),
    /// It is ready, for the first time or again.
    Ready {
        /// Which backend.
        backend: String,
        /// The client whose connection it is, unless it serves all.
        owner: Option<Arc<str>>,
    },
}

/// What a backend asks.
#[derive(Debug)]
pub struct Question {
    /// Which backend.
    pub(crate) backend: String,
    /// The client whose connection it came on, unless that serves all.
    pub(crate) owner: Option<Arc<str>>,
    /// Whether it was asked while no call was under way that it could be part of.
    pub(crate) outside_calls: bool,
    /// Where it may wait until a request of the client takes it along.
    pub(crate) questions: Arc<Questions>,
    /// Its method.
    pub(crate) method: String,
    /// Its parameters.
    pub(crate) params: Option<String>,
    /// The calls under way on the connection, newest first.
    pub(crate) busy: Vec<Arc<Call>>,
    /// The one of them that it belongs to, as far as that can be told.
    pub(crate) only: Option<Arc<Call>>,
    /// The clients that have spoken on the connection.
    pub(crate) clients_seen: ClientsSeen,
    /// Where the answer goes.
    pub(crate) reply: tokio::sync::oneshot::Sender<Answer>,
}

/// A reading and a writing end of a stream of lines.
pub type Streams = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>);

/// Starts a toolset inside this process, and returns the ends to talk to it by.
pub type Mount = Arc<dyn Fn() -> Streams + Send + Sync>;

/// What stands behind a backend.
#[derive(Clone)]
pub(crate) enum Link {
    /// What the configuration says.
    Configured(BackendLink),
    /// A toolset inside this process.
    Mounted(Mount),
}

/// One backend.
pub struct Backend {
    /// Its id.
    pub id: String,
    /// What people read beside it.
    pub display_name: Option<String>,
    /// Whether it is a toolset of this process: its tools keep their names, and each request to it says who calls.
    pub(crate) is_own: bool,
    /// What it was made from, where it is no toolset.
    config: Option<BackendConfig>,
    /// Why it is used no more, where it is not.
    retired: OnceLock<String>,
    link: Link,
    /// How many connections to it there were.
    connections: AtomicU32,
    call_timeout: Duration,
    workspace: Option<std::path::PathBuf>,
    /// Whether one legacy connection serves all clients.
    is_shared: bool,
    connections_max: usize,
    slots: ConnectionSlots,
    pub(crate) known: BackendProfile,
    /// The connections that are being greeted.
    starting: Mutex<Vec<std::sync::Weak<connection::RpcChannel>>>,
    /// Held while it is probed for the modern era: once, for all clients.
    probing: tokio::sync::Mutex<()>,
    /// The one client it serves, where it serves one and nothing is put together.
    owner: Option<Arc<Session>>,
    record_options: Options,
    budget: Budget,
    /// The rules for what is said to it and by it, where any are in force.
    rules: Arc<RulesInForce>,
    /// What rules know it by, where that is not its id.
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
            // Each request to it says who calls.
            is_shared: true,
            ..Self::described(id, Link::Mounted(mount), recording, events)
        }
    }

    /// Stands for a server outside this process, whose streams a test has in its hands.
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

    /// Records as safely as this says.
    #[must_use]
    pub fn record_options(self, record_options: Options) -> Self {
        Self { record_options, ..self }
    }

    /// Takes the room for what is said to it and by it from this budget.
    #[must_use]
    pub(crate) fn within(self, budget: Budget) -> Self {
        Self { known: BackendProfile::new(budget.backend()), budget, ..self }
    }

    /// Lets rules know it by another name than its id.
    #[must_use]
    pub(crate) fn known_as(self, name: Option<String>) -> Self {
        Self { known_as: name, ..self }
    }

    /// Lets the rules that are in force at each moment judge what is said to it and by it.
    #[must_use]
    pub(crate) fn ruled_by(self, rules: Arc<RulesInForce>) -> Self {
        Self { rules, ..self }
    }

    /// Takes up what earlier runs knew of it; a toolset of this process is known by heart.
    pub fn remember_in(&self, memory: &Arc<ProfileStore>) {
        if let Link::Configured(link) = &self.link {
            let name = memory.name(&self.id, &format!("{:?} {}", self.workspace, link.spelled()));
            self.known.remember_in(memory.clone(), name);
        }
    }

    /// Returns what judges the lines of a new connection.
    fn judge(&self) -> ConnectionJudge {
        let name = self.known_as.as_deref().unwrap_or(&self.id);
        ConnectionJudge::new(self.rules.clone(), name, self.record_options.message_bytes_max)
    }

    /// Serves one client alone: everything that it says goes to that client.
    #[must_use]
    pub(crate) fn belonging_to(self, owner: Option<Arc<Session>>) -> Self {
        Self { owner, ..self }
    }

    /// Opens a connection on which nothing has been said: greetings are the client's own.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn open_as_it_is(&self, era: Era) -> Result<Arc<Connection>, ConnectError> {
        handshake::open_as_it_is(self, era)
    }

    /// Notes a connection that is being greeted.
    fn note_start(&self, channel: &Arc<connection::RpcChannel>) {
        let mut starting = lock(&self.starting);
        starting.retain(|channel| channel.strong_count() > 0);
        starting.push(Arc::downgrade(channel));
    }

    /// Returns how much processor time those of its processes have used that start and have said nothing yet; `None`
    /// where there is none.
    pub(crate) fn starting_ticks(&self) -> Option<u64> {
        let starting: Vec<_> = lock(&self.starting).iter().filter_map(std::sync::Weak::upgrade).collect();
        starting
            .iter()
            .filter(|channel| channel.is_open())
            .filter_map(|channel| channel.silent_ticks())
            .reduce(|a, b| a + b)
    }

    /// Says why it gives no answer; clients hear that, so secrets are taken out of it.
    fn unavailable(&self, why: &str) -> CallError {
        let why = lock(&self.recording).redactor().redact_text(why).into_owned();
        CallError::Unavailable(self.id.clone(), why)
    }

    /// Returns the connections that are up, without starting any.
    #[must_use]
    pub fn open_connections(&self) -> Vec<Arc<Connection>> {
        self.slots.open()
    }

    /// Returns the connections that are up and serve a client.
    pub(crate) fn connections_of(&self, session: &Session, era: Era) -> Vec<Arc<Connection>> {
        self.slots.open_for(&session.client, era)
    }

    /// Ends the connection of a client that is gone.
    pub(crate) fn end_client(&self, client: &Arc<str>, reason: &str) {
        if let Some(connection) = self.slots.remove(&Some(client.clone())) {
            connection.close(reason);
        }
    }

    /// Ends the connections of clients that did not use them for a while; the next use opens another.
    pub(crate) fn end_idle(&self, silence: Duration) {
        for connection in self.slots.remove_idle(silence) {
            connection.revoke("it was not used for a while");
        }
    }

    /// Returns how it is called in what people and models read.
    #[must_use]
    pub fn title(&self) -> String {
        match &self.display_name {
            Some(name) => format!("{name} ({})", self.id),
            None => self.id.clone(),
        }
    }

    /// Returns where the room for what it says is taken from.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns how long a message may be.
    pub(crate) fn message_bytes_max(&self) -> usize {
        self.record_options.message_bytes_max
    }

    /// Returns how long a call may take.
    #[must_use]
    pub fn call_timeout(&self) -> Duration {
        self.call_timeout
    }

    /// Ends the recording of what the gateway itself said to this backend.
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
