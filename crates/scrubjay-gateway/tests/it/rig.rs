//! A gateway with its tapes in a directory of its own, and clients that talk to it without a front.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use scrubjay_core::entry::{Entry, Transport};
use scrubjay_gateway::backend::{Backend, Event, Mount};
use scrubjay_gateway::config::{BackendConfig, BackendLink, InheritEnv, Naming};
use scrubjay_gateway::delivery::Outgoing;
use scrubjay_gateway::gateway::{Accepted, Gateway, NewRecording, NewTape};
use scrubjay_gateway::relay::Options;
use scrubjay_gateway::session::{Outbox, Session};
use scrubjay_tape::format::header::Origin;
use scrubjay_tape::home::Home;
use scrubjay_tape::recording::{Recording, RotationLimits, Subject};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// How long a test waits for anything: long enough for a busy machine, so that a test fails only if something hangs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A gateway and the directory of its tapes.
pub(crate) struct Rig {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) data: tempfile::TempDir,
}

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the crate is in its repository")
}

/// Describes a program as a backend.
pub(crate) fn program(id: &str, command: &str, args: &[&str], call_timeout: Duration) -> BackendConfig {
    BackendConfig {
        id: id.to_owned(),
        display_name: None,
        link: BackendLink::Stdio {
            command: command.to_owned(),
            args: args.iter().map(ToString::to_string).collect(),
            env: Default::default(),
            inherit_env: InheritEnv::Basic,
        },
        call_timeout,
        is_shared: false,
        connections_max: BackendConfig::CONNECTIONS_MAX,
    }
}

/// Describes an HTTP server as a backend, one connection to which serves all clients.
pub(crate) fn remote(id: &str, url: &str, call_timeout: Duration) -> BackendConfig {
    BackendConfig {
        link: BackendLink::Http { url: url.to_owned(), headers: Default::default(), sse: false },
        is_shared: true,
        ..program(id, "", &[], call_timeout)
    }
}

impl Rig {
    pub(crate) fn new(programs: &[BackendConfig], mounted: Vec<(&str, Mount)>) -> Self {
        Self::with(|events, recording| {
            let tape = |id: &str| recording(NewTape::of_backend(&format!("backend {id}")));
            let programs = programs.iter().map(|p| Backend::new(p, None, tape(&p.id), events.clone()));
            let mounted =
                mounted.into_iter().map(|(id, mount)| Backend::mounted(id, mount, tape(id), events.clone()));
            programs.chain(mounted).collect()
        })
    }

    /// Makes a gateway with these backends.
    pub(crate) fn with(backends: impl FnOnce(&mpsc::Sender<Event>, &NewRecording) -> Vec<Backend>) -> Self {
        let (data, new_recording) = temporary_tapes();
        let record_options = Options::default();
        let gateway = Gateway::new(Naming::WhereNeeded, new_recording, record_options, None, backends);
        Self { gateway, data }
    }

    /// Makes a transparent gateway: it passes the messages of one server on without changes.
    pub(crate) fn transparent(server: BackendConfig) -> Self {
        let (data, new_recording) = temporary_tapes();
        let gateway = Gateway::transparent(server, None, Options::default(), new_recording);
        Self { gateway, data }
    }

    pub(crate) fn home(&self) -> Home {
        Home::new(self.data.path().to_owned())
    }

    /// Returns the payloads of all entries of the tapes whose name starts with `name_prefix`, each with a line break.
    pub(crate) fn payloads(&self, name_prefix: &str) -> Vec<u8> {
        let mut payloads = Vec::new();
        self.each_entry(name_prefix, |entry| {
            payloads.extend_from_slice(entry.payload);
            payloads.push(b'\n');
        });
        payloads
    }

