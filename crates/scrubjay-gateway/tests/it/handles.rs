//! Handles (progress tokens, tasks, request states, ids) can be used only by their client: for each kind, the use by
//! another client is refused and does not affect the first one.
//!
//! The server does not distinguish clients, and one connection to it serves all of them: a legacy one because the user
//! set `shared: true`, a modern one always.

use std::path::Path;

use futures_util::StreamExt;
use scrubjay_gateway::config::{BackendConfig, BackendLink};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::rig::{Client, DEADLINE, Rig, error_message, program, repository, text};

const ERAS: [&str; 2] = ["legacy", "modern"];
/// Half of them in each era.
const CLIENTS: u64 = 24;
/// 12,000 calls in all.
const CALLS_EACH: u64 = 500;
const CONCURRENT_CALLS: usize = 16;

fn server(era: &str) -> BackendConfig {
    let script = repository().join("tests/backends/handles_server.py");
    let script = script.to_str().expect("a path in UTF-8");
    BackendConfig { is_shared: true, ..program("one", "python3", &["-B", script, "--era", era], DEADLINE) }
}

fn rig(era: &str) -> Rig {
    Rig::new(&[server(era)], Vec::new())
}

/// Makes the server write each line that it reads to a file.
fn with_input_file(file: &Path, server: BackendConfig) -> BackendConfig {
    let BackendLink::Stdio { command, mut args, env, inherit_env } = server.link else {
        panic!("the backend is a program");
    };
    args.extend(["--heard".to_owned(), file.to_str().expect("a path in UTF-8").to_owned()]);
    BackendConfig { link: BackendLink::Stdio { command, args, env, inherit_env }, ..server }
}

/// Makes two clients of the server's era with the same name. Returns each with the messages to it that are not answers.
async fn two_clients(rig: &Rig, era: &str) -> [(Client, mpsc::Receiver<String>); 2] {
    let client = async |name: &str| {
        if era == "legacy" {
            return Client::legacy_with_stream(&rig.gateway, "same", json!({ "elicitation": {} })).await;
        }
        let session = rig.gateway.open_inferred_session("client", name);
        let mut client = Client::modern(&rig.gateway, session).with_capabilities(
            json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } }),
        );
        let messages = client.attach();
        (client, messages)
    };
    [client("a").await, client("b").await]
}

fn assert_refused(answer: &Value) {
    // -32601 because the modern era has fewer methods.
    assert!([-32602, -32601].map(Value::from).contains(&answer["error"]["code"]), "{answer}");
    assert!(!answer.to_string().contains("secret"), "{answer}");
}

/// Begins a call that is answered when a client calls `release`; returns when the server has read it.
async fn begin_wait(rig: &Rig, client: &Client, id: u64, meta: Value) -> tokio::task::JoinHandle<Value> {
    let waiting = client.clone();
    let call = tokio::spawn(async move {
        waiting.request(id, "tools/call", json!({ "name": "wait", "arguments": {}, "_meta": meta })).await
    });
    while !String::from_utf8_lossy(&rig.payloads("client")).contains(r#""name":"wait""#) {
        tokio::task::yield_now().await;
    }
    // The server reads in order: when it answers this, it has read the call.
    client.call(9_000 + id, "echo", json!({ "nonce": "there" })).await;
    call
}

async fn next_message(messages: &mut mpsc::Receiver<String>) -> Value {
    let line = tokio::time::timeout(DEADLINE, messages.recv()).await.expect("in time").expect("still open");
    serde_json::from_str(&line).expect("JSON")
}

/// Checks that no message has come. To be called when all requests that could cause one are answered.
fn assert_no_message(messages: &mut mpsc::Receiver<String>) {
    assert_eq!(messages.try_recv().ok(), None);
}

