//! A backend: an MCP server behind the gateway, kept running and spoken to under our own ids.
//!
//! Starts when first needed (or when the gateway does), is restarted with back-off when it fails, and never
//! makes anyone wait longer than a deadline. Its answers reach only the call that asked; what it says of its
//! own accord goes to whoever listens.

pub mod caller;
pub mod connection;
mod handshake;
mod process;
mod retiring;
mod state;

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use scrubjay_core::envelope::Era;
use scrubjay_core::message;
use scrubjay_store::recording::Recording;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::config::{BackendConfig, BackendLink};
use crate::keeping::shared;
use crate::relay::Options;
use crate::ruling::{ConnectionJudge, RulesInForce};
use crate::session::{Call, Session, lock, seal};
use connection::Connection;
pub(crate) use handshake::modern_meta;
pub use state::BackendState;

/// How long a backend may take to start.
pub const START_MAX: Duration = Duration::from_secs(20);
const BACK_OFF_MIN: Duration = Duration::from_millis(250);
const BACK_OFF_MAX: Duration = Duration::from_secs(30);

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
    Request {
        /// Which backend.
        backend: String,
        /// Its method.
        method: String,
        /// Its parameters.
        params: Option<String>,
        /// The calls under way on it.
        busy: Vec<Arc<Call>>,
        /// Where the answer goes.
        reply: tokio::sync::oneshot::Sender<Answer>,
    },
    /// It is ready, for the first time or again.
    Ready {
        /// Which backend.
        backend: String,
    },
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
    call_timeout: Duration,
    workspace: Option<std::path::PathBuf>,
    /// One place for a connection of each era.
    slots: [tokio::sync::Mutex<Slot>; 2],
    /// Whether it speaks each era, where that is known.
    speaks: Mutex<[Option<bool>; 2]>,
    /// The one client it serves, where it serves one.
    owner: Option<Arc<Session>>,
    keeping: Options,
    /// The rules for what is said to it and by it, where any are in force.
    rules: Arc<RulesInForce>,
    /// What rules know it by, where that is not its id.
    known_as: Option<String>,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) recording: Arc<Mutex<Recording>>,
}

