//! Clients driven by a seed: they call, cancel, stop reading, use an id twice, leave and come back.

use std::collections::HashMap;
use std::sync::Arc;

use scrubjay_gateway::delivery::Outgoing;
use scrubjay_gateway::gateway::{Accepted, Gateway};
use scrubjay_gateway::session::{Outbox, Session};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::server::{POISON, ServerKind, millis};
use super::world::{Random, World, count};

/// The era and the streams of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientKind {
    /// `initialize` and a session.
    Legacy,
    /// Requests without a session, on one stream.
    Modern,
    /// Requests without a session, each on its own stream, which the client may close.
    Request,
}

impl ClientKind {
    pub(super) const ALL: [Self; 3] = [Self::Legacy, Self::Modern, Self::Request];
}

/// A request that waits for its answer.
struct OpenRequest {
    /// The nonce of a call; `None` for other requests.
    nonce: Option<String>,
    /// How many refusals the client expects because it used the id again.
    refusals: u32,
    /// Ends the task that waits for the answer, as a closed stream does.
    answer_task: Option<AbortHandle>,
}

/// One client, which may have several sessions one after another.
pub(super) struct SimulatedClient {
    world: Arc<World>,
    gateway: Arc<Gateway>,
    name: String,
    kind: ClientKind,
    random: Random,
    calls: u64,
    sessions: Vec<Arc<Session>>,
}

/// The state of one session of a client.
struct SessionState {
    session: Arc<Session>,
    /// The gateway's end of the client's stream.
    outbox: Outbox,
    /// For answers that a front would send.
    front_outbox: mpsc::Sender<Outgoing>,
    inbox: mpsc::Receiver<Outgoing>,
    next_id: u64,
    open_requests: HashMap<u64, OpenRequest>,
    /// Cancelled calls: their answers may have been on their way.
    cancelled: HashMap<u64, String>,
    /// Answered calls.
    answered: HashMap<u64, String>,
}

impl SimulatedClient {
    pub(super) fn new(world: &Arc<World>, gateway: &Arc<Gateway>, number: u64, kind: ClientKind) -> Self {
        let name = format!("c{number}");
        let random = world.random(&name);
        Self {
            world: world.clone(),
            gateway: gateway.clone(),
            name,
            kind,
            random,
            calls: 0,
            sessions: Vec::new(),
        }
    }

    /// Does `actions` random actions, waits for all answers, and closes its session; returns all its sessions.
    pub(super) async fn run(mut self, actions: u64) -> Vec<Arc<Session>> {
        let mut state = self.open_session().await;
        for _ in 0..actions {
            self.world.step();
            self.read_briefly(&mut state).await;
            match self.random.below(100) {
                0..62 => self.call(&mut state).await,
                62..76 => self.cancel(&mut state),
                76..84 => self.request(&mut state, "tools/list", json!({}), None).await,
                84..88 => self.repeat_an_id(&mut state).await,
                // The client does not read for a while.
                88..94 => tokio::time::sleep(millis(self.random.below(12_000))).await,
                94..99 => {
                    self.request(
                        &mut state,
                        "tools/call",
                        json!({ "name": "unknown", "arguments": {} }),
                        None,
                    )
                    .await
                }
                _ => {
                    self.close_session(state);
                    state = self.open_session().await;
                }
            }
        }
        while !state.open_requests.is_empty() {
            let Some(line) = state.inbox.recv().await else { break };
            self.receive(&mut state, &line.deliver());
        }
        self.close_session(state);
        self.sessions
    }

