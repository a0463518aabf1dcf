//! Toolsets of this process: they are told who calls, and what they announce reaches those who listen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use scrubjay_gateway::backend::{Mount, Streams};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::{broadcast, mpsc};

use super::rig::{Client, DEADLINE, Rig, program, repository, text};

/// The eras a toolset speaks.
#[derive(Clone, Copy)]
struct Speaks {
    legacy: bool,
    modern: bool,
}

const BOTH: Speaks = Speaks { legacy: true, modern: true };
const LEGACY: Speaks = Speaks { legacy: true, modern: false };
const MODERN: Speaks = Speaks { legacy: false, modern: true };

/// A toolset that shows what it was sent, and announces that a resource changed when it is touched.
fn toolset(id: &'static str, speaks: Speaks) -> (&'static str, Mount) {
    let touched = broadcast::Sender::<()>::new(16);
    let mount: Mount = Arc::new(move || {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        tokio::spawn(converse(id, speaks, theirs, touched.clone()));
        let (reader, writer) = tokio::io::split(ours);
        let streams: Streams = (Box::new(reader), Box::new(writer));
        streams
    });
    (id, mount)
}

async fn converse(id: &str, speaks: Speaks, stream: DuplexStream, touched: broadcast::Sender<()>) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut lines = BufReader::new(reader).lines();
    let mut touches = touched.subscribe();
    let mut follows: Option<Value> = None;
    loop {
        let said = tokio::select! {
            Ok(line) = lines.next_line() => {
                let Some(line) = line else { return };
                let asked: Value = serde_json::from_str(&line).expect("the gateway writes whole lines");
                let wanted = &asked["params"]["notifications"]["resourceSubscriptions"];
                if asked["method"] == "resources/subscribe" {
                    follows = Some(json!({}));
                } else if asked["method"] == "resources/unsubscribe" {
                    follows = None;
                } else if asked["method"] == "subscriptions/listen" && wanted.is_array() {
                    follows = Some(json!({ "io.modelcontextprotocol/subscriptionId": asked["id"] }));
                }
                if asked["params"]["name"] == format!("{id}_touch") {
                    touched.send(()).expect("somebody hears it");
                }
                let Some(answer) = answer_to(id, speaks, &asked) else { continue };
                format!("{answer}\n")
            }
            Ok(()) = touches.recv() => {
                let changed = json!({ "jsonrpc": "2.0", "method": "notifications/resources/list_changed" });
                let updated = follows.as_ref().map(|meta| {
                    let params = json!({ "uri": format!("{id}://one"), "_meta": meta });
                    json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params })
                });
                updated.map(|u| format!("{u}\n")).unwrap_or_default() + &format!("{changed}\n")
            }
        };
        if writer.write_all(said.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn answer_to(id: &str, speaks: Speaks, asked: &Value) -> Option<Value> {
    let number = asked.get("id")?;
    let method = asked["method"].as_str()?;
    let capabilities = json!({
        "tools": {}, "prompts": {}, "completions": {},
        "resources": { "subscribe": true, "listChanged": true },
    });
    let shown = asked["params"].to_string();
    let tool = |name: &str| json!({ "name": format!("{id}_{name}"), "inputSchema": { "type": "object" } });
    let result = match method {
        "initialize" if speaks.legacy => json!({
            "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "serverInfo": { "name": id, "version": "1" },
        }),
        "server/discover" if speaks.modern => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
            "ttlMs": 0, "cacheScope": "private",
        }),
        "tools/list" => json!({ "tools": [tool("show"), tool("touch")] }),
        "prompts/list" => json!({ "prompts": [{ "name": format!("{id}_prompt") }] }),
        "resources/list" => json!({ "resources": [{ "uri": format!("{id}://one"), "name": "one" }] }),
        "resources/templates/list" => {
            json!({ "resourceTemplates": [{ "uriTemplate": format!("{id}://more/{{name}}"), "name": "more" }] })
        }
        "tools/call" => json!({ "content": [{ "type": "text", "text": shown }] }),
        "prompts/get" => {
            json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": shown } }] })
        }
        "resources/read" => json!({ "contents": [{ "uri": asked["params"]["uri"], "text": shown }] }),
        "completion/complete" => json!({ "completion": { "values": [shown] } }),
        "resources/subscribe" | "resources/unsubscribe" => json!({}),
        "subscriptions/listen" => return None,
        _ => {
            let error = json!({ "code": -32601, "message": "no such method" });
            return Some(json!({ "jsonrpc": "2.0", "id": number, "error": error }));
        }
    };
    Some(json!({ "jsonrpc": "2.0", "id": number, "result": result }))
}