/// The connection of one era, or why there is none.
#[derive(Default)]
struct Slot {
    connection: Option<Arc<Connection>>,
    failures: u32,
    /// Until then nobody tries again, and why.
    resting: Option<(tokio::time::Instant, String)>,
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
            id: config.id.clone(),
            display_name: config.display_name.clone(),
            is_own: false,
            config: Some(config.clone()),
            link: Link::Configured(config.link.clone()),
            call_timeout: config.call_timeout,
            workspace,
            slots: Default::default(),
            speaks: Mutex::default(),
            owner: None,
            keeping: Options::default(),
            rules: Arc::default(),
            retired: OnceLock::new(),
            known_as: None,
            events,
            recording: shared(recording),
        }
    }

    /// Describes a toolset of this process.
    #[must_use]
    pub fn mounted(id: &str, mount: Mount, recording: Recording, events: mpsc::Sender<Event>) -> Self {
        Self {
            id: id.to_owned(),
            display_name: None,
            is_own: true,
            config: None,
            link: Link::Mounted(mount),
            call_timeout: Duration::from_secs(300),
            workspace: None,
            slots: Default::default(),
            speaks: Mutex::default(),
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

    /// Returns a live connection, in the preferred era where the backend speaks it, starting it if needed.
    ///
    /// # Errors
    /// It does not start, or has failed too recently to be tried again.
    pub async fn connection(self: &Arc<Self>, prefer: Era) -> Result<Arc<Connection>, CallError> {
        let other = if prefer == Era::Modern { Era::Legacy } else { Era::Modern };
        let mut failed = None;
        for era in [prefer, other] {
            if self.speaks(era) == Some(false) {
                continue;
            }
            match self.connection_of(era).await {
                Ok(connection) => {
                    self.learn(era, true);
                    // Unless it was not tried, for what was known before this start.
                    if era == other && failed.is_some() {
                        self.learn(prefer, false);
                    }
                    return Ok(connection);
                }
                Err(e) if self.speaks(era) == Some(true) => return Err(e),
                // What the client's own era says of the failure is the more telling.
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        Err(failed
            .unwrap_or_else(|| CallError::Unavailable(self.id.clone(), "it speaks no known era".to_owned())))
    }

    async fn connection_of(self: &Arc<Self>, era: Era) -> Result<Arc<Connection>, CallError> {
        if let Ok(slot) = self.slots[era as usize].try_lock()
            && let Some(connection) = slot.connection.as_ref().filter(|c| c.is_open())
        {
            return Ok(connection.clone());
        }
        // Beside whoever asks: a start that is given up half-way would leave a process nobody knows.
        let backend = self.clone();
        let started = tokio::spawn(async move { backend.connection_in(era).await }).await;
        started
            .unwrap_or_else(|_| Err(CallError::Unavailable(self.id.clone(), "its start failed".to_owned())))
    }

    async fn connection_in(&self, era: Era) -> Result<Arc<Connection>, CallError> {
        let mut slot = self.slots[era as usize].lock().await;
        self.refuse_if_retired()?;
        if let Some(connection) = &slot.connection {
            if connection.is_open() {
                return Ok(connection.clone());
            }
            let why = connection.why_closed();
            tracing::warn!(backend = self.id, why, "backend went away");
            slot.connection = None;
            slot.rest(why);
            // It may have been too slow for one era the last time; a restarted one is asked again.
            *lock(&self.speaks) = Default::default();
        }
        if let Some((until, why)) = &slot.resting
            && tokio::time::Instant::now() < *until
        {
            return Err(CallError::Unavailable(self.id.clone(), why.clone()));
        }
        let started = tokio::time::timeout(START_MAX, handshake::start(self, era)).await;
        match started.unwrap_or_else(|_| Err(format!("it did not start within {START_MAX:?}"))) {
            Ok(connection) => {
                slot.failures = 0;
                slot.resting = None;
                slot.connection = Some(connection.clone());
                drop(slot);
                // With the queue full there is news enough to make everyone look again.
                let _ = self.events.try_send(Event::Ready { backend: self.id.clone() });
                tracing::info!(backend = self.id, name = self.display_name, ?era, "backend ready");
                Ok(connection)
            }
            Err(why) => {
                tracing::warn!(backend = self.id, ?era, why, "backend does not start");
                slot.rest(why.clone());
                Err(CallError::Unavailable(self.id.clone(), why))
            }
        }
    }

    fn speaks(&self, era: Era) -> Option<bool> {
        lock(&self.speaks)[era as usize]
    }

    fn learn(&self, era: Era, speaks: bool) {
        lock(&self.speaks)[era as usize] = Some(speaks);
    }

    /// Returns the connections that are up, without starting any.
    #[must_use]
    pub fn open_connections(&self) -> Vec<Arc<Connection>> {
        // A start under way holds the lock; whoever does not want to wait sees it as not there.
        let slots = self.slots.iter().filter_map(|slot| slot.try_lock().ok());
        slots.filter_map(|slot| slot.connection.clone()).filter(|c| c.is_open()).collect()
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

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    pub(crate) fn workspace(&self) -> Option<&std::path::Path> {
        self.workspace.as_deref()
    }
}

impl Slot {
    fn rest(&mut self, why: String) {
        self.failures += 1;
        // The first failure is forgiven at once: a server may just have been restarted.
        let pause = match self.failures {
            1 => Duration::ZERO,
            n => BACK_OFF_MIN.saturating_mul(1 << n.min(10)).min(BACK_OFF_MAX),
        };
        self.resting = Some((tokio::time::Instant::now() + pause, why));
    }
}