    async fn open_session(&mut self) -> SessionState {
        let session = match self.kind {
            ClientKind::Request => self
                .gateway
                .open_inferred_session("client", &format!("{} {}", self.name, self.sessions.len())),
            _ => self.gateway.open_session("client"),
        };
        let (outbox, front_outbox, inbox) = stream();
        if self.kind != ClientKind::Request {
            session.attach(outbox.clone());
        }
        self.sessions.push(session.clone());
        let mut state = SessionState {
            session,
            outbox,
            front_outbox,
            inbox,
            next_id: 1,
            open_requests: HashMap::new(),
            cancelled: HashMap::new(),
            answered: HashMap::new(),
        };
        if self.kind == ClientKind::Legacy {
            let info = json!({ "name": self.name, "version": "1" });
            let params = json!({ "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} }, "clientInfo": info });
            self.request(&mut state, "initialize", params, None).await;
            while !state.open_requests.is_empty() {
                let Some(line) = state.inbox.recv().await else { break };
                self.receive(&mut state, &line.deliver());
            }
        }
        state
    }

    fn close_session(&mut self, state: SessionState) {
        for open in state.open_requests.into_values() {
            if let Some(nonce) = open.nonce {
                self.world.call_ended(&nonce, "left");
            }
            if let Some(answer_task) = open.answer_task {
                answer_task.abort();
            }
        }
        self.gateway.close_session(&state.session.id, "the client left");
    }

    /// Reads for a short random time.
    async fn read_briefly(&mut self, state: &mut SessionState) {
        let until = tokio::time::Instant::now() + millis(self.random.below(300));
        while let Ok(Some(line)) = tokio::time::timeout_at(until, state.inbox.recv()).await {
            self.receive(state, &line.deliver());
        }
    }

    async fn call(&mut self, state: &mut SessionState) {
        let kind = ServerKind::ALL[usize::try_from(self.random.below(4)).expect("a small number")];
        self.calls += 1;
        let nonce = format!("{}-{}", self.name, self.calls);
        let asks = self.kind == ClientKind::Legacy && matches!(kind, ServerKind::Legacy | ServerKind::Steady);
        let mut params = json!({ "name": kind.tool(), "arguments": { "nonce": nonce, "asks": asks } });
        if self.random.percent(40) {
            // All clients use the same tokens.
            params["_meta"]["progressToken"] = json!(state.next_id);
        }
        self.world.call_started(&nonce);
        self.request(state, "tools/call", params, Some(nonce)).await;
    }

    async fn request(
        &mut self,
        state: &mut SessionState,
        method: &str,
        params: Value,
        nonce: Option<String>,
    ) {
        let id = state.next_id;
        state.next_id += 1;
        state.open_requests.insert(id, OpenRequest { nonce, refusals: 0, answer_task: None });
        self.send(state, id, method, params).await;
    }

    /// Sends a request. The answer is read later.
    async fn send(&mut self, state: &mut SessionState, id: u64, method: &str, mut params: Value) {
        if self.kind != ClientKind::Legacy {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
            meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": self.name, "version": "1" });
        }
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string();
        count(&mut self.world.log().sent_by_clients, &line);
        match self.gateway.accept(&state.session, &line, &state.outbox) {
            Accepted::Request(request) => {
                let (gateway, kind) = (self.gateway.clone(), self.kind);
                let (outbox, front_outbox) = (state.outbox.clone(), state.front_outbox.clone());
                let answer_task = tokio::spawn(async move {
                    if kind == ClientKind::Request {
                        if let Some(line) = gateway.answer(request).await {
                            let _ = front_outbox.send(Outgoing::unrecorded(line)).await;
                        }
                    } else {
                        gateway.answer_on(request, &outbox).await;
                    }
                });
                if let Some(open) = state.open_requests.get_mut(&id) {
                    open.answer_task = (kind == ClientKind::Request).then(|| answer_task.abort_handle());
                }
            }
            Accepted::Refused(line) | Accepted::Full(line) => {
                // As a front does it. Lines are read first until the stream has room.
                while state.outbox.capacity() == 0 {
                    let Some(line) = state.inbox.recv().await else { return };
                    self.receive(state, &line.deliver());
                }
                state.session.refuse(&state.outbox, line).await;
            }
            Accepted::NoReply => {
                self.world.violation(format!("the gateway did not treat this as a request: {line}"))
            }
        }
    }

    fn random_open_call(&mut self, state: &SessionState) -> Option<u64> {
        let mut ids: Vec<u64> =
            state.open_requests.iter().filter(|(_, open)| open.nonce.is_some()).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        let at = self.random.below(ids.len().max(1) as u64);
        ids.get(usize::try_from(at).expect("a small number")).copied()
    }

    fn cancel(&mut self, state: &mut SessionState) {
        let Some(id) = self.random_open_call(state) else { return };
        let open = state.open_requests.get(&id).expect("it was just found");
        if open.refusals > 0 {
            return;
        }
        let open = state.open_requests.remove(&id).expect("it was just found");
        let nonce = open.nonce.expect("it is a call");
        self.world.call_ended(&nonce, "cancelled");
        state.cancelled.insert(id, nonce);
        if let Some(answer_task) = open.answer_task {
            answer_task.abort();
            return;
        }
        let line =
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } })
                .to_string();
        count(&mut self.world.log().sent_by_clients, &line);
        let accepted = self.gateway.accept(&state.session, &line, &state.outbox);
        self.world.check(matches!(accepted, Accepted::NoReply), || {
            "the gateway treated a cancellation as a request".to_owned()
        });
    }

    /// Sends a request with the id of an open call. Not in an inferred session, where that id may belong to another
    /// client.
    async fn repeat_an_id(&mut self, state: &mut SessionState) {
        if self.kind == ClientKind::Request {
            return;
        }
        let Some(id) = self.random_open_call(state) else { return };
        if let Some(open) = state.open_requests.get_mut(&id) {
            open.refusals += 1;
        }
        self.send(state, id, "tools/list", json!({})).await;
    }

    fn receive(&mut self, state: &mut SessionState, line: &str) {
        self.world.step();
        count(&mut self.world.log().received_by_clients, line);
        self.world.check(!line.contains(POISON), || format!("{} got a stray message: {line}", self.name));
        let message: Value = serde_json::from_str(line).expect("the gateway sends JSON");
        match (message["method"].as_str(), message.get("id")) {
            (None, Some(id)) => self.receive_answer(state, id.as_u64(), &message),
            (Some("notifications/progress"), None) => self.receive_progress(state, &message["params"]),
            (Some("elicitation/create"), Some(id)) => self.receive_question(state, id, &message["params"]),
            (Some("notifications/tools/list_changed" | "notifications/message"), None) => {}
            _ => self.world.violation(format!("{} got an unexpected message: {line}", self.name)),
        }
    }

    fn receive_answer(&mut self, state: &mut SessionState, id: Option<u64>, message: &Value) {
        let Some(id) = id else {
            self.world.violation(format!("{} got an answer without its id: {message}", self.name));
            return;
        };
        if message["error"]["message"].as_str().is_some_and(|why| why.contains("with this id is under way")) {
            let reused = state.open_requests.get_mut(&id).filter(|open| open.refusals > 0);
            match reused {
                Some(open) => open.refusals -= 1,
                None => {
                    self.world.violation(format!("{} was refused without a reason: {message}", self.name))
                }
            }
            return;
        }
        if state.cancelled.remove(&id).is_some() {
            return;
        }
        let Some(open) = state.open_requests.remove(&id) else {
            // The request was answered before, or was never made.
            self.world.violation(format!("{} got an answer to no open request: {message}", self.name));
            return;
        };
        let Some(nonce) = open.nonce else { return };
        let text = message["result"]["content"][0]["text"].as_str();
        match text {
            Some(text) => {
                self.world.check(text == nonce, || format!("{nonce} was answered with {text}"));
                self.world.call_ended(&nonce, "answered");
            }
            None => {
                let why = message["error"]["message"].as_str().unwrap_or_default();
                // The message of a server's error is the nonce of the call.
                let is_foreign =
                    why.starts_with('c') && why.contains('-') && !why.contains(' ') && why != nonce;
                self.world
                    .check(message["error"].is_object() && !is_foreign, || format!("{nonce} got {message}"));
                self.world.call_ended(&nonce, "failed");
            }
        }
        state.answered.insert(id, nonce);
    }

    fn receive_progress(&mut self, state: &mut SessionState, params: &Value) {
        let nonce = params["message"].as_str().unwrap_or_default();
        let id = params["progressToken"].as_u64().unwrap_or_default();
        let open = state.open_requests.get(&id).and_then(|open| open.nonce.as_deref());
        let ended = || state.cancelled.get(&id).or_else(|| state.answered.get(&id)).map(String::as_str);
        let call = open.or_else(ended);
        self.world.check(call == Some(nonce), || {
            format!("{} got progress of {nonce} for the call {call:?}", self.name)
        });
    }

    /// Answers a question of a server, or ignores it.
    fn receive_question(&mut self, state: &mut SessionState, id: &Value, params: &Value) {
        let nonce = params["message"].as_str().unwrap_or_default();
        let is_mine = nonce.split('-').next() == Some(&self.name);
        self.world.check(is_mine, || format!("{} got the question of {nonce}", self.name));
        if self.random.percent(20) {
            return;
        }
        let content = json!({ "client": self.name });
        let line =
            json!({ "jsonrpc": "2.0", "id": id, "result": { "action": "accept", "content": content } })
                .to_string();
        count(&mut self.world.log().sent_by_clients, &line);
        self.gateway.accept(&state.session, &line, &state.outbox);
    }
}

/// Makes the stream of a client: the gateway's end, an end for answers that a front would send, and the client's end.
fn stream() -> (Outbox, mpsc::Sender<Outgoing>, mpsc::Receiver<Outgoing>) {
    let (outbox, inbox) = mpsc::channel(32);
    (outbox.clone(), outbox, inbox)
}
