//! A backend: an MCP server behind the gateway, kept running and spoken to under our own ids.
//!
//! A legacy server has a connection for each client, a modern one serves all clients on one (`places.rs`). Each
//! starts when first needed, is restarted with back-off when it fails, and never makes anyone wait longer than a
//! deadline. Its answers reach only the call that asked; what it says of its own accord goes to its owner.

pub mod caller;
pub mod connection;
mod handshake;
mod known;
mod leg_tape;
pub(crate) mod offer;
mod places;
mod process;
pub(crate) mod questions;
mod retiring;
mod state;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use scrubjay_core::entry::Transport;
use scrubjay_core::envelope::Era;
use scrubjay_core::message;
use scrubjay_store::recording::Recording;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::config::{BackendConfig, BackendLink};
use crate::keeping::shared;
use crate::memory::Memory;
use crate::relay::Options;
use crate::ruling::{ConnectionJudge, RulesInForce};
use crate::session::{Call, ClientFacts, Session, lock, seal};
use connection::Connection;
pub(crate) use handshake::modern_meta;
use known::Known;
pub(crate) use places::Owner;
use places::{Place, Places, Rest};
use questions::Questions;
pub use state::BackendState;

/// How long a backend may take to start.
pub const START_MAX: Duration = Duration::from_secs(20);
/// How long a server that is new to a client may take to ask for the client's roots before it is called.
const FIRST_QUESTION_MAX: Duration = Duration::from_millis(100);
/// How long a client may take to answer that.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(2);

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
        /// On the connection of which era.
        era: Era,
        /// Its method.
        method: String,
        /// The whole line.
        line: String,
        /// The sessions with a call under way on it.
        busy: Vec<Arc<Call>>,
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
    /// Where the answer goes.
    pub(crate) reply: tokio::sync::oneshot::Sender<Answer>,
}

/// A reading and a writing end of a stream of lines.
pub type Streams = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>);

/// Starts a toolset inside this process, and returns the ends to talk to it by.
pub type Mount = Arc<dyn Fn() -> Streams + Send + Sync>;

/// What stands behind a backend.
#[derive(Clone)]
pub enum Link {
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
    /// Whether it is a toolset of this process: its tools keep their names, and it is told who calls.
    pub is_own: bool,
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
    places: Places,
    pub(crate) known: Known,
    /// The connections that are being greeted.
    starting: Mutex<Vec<std::sync::Weak<connection::Wire>>>,
    /// Held while it is found out whether it speaks the modern era: once, for everybody.
    probing: tokio::sync::Mutex<()>,
    /// The one client it serves, where it serves one and nothing is put together.
    owner: Option<Arc<Session>>,
    keeping: Options,
    /// The rules for what is said to it and by it, where any are in force.
    rules: Arc<RulesInForce>,
    /// What rules know it by, where that is not its id.
    known_as: Option<String>,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) recording: Arc<Mutex<Recording>>,
}

