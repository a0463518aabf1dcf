//! Servers driven by a seed: they answer late, twice, with unknown ids or not at all; they crash and are started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use scrubjay_gateway::backend::{Mount, Streams};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, WriteHalf};
use tokio::sync::mpsc;

use super::world::{Random, World, count};

/// The text of messages that no client may receive.
pub(super) const POISON: &str = "poison";

/// The era of a server, and whether it crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerKind {
    /// A connection for each client; crashes.
    Legacy,
    /// One connection for all clients; crashes.
    Modern,
    /// Both eras; never crashes.
    Steady,
    /// A toolset of the gateway's own process: its requests name the caller.
    Own,
}

impl ServerKind {
    pub(super) const ALL: [Self; 4] = [Self::Legacy, Self::Modern, Self::Steady, Self::Own];

    pub(super) fn id(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
            Self::Steady => "steady",
            Self::Own => "own",
        }
    }

    pub(super) fn tool(self) -> String {
        format!("work_{}", self.id())
    }

    pub(super) fn can_crash(self) -> bool {
        matches!(self, Self::Legacy | Self::Modern)
    }
}

/// Starts a server each time the gateway connects.
pub(super) fn mount(world: &Arc<World>, kind: ServerKind) -> Mount {
    let (world, starts) = (world.clone(), AtomicU64::new(0));
    Arc::new(move || {
        let (ours, theirs) = tokio::io::duplex(4096);
        let start = starts.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(serve(world.clone(), kind, start, theirs));
        let (reader, writer) = tokio::io::split(ours);
        let streams: Streams = (Box::new(reader), Box::new(writer));
        streams
    })
}

/// What a server writes next.
enum Output {
    Line(String),
    /// The server crashes, perhaps in the middle of a line.
    Crash {
        partial_line: Option<String>,
    },
}

#[derive(Clone)]
struct Server {
    world: Arc<World>,
    kind: ServerKind,
    output: mpsc::Sender<Output>,
}

async fn serve(world: Arc<World>, kind: ServerKind, start: u64, stream: DuplexStream) {
    let (reader, writer) = tokio::io::split(stream);
    let (output, queue) = mpsc::channel(1024);
    let server = Server { world, kind, output };
    let mut writing = tokio::spawn(write(server.world.clone(), kind, writer, queue));
    let mut lines = BufReader::new(reader).lines();
    // The text is part of the seed: with another one, runs of the same seed differ from earlier ones.
    let mut random = server.world.random(&format!("life {start} of {}", kind.id()));
    loop {
        let line = tokio::select! {
            _ = &mut writing => return,
            line = lines.next_line() => line,
        };
        let Ok(Some(line)) = line else { return };
        server.world.step();
        count(server.world.log().received_by_servers.entry(kind.id()).or_default(), &line);
        let message: Value = serde_json::from_str(&line).expect("the gateway writes whole lines of JSON");
        server.receive(&message, &mut random).await;
    }
}

async fn write(
    world: Arc<World>,
    kind: ServerKind,
    mut writer: WriteHalf<DuplexStream>,
    mut output: mpsc::Receiver<Output>,
) {
    while let Some(next) = output.recv().await {
        world.step();
        match next {
            Output::Line(line) => {
                // Counted first: once it is written, the receiver may handle it before this task continues.
                count(world.log().sent_by_servers.entry(kind.id()).or_default(), &line);
                if writer.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                    return;
                }
            }
            Output::Crash { partial_line } => {
                if let Some(line) = partial_line {
                    let partial_line = &line[..line.len() / 2];
                    count(world.log().sent_by_servers.entry(kind.id()).or_default(), partial_line);
                    let _ = writer.write_all(partial_line.as_bytes()).await;
                }
                return;
            }
        }
    }
}

impl Server {
    async fn send(&self, message: Value) {
        // Fails if the server has crashed.
        let _ = self.output.send(Output::Line(message.to_string())).await;
    }