#[tokio::test]
async fn progress_tokens_sent_to_servers_cannot_be_guessed() {
    for era in ERAS {
        let rig = rig(era);
        let [(a, _a), (b, _b)] = two_clients(&rig, era).await;
        let mut tokens = Vec::new();
        for (id, client) in [(1, &a), (2, &a), (1, &b), (2, &b)] {
            let params = json!({ "name": "token", "arguments": {}, "_meta": { "progressToken": 7 } });
            let answer = client.request(id, "tools/call", params).await;
            let token: Value = serde_json::from_str(text(&answer)).expect("JSON");
            let token = token.as_str().expect("the gateway's tokens are text").to_owned();
            let (_, code) = token.split_once('-').expect("a number and a code");
            assert!(code.len() >= 32 && code.bytes().all(|b| b.is_ascii_hexdigit()), "{token}");
            tokens.push(token);
        }
        tokens.sort();
        tokens.dedup();
        assert_eq!(tokens.len(), 4, "{tokens:?}");
    }
}

#[tokio::test]
async fn progress_with_a_guessed_token_reaches_no_client() {
    for era in ERAS {
        let rig = rig(era);
        let [(a, mut to_a), (b, mut to_b)] = two_clients(&rig, era).await;
        let call = begin_wait(&rig, &a, 5, json!({ "progressToken": "mine" })).await;
        let guesses = (0..40).flat_map(|n| [json!(n), json!(n.to_string()), json!(format!("{n}-{:032}", 0))]);
        for (id, token) in (100..).zip(guesses.chain([json!("mine"), json!(null), json!({})])) {
            let answer = b.call(id, "forge", json!({ "token": token })).await;
            assert_eq!(text(&answer), "forged");
        }
        assert_no_message(&mut to_b);
        assert_no_message(&mut to_a);
        b.call(900, "release", json!({})).await;
        assert_eq!(text(&call.await.expect("the call does not panic")), "released");
        let progress = next_message(&mut to_a).await;
        assert_eq!(progress["params"]["progressToken"], "mine", "{era}: {progress}");
        assert_no_message(&mut to_a);
        assert_no_message(&mut to_b);
        // Progress that reached no client is on tape.
        let tapes = String::from_utf8_lossy(&rig.payloads("backend")).into_owned();
        assert_eq!(tapes.matches("notifications/progress").count(), 123, "{era}");
    }
}

#[tokio::test]
async fn a_progress_token_in_use_is_refused_only_to_its_own_client() {
    let rig = rig("legacy");
    let [(a, _a), (b, mut to_b)] = two_clients(&rig, "legacy").await;
    let call = begin_wait(&rig, &a, 5, json!({ "progressToken": "same" })).await;
    let again =
        json!({ "name": "echo", "arguments": { "nonce": "n" }, "_meta": { "progressToken": "same" } });
    let refused = a.request(6, "tools/call", again.clone()).await;
    assert!(error_message(&refused).contains("progressToken"), "{refused}");
    assert_eq!(text(&b.request(6, "tools/call", again.clone()).await), "n");
    assert_eq!(next_message(&mut to_b).await["params"]["progressToken"], "same");
    b.call(7, "release", json!({})).await;
    assert_eq!(text(&call.await.expect("the call does not panic")), "released");
    // The token is free again.
    assert_eq!(text(&a.request(8, "tools/call", again).await), "n");
}

