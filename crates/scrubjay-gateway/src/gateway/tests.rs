//! A model of the gateway's names: backends that change their lists, fail and come back at will, and clients that list
//! and call. A call never reaches another backend's tool than the newest list named.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::Notify;

use super::stage::recordings;
use super::*;
use crate::backend::{Mount, Streams};
use crate::session::{Outbox, Session};

const BACKENDS: [&str; 3] = ["a", "b", "c"];
const TOOLS: [&str; 5] = ["x", "y", "z", "a__x", "b__x"];
/// Two legacy clients and a modern one.
const CLIENTS: usize = 3;

/// What happens next.
#[derive(Clone, Debug)]
enum Step {
    /// A backend lists other tools from now on; perhaps it says so.
    Change {
        backend: usize,
        tools: BTreeSet<&'static str>,
        says_so: bool,
    },
    /// A backend ends; perhaps it starts again when it is needed.
    End {
        backend: usize,
        comes_back: bool,
    },
    /// A backend that was down can be started again.
    Mend {
        backend: usize,
    },
    List {
        client: usize,
    },
    Call {
        client: usize,
        name: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let backend = 0..BACKENDS.len();
    let client = 0..CLIENTS;
    let tools = prop::collection::btree_set(prop::sample::select(&TOOLS[..]), 0..4);
    let step = prop_oneof![
        2 => (backend.clone(), tools, any::<bool>())
            .prop_map(|(backend, tools, says_so)| Step::Change { backend, tools, says_so }),
        1 => (backend.clone(), any::<bool>()).prop_map(|(backend, comes_back)| Step::End { backend, comes_back }),
        1 => backend.prop_map(|backend| Step::Mend { backend }),
        3 => client.clone().prop_map(|client| Step::List { client }),
        4 => (client, 0..12_usize).prop_map(|(client, name)| Step::Call { client, name }),
    ];
    prop::collection::vec(step, 1..40)
}

/// A backend whose tools, ends and announcements the test controls.
struct ControlledBackend {
    id: &'static str,
    tools: Mutex<BTreeSet<&'static str>>,
    is_up: Mutex<bool>,
    /// Ends all its connections.
    end: Notify,
    /// Makes all its connections say that their tools changed.
    changed: Notify,
}

impl ControlledBackend {
    fn mount(self: &Arc<Self>) -> Mount {
        let controlled_backend = self.clone();
        Arc::new(move || {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            tokio::spawn(controlled_backend.clone().converse(theirs));
            let (reader, writer) = tokio::io::split(ours);
            let streams: Streams = (Box::new(reader), Box::new(writer));
            streams
        })
    }

    async fn converse(self: Arc<Self>, stream: DuplexStream) {
        let (reader, mut writer) = tokio::io::split(stream);
        let mut lines = BufReader::new(reader).lines();
        while *lock(&self.is_up) {
            let said = tokio::select! {
                line = lines.next_line() => {
                    let Ok(Some(line)) = line else { return };
                    let asked: Value = serde_json::from_str(&line).expect("the gateway writes whole lines");
                    let Some(answer) = self.answer_to(&asked) else { continue };
                    answer
                }
                () = self.changed.notified() => {
                    json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })
                }
                () = self.end.notified() => return,
            };
            if writer.write_all(format!("{said}\n").as_bytes()).await.is_err() {
                return;
            }
        }
    }

    /// Answers in the legacy era; each tool says whose it is, in the list and when it is called.
    fn answer_to(&self, asked: &Value) -> Option<Value> {
        let id = asked.get("id")?;
        let result = match asked["method"].as_str()? {
            "initialize" => json!({
                "protocolVersion": "2025-11-25", "capabilities": { "tools": { "listChanged": true } },
                "serverInfo": { "name": self.id, "version": "1" },
            }),
            "tools/list" => {
                let tool = |name: &&str| json!({ "name": name, "description": format!("{}/{name}", self.id), "inputSchema": {} });
                json!({ "tools": lock(&self.tools).iter().map(tool).collect::<Vec<_>>() })
            }
            "tools/call" if lock(&self.tools).contains(asked["params"]["name"].as_str()?) => {
                let text = format!("{}/{}", self.id, asked["params"]["name"].as_str()?);
                json!({ "content": [{ "type": "text", "text": text }] })
            }
            _ => {
                let error = json!({ "code": -32601, "message": "no such thing here" });
                return Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
        };
        Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
    }
}

struct Model {
    gateway: Arc<Gateway>,
    controlled: Vec<Arc<ControlledBackend>>,
    sessions: Vec<Arc<Session>>,
    outbox: Outbox,
    /// What each client's newest list said: whose tool each name is.
    newest: Vec<HashMap<String, String>>,
    /// Whose tool each name was in any list.
    ever: HashMap<String, String>,
    next_id: AtomicU64,
    _data: tempfile::TempDir,
}

