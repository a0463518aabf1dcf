//! Helps unit tests of the gateway: recordings in a temporary directory, a gateway with scripted backends, requests of
//! its clients, and what is on the tapes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use scrubjay_core::entry::{Direction, EntryKind, Transport};
use scrubjay_core::envelope::Era;
use scrubjay_core::message::Parts;
use scrubjay_core::redact::Redactor;
use scrubjay_tape::format::header::Origin;
use scrubjay_tape::home::Home;
use scrubjay_tape::recording::{Recording, RotationLimits, Subject};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::mpsc;

use super::{Accepted, Gateway, NewRecording, NewTape, Request};
use crate::backend::{Backend, Streams};
use crate::config::Naming;
use crate::delivery::Outgoing;
use crate::relay::Options;
use crate::session::{ClientFacts, Outbox, Session, lock};

/// Makes recordings in a directory.
pub(crate) fn recordings(data: &std::path::Path) -> NewRecording {
    let home = Home::new(data.to_owned());
    let redactor = Arc::new(Redactor::standard());
    Box::new(move |tape| {
        let subject = Subject {
            name: tape.name.to_owned(),
            kind: tape.kind,
            gateway: None,
            transport: Transport::Stdio,
            program: None,
            workspace: None,
            origin: Origin::default(),
            session: None,
            conversation: None,
        };
        Recording::new(home.clone(), subject, RotationLimits::default(), redactor.clone())
    })
}

/// What a scripted backend answers to a method with parameters; `None` for "no such method".
pub(crate) type Script = fn(&str, &Value) -> Option<Value>;

/// A backend that a script plays.
#[derive(Clone, Copy)]
pub(crate) struct ScriptedBackend {
    id: &'static str,
    script: Script,
    /// The eras whose greeting it answers.
    eras: &'static [Era],
    capabilities: &'static [&'static str],
    instructions: Option<&'static str>,
    /// Whether one legacy connection serves all clients.
    is_shared: bool,
    /// Whether it is a toolset of this process.
    is_own: bool,
}

impl ScriptedBackend {
    /// A backend of the legacy era, with a connection for each client.
    pub(crate) fn new(id: &'static str, script: Script) -> Self {
        Self {
            id,
            script,
            eras: &[Era::Legacy],
            capabilities: &["tools", "resources"],
            instructions: None,
            is_shared: false,
            is_own: false,
        }
    }

    pub(crate) fn in_eras(self, eras: &'static [Era]) -> Self {
        Self { eras, ..self }
    }

    pub(crate) fn with_capabilities(self, capabilities: &'static [&'static str]) -> Self {
        Self { capabilities, ..self }
    }

    pub(crate) fn with_instructions(self, instructions: &'static str) -> Self {
        Self { instructions: Some(instructions), ..self }
    }

    /// Lets one legacy connection serve all clients.
    pub(crate) fn shared(self) -> Self {
        Self { is_shared: true, ..self }
    }

    /// Makes it a toolset of this process.
    pub(crate) fn own_toolset(self) -> Self {
        Self { is_own: true, ..self }
    }

    fn greeting(&self, era: Era) -> Option<Value> {
        if !self.eras.contains(&era) {
            return None;
        }
        let capabilities: Value =
            self.capabilities.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
        let mut greeting = match era {
            Era::Legacy => json!({
                "protocolVersion": "2025-11-25", "serverInfo": { "name": self.id, "version": "1" },
            }),
            Era::Modern => json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"] }),
        };
        greeting["capabilities"] = capabilities;
        if let Some(instructions) = self.instructions {
            greeting["instructions"] = json!(instructions);
        }
        Some(greeting)
    }

    async fn converse(self, stream: DuplexStream, received: ReceivedLines) {
        let (reader, mut writer) = tokio::io::split(stream);
        let mut lines = BufReader::new(reader).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let asked: Value = serde_json::from_str(&line).expect("the gateway writes whole lines");
            lock(&received).push((self.id, line));
            let (Some(number), Some(method)) = (asked.get("id"), asked["method"].as_str()) else { continue };
            let result = match method {
                "initialize" => self.greeting(Era::Legacy),
                "server/discover" => self.greeting(Era::Modern),
                _ => (self.script)(method, &asked["params"]),
            };
            let answer = match result {
                Some(result) => json!({ "jsonrpc": "2.0", "id": number, "result": result }),
                None => {
                    let error = json!({ "code": -32601, "message": "no such method" });
                    json!({ "jsonrpc": "2.0", "id": number, "error": error })
                }
            };
            if writer.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

/// The lines that backends received, each with the id of its backend.
type ReceivedLines = Arc<Mutex<Vec<(&'static str, String)>>>;

/// An entry of a tape.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TapeEntry {
    pub(crate) kind: EntryKind,
    pub(crate) direction: Direction,
    /// The backend, for a message between the gateway and a backend.
    pub(crate) via: Option<String>,
    pub(crate) text: String,
}

/// A client with a standing stream.
pub(crate) struct Client {
    pub(crate) session: Arc<Session>,
    pub(crate) outbox: Outbox,
    pub(crate) lines: mpsc::Receiver<Outgoing>,
}

impl Client {
    /// Returns the lines that are on its stream by now.
    pub(crate) fn received(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.lines.try_recv().ok()).map(Outgoing::deliver).collect()
    }
}

/// A gateway before scripted backends.
pub(crate) struct Stage {
    pub(crate) gateway: Arc<Gateway>,
    outbox: Outbox,
    next_id: AtomicUsize,
    received: ReceivedLines,
    data: tempfile::TempDir,
}

