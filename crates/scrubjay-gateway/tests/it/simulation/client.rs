//! Clients that follow the dice: they call, cancel, stop reading, use an id twice, leave and come back.

use std::collections::HashMap;
use std::sync::Arc;

use scrubjay_gateway::delivery::Outgoing;
use scrubjay_gateway::gateway::{Accepted, Gateway};
use scrubjay_gateway::session::{Outbox, Session};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::server::{Nature, POISON, millis};
use super::world::{Dice, World, count};

/// How a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientKind {
    /// `initialize` and a session.
    Legacy,
    /// Stateless requests on one stream.
    Modern,
    /// Stateless requests, each with a stream of its own that it may close.
    Request,
}

impl ClientKind {
    pub(super) const ALL: [Self; 3] = [Self::Legacy, Self::Modern, Self::Request];
}

/// A request that waits for its answer.
struct Open {
    /// None where it is not a call.
    nonce: Option<String>,
    /// Refusals that are due because the id was used again.
    refusals: u32,
    answering: Option<AbortHandle>,
}

/// One client, who may have several sessions one after the other.
pub(super) struct Actor {
    world: Arc<World>,
    gateway: Arc<Gateway>,
    name: String,
    kind: ClientKind,
    dice: Dice,
    calls: u64,
    sessions: Vec<Arc<Session>>,
}

/// One session of a client.
struct Visit {
    session: Arc<Session>,
    /// What the gateway says goes here.
    outbox: Outbox,
    /// What is said in its place goes here.
    heard: mpsc::Sender<Outgoing>,
    inbox: mpsc::Receiver<Outgoing>,
    next_id: u64,
    open: HashMap<u64, Open>,
    /// Calls that were called off: an answer may have been on its way.
    called_off: HashMap<u64, String>,
    /// Calls that were answered.
    over: HashMap<u64, String>,
}

impl Actor {
    pub(super) fn new(world: &Arc<World>, gateway: &Arc<Gateway>, number: u64, kind: ClientKind) -> Self {
        let name = format!("c{number}");
        let dice = world.dice(&name);
        Self {
            world: world.clone(),
            gateway: gateway.clone(),
            name,
            kind,
            dice,
            calls: 0,
            sessions: Vec::new(),
        }
    }

    /// Does so many things, waits for what is open, and leaves; returns its sessions.
    pub(super) async fn act(mut self, actions: u64) -> Vec<Arc<Session>> {
        let mut visit = self.arrive().await;
        for _ in 0..actions {
            self.world.step();
            self.read_for(&mut visit).await;
            match self.dice.below(100) {
                0..62 => self.call(&mut visit).await,
                62..76 => self.cancel(&mut visit),
                76..84 => self.ask(&mut visit, "tools/list", json!({}), None).await,
                84..88 => self.repeat_an_id(&mut visit).await,
                // It does not read for a while.
                88..94 => tokio::time::sleep(millis(self.dice.below(12_000))).await,
                94..99 => {
                    self.ask(&mut visit, "tools/call", json!({ "name": "nobody's", "arguments": {} }), None)
                        .await
                }
                _ => {
                    self.leave(visit);
                    visit = self.arrive().await;
                }
            }
        }
        while !visit.open.is_empty() {
            let Some(line) = visit.inbox.recv().await else { break };
            self.hear(&mut visit, &line.deliver());
        }
        self.leave(visit);
        self.sessions
    }

