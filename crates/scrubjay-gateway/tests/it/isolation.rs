//! Clients are isolated from each other: each has its own connection to a legacy backend, and requests and log messages
//! on that connection reach no other client.

use futures_util::future::join_all;
use scrubjay_core::entry::Direction;
use scrubjay_gateway::config::BackendConfig;
use scrubjay_gateway::tree;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::rig::{Client, DEADLINE, Rig, error_message, program, repository, text, until};

fn server(id: &str, more: &[&str]) -> BackendConfig {
    let script = repository().join("tests/backends/session_server.py");
    let mut args = vec!["-B", script.to_str().expect("a path in UTF-8")];
    args.extend(more);
    program(id, "python3", &args, DEADLINE)
}

fn shared(id: &str) -> BackendConfig {
    BackendConfig { is_shared: true, ..server(id, &[]) }
}

/// A legacy client with roots and elicitation. It answers each request of the server with its name.
async fn legacy(rig: &Rig, name: &str) -> Client {
    let capabilities = json!({ "roots": { "listChanged": true }, "elicitation": {} });
    let (client, messages) = Client::legacy_with_stream(&rig.gateway, name, capabilities).await;
    tokio::spawn(answer_all(client.clone(), name.to_owned(), messages));
    client
}

async fn answer_all(client: Client, name: String, mut messages: mpsc::Receiver<String>) {
    while let Some(message) = messages.recv().await {
        let message: Value = serde_json::from_str(&message).expect("JSON");
        if let Some(answer) = answer_to(&name, message["method"].as_str().unwrap_or_default()) {
            client.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": answer }));
        }
    }
}

fn answer_to(name: &str, method: &str) -> Option<Value> {
    match method {
        "roots/list" => Some(json!({ "roots": [{ "uri": format!("file:///{name}") }] })),
        "elicitation/create" => Some(json!({ "action": "accept", "content": { "name": name } })),
        _ => None,
    }
}

/// Calls a tool as a modern client: while the result requests input, sends the call again with the input.
async fn call_modern(client: &Client, name: &str, id: u64, tool: &str) -> Value {
    let mut params = json!({ "name": tool, "arguments": {} });
    for round in 0..5 {
        let answer = client.request(id * 10 + round, "tools/call", params.clone()).await;
        if answer["result"]["resultType"] != "input_required" {
            return answer;
        }
        let mut responses = json!({});
        for (key, request) in answer["result"]["inputRequests"].as_object().expect("requests for input") {
            responses[key] =
                answer_to(name, request["method"].as_str().expect("a method")).expect("an answer");
        }
        params["inputResponses"] = responses;
        params["requestState"] = answer["result"]["requestState"].clone();
    }
    panic!("the server requested input in five answers");
}

fn modern(rig: &Rig, name: &str) -> Client {
    let session = rig.gateway.open_inferred_session(name, name);
    Client::modern(&rig.gateway, session).with_capabilities(json!({ "roots": {}, "elicitation": {} }))
}

/// Counts the messages to servers that contain a text. A message is on tape when it is in the queue to its server.
fn sent_to_servers(rig: &Rig, text: &str) -> u64 {
    let mut count = 0;
    rig.each_entry("", |entry| {
        let is_sent = entry.via.is_some() && entry.direction == Direction::ClientToServer;
        if is_sent && String::from_utf8_lossy(entry.payload).contains(text) {
            count += 1;
        }
    });
    count
}

