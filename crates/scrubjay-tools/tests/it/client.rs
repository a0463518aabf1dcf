//! A client that writes and reads raw JSON lines, so that tests see what is on the wire.
//!
//! Tests run on paused time: a wait costs nothing, and a missing answer fails at once.

use std::time::Duration;

use scrubjay_tools::{ServeError, serve_sample};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::schemas::Answers;

const DUPLEX_BYTES: usize = 64 * 1024;
/// Longer than the longest wait of the sample server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

/// The two ways to hold a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// 2025-11-25: `initialize` first.
    Legacy,
    /// 2026-07-28: every request carries its own context in `_meta`.
    Modern,
}

impl Era {
    pub(crate) const BOTH: [Self; 2] = [Self::Legacy, Self::Modern];
}

/// One connection to a sample server of its own.
pub(crate) struct Client {
    pub(crate) era: Era,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    server: JoinHandle<Result<(), ServeError>>,
    last_id: u64,
    answers: Option<Answers>,
}

impl Client {
    /// Connects without sending anything.
    pub(crate) fn connect(era: Era) -> Self {
        Self::connect_to(era, serve_sample)
    }

    /// Connects to any server of this crate.
    pub(crate) fn connect_to<F>(
        era: Era,
        serve: impl FnOnce(ReadHalf<DuplexStream>, WriteHalf<DuplexStream>) -> F,
    ) -> Self
    where
        F: Future<Output = Result<(), ServeError>> + Send + 'static,
    {
        let (near, far) = tokio::io::duplex(DUPLEX_BYTES);
        let (reader, writer) = tokio::io::split(near);
        let (server_reader, server_writer) = tokio::io::split(far);
        let server = tokio::spawn(serve(server_reader, server_writer));
        Self { era, lines: BufReader::new(reader).lines(), writer, server, last_id: 0, answers: None }
    }

    /// Connects and opens a conversation the way clients of that era do.
    pub(crate) async fn open(era: Era) -> Self {
        let mut client = Self::connect(era);
        client.greet().await;
        client
    }

    /// Opens the conversation.
    pub(crate) async fn greet(&mut self) {
        match self.era {
            Era::Legacy => {
                self.initialize("2025-11-25").await;
                self.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
            }
            Era::Modern => {
                self.ask("server/discover", json!({})).await;
            }
        }
    }

    /// Sends `initialize` and returns the answer.
    pub(crate) async fn initialize(&mut self, version: &str) -> Value {
        let params = json!({
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        });
        let id = self.request("initialize", params).await;
        self.answer_to(id).await
    }

    /// Sends one request and returns its answer, which must be the next message. What a tool answers must fit its
    /// schema.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        if method == "tools/call" && self.answers.is_none() {
            let id = self.send_request("tools/list", json!({})).await;
            self.answers = Some(Answers::of(&self.answer_to(id).await));
        }
        let id = self.send_request(method, params.clone()).await;
        let answer = self.answer_to(id).await;
        if let Some(answers) = self.answers.as_ref().filter(|_| method == "tools/call") {
            answers.check(&params, &answer);
        }
        answer
    }

    /// Calls a tool and returns the result.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let mut answer = self.ask("tools/call", json!({"name": tool, "arguments": arguments})).await;
        answer["result"].take()
    }

    /// Sends a request in the client's era and returns its id, without waiting.
    pub(crate) async fn send_request(&mut self, method: &str, mut params: Value) -> u64 {
        if self.era == Era::Modern {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        self.request(method, params).await
    }

    async fn request(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        self.send(json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params})).await;
        self.last_id
    }

    /// Sends one message as it is.
    pub(crate) async fn send(&mut self, message: Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// Returns the next message, which must answer the request `id`.
    pub(crate) async fn answer_to(&mut self, id: u64) -> Value {
        let message = self.receive().await;
        assert_eq!(message["id"], id, "expected the answer to {id}, got {message}");
        message
    }

    /// Returns the next message.
    pub(crate) async fn receive(&mut self) -> Value {
        let line = timeout(ANSWER_TIMEOUT, self.lines.next_line()).await.expect("the server never answered");
        serde_json::from_str(&line.unwrap().expect("the server closed the connection")).unwrap()
    }

    /// Closes the connection and returns how the server ended. All its messages must have been read before.
    pub(crate) async fn close(mut self) -> Result<(), ServeError> {
        self.writer.shutdown().await.unwrap();
        let rest = timeout(ANSWER_TIMEOUT, self.lines.next_line()).await.expect("the server never hung up");
        assert_eq!(rest.unwrap(), None);
        self.server.await.unwrap()
    }
}
