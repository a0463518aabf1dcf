//! Helps unit tests of the gateway: recordings in a temporary directory, a gateway with scripted backends, and requests
//! of its clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use scrubjay_core::entry::Transport;
use scrubjay_core::redact::Redactor;
use scrubjay_tape::format::header::Origin;
use scrubjay_tape::home::Home;
use scrubjay_tape::recording::{Recording, RotationLimits, Subject};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::mpsc;

use super::{Accepted, Gateway, NewRecording, NewTape, Request};
use crate::backend::{Backend, Streams};
use crate::config::Naming;
use crate::relay::Options;
use crate::session::{Outbox, Session};

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

async fn converse(stream: DuplexStream, id: &'static str, script: Script) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let asked: Value = serde_json::from_str(&line).expect("the gateway writes whole lines");
        let (Some(number), Some(method)) = (asked.get("id"), asked["method"].as_str()) else { continue };
        let result = match method {
            "initialize" => Some(json!({
                "protocolVersion": "2025-11-25", "capabilities": { "tools": {}, "resources": {} },
                "serverInfo": { "name": id, "version": "1" },
            })),
            _ => script(method, &asked["params"]),
        };
        let answer = match result {
            Some(result) => json!({ "jsonrpc": "2.0", "id": number, "result": result }),
            None => {
                json!({ "jsonrpc": "2.0", "id": number, "error": { "code": -32601, "message": "no such method" } })
            }
        };
        if writer.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

/// A gateway before scripted backends of the legacy era.
pub(crate) struct Stage {
    pub(crate) gateway: Arc<Gateway>,
    outbox: Outbox,
    next_id: AtomicUsize,
    _data: tempfile::TempDir,
}

impl Stage {
    pub(crate) fn new(backends: &[(&'static str, Script)]) -> Self {
        let data = tempfile::tempdir().expect("there is a temporary directory");
        let recordings = recordings(data.path());
        let gateway =
            Gateway::new(Naming::WhereNeeded, recordings, Options::default(), None, |events, tape| {
                let backend = |&(id, script): &(&'static str, Script)| {
                    let mount = Arc::new(move || {
                        let (ours, theirs) = tokio::io::duplex(64 * 1024);
                        tokio::spawn(converse(theirs, id, script));
                        let (reader, writer) = tokio::io::split(ours);
                        let streams: Streams = (Box::new(reader), Box::new(writer));
                        streams
                    });
                    Backend::mounted(id, mount, tape(NewTape::of_backend(id)), events.clone()).outside()
                };
                backends.iter().map(backend).collect()
            });
        let (outbox, mut lines) = mpsc::channel(64);
        tokio::spawn(async move { while lines.recv().await.is_some() {} });
        Self { gateway, outbox, next_id: AtomicUsize::new(1), _data: data }
    }

    /// Accepts a legacy client's request.
    pub(crate) fn legacy(&self, session: &Arc<Session>, method: &str, params: &Value) -> Box<Request> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string();
        match self.gateway.accept(session, &line, &self.outbox) {
            Accepted::Request(request) => request,
            Accepted::Refused(why) | Accepted::Full(why) => panic!("a request is accepted: {why}"),
            Accepted::NoReply => panic!("a request is no notification"),
        }
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
}