#[tokio::test]
async fn each_client_has_its_own_roots_and_process() {
    let rig = Rig::new(&[server("one", &[])], Vec::new());
    let (a, b) = (legacy(&rig, "a").await, legacy(&rig, "b").await);
    let (c, d) = (modern(&rig, "c"), modern(&rig, "d"));
    for (client, name) in [(&a, "a"), (&b, "b")] {
        assert_eq!(text(&client.call(1, "roots", json!({})).await), format!(r#"["file:///{name}"]"#));
    }
    for (client, name) in [(&c, "c"), (&d, "d")] {
        assert_eq!(text(&call_modern(client, name, 1, "roots").await), format!(r#"["file:///{name}"]"#));
    }
    let mut pids = Vec::new();
    for client in [&a, &b, &c, &d] {
        pids.push(text(&client.call(2, "pid", json!({})).await).to_owned());
        assert_eq!(pids.last().map(String::as_str), Some(text(&client.call(3, "pid", json!({})).await)));
    }
    pids.sort();
    pids.dedup();
    assert_eq!(pids.len(), 4, "{pids:?}");
    // Each server gets the name and the capabilities of its client, and no capabilities of other clients.
    let answer = a.call(4, "client", json!({})).await;
    let initialize: Value = serde_json::from_str(text(&answer)).expect("JSON");
    assert_eq!(initialize["clientInfo"]["name"], "a");
    assert_eq!(initialize["capabilities"], json!({ "roots": { "listChanged": true }, "elicitation": {} }));
}

#[tokio::test]
async fn two_sessions_of_one_modern_client_share_a_connection() {
    let rig = Rig::new(&[server("one", &[])], Vec::new());
    let session = || rig.gateway.open_inferred_session("conversation", "client");
    let (first, second) = (session(), session());
    let pid = async |session| {
        let answer = Client::modern(&rig.gateway, session).call(1, "pid", json!({})).await;
        text(&answer).to_owned()
    };
    let first_pid = pid(first.clone()).await;
    assert_eq!(first_pid, pid(second.clone()).await);
    // The connection ends with the last session.
    rig.gateway.close_session(&first.id, "the test closed it");
    assert_eq!(first_pid, pid(second.clone()).await);
    rig.gateway.close_session(&second.id, "the test closed it");
    assert!(rig.gateway.backends()[0].open_connections().is_empty());
}

#[tokio::test]
async fn ambiguous_sessions_use_only_shared_backends() {
    let rig = Rig::new(&[server("one", &[]), shared("all")], Vec::new());
    let ambiguous = Client::modern(&rig.gateway, rig.gateway.open_ambiguous_session("m", "m"));
    let listed = ambiguous.request(1, "tools/list", json!({})).await;
    assert!(listed["result"]["tools"].as_array().is_some_and(|tools| tools.len() > 2), "{listed}");
    let refused = ambiguous.call(2, "one__pid", json!({})).await;
    let why = refused["error"]["message"].as_str().unwrap_or_default();
    for remedy in ["serve.auth_token_file", "2025-11-25", "shared: true"] {
        assert!(why.contains(remedy), "{refused}");
    }
    // The user has set `shared: true` for this backend.
    assert!(text(&ambiguous.call(3, "all__pid", json!({})).await).parse::<u32>().is_ok());
}

#[tokio::test]
async fn a_question_during_ten_calls_reaches_the_client_of_its_connection() {
    const CALLS_EACH: u64 = 9;
    let rig = Rig::new(&[server("one", &[])], Vec::new());
    let (a, b) = (legacy(&rig, "a").await, legacy(&rig, "b").await);
    let start_calls = |client: Client| {
        join_all((10..10 + CALLS_EACH).map(move |id| {
            let client = client.clone();
            async move { client.call(id, "wait", json!({})).await }
        }))
    };
    let calls_of_a = tokio::spawn(start_calls(a.clone()));
    let calls_of_b = tokio::spawn(start_calls(b.clone()));
    // A server reads its messages in order: a call that was sent before `release` is waiting when `release` is called.
    until("all calls are sent", || sent_to_servers(&rig, r#""name":"wait""#) == 2 * CALLS_EACH).await;
    for (client, name) in [(&a, "a"), (&b, "b")] {
        let answer = client.call(2, "ask", json!({})).await;
        assert!(text(&answer).contains(&format!(r#""name": "{name}""#)), "{answer}");
        client.call(3, "release", json!({})).await;
    }
    for calls in [calls_of_a, calls_of_b] {
        let answers = calls.await.expect("no call fails");
        assert!(answers.iter().all(|answer| text(answer) == "released"), "{answers:?}");
    }
}

#[tokio::test]
async fn ten_modern_calls_with_questions_all_succeed() {
    let rig = Rig::new(&[server("one", &[])], Vec::new());
    let client = modern(&rig, "m");
    call_modern(&client, "m", 1, "roots").await;
    let calls = (10..20).map(|id| {
        let client = client.clone();
        async move { call_modern(&client, "m", id, if id % 2 == 0 { "ask" } else { "pid" }).await }
    });
    for answer in join_all(calls).await {
        assert!(!text(&answer).is_empty(), "{answer}");
        assert!(!text(&answer).contains("error"), "{answer}");
    }
}

#[tokio::test]
async fn log_messages_between_calls_reach_the_client_of_the_connection() {
    let rig = Rig::new(&[server("one", &[])], Vec::new());
    let (a, mut to_a) = Client::legacy_with_stream(&rig.gateway, "a", json!({})).await;
    let (b, mut to_b) = Client::legacy_with_stream(&rig.gateway, "b", json!({})).await;
    for (client, mark) in [(&a, "for a"), (&b, "for b")] {
        assert_eq!(text(&client.call(1, "log", json!({ "text": mark })).await), "logged");
    }
    for (messages, mark, other) in [(&mut to_a, "for a", "for b"), (&mut to_b, "for b", "for a")] {
        let line =
            tokio::time::timeout(DEADLINE, messages.recv()).await.expect("in time").expect("still open");
        assert!(line.contains(mark) && !line.contains(other), "{line}");
        assert!(messages.try_recv().is_err(), "a message of the other client's connection");
    }
}

#[tokio::test]
async fn one_connection_serves_all_clients_of_a_shared_backend() {
    let rig = Rig::new(&[shared("one")], Vec::new());
    let mut pids = Vec::new();
    for client in [legacy(&rig, "a").await, legacy(&rig, "b").await, modern(&rig, "c")] {
        pids.push(text(&client.call(1, "pid", json!({})).await).to_owned());
    }
    pids.dedup();
    assert_eq!(pids.len(), 1, "{pids:?}");
}

#[tokio::test]
async fn a_backend_serves_at_most_connections_max_clients() {
    let rig = Rig::new(&[BackendConfig { connections_max: 2, ..server("one", &[]) }], Vec::new());
    let clients = [legacy(&rig, "a").await, legacy(&rig, "b").await, legacy(&rig, "c").await];
    // Both have a call under way, so neither connection is closed to make room.
    for client in &clients[..2] {
        text(&client.call(1, "pid", json!({})).await);
        let waiting = client.clone();
        tokio::spawn(async move { waiting.call_ignoring_answer(2, "wait").await });
    }
    let refused = clients[2].call(1, "pid", json!({})).await;
    let why = error_message(&refused);
    assert!(why.contains("maxConnections") && why.contains("shared: true"), "{why}");
    // A client that leaves makes room for another.
    clients[0].close_session();
    text(&clients[2].call(2, "pid", json!({})).await);
}

#[tokio::test]
async fn the_greeting_contains_the_instructions_of_backends() {
    let rig = Rig::new(&[server("one", &[])], Vec::new());
    let (client, _messages) = Client::legacy_with_stream(&rig.gateway, "a", json!({})).await;
    let info = json!({ "name": "client", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
    for method in ["initialize", "server/discover"] {
        let client = match method {
            "initialize" => client.clone(),
            _ => Client::modern(&rig.gateway, rig.gateway.open_inferred_session("m", "m")),
        };
        let greeting = client.request(9, method, params.clone()).await;
        assert_eq!(greeting["result"]["instructions"], "Ask for roots first.", "{greeting}");
    }
}

#[tokio::test]
async fn finding_the_era_starts_a_server_only_once() {
    for mute in [&[][..], &["--mute-discover"]] {
        let rig = Rig::new(&[server("one", mute)], Vec::new());
        let client = Client::modern(&rig.gateway, rig.gateway.open_inferred_session("m", "m"));
        let calls = (1..20).map(|id| client.call(id, "pid", json!({})));
        let mut pids: Vec<String> = join_all(calls).await.iter().map(|a| text(a).to_owned()).collect();
        pids.dedup();
        assert_eq!(pids.len(), 1, "{pids:?}");
        let tape = String::from_utf8_lossy(&rig.payloads("")).into_owned();
        assert_eq!(tape.matches(r#""method":"initialize""#).count(), 1, "{tape}");
        assert_eq!(tape.matches(r#""method":"tools/list""#).count(), 1, "{tape}");
    }
}

#[tokio::test]
async fn closed_sessions_leave_no_processes_or_connections() {
    let rig = Rig::new(&[server("one", &[])], Vec::new());
    let processes_before = tree::descendants().len();
    for round in 0..5 {
        let clients = join_all((0..8).map(|n| legacy(&rig, if n % 2 == 0 { "a" } else { "b" }))).await;
        let calls = join_all(clients.iter().map(|client| client.call(1, "pid", json!({})))).await;
        assert!(calls.iter().all(|answer| !text(answer).is_empty()), "round {round}");
        clients.iter().for_each(Client::close_session);
    }
    // The same if a client leaves while its server starts, at each step of the start.
    for step in [None, Some(""), Some("initialize"), Some("notifications/initialized"), Some("tools/call")] {
        for is_modern in [false, true] {
            let client = if is_modern {
                let session = rig.gateway.open_inferred_session("client", "client");
                Client::modern(&rig.gateway, session)
            } else {
                legacy(&rig, "client").await
            };
            let caller = client.clone();
            let method = format!(r#""method":"{}""#, step.unwrap_or_default());
            let sent_before = sent_to_servers(&rig, &method);
            let call = tokio::spawn(async move { caller.call_ignoring_answer(1, "pid").await });
            match step {
                None => {}
                // The call has begun to start the server, and has sent nothing yet.
                Some("") => tokio::task::yield_now().await,
                Some(_) => until(&method, || sent_to_servers(&rig, &method) > sent_before).await,
            }
            client.close_session();
            call.await.expect("the call ends");
        }
    }
    assert_eq!(rig.gateway.session_count(), 0);
    until("all servers end", || tree::descendants().len() <= processes_before).await;
    assert!(rig.gateway.backends()[0].open_connections().is_empty());
}
