//! Servers that follow the dice: they answer late, twice, under ids nobody has, not at all; they die and come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use scrubjay_gateway::backend::{Mount, Streams};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, WriteHalf};
use tokio::sync::mpsc;

use super::world::{Dice, World, count};

/// What no client may ever hear.
pub(super) const POISON: &str = "poison";

/// What a server speaks, and how it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nature {
    /// A connection for each client; dies.
    Legacy,
    /// One connection for all clients; dies.
    Modern,
    /// Both eras; never dies.
    Steady,
    /// A toolset of the gateway's own process, which is told who calls.
    Own,
}

impl Nature {
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

    pub(super) fn dies(self) -> bool {
        matches!(self, Self::Legacy | Self::Modern)
    }
}

/// Starts a server whenever the gateway wants one.
pub(super) fn mount(world: &Arc<World>, nature: Nature) -> Mount {
    let (world, lives) = (world.clone(), AtomicU64::new(0));
    Arc::new(move || {
        let (ours, theirs) = tokio::io::duplex(4096);
        let life = lives.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(live(world.clone(), nature, life, theirs));
        let (reader, writer) = tokio::io::split(ours);
        let streams: Streams = (Box::new(reader), Box::new(writer));
        streams
    })
}

/// What a server does next.
enum Act {
    Say(String),
    /// Dies, perhaps in the middle of a line.
    Die {
        half: Option<String>,
    },
}

#[derive(Clone)]
struct Server {
    world: Arc<World>,
    nature: Nature,
    acts: mpsc::Sender<Act>,
}

async fn live(world: Arc<World>, nature: Nature, life: u64, stream: DuplexStream) {
    let (reader, writer) = tokio::io::split(stream);
    let (acts, to_do) = mpsc::channel(1024);
    let server = Server { world, nature, acts };
    let mut speaking = tokio::spawn(speak(server.world.clone(), nature, writer, to_do));
    let mut lines = BufReader::new(reader).lines();
    let mut dice = server.world.dice(&format!("life {life} of {}", nature.id()));
    loop {
        let line = tokio::select! {
            _ = &mut speaking => return,
            line = lines.next_line() => line,
        };
        let Ok(Some(line)) = line else { return };
        server.world.step();
        count(server.world.log().servers_heard.entry(nature.id()).or_default(), &line);
        let message: Value = serde_json::from_str(&line).expect("the gateway writes whole lines of JSON");
        server.hear(&message, &mut dice).await;
    }
}

async fn speak(
    world: Arc<World>,
    nature: Nature,
    mut writer: WriteHalf<DuplexStream>,
    mut acts: mpsc::Receiver<Act>,
) {
    while let Some(act) = acts.recv().await {
        world.step();
        match act {
            Act::Say(line) => {
                // Before it is written: who hears it may be quicker than this.
                count(world.log().servers_said.entry(nature.id()).or_default(), &line);
                if writer.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                    return;
                }
            }
            Act::Die { half } => {
                if let Some(line) = half {
                    let half = &line[..line.len() / 2];
                    count(world.log().servers_said.entry(nature.id()).or_default(), half);
                    let _ = writer.write_all(half.as_bytes()).await;
                }
                return;
            }
        }
    }
}

impl Server {
    async fn say(&self, message: Value) {
        // A server that has died says nothing.
        let _ = self.acts.send(Act::Say(message.to_string())).await;
    }

