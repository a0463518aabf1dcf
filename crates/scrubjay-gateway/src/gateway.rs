//! Answers clients from many backends: accepts a line, records it, routes it, and records the answer before returning
//! it.
//!
//! One gateway serves all sessions of all fronts. Lists are merged from all backends; a call goes to the backend that
//! owns the name. A backend that is down is missing from lists, and affects nothing else.

mod aggregate;
mod answers;
mod calls;
mod clients;
mod eras;
mod events;
mod greeting;
mod list_deadline;
mod names;
mod own_answers;
mod owners;
mod parked_calls;
mod quarantine;
mod reload;
mod request_state;
mod requests;
mod route;
mod shutdown;
mod subscriptions;
mod tasks;
mod transparent;
mod unreadable;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use scrubjay_core::message_limit::MessageLimit;
use scrubjay_core::protocol::code;
use scrubjay_core::rules::Rules;
use scrubjay_tape::format::header::TapeKind;
use scrubjay_tape::recording::Recording;
use tokio::sync::mpsc;

use crate::backend::{Backend, Event};
use crate::budget::Budget;
use crate::config::{BackendConfig, Naming};
use crate::profile_store::ProfileStore;
use crate::relay::Options;
use crate::rules_in_force::RulesInForce;
use crate::session::{Session, lock};

use answers::unreadable_params;
pub(crate) use answers::{ANSWER_WAIT_MAX, not_found};
pub use clients::OnLeave;
pub(crate) use clients::handle;
pub(crate) use greeting::ClientFactsError;
pub(crate) use names::NameTable;
pub use reload::{Reload, Reloaded};
pub use requests::{Accepted, Request};
use requests::{is_notification, refuse};
pub use route::{Consent, PlanRecorder, RecordedPlan, RouteWith, StepProgress};
pub(crate) use tasks::related as related_task;
pub(crate) use unreadable::unreadable_answer;

/// How many events of backends may wait. With more, backends are not read, so that none is dropped.
const EVENTS_MAX: usize = 1024;

/// For calls that may take as long as their backend wants: every call has a timeout, so a year stands for none.
const NO_TIMEOUT: Duration = Duration::from_secs(31_536_000);

/// A tape that the gateway wants to begin.
#[derive(Clone, Copy, Debug)]
pub struct NewTape<'a> {
    /// What it is called.
    pub name: &'a str,
    /// What it is the recording of.
    pub kind: TapeKind,
    /// The handle of the client that it belongs to.
    pub client: Option<&'a str>,
}

impl<'a> NewTape<'a> {
    /// Describes the tape of a backend or toolset that no single client owns.
    #[must_use]
    pub fn of_backend(name: &'a str) -> Self {
        Self { name, kind: TapeKind::Backend, client: None }
    }

    /// Describes the tape of what still comes when another one is sealed.
    pub(crate) fn late() -> Self {
        Self { name: "after the end", kind: TapeKind::Late, client: None }
    }
}