impl Model {
    fn new() -> Self {
        let data = tempfile::tempdir().expect("there is a temporary directory");
        let new_recording = recordings(data.path());
        let controlled_backend = |id: &&'static str| {
            let (tools, is_up) = (Mutex::default(), Mutex::new(true));
            Arc::new(ControlledBackend { id, tools, is_up, end: Notify::new(), changed: Notify::new() })
        };
        let controlled: Vec<Arc<ControlledBackend>> = BACKENDS.iter().map(controlled_backend).collect();
        let gateway =
            Gateway::new(Naming::WhereNeeded, new_recording, Options::default(), None, |events, tape| {
                let backend = |p: &Arc<ControlledBackend>| {
                    Backend::mounted(p.id, p.mount(), tape(NewTape::of_backend(p.id)), events.clone())
                        .outside()
                };
                controlled.iter().map(backend).collect()
            });
        let (outbox, mut lines) = mpsc::channel(64);
        tokio::spawn(async move { while lines.recv().await.is_some() {} });
        let mut sessions: Vec<Arc<Session>> = (1..CLIENTS).map(|_| gateway.open_session("legacy")).collect();
        sessions.push(gateway.open_inferred_session("modern", "modern"));
        let newest = vec![HashMap::new(); CLIENTS];
        Self {
            gateway,
            controlled,
            sessions,
            outbox,
            newest,
            ever: HashMap::new(),
            next_id: AtomicU64::new(1),
            _data: data,
        }
    }

    async fn request(&self, client: usize, method: &str, mut params: Value) -> Value {
        if client == CLIENTS - 1 {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string();
        let Accepted::Request(request) = self.gateway.accept(&self.sessions[client], &line, &self.outbox)
        else {
            panic!("a request is accepted");
        };
        let answer = self.gateway.answer(request).await.expect("nobody calls it off");
        serde_json::from_str(&answer).expect("an answer is JSON")
    }

    async fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Change { backend, tools, says_so } => {
                *lock(&self.controlled[backend].tools) = tools;
                if says_so {
                    self.controlled[backend].changed.notify_waiters();
                }
            }
            Step::End { backend, comes_back } => {
                *lock(&self.controlled[backend].is_up) = comes_back;
                self.controlled[backend].end.notify_waiters();
            }
            Step::Mend { backend } => *lock(&self.controlled[backend].is_up) = true,
            Step::List { client } => self.list(client).await?,
            Step::Call { client, name } => self.call(client, name).await?,
        }
        Ok(())
    }

    async fn list(&mut self, client: usize) -> Result<(), TestCaseError> {
        let listed = self.request(client, "tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().expect("a list").clone();
        let owner = |tool: &Value| (text(&tool["name"]), text(&tool["description"]));
        let newest: HashMap<String, String> = tools.iter().map(owner).collect();
        prop_assert_eq!(newest.len(), tools.len(), "no name is listed twice");
        for (name, owner) in &newest {
            let before = self.ever.entry(name.clone()).or_insert_with(|| owner.clone());
            prop_assert_eq!(&*before, owner, "{} was another's", name);
        }
        self.newest[client] = newest;
        Ok(())
    }

    async fn call(&mut self, client: usize, name: usize) -> Result<(), TestCaseError> {
        // Names that were listed, and now and then one that was not.
        let mut names: Vec<&str> = self.newest[client].keys().map(String::as_str).collect();
        names.sort_unstable();
        let name = names.get(name).copied().unwrap_or(TOOLS[name % TOOLS.len()]).to_owned();
        let answer = self.request(client, "tools/call", json!({ "name": name, "arguments": {} })).await;
        let Some(answered) = answer["result"]["content"][0]["text"].as_str() else {
            prop_assert!(answer["error"]["message"].is_string(), "{}", answer);
            return Ok(());
        };
        if let Some(named) = self.newest[client].get(&name) {
            prop_assert_eq!(answered, named, "the list said otherwise of {}", name);
        }
        if let Some(named) = self.ever.get(&name) {
            prop_assert_eq!(answered, named, "a list said otherwise of {}", name);
        }
        Ok(())
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("text").to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_call_reaches_the_tool_that_the_newest_list_named(steps in steps()) {
        // Time passes only while nobody has anything to do.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let mut model = Model::new();
            for step in steps {
                model.take(step).await?;
            }
            model.gateway.shut_down("the test is over");
            Ok::<(), TestCaseError>(())
        })?;
    }
}