    /// Says something after a while.
    fn later(&self, after: Duration, message: Value) {
        let server = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            server.say(message).await;
        });
    }

    async fn hear(&self, message: &Value, dice: &mut Dice) {
        let Some(method) = message["method"].as_str() else {
            self.check_answer(message);
            return;
        };
        let Some(id) = message.get("id") else { return };
        let capabilities = json!({ "tools": { "listChanged": true }, "logging": {} });
        let legacy = self.nature != Nature::Modern;
        let modern = self.nature != Nature::Legacy;
        let result = match method {
            "initialize" if legacy => json!({
                "protocolVersion": "2025-11-25", "capabilities": capabilities,
                "serverInfo": { "name": self.nature.id(), "version": "1" },
            }),
            "server/discover" if modern => json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
                "ttlMs": 0, "cacheScope": "private",
            }),
            "tools/list" => {
                json!({ "tools": [{ "name": self.nature.tool(), "inputSchema": { "type": "object" } }] })
            }
            "tools/call" => return self.work(id, &message["params"]).await,
            // A listener is answered when it ends.
            "subscriptions/listen" => return,
            _ => {
                let error = json!({ "code": -32601, "message": format!("no such method: {method}") });
                return self.say(json!({ "jsonrpc": "2.0", "id": id, "error": error })).await;
            }
        };
        if self.nature.dies() && dice.percent(2) {
            let _ = self.acts.send(Act::Die { half: None }).await;
            return;
        }
        self.later(millis(dice.below(40)), json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }

    /// Does what a call asks for, as the dice say: the same for the same call, whoever else calls.
    async fn work(&self, id: &Value, params: &Value) {
        let nonce = params["arguments"]["nonce"].as_str().expect("every call has one").to_owned();
        let mut dice = self.world.dice(&format!("call {nonce}"));
        let answer = |text: &str| json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [{ "type": "text", "text": text }] } });
        let after = millis(dice.below(3000));
        if let Some(token) = params["_meta"].get("progressToken") {
            for part in 0..dice.below(4) {
                // Some of it comes when the call is over.
                let progress = json!({ "progressToken": token, "progress": part, "message": nonce });
                self.later(millis(dice.below(4000)), notification("notifications/progress", progress));
            }
        }
        if params["arguments"]["asks"] == true && dice.percent(50) {
            let question =
                json!({ "message": nonce, "requestedSchema": { "type": "object", "properties": {} } });
            self.say(json!({ "jsonrpc": "2.0", "id": format!("q {nonce}"), "method": "elicitation/create", "params": question })).await;
        }
        self.disturb(&nonce, &mut dice).await;
        match dice.below(100) {
            // Never answered.
            0..4 => {}
            4..8 if self.nature.dies() => {
                let half = dice.percent(50).then(|| answer(&nonce).to_string());
                let server = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    let _ = server.acts.send(Act::Die { half }).await;
                });
            }
            8..14 => {
                self.later(after, answer(&nonce));
                self.later(after + millis(dice.below(500)), answer(POISON));
            }
            14..18 => {
                let error = json!({ "code": -32000, "message": nonce });
                self.later(after, json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
            18..48 => self.say(answer(&nonce)).await,
            _ => self.later(after, answer(&nonce)),
        }
    }

    /// Says what nobody asked for, and what belongs to nobody.
    async fn disturb(&self, nonce: &str, dice: &mut Dice) {
        let nobody = 1_000_000_000 + dice.below(1000);
        let stray = match dice.below(14) {
            0 => {
                json!({ "jsonrpc": "2.0", "id": nobody, "result": { "content": [{ "type": "text", "text": POISON }] } })
            }
            1 => {
                json!({ "jsonrpc": "2.0", "id": format!("{nobody}"), "error": { "code": 1, "message": POISON } })
            }
            2 => notification(
                "notifications/progress",
                json!({ "progressToken": nobody, "progress": 1, "message": POISON }),
            ),
            3 => notification("notifications/tools/list_changed", json!({})),
            4 => json!({ "jsonrpc": "2.0", "id": format!("ping {nonce}"), "method": "ping" }),
            5 => json!({ "no": "message" }),
            6 => json!([1, 2, "batch"]),
            _ => return,
        };
        self.say(stray).await;
    }

    /// Checks what the gateway answered to something this server asked.
    fn check_answer(&self, message: &Value) {
        let Some(("q", nonce)) = message["id"].as_str().and_then(|id| id.split_once(' ')) else { return };
        if let Some(name) = message["result"]["content"]["client"].as_str() {
            let asker = nonce.split('-').next().unwrap_or_default();
            self.world.check(name == asker, || format!("{nonce} was answered by {name}"));
        }
    }
}

pub(super) fn millis(number: u64) -> Duration {
    Duration::from_millis(number)
}

fn notification(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}