/// Makes a recording.
pub type NewRecording = Box<dyn Fn(NewTape<'_>) -> Recording + Send + Sync>;

/// The gateway.
pub struct Gateway {
    /// In the order of the configuration.
    backends: Mutex<Arc<[Arc<Backend>]>>,
    naming: Mutex<Naming>,
    routes: Mutex<aggregate::NameRegistry>,
    /// The definitions that backends sent earlier, and which of them are held back.
    observed: quarantine::ObservedDefinitions,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    parked: parked_calls::ParkedCalls,
    tasks: tasks::Tasks,
    /// Binds the `requestState` of a modern backend to the client that got it.
    states: request_state::StateSeal,
    /// Turns tasks in plain words into calls, if that is configured.
    routing: Mutex<Option<Arc<route::Routing>>>,
    /// Text that clients get before the instructions of the backends.
    notice: Mutex<Option<String>>,
    ending: shutdown::Ending,
    listeners: subscriptions::Listeners,
    new_recording: NewRecording,
    events: mpsc::Sender<Event>,
    options: Option<TakeOptions>,
    /// The one server of a transparent gateway, which aggregates nothing.
    transparent: Option<transparent::TransparentServer>,
    record_options: Options,
    /// Counts the memory that is used for clients and backends.
    budget: Budget,
    /// The rules for messages to and from backends.
    rules: Arc<RulesInForce>,
    /// The profiles of backends from earlier runs, if they are stored.
    memory: OnceLock<Arc<ProfileStore>>,
    /// Called when a client has left.
    on_leave: OnceLock<OnLeave>,
}

/// Takes a client's `initializationOptions`: the backends in them, or what is wrong with them.
pub type TakeOptions = Box<dyn Fn(&str) -> Result<Vec<BackendConfig>, serde_json::Value> + Send + Sync>;

impl Gateway {
    /// Makes a gateway that records as safely as `record_options` says; `backends` gets the queue for what backends say
    /// by themselves.
    pub fn new(
        naming: Naming,
        new_recording: NewRecording,
        record_options: Options,
        options: Option<TakeOptions>,
        backends: impl FnOnce(&mpsc::Sender<Event>, &NewRecording) -> Vec<Backend>,
    ) -> Arc<Self> {
        Self::make(naming, new_recording, options, None, record_options, backends)
    }

    fn make(
        naming: Naming,
        new_recording: NewRecording,
        options: Option<TakeOptions>,
        transparent: Option<transparent::TransparentServer>,
        record_options: Options,
        backends: impl FnOnce(&mpsc::Sender<Event>, &NewRecording) -> Vec<Backend>,
    ) -> Arc<Self> {
        let (events, queue) = mpsc::channel(EVENTS_MAX);
        let backends = backends(&events, &new_recording);
        let rules = Arc::<RulesInForce>::default();
        let budget = Budget::new(record_options.memory);
        let prepared = |backend: Backend| {
            Arc::new(backend.record_options(record_options).within(budget.clone()).ruled_by(rules.clone()))
        };
        let backends = backends.into_iter().map(prepared).collect();
        let gateway = Arc::new(Self {
            backends: Mutex::new(backends),
            naming: Mutex::new(naming),
            routes: Mutex::default(),
            observed: quarantine::ObservedDefinitions::default(),
            sessions: Mutex::default(),
            parked: parked_calls::ParkedCalls::default(),
            tasks: tasks::Tasks::default(),
            states: request_state::StateSeal::default(),
            routing: Mutex::default(),
            notice: Mutex::default(),
            ending: shutdown::Ending::default(),
            listeners: subscriptions::Listeners::default(),
            new_recording,
            events,
            options,
            transparent,
            record_options,
            budget,
            rules,
            memory: OnceLock::new(),
            on_leave: OnceLock::new(),
        });
        // Weak: the gateway holds the sender, so a strong reference would keep both alive forever.
        tokio::spawn(events::handle_events(Arc::downgrade(&gateway), queue));
        gateway
    }

    /// Puts rules in force for every backend, those that clients bring later too.
    pub fn rule_with(&self, rules: &Arc<Rules>) {
        self.rules.put(Some(rules.clone()));
        self.name_idle_rules();
    }

    /// Returns the rules in force.
    pub(crate) fn rules(&self) -> Option<Arc<Rules>> {
        self.rules.now()
    }

    /// Makes a tape.
    pub(crate) fn new_tape(&self, tape: NewTape<'_>) -> Recording {
        (self.new_recording)(tape)
    }

    /// Returns how safely messages are recorded.
    pub(crate) fn record_options(&self) -> Options {
        self.record_options
    }

    /// Returns what is kept in memory.
    #[must_use]
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns whether everything goes to one server that nothing is changed of.
    #[must_use]
    pub(crate) fn is_transparent(&self) -> bool {
        self.transparent.is_some()
    }

    /// Returns how long a message may be.
    #[must_use]
    pub(crate) fn message_limit(&self) -> MessageLimit {
        self.record_options.message_bytes_max.into()
    }

    /// Returns the backends.
    #[must_use]
    pub fn backends(&self) -> Arc<[Arc<Backend>]> {
        lock(&self.backends).clone()
    }

    /// Returns the backend with an id.
    fn backend(&self, id: &str) -> Option<Arc<Backend>> {
        lock(&self.backends).iter().find(|backend| backend.id == id).cloned()
    }

    /// Loads the profiles that earlier runs stored of backends; to be called before any of them starts. With rules in
    /// force nothing is loaded: what they hide must not come back from a run without them.
    pub fn remember_in(&self, memory: &Arc<ProfileStore>) {
        if self.rules.now().is_some() {
            return;
        }
        // It is set once.
        let _ = self.memory.set(memory.clone());
        self.backends().iter().for_each(|backend| backend.remember_in(memory));
    }

    /// Ends the connections that no client used for a while.
    pub(crate) fn end_idle_connections(&self, silence: std::time::Duration) {
        self.backends().iter().for_each(|backend| backend.end_idle(silence));
    }

    /// Adds the backends of a client's options; those whose id is taken already are left alone.
    fn add_backends(&self, more: &[BackendConfig]) {
        let mut backends = lock(&self.backends);
        let mut all = backends.to_vec();
        for config in more {
            // A client's options must not replace a backend of the configuration.
            if all.iter().all(|b| b.id != config.id) {
                all.push(self.new_backend(config, std::env::current_dir().ok()));
            }
        }
        *backends = all.into();
        self.tools_changed();
    }

    fn new_backend(&self, config: &BackendConfig, workspace: Option<std::path::PathBuf>) -> Arc<Backend> {
        let tape = self.new_tape(NewTape::of_backend(&format!("backend {}", config.id)));
        let backend = Backend::new(config, workspace, tape, self.events.clone());
        let backend = backend
            .record_options(self.record_options)
            .within(self.budget.clone())
            .ruled_by(self.rules.clone());
        if let Some(memory) = self.memory.get() {
            backend.remember_in(memory);
        }
        Arc::new(backend)
    }
}

#[cfg(test)]
pub(crate) mod stage;
#[cfg(test)]
mod tests;
