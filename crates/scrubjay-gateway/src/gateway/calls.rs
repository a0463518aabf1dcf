//! Passes calls to the backend that owns them, and translates between the eras where the two sides differ.
//!
//! A legacy backend asks in the middle of a call; a modern client is asked by a result that demands input and
//! comes back with a new request. So such a call is *parked* under a state nobody can guess, while its backend
//! waits. The other way round, a modern backend's demand is put to a legacy client as requests, and the call
//! is made again with the answers.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scrubjay_core::envelope::Era;
use scrubjay_core::message::{self, Splice};
use scrubjay_core::protocol::{code, meta, method};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::aggregate::known_table;
use super::events::capability_of;
use super::names::NameTable;
use super::request_state::{Foreign, is_sealed};
use super::{Gateway, Request, not_found};
use crate::backend::connection::Connection;
use crate::backend::list::ListKind;
use crate::backend::questions::{QuestionTaker, Questions};
use crate::backend::{Answer, Backend, CallError, modern_meta};
use crate::session::{Call, Demand, lock, log_level};

/// How many calls may wait for their client to come back.
const PARKED_MAX: usize = 1024;
/// How many of them may be one client's, so that others can still be asked.
const PARKED_EACH_MAX: usize = PARKED_MAX / 16;
/// How long one waits.
const PARKED_FOR: Duration = Duration::from_secs(600);
/// How long a call waits for another call of its client to bring what the server asked outside calls.
const SETTLED_MAX: Duration = Duration::from_secs(3);
/// How often one call may demand input.
const ROUNDS_MAX: usize = 16;

/// Calls whose backend waits for the client's input.
#[derive(Default)]
pub(super) struct ParkedCalls {
    calls: Mutex<HashMap<String, ParkedCall>>,
}

impl ParkedCalls {
    /// Calls off what waits for a client that is gone.
    pub(super) fn forget_client(&self, client: &Arc<str>) {
        lock(&self.calls).retain(|_, parked| parked.running.call.session.client != *client);
    }

    /// Parks a call under a state; returns why that cannot be.
    fn park(&self, state: &str, parked: ParkedCall) -> Result<(), String> {
        let mut calls = lock(&self.calls);
        calls.retain(|_, parked| parked.since.elapsed() < PARKED_FOR);
        let is_same = |other: &&ParkedCall| other.running.call.is_of_client_of(&parked.running.call);
        if calls.values().filter(is_same).count() >= PARKED_EACH_MAX {
            return Err(format!(
                "too many calls wait for input: {PARKED_EACH_MAX} of this client do already"
            ));
        }
        if calls.len() >= PARKED_MAX {
            return Err(format!("too many calls wait for input: {PARKED_MAX} do already"));
        }
        calls.insert(state.to_owned(), parked);
        Ok(())
    }
}

struct ParkedCall {
    running: RunningCall,
    replies: Vec<(String, oneshot::Sender<Answer>)>,
    since: tokio::time::Instant,
}

/// A call under way beside whoever asked for it; dropped, it is called off.
struct RunningCall {
    task: JoinHandle<Result<Answer, CallError>>,
    demands: mpsc::Receiver<Demand>,
    /// What a legacy backend asks this client, whichever call it is for.
    questions: Option<Arc<Questions>>,
    /// Whether its client was asked something on its way.
    was_asked: bool,
    call: Arc<Call>,
    method: String,
}