    /// Calls `visit` with each entry of the tapes whose name starts with `name_prefix`.
    pub(crate) fn each_entry(&self, name_prefix: &str, mut visit: impl FnMut(&Entry<'_>)) {
        let home = self.home();
        for file in home.list().expect("the tapes can be listed") {
            let tape = home.open(&file).expect("a tape opens");
            if tape.header().is_some_and(|header| header.name.starts_with(name_prefix)) {
                let mut entries = tape.entries().expect("a tape can be read");
                while let Some((_, entry)) = entries.next().expect("an entry can be read") {
                    visit(&entry);
                }
            }
        }
    }
}

/// Makes a directory for tapes and the function that starts recordings in it.
fn temporary_tapes() -> (tempfile::TempDir, NewRecording) {
    let data = tempfile::tempdir().expect("a temporary directory can be made");
    let home = Home::new(data.path().to_owned());
    home.create().expect("the temporary directory is ours");
    let redactor = Arc::new(scrubjay_core::redact::Redactor::standard());
    let new_recording: NewRecording = Box::new(move |tape| {
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
        Recording::new(home.clone(), subject, RotationLimits::default(), Arc::clone(&redactor))
    });
    (data, new_recording)
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.gateway.shut_down("the test is over");
    }
}

/// Makes an outbox and a receiver of the lines sent to it. The lines count as delivered.
fn stream() -> (Outbox, mpsc::Receiver<String>) {
    let (outbox, mut lines) = mpsc::channel::<Outgoing>(64);
    let (delivered, received) = mpsc::channel(64);
    tokio::spawn(async move {
        while let Some(line) = lines.recv().await {
            // Also delivered if the test has dropped the receiver.
            let _ = delivered.send(line.deliver()).await;
        }
    });
    (outbox, received)
}

/// A client that calls the gateway directly, without a front.
#[derive(Clone)]
pub(crate) struct Client {
    gateway: Arc<Gateway>,
    session: Arc<Session>,
    outbox: Outbox,
    is_modern: bool,
    /// The capabilities that a modern client sends with each request.
    capabilities: Value,
}

impl Client {
    /// Opens a session and initializes it. The client has no stream for messages that belong to no request.
    pub(crate) async fn legacy(gateway: &Arc<Gateway>) -> Self {
        Self::legacy_with_capabilities(gateway, json!({})).await
    }

    /// Like [`Self::legacy`], with capabilities.
    pub(crate) async fn legacy_with_capabilities(gateway: &Arc<Gateway>, capabilities: Value) -> Self {
        let session = gateway.open_session("client");
        let (outbox, _) = stream();
        let client = Self::new(gateway, session, outbox, false);
        client.initialize("test", capabilities).await;
        client
    }

    /// Opens a session, and returns everything that the gateway sends besides answers, so that the test can reply.
    pub(crate) async fn legacy_with_stream(
        gateway: &Arc<Gateway>,
        name: &str,
        capabilities: Value,
    ) -> (Self, mpsc::Receiver<String>) {
        let session = gateway.open_session("client");
        let (outbox, lines) = stream();
        session.attach(outbox.clone());
        let client = Self::new(gateway, session, outbox, false);
        client.initialize(name, capabilities).await;
        (client, lines)
    }

    fn new(gateway: &Arc<Gateway>, session: Arc<Session>, outbox: Outbox, is_modern: bool) -> Self {
        Self { gateway: gateway.clone(), session, outbox, is_modern, capabilities: json!({}) }
    }

