//! Clients of the records toolset, each with a ledger of its own, as processes have.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use scrubjay_store::ledger::Storage;
use scrubjay_tools::{Setup, Shared, serve_records};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

use crate::schemas::Answers;

const DUPLEX_BYTES: usize = 64 * 1024;
/// Long enough for a busy machine; a missing answer fails.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Small, so that tests reach it.
pub(super) const STALE_AFTER: i64 = 5;

/// A data directory.
pub(super) struct TestData {
    home: TempDir,
}

impl TestData {
    pub(super) fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    pub(super) fn path(&self) -> &Path {
        self.home.path()
    }

    /// Connects a client with this key, in the project "birds".
    pub(super) async fn peer(&self, key: &str) -> Peer {
        let setup = Setup {
            llm: None,
            redactor: std::sync::Arc::new(scrubjay_core::redact::Redactor::standard()),
            storage: Storage::File(self.path().join("data/ledger.db")),
            project: "birds".to_owned(),
            workspace: self.path().to_owned(),
            allow_vcs: false,
            file_bytes_max: 1024,
            home: scrubjay_tape::home::Home::new(self.path().join("data")),
            locks: self.path().join("locks"),
            stale_after_ticks: STALE_AFTER,
        };
        let (near, far) = tokio::io::duplex(DUPLEX_BYTES);
        let (reader, writer) = tokio::io::split(near);
        let (server_reader, server_writer) = tokio::io::split(far);
        tokio::spawn(serve_records(Arc::new(Shared::new(setup)), server_reader, server_writer));
        let lines = BufReader::new(reader).lines();
        let mut peer = Peer { lines, writer, key: key.to_owned(), last_id: 0, answers: Answers::default() };
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "t", "version": "1" } });
        let answer = peer.ask("initialize", hello).await;
        assert_eq!(answer["result"]["serverInfo"]["name"], "scrubjay-records");
        peer.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        peer.answers = Answers::of(&peer.ask("tools/list", json!({})).await);
        peer
    }
}

/// A client.
pub(super) struct Peer {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    key: String,
    last_id: u64,
    answers: Answers,
}

impl Peer {
    async fn send(&mut self, message: Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    pub(super) async fn ask(&mut self, method: &str, mut params: Value) -> Value {
        self.last_id += 1;
        params["_meta"]["scrubjay/caller"] = json!({ "session": self.key, "toldBy": "connection",
            "client": { "name": "t", "version": "1" } });
        let id = self.last_id;
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        let line = tokio::time::timeout(ANSWER_TIMEOUT, self.lines.next_line()).await.expect("no answer");
        let answer: Value =
            serde_json::from_str(&line.unwrap().expect("the server closed the connection")).unwrap();
        assert_eq!(answer["id"], id);
        answer
    }

    async fn result(&mut self, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        let answer = self.ask("tools/call", params.clone()).await;
        self.answers.check(&params, &answer);
        assert!(answer["error"].is_null(), "{tool}: {answer}");
        answer["result"].clone()
    }

    /// Calls a tool that must succeed, and returns its data.
    pub(super) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.result(tool, arguments).await;
        assert_ne!(result["isError"], true, "{tool}: {result}");
        assert!(!result["content"][0]["text"].as_str().unwrap().is_empty());
        result["structuredContent"].clone()
    }

    /// Calls a tool that must succeed, and returns its text.
    pub(super) async fn text(&mut self, tool: &str, arguments: Value) -> String {
        self.result(tool, arguments).await["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Calls a tool that must fail, and returns the error.
    pub(super) async fn fail(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.result(tool, arguments).await;
        assert_eq!(result["isError"], true, "{tool}: {result}");
        result["structuredContent"]["error"].clone()
    }

    /// Creates a record with short texts; returns its id.
    pub(super) async fn create(&mut self, parent: Option<&str>, title: &str) -> String {
        let arguments = json!({ "parent_id": parent, "type": "question", "title": title,
            "summary": format!("About {title}."), "body": format!("All about {title}.") });
        self.call("create_record", arguments).await["record"]["id"].as_str().unwrap().to_owned()
    }

    /// Returns the project's tick.
    pub(super) async fn tick(&mut self) -> i64 {
        self.call("get_project", json!({})).await["tick"].as_i64().unwrap()
    }
}

/// Removes what differs from run to run, and checks that it was there.
pub(super) fn without(mut value: Value, keys: &[&str]) -> Value {
    for key in keys {
        let removed = value.as_object_mut().unwrap().remove(*key);
        assert!(removed.is_some_and(|v| !v.is_null()), "{key} is missing in {value}");
    }
    value
}
