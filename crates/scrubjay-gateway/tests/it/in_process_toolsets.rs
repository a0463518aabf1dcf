//! Toolsets that run in the gateway's process: each request to them names its caller, and changes that they announce
//! reach the clients that subscribed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use scrubjay_gateway::backend::{Mount, Streams};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::{broadcast, mpsc};

use super::rig::{Client, DEADLINE, Rig, program, repository, text};

/// The eras that a toolset supports.
#[derive(Clone, Copy)]
struct SupportedEras {
    legacy: bool,
    modern: bool,
}

const BOTH: SupportedEras = SupportedEras { legacy: true, modern: true };
const LEGACY: SupportedEras = SupportedEras { legacy: true, modern: false };
const MODERN: SupportedEras = SupportedEras { legacy: false, modern: true };

/// Makes a toolset with two tools: `show` answers with the params of its call, `touch` announces that a resource has
/// changed.
fn toolset(id: &'static str, eras: SupportedEras) -> (&'static str, Mount) {
    let touched = broadcast::Sender::<()>::new(16);
    let mount: Mount = Arc::new(move || {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        tokio::spawn(serve(id, eras, theirs, touched.clone()));
        let (reader, writer) = tokio::io::split(ours);
        let streams: Streams = (Box::new(reader), Box::new(writer));
        streams
    });
    (id, mount)
}