#[tokio::test]
async fn tasks_can_be_used_only_by_their_client() {
    for era in ERAS {
        let rig = rig(era);
        let [(a, mut to_a), (b, mut to_b)] = two_clients(&rig, era).await;
        let answer = a.call(1, "begin", json!({ "secret": "the secret of a" })).await;
        let task = answer["result"]["task"]["taskId"].as_str().or(answer["result"]["taskId"].as_str());
        let task = task.expect("a task").to_owned();
        for (id, method) in (10..).zip(["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"]) {
            assert_refused(&b.request(id, method, json!({ "taskId": task })).await);
            assert_refused(&b.request(id, method, json!({ "taskId": "made up" })).await);
        }
        // The task does not become the other client's if the server sends its status during a call of that client.
        let own = b.call(20, "begin", json!({ "secret": "the secret of b" })).await;
        assert!(own["result"].to_string().contains("task-2"), "{own}");
        let listed = b.request(21, "tasks/list", json!({})).await["result"]["tasks"].clone();
        assert_eq!(listed, json!([{ "taskId": "task-2", "status": "working" }]), "{era}");
        assert_eq!(text(&b.call(22, "status", json!({ "task": task })).await), "told");
        assert_no_message(&mut to_b);
        assert_eq!(text(&a.request(23, "tasks/get", json!({ "taskId": task })).await), "the secret of a");
        let listed = a.request(24, "tasks/list", json!({})).await["result"]["tasks"].clone();
        assert_eq!(listed[0]["taskId"], json!(task), "{era}");
        if era == "legacy" {
            assert_eq!(next_message(&mut to_a).await["params"]["taskId"], json!(task));
        }
        // The refusals are on tape.
        let tapes = String::from_utf8_lossy(&rig.payloads("client")).into_owned();
        let refused = tapes.matches("there is no such task").count() + tapes.matches("-32601").count();
        assert!(refused >= 8, "{era}: {refused}");
    }
}

/// Makes a request with exactly these members of `params`.
fn raw_params_request(era: &str, id: u64, method: &str, members: &str) -> String {
    let capabilities = json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    let meta = if era == "modern" { format!(r#","_meta":{meta}"#) } else { String::new() };
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{members}{meta}}}}}"#)
}