impl RunningCall {
    fn taker(&self) -> QuestionTaker {
        QuestionTaker { was_asked: self.was_asked, takes_all: self.method == method::TOOLS_CALL }
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Gateway {
    /// Returns the connection to a backend that serves a client, in the client's era where it can be.
    pub(super) async fn connect(
        self: &Arc<Self>,
        backend: &Arc<Backend>,
        call: &Call,
    ) -> Result<Arc<Connection>, CallError> {
        let connection = backend.connection(&call.session, &call.facts).await?;
        self.attend_to(&call.session, backend, &connection);
        Ok(connection)
    }

    /// Returns the connection for a call: on one of a client's own, no client that may be another is served.
    pub(super) async fn connect_for_call(
        self: &Arc<Self>,
        backend: &Arc<Backend>,
        call: &Call,
    ) -> Result<Arc<Connection>, CallError> {
        let connection = self.connect(backend, call).await?;
        if call.session.may_be_several && connection.owner().is_some() {
            return Err(CallError::SeveralClients(backend.id.clone()));
        }
        Ok(connection)
    }

    pub(super) async fn call_by_name(self: &Arc<Self>, request: &mut Request) -> Answer {
        if let Some(parked) = self.unpark(request) {
            return parked.await;
        }
        let kind = if request.method == method::TOOLS_CALL { ListKind::Tools } else { ListKind::Prompts };
        let Some(name) = request.text_param("name") else {
            return Answer::error(code::INVALID_PARAMS, "params.name is required");
        };
        let (backend, own) = match self.owner(&request.call, kind, &name).await {
            Ok(owner) => owner,
            Err(why) => return Answer::error(code::INVALID_PARAMS, &why),
        };
        let params = if own == name { request.params.clone() } else { renamed(request, &own) };
        self.forward(request, &backend, params).await
    }

    pub(super) async fn read_resource(self: &Arc<Self>, request: &mut Request) -> Answer {
        if let Some(parked) = self.unpark(request) {
            return parked.await;
        }
        let Some(uri) = request.text_param("uri") else {
            return Answer::error(code::INVALID_PARAMS, "params.uri is required");
        };
        match self.owner_of_uri(&request.call, &uri).await {
            Some(backend) => self.forward(request, &backend, request.params.clone()).await,
            None => {
                let data = serde_json::json!({ "uri": uri });
                let code = if request.call.facts.era == Era::Modern {
                    code::INVALID_PARAMS
                } else {
                    code::RESOURCE_NOT_FOUND
                };
                Answer::Error(message::error(code, "resource not found", Some(&data)))
            }
        }
    }

    /// Finds the backend of a resource: by its list, its templates, or because it is the only one.
    pub(super) async fn owner_of_uri(self: &Arc<Self>, call: &Arc<Call>, uri: &str) -> Option<Arc<Backend>> {
        if let Ok((backend, _)) = self.owner(call, ListKind::Resources, uri).await {
            return Some(backend);
        }
        let known = known_table(&call.session, ListKind::Templates);
        let mut fitting = known.and_then(|table| self.fitting_template(&table, uri));
        if fitting.is_none() {
            let table = self.aggregate(call, ListKind::Templates).await.table;
            fitting = self.fitting_template(&table, uri);
        }
        if fitting.is_some() {
            return fitting;
        }
        let mut able = Vec::new();
        for backend in self.backends().iter() {
            if let Some(connection) = backend.open_connection(&call.session, call.facts.era)
                && connection.offers("resources")
            {
                able.push(backend.clone());
            }
        }
        // Unlisted, but nobody else could have it.
        if able.len() == 1 { able.pop() } else { None }
    }

    fn fitting_template(&self, table: &NameTable, uri: &str) -> Option<Arc<Backend>> {
        let mut templates = self.templates(table);
        // The most specific first.
        templates.sort_by_key(|(template, _)| std::cmp::Reverse(fixed_part(template).len()));
        templates.into_iter().find(|(template, _)| uri.starts_with(fixed_part(template))).map(|(_, b)| b)
    }

    pub(super) async fn complete(self: &Arc<Self>, request: &mut Request) -> Answer {
        let reference = message::member(request.raw_params(), "ref");
        let text = |key| message::string(message::member(reference, key));
        let (name, uri) = (text("name"), text("uri"));
        if let Some(name) = name {
            let (backend, own) = match self.owner(&request.call, ListKind::Prompts, &name).await {
                Ok(owner) => owner,
                Err(why) => return Answer::error(code::INVALID_PARAMS, &why),
            };
            let raw = request.raw_params();
            let old = message::member(message::member(raw, "ref"), "name");
            let params = raw.map(|p| Splice::new(p.get()).replace(old, &quoted(&own)).finish());
            return self.forward(request, &backend, params).await;
        }
        let Some(uri) = uri else { return Answer::error(code::INVALID_PARAMS, "params.ref is required") };
        let table = match known_table(&request.call.session, ListKind::Templates) {
            Some(table) if table.names().next().is_some() => table,
            _ => self.aggregate(&request.call, ListKind::Templates).await.table,
        };
        let exact = self.templates(&table).into_iter().find(|(template, _)| *template == uri).map(|(_, b)| b);
        let owner = match exact {
            Some(backend) => Some(backend),
            None => self.owner_of_uri(&request.call, &uri).await,
        };
        match owner {
            Some(backend) => self.forward(request, &backend, request.params.clone()).await,
            None => Answer::error(code::INVALID_PARAMS, &format!("unknown resource: {uri}")),
        }
    }

    /// Passes on what the gateway has no part in: to a task's backend, or to the only one there is.
    pub(super) async fn pass_on(self: &Arc<Self>, request: &mut Request) -> Answer {
        let task = match self.tasks.backend_for(request) {
            Ok(task) => task,
            Err(refused) => return refused,
        };
        let backends = self.backends();
        let mut others = backends.iter().filter(|b| !b.is_own);
        let only = match (others.next(), others.next()) {
            (Some(only), None) => Some(only.clone()),
            _ => None,
        };
        match task.or(only) {
            Some(backend) => self.forward(request, &backend, request.params.clone()).await,
            None => not_found(&request.method),
        }
    }

    pub(super) async fn set_log_level(self: &Arc<Self>, request: &mut Request) -> Answer {
        // Modern backends are told with each call, those that are not up when they start.
        let session = &request.call.session;
        let Some(level) = request.text_param("level").and_then(|level| log_level(&level)) else {
            return Answer::error(code::INVALID_PARAMS, "params.level must be one of the eight levels");
        };
        *lock(&session.log_level) = Some(level);
        for backend in self.backends().iter() {
            let open = backend.connections_of(session, Era::Legacy).into_iter();
            for connection in open.filter(|c| c.era == Era::Legacy && c.offers("logging")) {
                let params = request.params.as_deref();
                let set = connection.call(
                    Some(&request.call),
                    method::LOGGING_SET_LEVEL,
                    params,
                    backend.call_timeout(),
                );
                if let Ok(Answer::Error(error)) = set.await {
                    return Answer::Error(error);
                }
            }
        }
        Answer::Result("{}".to_owned())
    }

    /// Makes the call on a backend and brings the answer into the client's era.
    async fn forward(
        self: &Arc<Self>,
        request: &mut Request,
        backend: &Arc<Backend>,
        params: Option<String>,
    ) -> Answer {
        let call = request.call.clone();
        let connection = match self.connect_for_call(backend, &call).await {
            Ok(connection) => connection,
            Err(e) => return Answer::error(code::INTERNAL, &e.to_string()),
        };
        let held = self.held_call(&call, backend, &connection, &request.method, params.as_deref());
        if let Some(held) = held.await {
            return held;
        }
        let params = match connection.era {
            Era::Modern => match self.states.open(&call.session, &backend.id, params) {
                Ok(params) => params,
                Err(Foreign) => return foreign_state(),
            },
            Era::Legacy => params,
        };
        let answer = match (call.facts.era, connection.era) {
            (Era::Modern, Era::Legacy) => self.start_parkable(request, backend, &connection, params).await,
            (Era::Legacy, Era::Modern) => {
                ask_for_demands(&call, &request.method, backend, &connection, params).await
            }
            _ => {
                let made =
                    connection.call(Some(&call), &request.method, params.as_deref(), backend.call_timeout());
                made.await.unwrap_or_else(|e| Answer::error(code::INTERNAL, &e.to_string()))
            }
        };
        let is_shared = connection.owner().is_none();
        self.tasks.remember(&call.session.client, backend, is_shared, &answer);
        match answer {
            Answer::Result(result) if is_shared && request.method == method::TASKS_LIST => {
                Answer::Result(self.tasks.only_own(&call.session.client, &backend.id, result))
            }
            Answer::Result(result) if connection.era == Era::Modern => {
                Answer::Result(self.states.seal(&call.session, &backend.id, result))
            }
            answer => answer,
        }
    }

    /// Makes a call that the gateway chose for a client, which may be asked on the way.
    pub(super) async fn call_backend(
        self: &Arc<Self>,
        call: &Arc<Call>,
        method: &str,
        backend: &Arc<Backend>,
        params: Option<String>,
    ) -> Answer {
        let connection = match self.connect_for_call(backend, call).await {
            Ok(connection) => connection,
            Err(e) => return Answer::error(code::INTERNAL, &e.to_string()),
        };
        if let Some(held) = self.held_call(call, backend, &connection, method, params.as_deref()).await {
            return held;
        }
        let answer = if connection.era == Era::Modern {
            ask_for_demands(call, method, backend, &connection, params).await
        } else {
            let made = connection.call(Some(call), method, params.as_deref(), backend.call_timeout());
            made.await.unwrap_or_else(|e| Answer::error(code::INTERNAL, &e.to_string()))
        };
        self.tasks.remember(&call.session.client, backend, connection.owner().is_none(), &answer);
        answer
    }

    /// Does something for a modern client that may be asked on the way: it outlives the request then.
    pub(super) async fn run_parkable(
        self: &Arc<Self>,
        request: &mut Request,
        job: impl Future<Output = Answer> + Send + 'static,
    ) -> Answer {
        let task = tokio::spawn(async move { Ok(job.await) });
        let (_, nothing) = mpsc::channel(1);
        let demands = std::mem::replace(&mut request.demands, nothing);
        let (call, method) = (request.call.clone(), request.method.clone());
        self.await_or_park(RunningCall { task, demands, questions: None, was_asked: false, call, method })
            .await
    }

    /// Calls a legacy backend for a modern client: the call outlives the request if the backend asks back.
    async fn start_parkable(
        self: &Arc<Self>,
        request: &mut Request,
        backend: &Arc<Backend>,
        connection: &Arc<Connection>,
        params: Option<String>,
    ) -> Answer {
        let (connection, call, method) = (connection.clone(), request.call.clone(), request.method.clone());
        let timeout = backend.call_timeout();
        let params = adapted(&call, Era::Legacy, params.as_deref());
        let questions = connection.owner().map(|_| connection.questions());
        let task = {
            let (call, method, questions) = (call.clone(), method.clone(), questions.clone());
            tokio::spawn(async move {
                if let Some(questions) = questions.filter(|_| method == method::TOOLS_CALL) {
                    // What the server wants to know first, such as the client's roots, it is told first, unless the
                    // call that took the question along does not come back.
                    let _ = tokio::time::timeout(SETTLED_MAX, questions.settled()).await;
                }
                connection.call(Some(&call), &method, params.as_deref(), timeout).await
            })
        };
        let (_, nothing) = mpsc::channel(1);
        let demands = std::mem::replace(&mut request.demands, nothing);
        self.await_or_park(RunningCall { task, demands, questions, was_asked: false, call, method }).await
    }

    async fn await_or_park(self: &Arc<Self>, mut running: RunningCall) -> Answer {
        let taker = running.taker();
        let demand = tokio::select! {
            answered = &mut running.task => {
                return match answered {
                    Ok(Ok(Answer::Result(result))) => Answer::Result(modernised(&result, &running.method)),
                    Ok(Ok(error)) => error,
                    Ok(Err(e)) => Answer::error(code::INTERNAL, &e.to_string()),
                    Err(_) => Answer::error(code::INTERNAL, "the call was abandoned"),
                };
            }
            Some(demand) = running.demands.recv() => demand,
            demand = next_question(running.questions.as_deref(), taker) => demand,
        };
        running.was_asked = true;
        let mut demands = vec![demand];
        while let Ok(more) = running.demands.try_recv() {
            demands.push(more);
        }
        while let Some(more) = running.questions.as_ref().and_then(|q| q.try_take(running.taker())) {
            demands.push(more);
        }
        let state = super::handle();
        let mut requests = Vec::new();
        let mut replies = Vec::new();
        for (number, demand) in demands.into_iter().enumerate() {
            let key = format!("input-{}", number + 1);
            let params = demand.params.map(|p| format!(",\"params\":{p}")).unwrap_or_default();
            requests.push(format!("\"{key}\":{{\"method\":{}{params}}}", quoted(&demand.method)));
            replies.push((key, demand.reply));
        }
        let since = tokio::time::Instant::now();
        if let Err(why) = self.parked.park(&state, ParkedCall { running, replies, since }) {
            return Answer::error(code::INTERNAL, &why);
        }
        Answer::Result(format!(
            r#"{{"resultType":"input_required","inputRequests":{{{}}},"requestState":"{state}"}}"#,
            requests.join(",")
        ))
    }

    /// Takes up a parked call that a request comes back to, where it does.
    pub(super) fn unpark(
        self: &Arc<Self>,
        request: &Request,
    ) -> Option<impl Future<Output = Answer> + use<>> {
        if request.call.facts.era != Era::Modern {
            // It is asked by requests, and has no state to come back with.
            return None;
        }
        let state = message::member(request.raw_params(), "requestState")?;
        let state = message::string(Some(state)).unwrap_or_default();
        let mut calls = lock(&self.parked.calls);
        let of_client = |parked: &ParkedCall| parked.running.call.is_of_client_of(&request.call);
        if !calls.contains_key(&state) && is_sealed(&state) {
            // A backend's own, which is opened for that backend.
            return None;
        }
        let is_its_own = calls.get(&state).is_some_and(of_client);
        let parked = is_its_own.then(|| calls.remove(&state)).flatten();
        drop(calls);
        let resumed = parked.map(|parked| self.resume(parked, request));
        Some(async move {
            match resumed {
                Some(resumed) => resumed.await,
                None => foreign_state(),
            }
        })
    }

    /// Gives a parked call what its client came back with, and goes on with it.
    fn resume(
        self: &Arc<Self>,
        parked: ParkedCall,
        request: &Request,
    ) -> impl Future<Output = Answer> + use<> {
        let ParkedCall { running, replies, .. } = parked;
        let params = request.raw_params();
        for (key, reply) in replies {
            let given = message::member(message::member(params, "inputResponses"), &key);
            // The call it belongs to may have ended meanwhile; then its answer is what the client gets.
            let _ = reply.send(match given {
                Some(given) => Answer::Result(given.get().to_owned()),
                None => Answer::error(code::INTERNAL, "the client gave no answer"),
            });
        }
        running.call.redirect(request.call.outbox());
        let gateway = self.clone();
        async move { gateway.await_or_park(running).await }
    }
}

/// Answers a request that comes back with a state it was not given; nothing tells whether another client was.
pub(super) fn foreign_state() -> Answer {
    Answer::error(code::INVALID_PARAMS, "no call waits for this client with this requestState")
}

/// Waits for something that a backend asks its client outside any one call.
async fn next_question(questions: Option<&Questions>, taker: QuestionTaker) -> Demand {
    match questions {
        Some(questions) => questions.take(taker).await,
        None => std::future::pending().await,
    }
}

/// Asks a client in the middle of its call: by a request, or where it cannot be sent one by a demand.
pub(super) async fn ask_client(call: &Arc<Call>, method: &str, params: Option<&str>) -> Answer {
    let Some(demands) = &call.demands else {
        return call.session.ask(Some(&call.outbox()), method, params).await;
    };
    let (reply, answer) = oneshot::channel();
    let demand = Demand { method: method.to_owned(), params: params.map(str::to_owned), reply };
    if demands.try_send(demand).is_err() {
        return Answer::error(code::INTERNAL, "the client cannot be asked now");
    }
    answer.await.unwrap_or_else(|_| Answer::error(code::INTERNAL, "the client gave no answer"))
}

/// Calls a modern backend, putting its demands to the client.
async fn ask_for_demands(
    call: &Arc<Call>,
    method: &str,
    backend: &Backend,
    connection: &Connection,
    params: Option<String>,
) -> Answer {
    let mut current = adapted(call, Era::Modern, params.as_deref());
    for _ in 0..ROUNDS_MAX {
        let made = connection.call(Some(call), method, current.as_deref(), backend.call_timeout()).await;
        let result = match made {
            Ok(Answer::Result(result)) => result,
            Ok(error) => return error,
            Err(e) => return Answer::error(code::INTERNAL, &e.to_string()),
        };
        let raw = serde_json::from_str::<&RawValue>(&result).ok();
        if message::string(message::member(raw, "resultType")).as_deref() != Some("input_required") {
            return Answer::Result(result);
        }
        let demanded: BTreeMap<String, Box<RawValue>> = message::member(raw, "inputRequests")
            .and_then(|r| serde_json::from_str(r.get()).ok())
            .unwrap_or_default();
        let mut responses = Vec::new();
        for (key, demand) in &demanded {
            let asked = message::string(message::member(Some(demand), "method")).unwrap_or_default();
            let with = message::member(Some(demand), "params").map(RawValue::get);
            if capability_of(&asked).is_none_or(|capability| !call.facts.can(capability)) {
                let why = format!("the backend demands {asked}, which the client does not support");
                return Answer::error(code::INTERNAL, &why);
            }
            match ask_client(call, &asked, with).await {
                Answer::Result(given) => responses.push(format!("{}:{given}", quoted(key))),
                error @ Answer::Error(_) => return error,
            }
        }
        let base = adapted(call, Era::Modern, params.as_deref()).unwrap_or_else(|| "{}".to_owned());
        let Ok(object) = serde_json::from_str::<&RawValue>(&base) else { break };
        let mut next = Splice::new(object.get()).add_member(
            Some(object),
            "inputResponses",
            &format!("{{{}}}", responses.join(",")),
        );
        if let Some(state) = message::member(raw, "requestState") {
            next = next.add_member(Some(object), "requestState", state.get());
        }
        current = Some(next.finish());
    }
    Answer::error(code::INTERNAL, "the backend demands input again and again")
}

/// Returns parameters as a backend of this era wants them.
pub(super) fn adapted(call: &Call, era: Era, params: Option<&str>) -> Option<String> {
    if era == Era::Legacy {
        return params.map(without_envelope);
    }
    let base = params.unwrap_or("{}");
    let Ok(object) = serde_json::from_str::<&RawValue>(base) else { return params.map(str::to_owned) };
    let meta = message::member(Some(object), "_meta");
    if message::member(meta, meta::PROTOCOL_VERSION).is_some() {
        return Some(base.to_owned());
    }
    let facts = &call.facts;
    let mut members = modern_meta(&facts.capabilities, &facts.info);
    if let Some(level) = *lock(&call.session.log_level) {
        members += &format!(r#","{}":{}"#, meta::LOG_LEVEL, quoted(level));
    }
    Some(match meta.filter(|m| m.get().starts_with('{')) {
        Some(meta) => {
            let rest = meta.get()[1..].trim_start();
            let comma = if rest.starts_with('}') { "" } else { "," };
            Splice::new(object.get()).replace(Some(meta), &format!("{{{members}{comma}{rest}")).finish()
        }
        None => {
            Splice::new(object.get()).add_member(Some(object), "_meta", &format!("{{{members}}}")).finish()
        }
    })
}

/// Takes out of `_meta` what only modern requests carry: a legacy backend may refuse it.
fn without_envelope(params: &str) -> String {
    let object = serde_json::from_str::<&RawValue>(params).ok();
    let meta = message::member(object, "_meta");
    if message::member(meta, meta::PROTOCOL_VERSION).is_none() {
        return params.to_owned();
    }
    let mut members: BTreeMap<String, Box<RawValue>> =
        meta.and_then(|meta| serde_json::from_str(meta.get()).ok()).unwrap_or_default();
    members.retain(|key, _| {
        ![meta::PROTOCOL_VERSION, meta::CLIENT_CAPABILITIES, meta::CLIENT_INFO, meta::LOG_LEVEL]
            .contains(&key.as_str())
    });
    let members: Vec<String> =
        members.iter().map(|(key, value)| format!("{}:{}", quoted(key), value.get())).collect();
    Splice::new(params).replace(meta, &format!("{{{}}}", members.join(","))).finish()
}

/// Gives a legacy backend's result what a modern one must have.
fn modernised(result: &str, method: &str) -> String {
    let Ok(object) = serde_json::from_str::<&RawValue>(result) else { return result.to_owned() };
    let has = |key| message::member(Some(object), key).is_some();
    let mut splice = Splice::new(object.get());
    if method == method::RESOURCES_READ && !has("ttlMs") {
        splice = splice.add_member(Some(object), "cacheScope", "\"private\"").add_member(
            Some(object),
            "ttlMs",
            "0",
        );
    }
    if !has("resultType") {
        splice = splice.add_member(Some(object), "resultType", "\"complete\"");
    }
    splice.finish()
}

fn renamed(request: &Request, name: &str) -> Option<String> {
    let params = request.raw_params()?;
    let old = message::member(Some(params), "name");
    Some(Splice::new(params.get()).replace(old, &quoted(name)).finish())
}

fn fixed_part(template: &str) -> &str {
    template.split('{').next().unwrap_or(template)
}

pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