/// A toolset that speaks only the legacy era until it was ended for the first time.
fn late_learner() -> (&'static str, Mount) {
    let ended = Arc::new(AtomicBool::new(false));
    let mount: Mount = Arc::new(move || {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let ended = ended.clone();
        tokio::spawn(async move {
            let (reader, mut writer) = tokio::io::split(theirs);
            let mut lines = BufReader::new(reader).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let asked: Value = serde_json::from_str(&line).expect("the gateway writes whole lines");
                if asked["params"]["name"] == "late_touch" {
                    ended.store(true, Ordering::SeqCst);
                    return;
                }
                let speaks = if ended.load(Ordering::SeqCst) { BOTH } else { LEGACY };
                if let Some(answer) = answer_to("late", speaks, &asked) {
                    let _ = writer.write_all(format!("{answer}\n").as_bytes()).await;
                }
            }
        });
        let (reader, writer) = tokio::io::split(ours);
        let streams: Streams = (Box::new(reader), Box::new(writer));
        streams
    });
    ("late", mount)
}

#[tokio::test]
async fn a_restarted_backend_may_have_learnt_another_era() {
    let rig = Rig::new(&[], vec![late_learner()]);
    let client = Client::modern(&rig.gateway, rig.gateway.open_session("modern"));
    let era = async |id: u64| {
        let shown = client.call(id, "late_show", json!({})).await;
        // Only a modern backend is sent what modern requests carry.
        text(&shown).contains("io.modelcontextprotocol/protocolVersion")
    };
    assert!(!era(1).await && !era(2).await);
    client.call(3, "late_touch", json!({})).await;
    let mut id = 4;
    tokio::time::timeout(DEADLINE, async {
        while !era(id).await {
            id += 1;
        }
    })
    .await
    .expect("it is asked again");
}

fn caller(shown: &Value) -> Value {
    let params: Value = serde_json::from_str(shown.as_str().expect("text")).expect("JSON");
    params["_meta"]["scrubjay/caller"].clone()
}

async fn is_told_who_calls(client: &Client, id: &str) {
    let forged = json!({ "scrubjay/caller": { "session": "forged" } });
    let params = json!({ "name": format!("{id}_show"), "_meta": forged });
    let called = client.request(10, "tools/call", params).await;
    let told = caller(&called["result"]["content"][0]["text"]);
    assert_eq!(told["client"], json!({ "name": "test", "version": "1" }), "{told}");
    assert_eq!(told["toldBy"], "connection", "{told}");
    let (session, tape) = (told["session"].as_str(), told["tape"].as_str());
    assert!(session.is_some_and(|s| s.len() == 16 && s != "forged"), "{told}");
    assert!(tape.is_some_and(|t| t.len() == 16), "{told}");

    let got = client.request(11, "prompts/get", json!({ "name": format!("{id}_prompt") })).await;
    let later = caller(&got["result"]["messages"][0]["content"]["text"]);
    assert_eq!((&later["session"], &later["tape"]), (&told["session"], &told["tape"]));
    assert!(later["entry"].as_u64() > told["entry"].as_u64(), "{later} {told}");
    let read = client.request(12, "resources/read", json!({ "uri": format!("{id}://more/x") })).await;
    assert_eq!(caller(&read["result"]["contents"][0]["text"])["session"], told["session"], "{read}");
    let reference = json!({ "ref": { "type": "ref/resource", "uri": format!("{id}://more/{{name}}") } });
    let completed = client.request(13, "completion/complete", reference).await;
    assert_eq!(caller(&completed["result"]["completion"]["values"][0])["session"], told["session"]);
}

#[tokio::test]
async fn two_toolsets_are_told_who_calls_in_both_eras() {
    let rig = Rig::new(&[], vec![toolset("one", BOTH), toolset("two", LEGACY), toolset("three", MODERN)]);
    let legacy = Client::legacy(&rig.gateway).await;
    let modern = Client::modern(&rig.gateway, rig.gateway.open_session("modern"));
    for id in ["one", "two", "three"] {
        is_told_who_calls(&legacy, id).await;
        is_told_who_calls(&modern, id).await;
    }
    let show = |client: Client| async move {
        caller(&client.call(20, "one_show", json!({})).await["result"]["content"][0]["text"])
    };
    let (a, b) = (show(legacy).await, show(modern).await);
    assert_ne!((&a["session"], &a["tape"]), (&b["session"], &b["tape"]));
    assert_ne!(a["session"], b["session"]);
}