    async fn arrive(&mut self) -> Visit {
        let session = match self.kind {
            ClientKind::Request => self
                .gateway
                .open_inferred_session("client", &format!("{} {}", self.name, self.sessions.len())),
            _ => self.gateway.open_session("client"),
        };
        let (outbox, heard, inbox) = stream();
        if self.kind != ClientKind::Request {
            session.attach(outbox.clone());
        }
        self.sessions.push(session.clone());
        let mut visit = Visit {
            session,
            outbox,
            heard,
            inbox,
            next_id: 1,
            open: HashMap::new(),
            called_off: HashMap::new(),
            over: HashMap::new(),
        };
        if self.kind == ClientKind::Legacy {
            let info = json!({ "name": self.name, "version": "1" });
            let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} }, "clientInfo": info });
            self.ask(&mut visit, "initialize", hello, None).await;
            while !visit.open.is_empty() {
                let Some(line) = visit.inbox.recv().await else { break };
                self.hear(&mut visit, &line.deliver());
            }
        }
        visit
    }

    fn leave(&mut self, visit: Visit) {
        for open in visit.open.into_values() {
            if let Some(nonce) = open.nonce {
                self.world.ended(&nonce, "left");
            }
            if let Some(answering) = open.answering {
                answering.abort();
            }
        }
        self.gateway.close_session(&visit.session.id, "the client left");
    }

    /// Takes what comes, for a moment.
    async fn read_for(&mut self, visit: &mut Visit) {
        let until = tokio::time::Instant::now() + millis(self.dice.below(300));
        while let Ok(Some(line)) = tokio::time::timeout_at(until, visit.inbox.recv()).await {
            self.hear(visit, &line.deliver());
        }
    }

    async fn call(&mut self, visit: &mut Visit) {
        let nature = Nature::ALL[usize::try_from(self.dice.below(4)).expect("a small number")];
        self.calls += 1;
        let nonce = format!("{}-{}", self.name, self.calls);
        let asks = self.kind == ClientKind::Legacy && matches!(nature, Nature::Legacy | Nature::Steady);
        let mut params = json!({ "name": nature.tool(), "arguments": { "nonce": nonce, "asks": asks } });
        if self.dice.percent(40) {
            // The same tokens as everybody's.
            params["_meta"]["progressToken"] = json!(visit.next_id);
        }
        self.world.opened(&nonce);
        self.ask(visit, "tools/call", params, Some(nonce)).await;
    }

    async fn ask(&mut self, visit: &mut Visit, method: &str, params: Value, nonce: Option<String>) {
        let id = visit.next_id;
        visit.next_id += 1;
        visit.open.insert(id, Open { nonce, refusals: 0, answering: None });
        self.send(visit, id, method, params).await;
    }

    /// Sends a request; what comes of it is read later.
    async fn send(&mut self, visit: &mut Visit, id: u64, method: &str, mut params: Value) {
        if self.kind != ClientKind::Legacy {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
            meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": self.name, "version": "1" });
        }
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string();
        count(&mut self.world.log().clients_said, &line);
        match self.gateway.accept(&visit.session, &line, &visit.outbox) {
            Accepted::Request(request) => {
                let (gateway, kind) = (self.gateway.clone(), self.kind);
                let (outbox, heard) = (visit.outbox.clone(), visit.heard.clone());
                let answering = tokio::spawn(async move {
                    if kind == ClientKind::Request {
                        if let Some(line) = gateway.answer(request).await {
                            let _ = heard.send(Outgoing::unrecorded(line)).await;
                        }
                    } else {
                        gateway.answer_on(request, &outbox).await;
                    }
                });
                if let Some(open) = visit.open.get_mut(&id) {
                    open.answering = (kind == ClientKind::Request).then(|| answering.abort_handle());
                }
            }
            Accepted::Refused(line) | Accepted::Full(line) => {
                // As a front does it, with room made where there is none.
                while visit.outbox.capacity() == 0 {
                    let Some(line) = visit.inbox.recv().await else { return };
                    self.hear(visit, &line.deliver());
                }
                visit.session.refuse(&visit.outbox, line).await;
            }
            Accepted::NoReply => {
                self.world.violation(format!("a request was taken for something else: {line}"))
            }
        }
    }

    fn pick(&mut self, visit: &Visit) -> Option<u64> {
        let mut ids: Vec<u64> =
            visit.open.iter().filter(|(_, open)| open.nonce.is_some()).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        let at = self.dice.below(ids.len().max(1) as u64);
        ids.get(usize::try_from(at).expect("a small number")).copied()
    }

    fn cancel(&mut self, visit: &mut Visit) {
        let Some(id) = self.pick(visit) else { return };
        let open = visit.open.get(&id).expect("it was just found");
        if open.refusals > 0 {
            return;
        }
        let open = visit.open.remove(&id).expect("it was just found");
        let nonce = open.nonce.expect("it is a call");
        self.world.ended(&nonce, "called off");
        visit.called_off.insert(id, nonce);
        if let Some(answering) = open.answering {
            answering.abort();
            return;
        }
        let line =
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } })
                .to_string();
        count(&mut self.world.log().clients_said, &line);
        let accepted = self.gateway.accept(&visit.session, &line, &visit.outbox);
        self.world.check(matches!(accepted, Accepted::NoReply), || "a cancellation is no request".to_owned());
    }

    /// Uses an id that is in use; where clients are only inferred, that may be another client's.
    async fn repeat_an_id(&mut self, visit: &mut Visit) {
        if self.kind == ClientKind::Request {
            return;
        }
        let Some(id) = self.pick(visit) else { return };
        if let Some(open) = visit.open.get_mut(&id) {
            open.refusals += 1;
        }
        self.send(visit, id, "tools/list", json!({})).await;
    }

    fn hear(&mut self, visit: &mut Visit, line: &str) {
        self.world.step();
        count(&mut self.world.log().clients_heard, line);
        self.world.check(!line.contains(POISON), || format!("{} heard what is nobody's: {line}", self.name));
        let message: Value = serde_json::from_str(line).expect("the gateway says JSON");
        match (message["method"].as_str(), message.get("id")) {
            (None, Some(id)) => self.hear_answer(visit, id.as_u64(), &message),
            (Some("notifications/progress"), None) => self.hear_progress(visit, &message["params"]),
            (Some("elicitation/create"), Some(id)) => self.hear_question(visit, id, &message["params"]),
            (Some("notifications/tools/list_changed" | "notifications/message"), None) => {}
            _ => self.world.violation(format!("{} heard {line}", self.name)),
        }
    }

    fn hear_answer(&mut self, visit: &mut Visit, id: Option<u64>, message: &Value) {
        let Some(id) = id else {
            self.world.violation(format!("{} heard an answer without its id: {message}", self.name));
            return;
        };
        if message["error"]["message"].as_str().is_some_and(|why| why.contains("with this id is under way")) {
            let due = visit.open.get_mut(&id).filter(|open| open.refusals > 0);
            match due {
                Some(open) => open.refusals -= 1,
                None => self.world.violation(format!("{} was refused for nothing: {message}", self.name)),
            }
            return;
        }
        if visit.called_off.remove(&id).is_some() {
            return;
        }
        let Some(open) = visit.open.remove(&id) else {
            // It was answered before, or never asked.
            self.world.violation(format!("{} heard an answer to nothing: {message}", self.name));
            return;
        };
        let Some(nonce) = open.nonce else { return };
        let text = message["result"]["content"][0]["text"].as_str();
        match text {
            Some(text) => {
                self.world.check(text == nonce, || format!("{nonce} was answered with {text}"));
                self.world.ended(&nonce, "answered");
            }
            None => {
                let why = message["error"]["message"].as_str().unwrap_or_default();
                // An error that a server gave says whose call it was.
                let foreign = why.starts_with('c') && why.contains('-') && !why.contains(' ') && why != nonce;
                self.world
                    .check(message["error"].is_object() && !foreign, || format!("{nonce} got {message}"));
                self.world.ended(&nonce, "failed");
            }
        }
        visit.over.insert(id, nonce);
    }

    fn hear_progress(&mut self, visit: &mut Visit, params: &Value) {
        let nonce = params["message"].as_str().unwrap_or_default();
        let id = params["progressToken"].as_u64().unwrap_or_default();
        let open = visit.open.get(&id).and_then(|open| open.nonce.as_deref());
        let over = || visit.called_off.get(&id).or_else(|| visit.over.get(&id)).map(String::as_str);
        let known = open.or_else(over);
        self.world.check(known == Some(nonce), || {
            format!("{} heard progress of {nonce} as that of {known:?}", self.name)
        });
    }

    /// Answers a question of a server; sometimes not at all.
    fn hear_question(&mut self, visit: &mut Visit, id: &Value, params: &Value) {
        let about = params["message"].as_str().unwrap_or_default();
        let is_mine = about.split('-').next() == Some(&self.name);
        self.world.check(is_mine, || format!("{} was asked about {about}", self.name));
        if self.dice.percent(20) {
            return;
        }
        let content = json!({ "client": self.name });
        let line =
            json!({ "jsonrpc": "2.0", "id": id, "result": { "action": "accept", "content": content } })
                .to_string();
        count(&mut self.world.log().clients_said, &line);
        self.gateway.accept(&visit.session, &line, &visit.outbox);
    }
}

/// Makes the stream of a client: what the gateway says to it, what is said in the gateway's place, and what it hears.
fn stream() -> (Outbox, mpsc::Sender<Outgoing>, mpsc::Receiver<Outgoing>) {
    let (outbox, inbox) = mpsc::channel(32);
    (outbox.clone(), outbox, inbox)
}
