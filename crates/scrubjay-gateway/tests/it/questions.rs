//! A backend on HTTP sends requests to its clients during calls. The stream on which a request comes shows which client
//! it is for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::rig::{Client, DEADLINE, Rig, remote, text};
use crate::scripted_server::{
    Action, ReceivedRequest, ScriptedServer, event_stream, json_response, response,
};

const CALLS_EACH: u64 = 10;

/// Sends a question on the stream of each call, and answers the call with the client's answer.
fn script(
    call_streams: &Mutex<HashMap<String, mpsc::Sender<String>>>,
    request: &ReceivedRequest,
) -> Vec<Action> {
    let message: Value = serde_json::from_str(&request.body).unwrap_or_default();
    let id = &message["id"];
    let result =
        |result: Value| json_response(&json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string());
    match message["method"].as_str() {
        Some("initialize") => result(json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
            "serverInfo": { "name": "asker", "version": "1" },
        })),
        Some("tools/list") => {
            result(json!({ "tools": [{ "name": "ask", "inputSchema": { "type": "object" } }] }))
        }
        Some("tools/call") => {
            let (sender, receiver) = mpsc::channel(1);
            let mut call_streams = call_streams.lock().expect("nothing panics while it holds the lock");
            call_streams.insert(format!("q-{id}"), sender);
            let question = json!({ "jsonrpc": "2.0", "id": format!("q-{id}"), "method": "elicitation/create",
                "params": { "message": message["params"]["arguments"]["who"] } });
            let receiver = Arc::new(tokio::sync::Mutex::new(receiver));
            vec![event_stream(&format!("data: {question}\n\n")), Action::SendFrom(receiver)]
        }
        None if message["result"].is_object() => {
            let question = id.as_str().unwrap_or_default();
            let mut call_streams = call_streams.lock().expect("nothing panics while it holds the lock");
            let sender = call_streams.remove(question).expect("the question was sent");
            let call: u64 = question.trim_start_matches("q-").parse().expect("a number");
            let result =
                json!({ "content": [{ "type": "text", "text": message["result"]["content"]["who"] }] });
            let line = json!({ "jsonrpc": "2.0", "id": call, "result": result });
            sender.try_send(format!("data: {line}\n\n")).expect("there is room");
            response("202 Accepted", "", "")
        }
        Some(method) if method.starts_with("notifications/") => response("202 Accepted", "", ""),
        _ => response("405 Method Not Allowed", "", ""),
    }
}

/// Makes calls concurrently, and answers each question with the text of its message.
async fn make_calls(mut client: Client, name: &'static str) {
    let mut lines = client.attach();
    let answerer = client.clone();
    tokio::spawn(async move {
        while let Some(line) = lines.recv().await {
            let question: Value = serde_json::from_str(&line).expect("JSON");
            assert_eq!(question["method"], "elicitation/create", "{question}");
            let who = question["params"]["message"].as_str().expect("a text");
            assert!(who.starts_with(name), "{name} got the question for {who}");
            let result = json!({ "action": "accept", "content": { "who": who } });
            answerer.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
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
async fn a_question_reaches_the_client_whose_call_it_belongs_to() {
    let call_streams = Mutex::<HashMap<String, mpsc::Sender<String>>>::default();
    let server = ScriptedServer::start(move |request| script(&call_streams, request)).await;
    let backend = remote("asker", &server.url, Duration::from_secs(30));
    let rig = Rig::new(&[backend], Vec::new());
    let capabilities = json!({ "elicitation": {} });
    let one = Client::legacy_with_capabilities(&rig.gateway, capabilities.clone()).await;
    one.await_tools(&["ask"]).await;
    let two = Client::legacy_with_capabilities(&rig.gateway, capabilities).await;
    let both = async { tokio::join!(make_calls(one, "one"), make_calls(two, "two")) };
    tokio::time::timeout(DEADLINE, both).await.expect("all calls end in time");
}
