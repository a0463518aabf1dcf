//! Answers clients from many backends: takes a line, records it, routes it, records and returns the answer.
//!
//! One gateway serves all sessions of all fronts. Lists are put together from every backend; a call goes to
//! the one that owns the name. A backend that is down is missing from lists and nothing else.

mod aggregate;
mod calls;
mod events;
mod greeting;
mod list_deadline;
mod names;
mod own_answers;
mod quarantine;
mod reload;
mod request_state;
mod route;
mod shutdown;
mod subscriptions;
mod tasks;
mod transparent;
mod unreadable;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, OnceLock};

use futures_util::FutureExt;
use scrubjay_core::entry::WhyUndelivered;
use scrubjay_core::envelope::{Era, JsonId};
use scrubjay_core::message::{self, Parts};
use scrubjay_core::protocol::{code, meta, method};
use scrubjay_core::rules::Rules;
use scrubjay_tape::format::header::TapeKind;
use scrubjay_tape::recording::Recording;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::backend::connection::Connection;
use crate::backend::{Answer, Backend, Event};
use crate::budget::{Budget, Charge, Full, Use};
use crate::config::{BackendConfig, Naming};
use crate::delivery::Outgoing;
use crate::profile_store::ProfileStore;
use crate::record_first::RecordedEntry;
use crate::relay::Options;
use crate::rules_in_force::RulesInForce;
use crate::session::{
    Call, CallGuard, ClientFacts, LEAST_LOG_LEVEL, Outbox, Sealing, Session, lock, log_level,
};

pub use names::MirroredArgument;
pub(crate) use names::NameTable;
pub use reload::{Reload, Reloaded};
pub use route::{Consent, PlanBook, Planned, RouteWith, StepMark, Writing};
pub(crate) use tasks::related as related_task;
pub(crate) use unreadable::unreadable_answer;

/// How many events of backends may wait.
const EVENTS_MAX: usize = 1024;
/// How long tapes of sessions are sealed when everything ends.
const SEALING_MAX: std::time::Duration = std::time::Duration::from_secs(2);
/// How many demands of one call may wait.
const DEMANDS_MAX: usize = 16;
/// A request that is under way is in memory up to so many times: as it came, and as it goes to a backend.
const CALL_COPIES: usize = 2;
/// What a request takes besides its text.
const CALL_BYTES: usize = 1024;
/// The longest method. It is kept with its call, like the id, which may have as much.
const METHOD_BYTES_MAX: usize = message::ID_BYTES_MAX;
/// How long an answer may wait for room before its client gets an error instead.
pub(crate) const ANSWER_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(10);

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
    /// What backends said of their tools before, and what of that is held back.
    observed: quarantine::ObservedDefinitions,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    parked: calls::ParkedCalls,
    tasks: tasks::Tasks,
    /// Binds what modern backends let clients come back with to those clients.
    states: request_state::StateSeal,
    /// What turns tasks into calls, where that is wanted.
    routing: Mutex<Option<Arc<route::Routing>>>,
    /// What every client is told first, where anything is.
    notice: Mutex<Option<String>>,
    ending: shutdown::Ending,
    listeners: subscriptions::Listeners,
    new_recording: NewRecording,
    events: mpsc::Sender<Event>,
    options: Option<TakeOptions>,
    /// The one server everything goes to, where nothing is put together.
    transparent: Option<transparent::TransparentServer>,
    record_options: Options,
    /// What is kept in memory.
    budget: Budget,
    /// The rules for what is said to backends and by them, where any are in force.
    rules: Arc<RulesInForce>,
    /// What is known of backends from earlier runs, where that is kept.
    memory: OnceLock<Arc<ProfileStore>>,
    /// Hears of clients that left.
    on_leave: OnceLock<OnLeave>,
}

/// Hears that a client left: by what toolsets know its connection, and why.
pub type OnLeave = Box<dyn Fn(String, &str) + Send + Sync>;

/// Takes a client's `initializationOptions`: the backends in them, or what is wrong with them.
pub type TakeOptions = Box<dyn Fn(&str) -> Result<Vec<BackendConfig>, serde_json::Value> + Send + Sync>;

/// A message from a client, recorded and sorted.
pub enum Accepted {
    /// A request: answer it.
    Request(Box<Request>),
    /// Something that needs no answer.
    NoReply,
    /// Not acceptable; the line to answer with.
    Refused(String),
    /// There is no room for it now; the line to answer with.
    Full(String),
}