#[tokio::test]
async fn ambiguous_task_ids_are_refused() {
    for era in ERAS {
        let rig = rig(era);
        let [(a, _a), (b, _b)] = two_clients(&rig, era).await;
        a.call(1, "begin", json!({ "secret": "the secret of a" })).await;
        b.call(1, "begin", json!({ "secret": "of b" })).await;
        let ambiguous = [
            // A key that is not valid text for the gateway, but is for Python and JavaScript.
            r#""\ud800":1,"taskId":"task-1""#,
            r#""taskId":["task-1"]"#,
            r#""taskId":null"#,
            r#""taskId":"\ud800""#,
            r#""taskid":"task-1""#,
            "\"tas\u{212a}Id\":\"task-1\"",
            r#""taskId":"task-2","taskId":"task-1""#,
            r#""taskId":"task-1","taskId":"task-2""#,
            r#""taskId":"task-2","TaskId":"task-1""#,
            r#""taskId":"task-2","task\u0049d":"task-1""#,
            r#""task":"task-1""#,
        ];
        let methods = ["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"];
        let requests = methods.iter().flat_map(|method| ambiguous.map(|members| (method, members)));
        for (id, (method, members)) in (100..).zip(requests) {
            assert_refused(&b.raw_request(id, &raw_params_request(era, id, method, members)).await);
        }
        for (id, params) in (200..).zip([r#"["task-1"]"#, "null"]) {
            let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tasks/get","params":{params}}}"#);
            assert_refused(&b.raw_request(id, &line).await);
        }
        // A task id that all parsers read alike is accepted in any spelling.
        let own = raw_params_request(era, 300, "tasks/get", r#""x":{"\ud800":1},"task\u0049d":"task-2""#);
        assert_eq!(text(&b.raw_request(300, &own).await), "of b");
    }
}

#[tokio::test]
async fn ambiguous_request_states_are_refused() {
    let rig = rig("modern");
    let [(a, _a), (b, _b)] = two_clients(&rig, "modern").await;
    a.call(1, "ask", json!({ "secret": "the secret of a" })).await;
    let ambiguous = [
        r#""\ud800":1,"requestState":"state-1""#,
        r#""requestState":["state-1"]"#,
        r#""RequestState":"state-1""#,
        "\"reque\u{17f}tState\":\"state-1\"",
    ];
    for method in ["tools/call", "unknown/method"] {
        for (id, members) in (10..).zip(ambiguous) {
            let members = format!(r#""name":"ask","arguments":{{}},{members}"#);
            assert_refused(&b.raw_request(id, &raw_params_request("modern", id, method, &members)).await);
        }
    }
}

#[tokio::test]
async fn a_request_state_can_be_used_only_by_its_client() {
    let rig = rig("modern");
    let [(a, _a), (b, _b)] = two_clients(&rig, "modern").await;
    let params = json!({ "name": "ask", "arguments": { "secret": "the secret of a" } });
    let demand = a.request(1, "tools/call", params.clone()).await;
    let state = demand["result"]["requestState"].as_str().expect("a state").to_owned();
    assert_eq!(demand["result"]["resultType"], "input_required", "{demand}");
    let with = |state: &str| {
        let mut params = params.clone();
        params["requestState"] = json!(state);
        params["inputResponses"] = json!({ "name": { "action": "decline" } });
        params
    };
    let mut altered = state.clone();
    altered.replace_range(12..13, if &state[12..13] == "0" { "1" } else { "0" });
    for (id, wrong_state) in (10..).zip([state.as_str(), "state-1", "\"state-1\"", &altered, "scrubjay.", ""])
    {
        assert_refused(&b.request(id, "tools/call", with(wrong_state)).await);
    }
    for (id, wrong_state) in (20..).zip(["state-1", &altered]) {
        assert_refused(&a.request(id, "tools/call", with(wrong_state)).await);
    }
    // A legacy client never gets a state.
    let (legacy, _messages) =
        Client::legacy_with_stream(&rig.gateway, "same", json!({ "elicitation": {} })).await;
    for (id, wrong_state) in (30..).zip([state.as_str(), "state-1"]) {
        assert_refused(&legacy.request(id, "tools/call", with(wrong_state)).await);
    }
    assert_eq!(text(&a.request(40, "tools/call", with(&state)).await), "the secret of a");
}

#[tokio::test]
async fn a_parked_call_is_resumed_only_by_its_own_client() {
    let script = repository().join("tests/backends/session_server.py");
    let script = script.to_str().expect("a path in UTF-8");
    let rig = Rig::new(&[program("one", "python3", &["-B", script], DEADLINE)], Vec::new());
    let [(a, _a), (b, _b)] = two_clients(&rig, "modern").await;
    let mut params = json!({ "name": "ask", "arguments": {} });
    let demand = a.request(1, "tools/call", params.clone()).await;
    params["requestState"] = demand["result"]["requestState"].clone();
    params["inputResponses"] = json!({ "input-1": { "action": "accept", "content": { "name": "b" } } });
    assert!(params["requestState"].is_string(), "{demand}");
    assert_refused(&b.request(2, "tools/call", params.clone()).await);
    params["inputResponses"]["input-1"]["content"]["name"] = json!("a");
    let answer = a.request(3, "tools/call", params.clone()).await;
    assert!(text(&answer).contains(r#""name": "a""#), "{answer}");
    // The call can be resumed only once.
    assert_refused(&a.request(4, "tools/call", params).await);
}

#[tokio::test]
async fn a_client_can_cancel_only_its_own_requests() {
    for era in ERAS {
        let rig = rig(era);
        let [(a, _a), (b, _b)] = two_clients(&rig, era).await;
        let call = begin_wait(&rig, &a, 5, json!({})).await;
        for id in [json!(5), json!("5"), json!(5.0), json!(1), json!(2), json!(3)] {
            let params = json!({ "requestId": id, "reason": "not mine" });
            b.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
        }
        for token in [json!("x"), json!(1)] {
            let params = json!({ "progressToken": token, "progress": 1 });
            b.send(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }));
        }
        b.call(6, "release", json!({})).await;
        assert_eq!(text(&call.await.expect("the call does not panic")), "released", "{era}");
    }
}

#[tokio::test]
async fn a_question_can_be_answered_only_by_its_client() {
    let script = repository().join("tests/backends/session_server.py");
    let script = script.to_str().expect("a path in UTF-8");
    let rig = Rig::new(&[program("one", "python3", &["-B", script], DEADLINE)], Vec::new());
    let [(a, mut to_a), (b, _b)] = two_clients(&rig, "legacy").await;
    let caller = a.clone();
    let call = tokio::spawn(async move { caller.call(1, "ask", json!({})).await });
    let question = next_message(&mut to_a).await;
    let forged = json!({ "action": "accept", "content": { "name": "b" } });
    for id in [question["id"].clone(), json!("scrubjay-1"), json!(1), json!("q1")] {
        b.send(&json!({ "jsonrpc": "2.0", "id": id, "result": forged }));
    }
    let answer = json!({ "action": "accept", "content": { "name": "a" } });
    a.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer }));
    let answer = call.await.expect("the call does not panic");
    assert!(text(&answer).contains(r#""name": "a""#), "{answer}");
}

#[tokio::test]
async fn log_messages_between_calls_of_several_clients_reach_no_client() {
    let rig = rig("legacy");
    let [(a, mut to_a), (b, mut to_b)] = two_clients(&rig, "legacy").await;
    a.call(1, "log", json!({ "text": "the secret of a" })).await;
    // The server writes in order: the log message came before this answer.
    b.call(2, "echo", json!({ "nonce": "n" })).await;
    assert_no_message(&mut to_b);
    assert_no_message(&mut to_a);
    assert!(String::from_utf8_lossy(&rig.payloads("")).contains("notifications/message"));
}

#[tokio::test]
async fn log_messages_of_a_finished_call_reach_no_other_client() {
    for era in ERAS {
        let rig = rig(era);
        let [(a, mut to_a), (b, mut to_b)] = two_clients(&rig, era).await;
        let meta = json!({ "io.modelcontextprotocol/logLevel": "debug" });
        let call = begin_wait(&rig, &b, 5, meta).await;
        assert_eq!(text(&a.call(1, "log", json!({ "text": "the secret of a" })).await), "logs");
        // The server writes in order: the log message came before this answer.
        b.call(6, "release", json!({})).await;
        assert_eq!(text(&call.await.expect("the call does not panic")), "released");
        assert_no_message(&mut to_a);
        assert_no_message(&mut to_b);
        assert!(String::from_utf8_lossy(&rig.payloads("backend")).contains("the secret of a"), "{era}");
        // The same after the other client has left.
        a.close_session();
        b.call(7, "log", json!({ "text": "whose?" })).await;
        b.call(8, "echo", json!({ "nonce": "n" })).await;
        assert_no_message(&mut to_b);
    }
}

#[tokio::test]
async fn log_messages_reach_the_only_client() {
    let rig = rig("legacy");
    let (a, mut to_a) = Client::legacy_with_stream(&rig.gateway, "same", json!({})).await;
    a.call(1, "log", json!({ "text": "between calls" })).await;
    assert_eq!(next_message(&mut to_a).await["params"]["data"], "between calls");
    let call = begin_wait(&rig, &a, 5, json!({})).await;
    a.call(2, "log", json!({ "text": "during a call" })).await;
    assert_eq!(next_message(&mut to_a).await["params"]["data"], "during a call");
    a.call(6, "release", json!({})).await;
    call.await.expect("the call does not panic");
}

#[tokio::test]
async fn a_question_of_a_finished_call_reaches_no_other_client() {
    for has_left in [false, true] {
        let rig = rig("legacy");
        let [(a, mut to_a), (b, mut to_b)] = two_clients(&rig, "legacy").await;
        a.call(1, "echo", json!({ "nonce": "n" })).await;
        let call = begin_wait(&rig, &b, 5, json!({})).await;
        if has_left {
            a.close_session();
            b.call(6, "ask_late", json!({ "text": "the secret of a" })).await;
        } else {
            a.call(2, "ask_late", json!({ "text": "the secret of a" })).await;
        }
        tokio::select! {
            reply = b.call(7, "reply", json!({})) => assert!(text(&reply).contains("it cannot be told"), "{reply}"),
            question = next_message(&mut to_b) => panic!("the question reached another client: {question}"),
        }
        assert_no_message(&mut to_a);
        assert_no_message(&mut to_b);
        b.call(8, "release", json!({})).await;
        call.await.expect("the call does not panic");
    }
}

#[tokio::test]
async fn a_notification_with_an_id_reaches_no_shared_server() {
    for (era, is_transparent) in [("legacy", false), ("modern", false), ("modern", true)] {
        let input = tempfile::NamedTempFile::new().expect("a temporary file can be made");
        let server = with_input_file(input.path(), server(era));
        let rig = if is_transparent { Rig::transparent(server) } else { Rig::new(&[server], Vec::new()) };
        let [(a, _a), (b, _b)] = two_clients(&rig, era).await;
        let call = begin_wait(&rig, &a, 5, json!({})).await;
        for id in 10..20 {
            let params = json!({ "requestId": id - 10, "reason": "not mine" });
            let refused = b.request(id, "notifications/cancelled", params).await;
            assert_eq!(refused["error"]["code"], -32601, "{refused}");
        }
        b.call(6, "release", json!({})).await;
        assert_eq!(text(&call.await.expect("the call does not panic")), "released");
        let lines = std::fs::read_to_string(input.path()).expect("the server writes the file");
        assert!(lines.contains("release") && !lines.contains("notifications/cancelled"), "{lines}");
        assert!(
            String::from_utf8_lossy(&rig.payloads("client")).contains("not mine"),
            "the refused notification is on tape"
        );
    }
}

/// Requests without an id, to which no answer is possible.
fn requests_without_id() -> [Value; 3] {
    [
        ("tools/call", json!({ "name": "stop", "arguments": {} })),
        ("tasks/cancel", json!({ "taskId": "task-1" })),
        ("resources/unsubscribe", json!({ "uri": "mem://a" })),
    ]
    .map(|(method, params)| json!({ "jsonrpc": "2.0", "method": method, "params": params }))
}

#[tokio::test]
async fn a_request_without_an_id_reaches_no_server() {
    for (era, is_shared) in [("legacy", true), ("legacy", false), ("modern", true)] {
        let input = tempfile::NamedTempFile::new().expect("a temporary file can be made");
        let server = BackendConfig { is_shared, ..with_input_file(input.path(), server(era)) };
        let rig = Rig::new(&[server], Vec::new());
        let [(a, _a), _] = two_clients(&rig, era).await;
        a.call(1, "echo", json!({ "nonce": "up" })).await;
        requests_without_id().iter().for_each(|request| a.send(request));
        // A notification passes. It is sent last, so when the server has read it, the requests cannot come any more.
        a.send(&json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
        let lines = server_input_with(&a, input.path(), "notifications/roots/list_changed").await;
        for method in ["tasks/cancel", "resources/unsubscribe", r#""name":"stop""#] {
            assert!(!lines.contains(method), "{lines}");
        }
        let tapes = String::from_utf8_lossy(&rig.payloads("client")).into_owned();
        assert_eq!(tapes.matches("a request without an id").count(), 3, "{tapes}");
    }
}

#[tokio::test]
async fn a_transparent_server_receives_requests_without_an_id() {
    let input = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    let rig = Rig::transparent(with_input_file(input.path(), server("legacy")));
    let (a, _a) = Client::legacy_with_stream(&rig.gateway, "a", json!({})).await;
    requests_without_id().iter().for_each(|request| a.send(request));
    a.send(&json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
    let lines = server_input_with(&a, input.path(), "notifications/roots/list_changed").await;
    for method in ["tasks/cancel", "resources/unsubscribe", r#""name":"stop""#] {
        assert!(lines.contains(method), "{lines}");
    }
}

/// Waits until a server has read a line with this text; returns all that it has read.
async fn server_input_with(client: &Client, input: &Path, expected: &str) -> String {
    let waiting = async {
        for id in 6_000.. {
            client.call(id, "echo", json!({ "nonce": "n" })).await;
            let lines = std::fs::read_to_string(input).expect("the server writes the file");
            if lines.contains(expected) {
                return lines;
            }
        }
        unreachable!("there is always another id")
    };
    tokio::time::timeout(DEADLINE, waiting).await.expect("the server reads it in time")
}

#[tokio::test]
async fn parked_calls_of_one_client_do_not_count_against_another() {
    let script = repository().join("tests/backends/session_server.py");
    let script = script.to_str().expect("a path in UTF-8");
    let rig = Rig::new(&[program("one", "python3", &["-B", script], DEADLINE)], Vec::new());
    let [(a, _a), (b, _b)] = two_clients(&rig, "modern").await;
    let mut demand = Value::Null;
    for id in 1..=64 {
        demand = a.call(id, "ask", json!({})).await;
        assert_eq!(demand["result"]["resultType"], "input_required", "{id}: {demand}");
    }
    let refused = a.call(65, "ask", json!({})).await;
    assert!(error_message(&refused).contains("this client has 64"), "{refused}");
    let of_b = b.call(1, "ask", json!({})).await;
    assert_eq!(of_b["result"]["resultType"], "input_required", "{of_b}");
    // The parked calls end with their client.
    a.close_session();
    let [(a, _a), _] = two_clients(&rig, "modern").await;
    let state = demand["result"]["requestState"].clone();
    assert_refused(&a.request(1, "tools/call", json!({ "name": "ask", "requestState": state })).await);
    let again = a.call(2, "ask", json!({})).await;
    assert_eq!(again["result"]["resultType"], "input_required", "{again}");
}

/// Makes all calls of one client, and checks each answer and each progress message. Every client uses the same ids and
/// tokens.
async fn make_calls(client: Client, mut messages: mpsc::Receiver<String>, number: u64, is_modern: bool) {
    let progress_count = tokio::spawn(async move {
        let mut progress = 0;
        while let Some(line) = messages.recv().await {
            assert!(line.contains(&format!("\"client {number}, ")), "client {number} got {line}");
            progress += 1;
        }
        progress
    });
    let calls = futures_util::stream::iter(0..CALLS_EACH).map(|call| {
        let client = &client;
        async move {
            let n = call / 4 + 1;
            let id = match call % 4 {
                0 => n.to_string(),
                1 => format!("\"{n}\""),
                2 => format!("{n}.0"),
                _ => format!("1{n:029}"),
            };
            let nonce = format!("client {number}, call {call}");
            let mut meta = json!({});
            if is_modern {
                meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
                meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
                meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "same", "version": "1" });
            }
            let meta = meta.to_string();
            let comma = if is_modern { "," } else { "" };
            let meta = format!(r#"{{"progressToken":{id}{comma}{}"#, &meta[1..]);
            let arguments = json!({ "nonce": nonce });
            let line = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{arguments},"_meta":{meta}}}}}"#
            );
            let answer = client.raw_answer(&line).await;
            assert!(answer.contains(&format!(r#""id":{id},"#)), "id {id}: {answer}");
            assert_eq!(text(&serde_json::from_str(&answer).expect("JSON")), nonce, "{answer}");
        }
    });
    calls.buffer_unordered(CONCURRENT_CALLS).collect::<Vec<()>>().await;
    client.close_session();
    drop(client);
    assert_eq!(progress_count.await.expect("only its own progress"), CALLS_EACH, "client {number}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_with_the_same_ids_and_tokens_get_their_own_answers() {
    for era in ERAS {
        let rig = rig(era);
        let mut clients = tokio::task::JoinSet::new();
        for number in 0..CLIENTS / 2 {
            let (client, messages) = if era == "legacy" {
                Client::legacy_with_stream(&rig.gateway, "same", json!({})).await
            } else {
                let session = rig.gateway.open_inferred_session("client", &format!("client {number}"));
                let mut client = Client::modern(&rig.gateway, session);
                let messages = client.attach();
                (client, messages)
            };
            clients.spawn(make_calls(client, messages, number, era == "modern"));
        }
        while let Some(done) = clients.join_next().await {
            done.expect("no client fails");
        }
    }
}
