//! A backend on HTTP asks in the middle of calls: the stream of each call tells whose question it is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::rig::{Client, DEADLINE, Rig, remote, text};
use crate::scripted_server::{Act, Asked, Scripted, events, json as answer, whole};

const CALLS_EACH: u64 = 10;

/// Asks back on the stream of each call, and answers the call with what it was told.
fn script(open: &Mutex<HashMap<String, mpsc::Sender<String>>>, asked: &Asked) -> Vec<Act> {
    let message: Value = serde_json::from_str(&asked.body).unwrap_or_default();
    let id = &message["id"];
    let result = |result: Value| answer(&json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string());
    match message["method"].as_str() {
        Some("initialize") => result(json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
            "serverInfo": { "name": "asker", "version": "1" },
        })),
        Some("tools/list") => {
            result(json!({ "tools": [{ "name": "ask", "inputSchema": { "type": "object" } }] }))
        }
        Some("tools/call") => {
            let (say, said) = mpsc::channel(1);
            open.lock().expect("no test panics with it").insert(format!("q-{id}"), say);
            let question = json!({ "jsonrpc": "2.0", "id": format!("q-{id}"), "method": "elicitation/create",
                "params": { "message": message["params"]["arguments"]["who"] } });
            let said = Arc::new(tokio::sync::Mutex::new(said));
            vec![events(&format!("data: {question}\n\n")), Act::Follow(said)]
        }
        None if message["result"].is_object() => {
            let question = id.as_str().unwrap_or_default();
            let say = open.lock().expect("no test panics with it").remove(question).expect("it was asked");
            let call: u64 = question.trim_start_matches("q-").parse().expect("a number");
            let told =
                json!({ "content": [{ "type": "text", "text": message["result"]["content"]["who"] }] });
            let line = json!({ "jsonrpc": "2.0", "id": call, "result": told });
            say.try_send(format!("data: {line}\n\n")).expect("there is room");
            whole("202 Accepted", "", "")
        }
        Some(method) if method.starts_with("notifications/") => whole("202 Accepted", "", ""),
        _ => whole("405 Method Not Allowed", "", ""),
    }
}

/// Makes calls at once, and answers each question that comes with what it says.
async fn converse(mut client: Client, name: &'static str) {
    let mut lines = client.attach();
    let answering = client.clone();
    tokio::spawn(async move {
        while let Some(line) = lines.recv().await {
            let question: Value = serde_json::from_str(&line).expect("JSON");
            assert_eq!(question["method"], "elicitation/create", "{question}");
            let who = question["params"]["message"].as_str().expect("a text");
            assert!(who.starts_with(name), "{name} is asked what {who} should be");
            let content = json!({ "action": "accept", "content": { "who": who } });
            answering.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": content }));
        }
    });
    let calls = (1..=CALLS_EACH).map(|id| {
        let client = client.clone();
        async move {
            let who = format!("{name} {id}");
            let answer = client.call(id, "ask", json!({ "who": who })).await;
            assert_eq!(text(&answer), who, "{answer}");
        }
    });
    futures_util::future::join_all(calls).await;
}

#[tokio::test]
async fn a_question_reaches_the_client_whose_call_it_came_on() {
    let open = Mutex::<HashMap<String, mpsc::Sender<String>>>::default();
    let server = Scripted::start(move |asked| script(&open, asked)).await;
    let backend = remote("asker", &server.url, Duration::from_secs(30));
    let rig = Rig::new(&[backend], Vec::new());
    let elicits = json!({ "elicitation": {} });
    let one = Client::legacy_with_capabilities(&rig.gateway, elicits.clone()).await;
    one.await_tools(&["ask"]).await;
    let two = Client::legacy_with_capabilities(&rig.gateway, elicits).await;
    let both = async { tokio::join!(converse(one, "one"), converse(two, "two")) };
    tokio::time::timeout(DEADLINE, both).await.expect("nobody waits for ever");
}