    async fn initialize(&self, name: &str, capabilities: Value) {
        let info = json!({ "name": name, "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info });
        let answer = self.request(0, "initialize", params).await;
        assert!(answer["result"].is_object(), "{answer}");
    }

    /// Sets the capabilities that a modern client sends with each request.
    pub(crate) fn with_capabilities(self, capabilities: Value) -> Self {
        Self { capabilities, ..self }
    }

    /// Sends a message that gets no answer: a notification, or the answer to a request of the gateway.
    pub(crate) fn send(&self, message: &Value) {
        let accepted = self.gateway.accept(&self.session, &message.to_string(), &self.outbox);
        assert!(matches!(accepted, Accepted::NoReply), "{message}");
    }

    pub(crate) fn close_session(&self) {
        assert!(self.gateway.close_session(&self.session.id, "the client left"));
    }

    /// Like [`Self::legacy`], but nothing reads the stream of the client's requests, so that it fills up.
    pub(crate) async fn not_reading(gateway: &Arc<Gateway>) -> (Self, mpsc::Receiver<Outgoing>) {
        let mut client = Self::legacy(gateway).await;
        let (outbox, unread) = mpsc::channel(8);
        client.outbox = outbox;
        (client, unread)
    }

    /// Attaches a stream to the session, and returns what comes on it: all messages that are not answers.
    pub(crate) fn attach(&mut self) -> mpsc::Receiver<String> {
        let (outbox, lines) = stream();
        self.session.attach(outbox.clone());
        self.outbox = outbox;
        lines
    }

    /// Starts a call and stops waiting for its answer at once.
    pub(crate) async fn abandon_call(&self, id: u64, tool: &str, arguments: Value) {
        let line = self.request_line(id, "tools/call", json!({ "name": tool, "arguments": arguments }));
        let Accepted::Request(request) = self.gateway.accept(&self.session, &line, &self.outbox) else {
            panic!("the gateway did not accept the call");
        };
        let answer = self.gateway.answer(request);
        assert!(
            tokio::time::timeout(Duration::from_millis(1), answer).await.is_err(),
            "the call was answered at once"
        );
    }

    /// Calls a tool and waits until the call is over. There is no answer if the session ends first.
    pub(crate) async fn call_ignoring_answer(&self, id: u64, tool: &str) {
        let line = self.request_line(id, "tools/call", json!({ "name": tool, "arguments": {} }));
        if let Accepted::Request(request) = self.gateway.accept(&self.session, &line, &self.outbox) {
            self.gateway.answer(request).await;
        }
    }

    /// Makes a client that may share its session with others.
    pub(crate) fn modern(gateway: &Arc<Gateway>, session: Arc<Session>) -> Self {
        Self::new(gateway, session, stream().0, true)
    }

    pub(crate) async fn request(&self, id: u64, method: &str, params: Value) -> Value {
        self.raw_request(id, &self.request_line(id, method, params)).await
    }

    fn request_line(&self, id: u64, method: &str, mut params: Value) -> String {
        if self.is_modern {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
            meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "test", "version": "1" });
        }
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
    }

    /// Sends a request with exactly this text, and returns the text of its answer.
    pub(crate) async fn raw_answer(&self, line: &str) -> String {
        match self.gateway.accept(&self.session, line, &self.outbox) {
            Accepted::Request(request) => {
                let answer = tokio::time::timeout(DEADLINE, self.gateway.answer(request)).await;
                answer.expect("the request is answered in time").expect("the request is not cancelled")
            }
            Accepted::Refused(line) | Accepted::Full(line) => line,
            Accepted::NoReply => panic!("not a request: {line}"),
        }
    }

    /// Sends a request with exactly this text, and checks that the answer has its id.
    pub(crate) async fn raw_request(&self, id: u64, line: &str) -> Value {
        let line = self.raw_answer(line).await;
        let answer: Value = serde_json::from_str(&line).expect("an answer is JSON");
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub(crate) async fn call(&self, id: u64, tool: &str, arguments: Value) -> Value {
        self.request(id, "tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// Lists the tools until all expected ones are there: a backend that starts slowly is missing at first.
    pub(crate) async fn await_tools(&self, expected: &[&str]) {
        let deadline = tokio::time::Instant::now() + DEADLINE;
        loop {
            let listed = self.list_tools(1).await;
            if expected.iter().all(|tool| listed.iter().any(|l| l == tool)) {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "of {expected:?} some are missing: {listed:?}");
        }
    }

    pub(crate) async fn list_tools(&self, id: u64) -> Vec<String> {
        let listed = self.request(id, "tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().expect("a list of tools");
        tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    }
}

/// Returns the text of a tool's answer.
pub(crate) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"))
}

/// Returns the message of an error.
pub(crate) fn error_message(answer: &Value) -> &str {
    answer["error"]["message"].as_str().unwrap_or_else(|| panic!("no error: {answer}"))
}

/// Waits until a condition holds; `what` describes it.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "{what}: not within {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