    /// Sends a message after some time.
    fn send_later(&self, after: Duration, message: Value) {
        let server = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            server.send(message).await;
        });
    }

    async fn receive(&self, message: &Value, random: &mut Random) {
        let Some(method) = message["method"].as_str() else {
            self.check_answer(message);
            return;
        };
        let Some(id) = message.get("id") else { return };
        let capabilities = json!({ "tools": { "listChanged": true }, "logging": {} });
        let legacy = self.kind != ServerKind::Modern;
        let modern = self.kind != ServerKind::Legacy;
        let result = match method {
            "initialize" if legacy => json!({
                "protocolVersion": "2025-11-25", "capabilities": capabilities,
                "serverInfo": { "name": self.kind.id(), "version": "1" },
            }),
            "server/discover" if modern => json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
                "ttlMs": 0, "cacheScope": "private",
            }),
            "tools/list" => {
                json!({ "tools": [{ "name": self.kind.tool(), "inputSchema": { "type": "object" } }] })
            }
            "tools/call" => return self.answer_call(id, &message["params"]).await,
            // The gateway listens until the connection ends, so there is no answer.
            "subscriptions/listen" => return,
            _ => {
                let error = json!({ "code": -32601, "message": format!("no such method: {method}") });
                return self.send(json!({ "jsonrpc": "2.0", "id": id, "error": error })).await;
            }
        };
        if self.kind.can_crash() && random.percent(2) {
            let _ = self.output.send(Output::Crash { partial_line: None }).await;
            return;
        }
        self.send_later(millis(random.below(40)), json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }

    /// Answers a call at random: the same way for the same call, independent of other calls.
    async fn answer_call(&self, id: &Value, params: &Value) {
        let nonce = params["arguments"]["nonce"].as_str().expect("every call has one").to_owned();
        let mut random = self.world.random(&format!("call {nonce}"));
        let answer = |text: &str| json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [{ "type": "text", "text": text }] } });
        let after = millis(random.below(3000));
        if let Some(token) = params["_meta"].get("progressToken") {
            for part in 0..random.below(4) {
                // Some of the progress comes after the answer.
                let progress = json!({ "progressToken": token, "progress": part, "message": nonce });
                self.send_later(millis(random.below(4000)), notification("notifications/progress", progress));
            }
        }
        if params["arguments"]["asks"] == true && random.percent(50) {
            let question =
                json!({ "message": nonce, "requestedSchema": { "type": "object", "properties": {} } });
            self.send(json!({ "jsonrpc": "2.0", "id": format!("q {nonce}"), "method": "elicitation/create", "params": question })).await;
        }
        self.send_stray_message(&nonce, &mut random).await;
        match random.below(100) {
            // The call is never answered.
            0..4 => {}
            4..8 if self.kind.can_crash() => {
                let partial_line = random.percent(50).then(|| answer(&nonce).to_string());
                let server = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    let _ = server.output.send(Output::Crash { partial_line }).await;
                });
            }
            8..14 => {
                self.send_later(after, answer(&nonce));
                self.send_later(after + millis(random.below(500)), answer(POISON));
            }
            14..18 => {
                let error = json!({ "code": -32000, "message": nonce });
                self.send_later(after, json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
            18..48 => self.send(answer(&nonce)).await,
            _ => self.send_later(after, answer(&nonce)),
        }
    }

    /// Sends a message that belongs to no call, or none.
    async fn send_stray_message(&self, nonce: &str, random: &mut Random) {
        let unknown_id = 1_000_000_000 + random.below(1000);
        let stray = match random.below(14) {
            0 => {
                json!({ "jsonrpc": "2.0", "id": unknown_id, "result": { "content": [{ "type": "text", "text": POISON }] } })
            }
            1 => {
                json!({ "jsonrpc": "2.0", "id": format!("{unknown_id}"), "error": { "code": 1, "message": POISON } })
            }
            2 => notification(
                "notifications/progress",
                json!({ "progressToken": unknown_id, "progress": 1, "message": POISON }),
            ),
            3 => notification("notifications/tools/list_changed", json!({})),
            4 => json!({ "jsonrpc": "2.0", "id": format!("ping {nonce}"), "method": "ping" }),
            5 => json!({ "no": "message" }),
            6 => json!([1, 2, "batch"]),
            _ => return,
        };
        self.send(stray).await;
    }

    /// Checks that a question was answered by the client that made the call.
    fn check_answer(&self, message: &Value) {
        let Some(("q", nonce)) = message["id"].as_str().and_then(|id| id.split_once(' ')) else { return };
        if let Some(name) = message["result"]["content"]["client"].as_str() {
            let caller = nonce.split('-').next().unwrap_or_default();
            self.world.check(name == caller, || format!("{nonce} was answered by {name}"));
        }
    }
}

pub(super) fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

fn notification(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}
