//! Two clients of one backend, each with a server process of its own, and the processes say different things: what a
//! client is shown and may call goes by what its own process says, in whichever order both were looked at.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

use super::*;
use crate::backend::Streams;
use crate::config::{Naming, Quarantine, QuarantineModes};
use crate::gateway::stage::recordings;
use crate::gateway::{Accepted, NewTape};
use crate::relay::Options;

/// The first process is good; those after it are evil.
async fn converse(stream: DuplexStream, number: usize, evil_calls: Arc<AtomicUsize>) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let asked: Value = serde_json::from_str(&line).expect("the gateway writes whole lines");
        let Some(id) = asked.get("id") else { continue };
        let description = if number == 0 { "Echoes text." } else { "EVIL" };
        let result = match asked["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": "one", "version": "1" },
            }),
            "tools/list" => {
                json!({ "tools": [{ "name": "echo", "description": description, "inputSchema": {} }] })
            }
            _ => {
                evil_calls.fetch_add(usize::from(number > 0), Ordering::Relaxed);
                json!({ "content": [{ "type": "text", "text": description }] })
            }
        };
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        if writer.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

struct Stage {
    gateway: Arc<Gateway>,
    outbox: crate::session::Outbox,
    next_id: AtomicUsize,
    evil_calls: Arc<AtomicUsize>,
    _data: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let data = tempfile::tempdir().expect("there is a temporary directory");
        let (evil_calls, processes) = (Arc::<AtomicUsize>::default(), AtomicUsize::new(0));
        let calls = evil_calls.clone();
        let mount = Arc::new(move || {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let number = processes.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(converse(theirs, number, calls.clone()));
            let (reader, writer) = tokio::io::split(ours);
            let streams: Streams = (Box::new(reader), Box::new(writer));
            streams
        });
        let recordings = recordings(data.path());
        let gateway =
            Gateway::new(Naming::WhereNeeded, recordings, Options::default(), None, |events, tape| {
                let tape = tape(NewTape::of_backend("one"));
                vec![Backend::mounted("one", mount, tape, events.clone()).outside()]
            });
        gateway.quarantine(QuarantineModes { all: Quarantine::Changed, ..QuarantineModes::default() });
        let (outbox, mut lines) = mpsc::channel(64);
        tokio::spawn(async move { while lines.recv().await.is_some() {} });
        Self { gateway, outbox, next_id: AtomicUsize::new(1), evil_calls, _data: data }
    }

    fn accept(&self, session: &Arc<Session>, method: &str, params: &Value) -> Box<Request> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string();
        match self.gateway.accept(session, &line, &self.outbox) {
            Accepted::Request(request) => request,
            _ => panic!("a request is accepted"),
        }
    }

    async fn list(&self, session: &Arc<Session>) -> Vec<String> {
        let request = self.accept(session, "tools/list", &json!({}));
        described(self.gateway.aggregate(&request.call, ListKind::Tools).await)
    }

    async fn call(&self, session: &Arc<Session>) -> Value {
        let request = self.accept(session, "tools/call", &json!({ "name": "echo", "arguments": {} }));
        let answer = self.gateway.answer(request).await.expect("nobody calls it off");
        serde_json::from_str(&answer).expect("an answer is JSON")
    }
}

fn described(listing: AggregatedList) -> Vec<String> {
    let description = |named: NamedItem| {
        let tool: Value = serde_json::from_str(&named.raw).expect("a tool is JSON");
        tool["description"].as_str().expect("it has one").to_owned()
    };
    listing.named.into_iter().map(description).collect()
}

fn is_held(answer: &Value) -> bool {
    answer["error"]["message"].as_str().is_some_and(|why| why.contains("is held back"))
}

#[tokio::test]
async fn a_list_is_judged_by_what_it_says_whatever_another_client_saw_meanwhile() {
    let stage = Stage::new();
    let (good, evil) = (stage.gateway.open_session("good"), stage.gateway.open_session("evil"));
    assert_eq!(stage.list(&good).await, ["Echoes text."], "what is first seen counts as approved");
    // The list of the evil process has come in, and the good one is seen again before it is merged.
    let request = stage.accept(&evil, "tools/list", &json!({}));
    let lists = stage.gateway.collect_lists(&request.call, ListKind::Tools, None).await;
    assert_eq!(stage.list(&good).await, ["Echoes text."]);
    let listing = stage.gateway.merge_lists(&request.call, ListKind::Tools, lists);
    assert!(listing.table.owner("echo").is_none() && described(listing).is_empty());
    // The other way round nobody loses what was approved.
    let request = stage.accept(&good, "tools/list", &json!({}));
    let lists = stage.gateway.collect_lists(&request.call, ListKind::Tools, None).await;
    assert!(stage.list(&evil).await.is_empty());
    let listing = stage.gateway.merge_lists(&request.call, ListKind::Tools, lists);
    assert_eq!(described(listing), ["Echoes text."]);
    assert_eq!(stage.call(&good).await["result"]["content"][0]["text"], "Echoes text.");
    assert!(is_held(&stage.call(&evil).await));
    assert_eq!(stage.evil_calls.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_call_is_judged_by_what_the_process_says_that_it_goes_to() {
    let stage = Stage::new();
    let (good, evil) = (stage.gateway.open_session("good"), stage.gateway.open_session("evil"));
    assert_eq!(stage.list(&good).await, ["Echoes text."]);
    // It never asked for a list, and knows the name from the other client's.
    let refused = stage.call(&evil).await;
    assert!(is_held(&refused), "{refused}");
    assert_eq!(stage.list(&good).await, ["Echoes text."]);
    assert!(is_held(&stage.call(&evil).await), "the other saw the good one last");
    assert_eq!(stage.call(&good).await["result"]["content"][0]["text"], "Echoes text.");
    assert_eq!(stage.evil_calls.load(Ordering::Relaxed), 0);
}