async fn serve(id: &str, eras: SupportedEras, stream: DuplexStream, touched: broadcast::Sender<()>) {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut lines = BufReader::new(reader).lines();
    let mut touches = touched.subscribe();
    // The metadata that notifications to the subscriber carry.
    let mut subscription: Option<Value> = None;
    loop {
        let output = tokio::select! {
            Ok(line) = lines.next_line() => {
                let Some(line) = line else { return };
                let request: Value = serde_json::from_str(&line).expect("the gateway writes whole lines");
                let resources = &request["params"]["notifications"]["resourceSubscriptions"];
                if request["method"] == "resources/subscribe" {
                    subscription = Some(json!({}));
                } else if request["method"] == "resources/unsubscribe" {
                    subscription = None;
                } else if request["method"] == "subscriptions/listen" && resources.is_array() {
                    subscription = Some(json!({ "io.modelcontextprotocol/subscriptionId": request["id"] }));
                }
                if request["params"]["name"] == format!("{id}_touch") {
                    touched.send(()).expect("this connection receives it");
                }
                let Some(answer) = answer_to(id, eras, &request) else { continue };
                format!("{answer}\n")
            }
            Ok(()) = touches.recv() => {
                let changed = json!({ "jsonrpc": "2.0", "method": "notifications/resources/list_changed" });
                let updated = subscription.as_ref().map(|meta| {
                    let params = json!({ "uri": format!("{id}://one"), "_meta": meta });
                    json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params })
                });
                updated.map(|u| format!("{u}\n")).unwrap_or_default() + &format!("{changed}\n")
            }
        };
        if writer.write_all(output.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn answer_to(id: &str, eras: SupportedEras, request: &Value) -> Option<Value> {
    let number = request.get("id")?;
    let method = request["method"].as_str()?;
    let capabilities = json!({
        "tools": {}, "prompts": {}, "completions": {},
        "resources": { "subscribe": true, "listChanged": true },
    });
    let shown = request["params"].to_string();
    let tool = |name: &str| json!({ "name": format!("{id}_{name}"), "inputSchema": { "type": "object" } });
    let result = match method {
        "initialize" if eras.legacy => json!({
            "protocolVersion": "2025-11-25", "capabilities": capabilities,
            "serverInfo": { "name": id, "version": "1" },
        }),
        "server/discover" if eras.modern => json!({
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
        "resources/read" => json!({ "contents": [{ "uri": request["params"]["uri"], "text": shown }] }),
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

/// Makes a toolset that supports only the legacy era until it has ended once, and then both.
fn toolset_that_changes_era() -> (&'static str, Mount) {
    let ended = Arc::new(AtomicBool::new(false));
    let mount: Mount = Arc::new(move || {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let ended = ended.clone();
        tokio::spawn(async move {
            let (reader, mut writer) = tokio::io::split(theirs);
            let mut lines = BufReader::new(reader).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let request: Value = serde_json::from_str(&line).expect("the gateway writes whole lines");
                if request["params"]["name"] == "late_touch" {
                    ended.store(true, Ordering::SeqCst);
                    return;
                }
                let eras = if ended.load(Ordering::SeqCst) { BOTH } else { LEGACY };
                if let Some(answer) = answer_to("late", eras, &request) {
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
async fn a_restarted_backend_may_support_another_era() {
    let rig = Rig::new(&[], vec![toolset_that_changes_era()]);
    let client = Client::modern(&rig.gateway, rig.gateway.open_session("modern"));
    let is_modern = async |id: u64| {
        let shown = client.call(id, "late_show", json!({})).await;
        // Only requests to a modern backend carry a protocol version.
        text(&shown).contains("io.modelcontextprotocol/protocolVersion")
    };
    assert!(!is_modern(1).await && !is_modern(2).await);
    client.call(3, "late_touch", json!({})).await;
    let mut id = 4;
    tokio::time::timeout(DEADLINE, async {
        while !is_modern(id).await {
            id += 1;
        }
    })
    .await
    .expect("the gateway finds the new era in time");
}

fn caller_in(shown: &Value) -> Value {
    let params: Value = serde_json::from_str(shown.as_str().expect("text")).expect("JSON");
    params["_meta"]["scrubjay/caller"].clone()
}

async fn assert_receives_caller(client: &Client, id: &str) {
    let forged = json!({ "scrubjay/caller": { "session": "forged" } });
    let params = json!({ "name": format!("{id}_show"), "_meta": forged });
    let called = client.request(10, "tools/call", params).await;
    let first = caller_in(&called["result"]["content"][0]["text"]);
    assert_eq!(first["client"], json!({ "name": "test", "version": "1" }), "{first}");
    assert_eq!(first["toldBy"], "connection", "{first}");
    let (session, tape) = (first["session"].as_str(), first["tape"].as_str());
    assert!(session.is_some_and(|s| s.len() == 16 && s != "forged"), "{first}");
    assert!(tape.is_some_and(|t| t.len() == 16), "{first}");

    let got = client.request(11, "prompts/get", json!({ "name": format!("{id}_prompt") })).await;
    let later = caller_in(&got["result"]["messages"][0]["content"]["text"]);
    assert_eq!((&later["session"], &later["tape"]), (&first["session"], &first["tape"]));
    assert!(later["entry"].as_u64() > first["entry"].as_u64(), "{later} {first}");
    let read = client.request(12, "resources/read", json!({ "uri": format!("{id}://more/x") })).await;
    assert_eq!(caller_in(&read["result"]["contents"][0]["text"])["session"], first["session"], "{read}");
    let reference = json!({ "ref": { "type": "ref/resource", "uri": format!("{id}://more/{{name}}") } });
    let completed = client.request(13, "completion/complete", reference).await;
    assert_eq!(caller_in(&completed["result"]["completion"]["values"][0])["session"], first["session"]);
}

#[tokio::test]
async fn toolsets_receive_the_caller_in_both_eras() {
    let rig = Rig::new(&[], vec![toolset("one", BOTH), toolset("two", LEGACY), toolset("three", MODERN)]);
    let legacy = Client::legacy(&rig.gateway).await;
    let modern = Client::modern(&rig.gateway, rig.gateway.open_session("modern"));
    for id in ["one", "two", "three"] {
        assert_receives_caller(&legacy, id).await;
        assert_receives_caller(&modern, id).await;
    }
    let show = |client: Client| async move {
        caller_in(&client.call(20, "one_show", json!({})).await["result"]["content"][0]["text"])
    };
    let (a, b) = (show(legacy).await, show(modern).await);
    assert_ne!((&a["session"], &a["tape"]), (&b["session"], &b["tape"]));
    assert_ne!(a["session"], b["session"]);
}

#[tokio::test]
async fn a_caller_cannot_be_forged_with_duplicate_members() {
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
        assert!(caller_in(&json!(shown))["session"].is_string(), "{meta}: {shown}");
    }
    assert!(!String::from_utf8_lossy(&rig.payloads("backend")).contains("forged"));
}

#[tokio::test]
async fn other_backends_get_the_params_of_the_client_unchanged() {
    let script = repository().join("tests/backends/bad_server.py");
    let args = ["-B", script.to_str().expect("a path in UTF-8"), "plain"];
    let rig = Rig::new(&[program("plain", "python3", &args, DEADLINE)], Vec::new());
    let client = Client::legacy(&rig.gateway).await;
    client.await_tools(&["plain_echo"]).await;
    let params = r#"{ "name":"plain_echo" , "_meta":{"scrubjay/caller":1.0},"arguments":{"text":"x"}}"#;
    let line = format!(r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{params}}}"#);
    assert_eq!(text(&client.raw_request(5, &line).await), "x");
    let tape = String::from_utf8_lossy(&rig.payloads("client")).into_owned();
    // Once as received from the client, once as sent to the backend.
    assert_eq!(tape.matches(params).count(), 2, "{tape}");
}

/// Receives `count` messages and returns their methods, sorted: messages of two connections come in no fixed order.
async fn next_methods(lines: &mut mpsc::Receiver<String>, count: usize) -> Vec<String> {
    let mut methods = Vec::new();
    for _ in 0..count {
        let line = tokio::time::timeout(DEADLINE, lines.recv()).await.expect("in time").expect("still open");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        methods.push(line["method"].as_str().unwrap_or_default().to_owned());
    }
    methods.sort();
    methods
}

#[tokio::test]
async fn changes_reach_each_subscriber_once() {
    const CHANGED: &str = "notifications/resources/list_changed";
    const UPDATED: &str = "notifications/resources/updated";
    for eras in [BOTH, LEGACY, MODERN] {
        let rig = Rig::new(&[], vec![toolset("one", eras), toolset("two", BOTH)]);
        let mut legacy = Client::legacy(&rig.gateway).await;
        let mut modern = Client::modern(&rig.gateway, rig.gateway.open_session("modern"));
        let (mut to_legacy, mut to_modern) = (legacy.attach(), modern.attach());
        let answer = legacy.request(1, "resources/subscribe", json!({ "uri": "one://one" })).await;
        assert_eq!(answer["result"], json!({}), "{answer}");
        let filter = json!({ "resourcesListChanged": true, "resourceSubscriptions": ["one://one"] });
        let subscriber = modern.clone();
        let subscription = tokio::spawn(async move {
            subscriber.request(2, "subscriptions/listen", json!({ "notifications": filter })).await
        });
        assert_eq!(next_methods(&mut to_modern, 1).await, ["notifications/subscriptions/acknowledged"]);
        legacy.call(3, "one_touch", json!({})).await;
        assert_eq!(next_methods(&mut to_legacy, 2).await, [CHANGED, UPDATED]);
        assert_eq!(next_methods(&mut to_modern, 2).await, [CHANGED, UPDATED]);

        // A client that unsubscribes gets no more updates; the other one still does.
        legacy.request(4, "resources/unsubscribe", json!({ "uri": "one://one" })).await;
        legacy.call(5, "one_touch", json!({})).await;
        assert_eq!(next_methods(&mut to_legacy, 1).await, [CHANGED]);
        assert_eq!(next_methods(&mut to_modern, 2).await, [CHANGED, UPDATED]);
        // Any other message would have come before the answers to these later calls.
        for id in 6..16 {
            legacy.call(id, "one_show", json!({})).await;
            modern.call(id, "one_show", json!({})).await;
        }
        assert_eq!((to_legacy.try_recv().ok(), to_modern.try_recv().ok()), (None, None));
        subscription.abort();
    }
}