#[tokio::test]
async fn a_caller_cannot_be_forged_by_saying_it_twice() {
    let rig = Rig::new(&[], vec![toolset("one", LEGACY)]);
    let client = Client::legacy(&rig.gateway).await;
    let head = r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"one_show""#;
    for meta in [
        r#","_meta":{"scrubjay/caller":"forged","scrubjay/caller":"forged"}"#,
        r#","_meta":{"scrubjay/caller":"forged"},"_meta":{"scrubjay\/caller":"forged"}"#,
        r#","_meta":{"scrubjay/caller":"forged"},"_meta":{}"#,
        r#","_meta":{},"_meta":{"scrubjay\u002fcaller":"forged"}"#,
        r#","_meta":7"#,
        "",
    ] {
        let shown = client.raw_request(5, &format!("{head}{meta}}}}}")).await;
        let shown = text(&shown);
        assert!(!shown.contains("forged"), "{meta}: {shown}");
        assert!(caller(&json!(shown))["session"].is_string(), "{meta}: {shown}");
    }
    assert!(!String::from_utf8_lossy(&rig.payloads("backend")).contains("forged"));
}

#[tokio::test]
async fn other_backends_get_what_the_client_said() {
    let script = repository().join("tests/backends/bad_server.py");
    let args = ["-B", script.to_str().expect("a path in UTF-8"), "plain"];
    let rig = Rig::new(&[program("plain", "python3", &args, DEADLINE)], Vec::new());
    let client = Client::legacy(&rig.gateway).await;
    client.await_tools(&["plain_echo"]).await;
    let params = r#"{ "name":"plain_echo" , "_meta":{"scrubjay/caller":1.0},"arguments":{"text":"x"}}"#;
    let line = format!(r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{params}}}"#);
    assert_eq!(text(&client.raw_request(5, &line).await), "x");
    let tape = String::from_utf8_lossy(&rig.payloads("client")).into_owned();
    // As it came, and as it was passed on.
    assert_eq!(tape.matches(params).count(), 2, "{tape}");
}

/// Returns the methods of so many messages, in the order of their names: two connections keep none.
async fn heard(lines: &mut mpsc::Receiver<String>, count: usize) -> Vec<String> {
    let mut methods = Vec::new();
    for _ in 0..count {
        let line = tokio::time::timeout(DEADLINE, lines.recv()).await.expect("in time").expect("not over");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        methods.push(line["method"].as_str().unwrap_or_default().to_owned());
    }
    methods.sort();
    methods
}

#[tokio::test]
async fn changes_reach_those_who_listen_once() {
    const CHANGED: &str = "notifications/resources/list_changed";
    const UPDATED: &str = "notifications/resources/updated";
    for speaks in [BOTH, LEGACY, MODERN] {
        let rig = Rig::new(&[], vec![toolset("one", speaks), toolset("two", BOTH)]);
        let mut legacy = Client::legacy(&rig.gateway).await;
        let mut modern = Client::modern(&rig.gateway, rig.gateway.open_session("modern"));
        let (mut to_legacy, mut to_modern) = (legacy.attach(), modern.attach());
        let subscribed = legacy.request(1, "resources/subscribe", json!({ "uri": "one://one" })).await;
        assert_eq!(subscribed["result"], json!({}), "{subscribed}");
        let filter = json!({ "resourcesListChanged": true, "resourceSubscriptions": ["one://one"] });
        let listener = modern.clone();
        let listening = tokio::spawn(async move {
            listener.request(2, "subscriptions/listen", json!({ "notifications": filter })).await
        });
        assert_eq!(heard(&mut to_modern, 1).await, ["notifications/subscriptions/acknowledged"]);
        legacy.call(3, "one_touch", json!({})).await;
        assert_eq!(heard(&mut to_legacy, 2).await, [CHANGED, UPDATED]);
        assert_eq!(heard(&mut to_modern, 2).await, [CHANGED, UPDATED]);

        // Who lets go of it hears no more of it; the other still does.
        legacy.request(4, "resources/unsubscribe", json!({ "uri": "one://one" })).await;
        legacy.call(5, "one_touch", json!({})).await;
        assert_eq!(heard(&mut to_legacy, 1).await, [CHANGED]);
        assert_eq!(heard(&mut to_modern, 2).await, [CHANGED, UPDATED]);
        // Whatever else was said has been heard when something later is answered.
        for id in 6..16 {
            legacy.call(id, "one_show", json!({})).await;
            modern.call(id, "one_show", json!({})).await;
        }
        assert_eq!((to_legacy.try_recv().ok(), to_modern.try_recv().ok()), (None, None));
        listening.abort();
    }
}