/// On whose behalf a connection is opened.
#[derive(Clone, Copy)]
pub(super) struct Starter<'a> {
    session: &'a Arc<Session>,
    facts: &'a ClientFacts,
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
            // It is told with each request who calls.
            is_shared: true,
            ..Self::described(id, Link::Mounted(mount), recording, events)
        }
    }

    /// Stands for a server outside this process, whose streams a test has in its hands.
    #[cfg(test)]
    pub(crate) fn as_server(self) -> Self {
        Self { is_own: false, is_shared: false, ..self }
    }

    fn described(id: &str, link: Link, recording: Recording, events: mpsc::Sender<Event>) -> Self {
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
            places: Places::default(),
            known: Known::default(),
            starting: Mutex::default(),
            probing: tokio::sync::Mutex::default(),
            owner: None,
            keeping: Options::default(),
            rules: Arc::default(),
            retired: OnceLock::new(),
            known_as: None,
            events,
            recording: shared(recording),
        }
    }

    /// Records as safely as this says.
    #[must_use]
    pub fn keeping(self, keeping: Options) -> Self {
        Self { keeping, ..self }
    }

    /// Lets rules know it by another name than its id.
    #[must_use]
    pub fn known_as(self, name: Option<String>) -> Self {
        Self { known_as: name, ..self }
    }

    /// Lets the rules that are in force at each moment judge what is said to it and by it.
    #[must_use]
    pub fn ruled_by(self, rules: Arc<RulesInForce>) -> Self {
        Self { rules, ..self }
    }

    /// Takes up what earlier runs knew of it; a toolset of this process is known by heart.
    pub fn remember_in(&self, memory: &Arc<Memory>) {
        if let Link::Configured(link) = &self.link {
            let name = memory.name(&self.id, &format!("{:?} {}", self.workspace, link.spelled()));
            self.known.remember_in(memory.clone(), name);
        }
    }

    /// Returns what judges the lines of a new connection.
    fn judge(&self) -> ConnectionJudge {
        let name = self.known_as.as_deref().unwrap_or(&self.id);
        ConnectionJudge::new(self.rules.clone(), name, self.keeping.message_bytes_max)
    }

    /// Serves one client alone: whatever it says is said to that one.
    #[must_use]
    pub fn belonging_to(self, owner: Option<Arc<Session>>) -> Self {
        Self { owner, ..self }
    }

    /// Opens a connection on which nothing has been said: greetings are the client's own.
    ///
    /// # Errors
    /// It does not start.
    pub fn open_as_it_is(&self, era: Era) -> Result<Arc<Connection>, String> {
        handshake::open_as_it_is(self, era)
    }

    /// Returns a live connection for a client, in the client's own era where the backend speaks it, starting one if
    /// needed.
    ///
    /// # Errors
    /// It does not start, has failed too recently to be tried again, or has too many clients.
    pub async fn connection(
        self: &Arc<Self>,
        session: &Arc<Session>,
        facts: &ClientFacts,
    ) -> Result<Arc<Connection>, CallError> {
        if let Some(connection) = self.open_connection(session, facts.era) {
            return Ok(connection);
        }
        // Beside whoever asks: a start that is given up half-way would leave a process nobody knows.
        let (backend, session, facts) = (self.clone(), session.clone(), facts.clone());
        let started = tokio::spawn(async move {
            let starter = Starter { session: &session, facts: &facts };
            backend.connect(starter).await
        });
        started.await.unwrap_or_else(|_| Err(self.unavailable("its start failed")))
    }

    /// Returns the open connection that serves a client, if there is one.
    pub(crate) fn open_connection(&self, session: &Session, era: Era) -> Option<Arc<Connection>> {
        let open = match self.era_for(era) {
            Era::Modern => self.places.modern.open(),
            Era::Legacy => self.places.legacy(&self.owner_for(session)),
        };
        open.inspect(|connection| connection.touch())
    }

    /// Returns the era in which a client of this era is served, as far as that is known.
    fn era_for(&self, era: Era) -> Era {
        match (era, self.known.speaks(era)) {
            (Era::Modern, Some(false)) => Era::Legacy,
            (Era::Legacy, Some(false)) => Era::Modern,
            (era, _) => era,
        }
    }

    /// Returns whose a legacy connection for a client would be.
    fn owner_for(&self, session: &Session) -> Owner {
        (!self.is_shared).then(|| session.client.clone())
    }

    /// Returns whose the connection is that serves a client.
    pub(crate) fn owner_of(&self, session: &Session, era: Era) -> Owner {
        match self.era_for(era) {
            Era::Modern => None,
            Era::Legacy => self.owner_for(session),
        }
    }

    async fn connect(self: &Arc<Self>, starter: Starter<'_>) -> Result<Arc<Connection>, CallError> {
        let era = starter.facts.era;
        if self.place_of(starter)?.has_closed() {
            // A server that ended may come back as another.
            self.known.forget_eras();
        }
        let probing = match self.known.speaks(era) {
            None if era == Era::Modern => Some(self.probing.lock().await),
            _ => None,
        };
        // Somebody else may have found out meanwhile.
        let eras: &[Era] = match (self.era_for(era), self.known.speaks(self.era_for(era))) {
            (Era::Modern, Some(true)) => &[Era::Modern],
            (Era::Legacy, Some(true)) => &[Era::Legacy],
            (Era::Modern, _) => &[Era::Modern, Era::Legacy],
            (Era::Legacy, _) => &[Era::Legacy, Era::Modern],
        };
        let place = self.place_of(starter)?;
        let connection = self.connect_in(&place, starter, eras).await;
        drop(probing);
        connection
    }

    /// Returns the place for the connection that serves a client, as far as its era is known.
    fn place_of(&self, starter: Starter<'_>) -> Result<Arc<Place>, CallError> {
        match self.era_for(starter.facts.era) {
            Era::Modern => Ok(self.places.modern.clone()),
            Era::Legacy => self.legacy_place(starter),
        }
    }

    fn legacy_place(&self, starter: Starter<'_>) -> Result<Arc<Place>, CallError> {
        self.places.legacy_place(&self.owner_for(starter.session), self.connections_max).ok_or_else(|| {
            self.unavailable(&format!(
                "{} clients have a connection of their own already: raise maxConnections, or set shared: true if one \
                 connection may serve all clients",
                self.connections_max
            ))
        })
    }

    /// Opens a connection in its place, unless somebody has meanwhile; one of another era goes to its own place.
    async fn connect_in(
        self: &Arc<Self>,
        place: &Arc<Place>,
        starter: Starter<'_>,
        eras: &[Era],
    ) -> Result<Arc<Connection>, CallError> {
        let mut rest: tokio::sync::MutexGuard<'_, Rest> = place.starting.lock().await;
        self.refuse_if_retired()?;
        if let Some(connection) = place.open() {
            return Ok(connection);
        }
        if let Some(closed) = place.take_closed() {
            let why = closed.why_closed();
            tracing::warn!(backend = self.id, why, "backend went away");
            rest.begin(why);
        }
        if let Some(why) = rest.is_due() {
            return Err(self.unavailable(why));
        }
        let started = tokio::time::timeout(START_MAX, handshake::start(self, starter, eras)).await;
        let connection =
            match started.unwrap_or_else(|_| Err(format!("it did not start within {START_MAX:?}"))) {
                Ok(connection) => connection,
                Err(why) => {
                    tracing::warn!(backend = self.id, ?eras, why, "backend does not start");
                    self.known.forget_eras();
                    rest.begin(why.clone());
                    return Err(self.unavailable(&why));
                }
            };
        rest.end();
        let era = connection.era;
        self.known.learn_era(era, true);
        let place = match era {
            _ if era == eras[0] => place.clone(),
            Era::Modern => self.places.modern.clone(),
            Era::Legacy => self.legacy_place(starter).inspect_err(|e| connection.close(&e.to_string()))?,
        };
        if era != eras[0] {
            self.known.learn_era(eras[0], false);
        }
        if connection.owner().is_some() {
            self.introduce(&connection, starter).await;
        }
        let connection = place.put(connection);
        drop(rest);
        // It may have been retired while it started.
        self.refuse_if_retired().inspect_err(|e| connection.close(&e.to_string()))?;
        // With the queue full there is news enough to make everyone look again.
        let _ = self.events.try_send(Event::Ready { backend: self.id.clone(), owner: connection.owner() });
        tracing::info!(backend = self.id, name = self.display_name, ?era, "backend ready");
        Ok(connection)
    }

    /// Lets a server that is new to a client learn what clients tell once: its log level, its roots.
    async fn introduce(&self, connection: &Arc<Connection>, starter: Starter<'_>) {
        let level = lock(&starter.session.log_level).clone();
        if let Some(level) = level.filter(|_| connection.offers("logging")) {
            let params = serde_json::json!({ "level": level }).to_string();
            // A server that does not take it logs as it likes.
            let _ = connection.call(None, "logging/setLevel", Some(&params), FIRST_ANSWER_MAX).await;
        }
        if !starter.facts.can("roots") {
            return;
        }
        let questions = connection.questions();
        if tokio::time::timeout(FIRST_QUESTION_MAX, questions.first()).await.is_ok()
            && starter.facts.era == Era::Legacy
        {
            // A client that does not answer in time is called without.
            let _ = tokio::time::timeout(FIRST_ANSWER_MAX, questions.settled()).await;
        }
    }

    /// Notes a connection that is being greeted.
    fn note_start(&self, wire: &Arc<connection::Wire>) {
        let mut starting = lock(&self.starting);
        starting.retain(|wire| wire.strong_count() > 0);
        starting.push(Arc::downgrade(wire));
    }

    /// Returns how much processor time those of its processes have used that start and have said nothing yet; `None`
    /// where there is none.
    pub(crate) fn starting_ticks(&self) -> Option<u64> {
        let starting: Vec<_> = lock(&self.starting).iter().filter_map(std::sync::Weak::upgrade).collect();
        starting
            .iter()
            .filter(|wire| wire.is_open())
            .filter_map(|wire| wire.silent_ticks())
            .reduce(|a, b| a + b)
    }

    fn unavailable(&self, why: &str) -> CallError {
        CallError::Unavailable(self.id.clone(), why.to_owned())
    }

    /// Returns the connections that are up, without starting any.
    #[must_use]
    pub fn open_connections(&self) -> Vec<Arc<Connection>> {
        self.places.open()
    }

    /// Returns the connections that are up and serve a client.
    pub(crate) fn connections_of(&self, session: &Session, era: Era) -> Vec<Arc<Connection>> {
        self.places.open_for(&session.client, era)
    }

    /// Ends the connection of a client that is gone.
    pub(crate) fn end_client(&self, client: &Arc<str>, reason: &str) {
        if let Some(connection) = self.places.remove(&Some(client.clone())) {
            connection.close(reason);
        }
    }

    /// Ends the connections of clients that did not use them for a while; the next use opens another.
    pub fn end_idle(&self, silence: Duration) {
        for connection in self.places.remove_idle(silence) {
            connection.take_away("it was not used for a while");
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

    /// Returns how long a call may take.
    #[must_use]
    pub fn call_timeout(&self) -> Duration {
        self.call_timeout
    }

    /// Ends the recording of what the gateway itself said to this backend.
    pub fn finish_recording(&self, replacement: Recording, reason: &str) {
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