/// A client's request, ready to be answered.
pub struct Request {
    /// Its id.
    pub id: JsonId,
    /// Its method.
    pub method: String,
    /// Its parameters.
    pub params: Option<String>,
    /// Its context.
    pub call: Arc<Call>,
    demands: mpsc::Receiver<crate::session::Demand>,
    _guard: CallGuard,
}

impl Request {
    /// Returns a member of the parameters as text.
    #[must_use]
    pub fn text_param(&self, key: &str) -> Option<String> {
        message::string(message::member(self.raw_params(), key))
    }

    /// Tells whether the members of the parameters, and of what is said beside them, can be told apart: then what is not
    /// found among them is not there for a server either.
    fn has_readable_params(&self) -> bool {
        let params = self.raw_params();
        let beside = message::members_named(params, "_meta");
        params.into_iter().chain(beside).all(message::is_readable)
    }

    /// Returns the parameters as raw JSON.
    #[must_use]
    pub fn raw_params(&self) -> Option<&RawValue> {
        self.params.as_deref().and_then(|p| serde_json::from_str(p).ok())
    }
}

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
        let (events, heard) = mpsc::channel(EVENTS_MAX);
        let backends = backends(&events, &new_recording);
        let rules = Arc::<RulesInForce>::default();
        let budget = Budget::new(record_options.memory);
        let made = |backend: Backend| {
            Arc::new(backend.record_options(record_options).within(budget.clone()).ruled_by(rules.clone()))
        };
        let backends = backends.into_iter().map(made).collect();
        let gateway = Arc::new(Self {
            backends: Mutex::new(backends),
            naming: Mutex::new(naming),
            routes: Mutex::default(),
            observed: quarantine::ObservedDefinitions::default(),
            sessions: Mutex::default(),
            parked: calls::ParkedCalls::default(),
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
        tokio::spawn(events::attend(Arc::downgrade(&gateway), heard));
        gateway
    }

    /// Says who is to hear of clients that leave; once.
    pub fn on_leave(&self, hear: OnLeave) {
        let _ = self.on_leave.set(hear);
    }

    /// Notes on the tape of a client that its connection, as toolsets know it, is in another session from now on.
    pub fn move_to_session(&self, connection: &str, session: &str) {
        if let Some(client) = self.all_sessions().iter().find(|client| client.connection() == connection) {
            client.move_to(session);
        }
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
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns whether everything goes to one server that nothing is changed of.
    #[must_use]
    pub fn is_transparent(&self) -> bool {
        self.transparent.is_some()
    }

    /// Returns how long a message may be.
    #[must_use]
    pub fn message_bytes_max(&self) -> usize {
        self.record_options.message_bytes_max
    }

    /// Begins a session.
    pub fn open_session(&self, name: &str) -> Arc<Session> {
        self.begin_session(name, None, false)
    }

    /// Begins a session for the client that this identity stands for: all its sessions share their connections to
    /// legacy backends.
    pub fn open_inferred_session(&self, name: &str, client: &str) -> Arc<Session> {
        self.begin_session(name, Some(client), false)
    }

    /// Begins one for clients that nobody can tell apart: several may be taken for the same.
    #[must_use]
    pub fn open_ambiguous_session(&self, name: &str, client: &str) -> Arc<Session> {
        self.begin_session(name, Some(client), true)
    }

    fn begin_session(&self, name: &str, client: Option<&str>, may_be_several: bool) -> Arc<Session> {
        let handle = handle();
        let recording = self.new_tape(NewTape { name, kind: TapeKind::Conversation, client: Some(&handle) });
        let mut session = Session::new(handle, recording, self.record_options, &self.budget, client);
        session.may_be_several = may_be_several;
        let session = Arc::new(session);
        lock(&self.sessions).insert(session.id.clone(), session.clone());
        session
    }

    /// Returns the session with this handle.
    #[must_use]
    pub fn session(&self, id: &str) -> Option<Arc<Session>> {
        lock(&self.sessions).get(id).cloned()
    }

    /// Returns the sessions in which nothing happened for so long.
    #[must_use]
    pub fn idle_sessions(&self, silence: std::time::Duration) -> Vec<String> {
        let sessions = lock(&self.sessions);
        sessions.values().filter(|s| s.idle() > silence).map(|s| s.id.clone()).collect()
    }

    /// Returns how many sessions there are.
    #[must_use]
    pub fn session_count(&self) -> usize {
        lock(&self.sessions).len()
    }

    /// Tells whether a session was begun in vain, because `initialize` earned an error.
    #[must_use]
    pub fn refused_to_open(&self, session: &Session) -> bool {
        self.transparent.is_none() && !session.is_opened()
    }

    /// Ends a session and seals its tape; returns whether it existed.
    pub fn close_session(&self, id: &str, reason: &str) -> bool {
        self.end_session(id, reason, Sealing::Now)
    }

    fn end_session(&self, id: &str, reason: &str, sealing: Sealing) -> bool {
        let Some(session) = lock(&self.sessions).remove(id) else { return false };
        // Before its connections end: what is being started for it sees this, or is ended with them.
        session.end();
        self.listeners.forget_session(&session);
        for (uri, (owner, _)) in std::mem::take(&mut *lock(&session.subscriptions)) {
            self.unfollow(&(owner, uri));
        }
        // A client that has no other session needs its connections no more. One that is not inferred never has.
        let is_there = |other: &Arc<Session>| other.client == session.client;
        if !(session.is_inferred && lock(&self.sessions).values().any(is_there)) {
            self.parked.forget_client(&session.client);
            self.backends().iter().for_each(|backend| backend.end_client(&session.client, reason));
        }
        if let Some(transparent) = &self.transparent {
            self.end_server_of(transparent, id, reason);
        }
        session.finish(self.new_tape(NewTape::late()), reason, sealing);
        if let Some(hear) = self.on_leave.get() {
            hear(session.connection(), reason);
        }
        true
    }

    /// Waits until clients have what is on its way to them, but not longer than `limit`.
    pub(crate) async fn last_words(&self, limit: std::time::Duration) {
        let all_said = async {
            for session in self.all_sessions() {
                session.all_said().await;
            }
        };
        // What is left is noted as undelivered.
        let _ = tokio::time::timeout(limit, all_said).await;
    }

    /// Notes that we are about to stop: what clients do not take from here on is not delivered for that reason.
    pub fn stopping(&self) {
        self.all_sessions().iter().for_each(|session| session.stopping());
    }

    /// Ends everything.
    pub fn shut_down(&self, reason: &str) {
        self.shut_down_sealing(reason, SEALING_MAX);
    }

    /// Ends everything, and seals tapes of sessions for so long: whoever stops us does not wait for thousands of them.
    /// The next start seals the others.
    pub fn shut_down_sealing(&self, reason: &str, sealing_max: std::time::Duration) {
        let began = scrubjay_tape::clock::now().instant;
        let ids: Vec<String> = lock(&self.sessions).keys().cloned().collect();
        for id in ids {
            let is_late = began.elapsed() >= sealing_max;
            self.end_session(&id, reason, if is_late { Sealing::Later } else { Sealing::Now });
        }
        if let Some(transparent) = &self.transparent {
            self.end_shared_server(transparent, reason);
        }
        self.close_backends(reason);
        for backend in self.backends().iter() {
            backend.finish_recording(self.new_tape(NewTape::late()), reason);
        }
    }

    /// Closes the connections to all backends.
    fn close_backends(&self, reason: &str) {
        for connection in self.backends().iter().flat_map(|backend| backend.open_connections()) {
            connection.close(reason);
        }
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

    /// Takes up what earlier runs knew of backends, before any of them starts, and of those that come later. With rules
    /// in force nothing is: what they hide must not come back from a run without them.
    pub fn remember_in(&self, memory: &Arc<ProfileStore>) {
        if self.rules.now().is_some() {
            return;
        }
        // There is one memory, given once.
        let _ = self.memory.set(memory.clone());
        self.backends().iter().for_each(|backend| backend.remember_in(memory));
    }

    /// Ends the connections that no client used for a while.
    pub fn end_idle_connections(&self, silence: std::time::Duration) {
        self.backends().iter().for_each(|backend| backend.end_idle(silence));
    }

    /// Adds the backends of a client's options; those whose id is taken already are left alone.
    fn add_backends(&self, more: &[BackendConfig]) {
        let mut backends = lock(&self.backends);
        let mut all = backends.to_vec();
        for config in more {
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

    /// Takes a line from a client: records it and sorts it.
    pub fn accept(self: &Arc<Self>, session: &Arc<Session>, line: &str, outbox: &Outbox) -> Accepted {
        if let Some(refused) = self.refuse_unreadable(session, line.as_bytes()) {
            return refused;
        }
        let recorded = match session.record_inbound(line) {
            Ok(recorded) => recorded,
            Err(e) => {
                let id = Parts::of(line).ok().and_then(|p| p.json_id());
                let why = format!("the message was not processed, because it could not be recorded: {e}");
                return refuse(id.as_ref(), code::INTERNAL, &why);
            }
        };
        let Ok(parts) = Parts::of(line) else {
            return Accepted::Refused(unreadable_answer(line).1);
        };
        if parts.id.is_some_and(|id| id.get().len() > message::ID_BYTES_MAX)
            || parts.method.as_ref().is_some_and(|method| method.len() > METHOD_BYTES_MAX)
        {
            let why = format!("an id or a method has more than {METHOD_BYTES_MAX} bytes");
            return refuse(parts.json_id().as_ref(), code::INVALID_REQUEST, &why);
        }
        if let Some(method) = &parts.method
            && let Some(settled) = self.settle_ending(method, parts.json_id().as_ref())
        {
            return settled;
        }
        match (&parts.method, parts.json_id()) {
            (Some(method), Some(id)) => self.accept_request(session, method, id, &parts, recorded, outbox),
            (Some(method), None) if !parts.has_id => {
                match session.account.charge(Use::Call, CALL_BYTES + CALL_COPIES * line.len()) {
                    Ok(room) => self.accept_notification(session, method, &parts, room),
                    Err(full) => return refuse_full(None, &full),
                }
                Accepted::NoReply
            }
            (None, Some(id)) if parts.result.is_some() || parts.error.is_some() => {
                let answer = match (parts.error, parts.result) {
                    (Some(error), _) => Answer::Error(error.get().to_owned()),
                    (None, result) => Answer::Result(result.map_or("{}", RawValue::get).to_owned()),
                };
                // An answer to nothing is on tape, and that is all.
                session.take_answer(&id, answer);
                Accepted::NoReply
            }
            (_, id) => {
                refuse(id.as_ref(), code::INVALID_REQUEST, "neither a request, a notification nor an answer")
            }
        }
    }

    fn accept_request(
        self: &Arc<Self>,
        session: &Arc<Session>,
        method: &str,
        id: JsonId,
        parts: &Parts<'_>,
        recorded: Option<RecordedEntry>,
        outbox: &Outbox,
    ) -> Accepted {
        let facts = match self.facts_of(session, method, parts) {
            Ok(facts) => facts,
            Err(error) => return Accepted::Refused(message::raw_error(id.as_raw(), &error)),
        };
        let bytes = CALL_BYTES + facts.bytes() + CALL_COPIES * parts.params.map_or(0, |p| p.get().len());
        let room = match session.account.charge(Use::Call, bytes) {
            Ok(room) => room,
            Err(full) => return refuse_full(Some(&id), &full),
        };
        if facts.era == Era::Modern
            && (session.is_inferred || !session.is_opened())
            // Every modern request says who its client is; what comes between requests needs it too.
            && let Err(full) = session.set_facts(facts.clone())
        {
            return refuse_full(Some(&id), &full);
        }
        let (demand, demands) = mpsc::channel(DEMANDS_MAX);
        let log_level = match facts.era {
            Era::Legacy => Some(LEAST_LOG_LEVEL),
            Era::Modern => message::string(parts.meta(meta::LOG_LEVEL))
                .map(|level| log_level(&level).unwrap_or(LEAST_LOG_LEVEL)),
        };
        let demands_of = (facts.era == Era::Modern).then_some(demand);
        let outbox = outbox.clone();
        let call = Call::new(session.clone(), id.clone(), recorded, outbox, facts, log_level, demands_of);
        let token = parts.meta("progressToken").map(|token| token.get().to_owned());
        let call = Arc::new(call.with_progress_token(token));
        call.hold(room);
        if session.has_live_token(&call) {
            return refuse(
                Some(&id),
                code::INVALID_PARAMS,
                "this progressToken belongs to a request that is under way: choose another",
            );
        }
        let Some(guard) = session.begin_call(id.clone(), call.clone()) else {
            return refuse(
                Some(&id),
                code::INVALID_REQUEST,
                "a request with this id is under way, or too many are",
            );
        };
        let params = parts.params.map(|p| p.get().to_owned());
        let method = method.to_owned();
        Accepted::Request(Box::new(Request { id, method, params, call, demands, _guard: guard }))
    }

    /// Answers a request for somebody who hears it at once.
    pub async fn answer(self: &Arc<Self>, request: Box<Request>) -> Option<String> {
        self.answer_outgoing(request).await.map(Outgoing::deliver)
    }

    /// Answers a request; the line returned is recorded and must be sent.
    pub async fn answer_outgoing(self: &Arc<Self>, request: Box<Request>) -> Option<Outgoing> {
        let call = request.call.clone();
        let line = self.conclude(request).await?;
        let (line, room) = with_room(&call, line).await;
        let recorded = call.session.record_outgoing(line);
        let line = recorded.unwrap_or_else(|e| Outgoing::unrecorded(not_recorded(&call.id, &e)));
        Some(match room {
            Some(room) => line.in_room(room),
            None => line,
        })
    }

    /// Answers a request on a stream that others write to as well: in the order of the tape.
    pub async fn answer_on(self: &Arc<Self>, request: Box<Request>, outbox: &Outbox) {
        let call = request.call.clone();
        let Some(line) = self.conclude(request).await else { return };
        let (line, room) = with_room(&call, line).await;
        let place = outbox.reserve().await.ok();
        // What has no room of its own is a short error.
        let room = room.map_or_else(|| call.session.room_for(""), Ok);
        if let Err(e) = call.session.say_in_room(place, room, line, WhyUndelivered::ClientLeft) {
            // The client may be gone by now.
            let _ = outbox.send(Outgoing::unrecorded(not_recorded(&call.id, &e))).await;
        }
    }

    async fn conclude(self: &Arc<Self>, mut request: Box<Request>) -> Option<String> {
        let call = request.call.clone();
        // A fault of ours must not leave the client waiting; the panic itself is logged where it happens.
        let answering = AssertUnwindSafe(self.dispatch(&mut request)).catch_unwind();
        let answer = tokio::select! {
            // An answer that is there is given, though the session may be over by now.
            biased;
            answer = answering => {
                answer.unwrap_or_else(|_| Answer::error(code::INTERNAL, "Scrubjay failed to answer: see its log"))
            }
            // Called off: there is nobody to answer.
            () = call.cancelled.notified() => return None,
        };
        Some(match answer {
            Answer::Result(result) => message::result(request.id.as_raw(), &result),
            Answer::Error(error) => message::raw_error(request.id.as_raw(), &error),
        })
    }

    async fn dispatch(self: &Arc<Self>, request: &mut Request) -> Answer {
        if let Some(transparent) = &self.transparent {
            return self.pass_transparently(transparent, request).await;
        }
        if !request.has_readable_params() {
            return unreadable_params();
        }
        self.answer_ruled(request).await
    }

    /// Answers a request that rules let pass.
    async fn respond(self: &Arc<Self>, request: &mut Request) -> Answer {
        if self.is_task(request) {
            return self.orchestrate(request).await;
        }
        let modern = request.call.facts.era == Era::Modern;
        match request.method.as_str() {
            method::INITIALIZE if !modern => self.initialize(request).await,
            method::SERVER_DISCOVER => self.discover(request).await,
            shutdown::SHUTDOWN => self.shut_down_for_client().await,
            method::PING if !modern => Answer::Result("{}".to_owned()),
            method::LOGGING_SET_LEVEL if !modern => self.set_log_level(request).await,
            method::TOOLS_LIST
            | method::PROMPTS_LIST
            | method::RESOURCES_LIST
            | method::RESOURCES_TEMPLATES_LIST => self.list(request).await,
            method::TOOLS_CALL | method::PROMPTS_GET => self.call_by_name(request).await,
            method::RESOURCES_READ => self.read_resource(request).await,
            method::RESOURCES_SUBSCRIBE | method::RESOURCES_UNSUBSCRIBE if !modern => {
                self.subscribe(request).await
            }
            method::SUBSCRIPTIONS_LISTEN if modern => self.listen(request).await,
            method::COMPLETION_COMPLETE => self.complete(request).await,
            method::INITIALIZE
            | method::PING
            | method::LOGGING_SET_LEVEL
            | method::RESOURCES_SUBSCRIBE
            | method::RESOURCES_UNSUBSCRIBE
            | method::SUBSCRIPTIONS_LISTEN => not_found(&request.method),
            // A server that goes by the method alone would take it for one, and for another client's.
            method if is_notification(method) => not_found(method),
            _ => self.pass_on(request).await,
        }
    }

    /// Takes a notification from a client.
    fn accept_notification(
        self: &Arc<Self>,
        session: &Arc<Session>,
        method: &str,
        parts: &Parts<'_>,
        room: Charge,
    ) {
        let params = parts.params.map(RawValue::get);
        match method {
            method::NOTIFICATIONS_CANCELLED => {
                let id = parts.param("requestId").map(|id| JsonId::from_raw(id.get()));
                if let Some(call) = id.and_then(|id| session.call(&id)) {
                    call.cancel();
                }
            }
            _ if self.transparent.is_some() => {
                if let Some(transparent) = &self.transparent {
                    self.tell_server(transparent, session, method, params, room);
                }
            }
            method::NOTIFICATIONS_INITIALIZED => {}
            // A server that goes by the method alone would do it, though nobody looked at whether this client may.
            _ if !is_notification(method) => session.record_turned_away(&serde_json::json!({
                "event": "refused", "method": method,
                "reason": "a request without an id: only notifications are passed on without one",
            })),
            // What else a client tells is for the servers that work for it.
            _ => {
                let era = session.facts().era;
                let all = self.backends();
                let serving = all.iter().flat_map(|b| b.connections_of(session, era));
                // What names a request or a task of the server's is not for a connection on which it may be another's.
                let concerns = |c: &Arc<Connection>| c.owner().is_some() || !names_a_handle(method);
                let accept_notification: Arc<(String, Option<String>, Charge)> =
                    Arc::new((method.to_owned(), params.map(str::to_owned), room));
                for connection in serving.filter(concerns) {
                    connection.note_client(session);
                    let accept_notification = accept_notification.clone();
                    tokio::spawn(async move {
                        if let Err(e) = connection
                            .notify(None, &accept_notification.0, accept_notification.1.as_deref())
                            .await
                        {
                            tracing::debug!(error = %e, "a notification did not reach a backend");
                        }
                    });
                }
            }
        }
    }

    pub(crate) fn all_sessions(&self) -> Vec<Arc<Session>> {
        lock(&self.sessions).values().cloned().collect()
    }
}

/// Tells whether a method is one of a notification.
fn is_notification(method: &str) -> bool {
    method.starts_with("notifications/")
}

/// Tells whether a client's notification names something that a server keeps for one client.
fn names_a_handle(method: &str) -> bool {
    method == method::NOTIFICATIONS_PROGRESS || method.starts_with("notifications/tasks")
}

fn refuse(id: Option<&JsonId>, code: i64, why: &str) -> Accepted {
    let id = id.map_or("null", JsonId::as_raw);
    Accepted::Refused(message::raw_error(id, &message::error(code, why, None)))
}

fn refuse_full(id: Option<&JsonId>, full: &Full) -> Accepted {
    let id = id.map_or("null", JsonId::as_raw);
    Accepted::Full(message::raw_error(id, &message::error(code::INTERNAL, &full.to_string(), None)))
}

/// Takes room for an answer until its client has read it; where there is none, the answer is an error that says so.
async fn with_room(call: &Call, line: String) -> (String, Option<Charge>) {
    let (session, bytes) = (&call.session, line.len());
    let mut room = call.answer_room();
    let full = match room.resize_within(bytes, ANSWER_WAIT_MAX).await {
        Ok(()) => return (line, Some(room)),
        Err(full) => full,
    };
    drop((line, room));
    session.note_dropped(1, bytes, full.key);
    let why = format!("the answer has {bytes} bytes, and was not passed on: {full}");
    (message::raw_error(call.id.as_raw(), &message::error(code::INTERNAL, &why, None)), None)
}

fn not_recorded(id: &JsonId, error: &scrubjay_tape::recording::RecordError) -> String {
    let why = format!("the answer was not passed on, because it could not be recorded: {error}");
    message::raw_error(id.as_raw(), &message::error(code::INTERNAL, &why, None))
}

pub(crate) fn not_found(method: &str) -> Answer {
    Answer::error(code::METHOD_NOT_FOUND, &format!("no such method: {method}"))
}

/// Answers a request of which nobody here can tell what it names.
fn unreadable_params() -> Answer {
    Answer::error(
        code::INVALID_PARAMS,
        "params cannot be read: a key in params or params._meta is no valid text",
    )
}

/// Makes a handle that cannot be guessed: 160 random bits.
pub(crate) fn handle() -> String {
    let mut random = [0; 20];
    getrandom::fill(&mut random).expect("the system has a source of randomness");
    let (one, two) = random.split_at(10);
    let text =
        |half: &[u8]| scrubjay_core::id::TapeId::from_random(half.try_into().expect("ten bytes")).to_string();
    format!("{}{}", text(one), text(two))
}

/// The facts a legacy client has before it says anything.
pub(crate) fn unknown_client() -> ClientFacts {
    ClientFacts::default()
}

#[cfg(test)]
mod tests;