impl Stage {
    /// Puts backends of the legacy era behind it, each with a connection for each client.
    pub(crate) fn new(backends: &[(&'static str, Script)]) -> Self {
        let backends: Vec<_> =
            backends.iter().map(|(id, script)| ScriptedBackend::new(id, *script)).collect();
        Self::with(&backends)
    }

    pub(crate) fn with(scripted: &[ScriptedBackend]) -> Self {
        let data = tempfile::tempdir().expect("there is a temporary directory");
        let recordings = recordings(data.path());
        let received = ReceivedLines::default();
        let gateway =
            Gateway::new(Naming::WhereNeeded, recordings, Options::default(), None, |events, tape| {
                let backend = |&scripted: &ScriptedBackend| {
                    let received = received.clone();
                    let mount = Arc::new(move || {
                        let (ours, theirs) = tokio::io::duplex(64 * 1024);
                        tokio::spawn(scripted.converse(theirs, received.clone()));
                        let (reader, writer) = tokio::io::split(ours);
                        let streams: Streams = (Box::new(reader), Box::new(writer));
                        streams
                    });
                    let id = scripted.id;
                    let mut backend =
                        Backend::mounted(id, mount, tape(NewTape::of_backend(id)), events.clone());
                    if !scripted.is_shared && !scripted.is_own {
                        backend = backend.outside();
                    }
                    backend.is_own = scripted.is_own;
                    backend
                };
                scripted.iter().map(backend).collect()
            });
        let (outbox, mut lines) = mpsc::channel(64);
        tokio::spawn(async move { while lines.recv().await.is_some() {} });
        Self { gateway, outbox, next_id: AtomicUsize::new(1), received, data }
    }

    /// Opens a legacy client with these capabilities and a standing stream.
    pub(crate) fn client(&self, name: &str, capabilities: &Value) -> Client {
        let session = self.gateway.open_session(name);
        let facts = ClientFacts { capabilities: capabilities.to_string(), ..ClientFacts::default() };
        session.set_facts(facts).expect("there is room");
        let (outbox, lines) = mpsc::channel(64);
        session.attach(outbox.clone());
        Client { session, outbox, lines }
    }

    /// Accepts a line of a client.
    pub(crate) fn accept(&self, session: &Arc<Session>, line: &str) -> Accepted {
        self.gateway.accept(session, line, &self.outbox)
    }

    /// Accepts a request with these parameters as they are.
    pub(crate) fn request(&self, session: &Arc<Session>, method: &str, params: &str) -> Box<Request> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        match self.accept(session, &line) {
            Accepted::Request(request) => request,
            Accepted::Refused(why) | Accepted::Full(why) => panic!("a request is accepted: {why}"),
            Accepted::NoReply => panic!("a request is no notification"),
        }
    }

    /// Accepts a legacy client's request.
    pub(crate) fn legacy(&self, session: &Arc<Session>, method: &str, params: &Value) -> Box<Request> {
        self.request(session, method, &params.to_string())
    }

    /// Accepts a modern client's request.
    pub(crate) fn modern(&self, session: &Arc<Session>, method: &str, params: &Value) -> Box<Request> {
        let mut params = params.clone();
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": {} });
        self.legacy(session, method, &params)
    }

    /// Answers a request.
    pub(crate) async fn answer(&self, request: Box<Request>) -> Value {
        let line = self.gateway.answer(request).await.expect("nobody calls it off");
        serde_json::from_str(&line).expect("an answer is JSON")
    }

    /// Returns the parameters of each message with this method that a backend received, as they came.
    pub(crate) fn params_received(&self, backend: &str, method: &str) -> Vec<String> {
        let received = lock(&self.received);
        let lines = received.iter().filter(|(id, _)| *id == backend).map(|(_, line)| line);
        let messages = lines.map(|line| Parts::of(line).expect("the gateway writes messages"));
        let named = messages.filter(|message| message.method.as_deref() == Some(method));
        named.map(|message| message.params.map_or("", RawValue::get).to_owned()).collect()
    }

    /// Returns the entries of the tapes with this name.
    pub(crate) fn tape(&self, name: &str) -> Vec<TapeEntry> {
        let home = Home::new(self.data.path().to_owned());
        let mut found = Vec::new();
        for file in home.list().unwrap_or_default() {
            let tape = home.open(&file).expect("a tape opens");
            if tape.header().is_none_or(|header| header.name != name) {
                continue;
            }
            let mut entries = tape.entries().expect("a tape can be read");
            while let Some((_, entry)) = entries.next().expect("an entry can be read") {
                found.push(TapeEntry {
                    kind: entry.kind,
                    direction: entry.direction,
                    via: entry.via.map(str::to_owned),
                    text: String::from_utf8_lossy(entry.payload).into_owned(),
                });
            }
        }
        found
    }

    /// Returns the messages between a client and the gateway that are on the client's tape.
    pub(crate) fn taped(&self, name: &str, direction: Direction) -> Vec<String> {
        let is_wanted = |entry: &TapeEntry| {
            entry.kind == EntryKind::Message && entry.via.is_none() && entry.direction == direction
        };
        self.tape(name).into_iter().filter(is_wanted).map(|entry| entry.text).collect()
    }

    /// Returns the notes on the tapes with this name.
    pub(crate) fn notes(&self, name: &str) -> Vec<Value> {
        let notes = self.tape(name).into_iter().filter(|entry| entry.kind == EntryKind::Note);
        notes.map(|note| serde_json::from_str(&note.text).expect("a note is JSON")).collect()
    }
}
