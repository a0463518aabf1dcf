//! Handles are their client's alone: for each kind, another client that uses it is refused and nobody else notices.
//!
//! The server behind knows no clients apart, and one connection to it serves all of them: a legacy one because the
//! user said `shared: true`, a modern one always.

use std::path::Path;

use futures_util::StreamExt;
use scrubjay_gateway::config::{BackendConfig, BackendLink};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::rig::{Client, DEADLINE, Rig, error_message, program, repository, text};

const ERAS: [&str; 2] = ["legacy", "modern"];
const CLIENTS: u64 = 24;
/// 12,000 calls in all.
const CALLS_EACH: u64 = 500;
const AT_ONCE: usize = 16;

fn server(era: &str) -> BackendConfig {
    let script = repository().join("tests/backends/handles_server.py");
    let script = script.to_str().expect("a path in UTF-8");
    BackendConfig { is_shared: true, ..program("one", "python3", &["-B", script, "--era", era], DEADLINE) }
}

fn rig(era: &str) -> Rig {
    Rig::new(&[server(era)], Vec::new())
}

/// The server, which writes every line it reads to a file.
fn heard_in(file: &Path, server: BackendConfig) -> BackendConfig {
    let BackendLink::Stdio { command, mut args, env, inherit_env } = server.link else {
        panic!("it is a program");
    };
    args.extend(["--heard".to_owned(), file.to_str().expect("a path in UTF-8").to_owned()]);
    BackendConfig { link: BackendLink::Stdio { command, args, env, inherit_env }, ..server }
}

/// Two clients of the server's own era that call themselves the same, and what each hears besides answers.
async fn two(rig: &Rig, era: &str) -> [(Client, mpsc::Receiver<String>); 2] {
    let one = async |name: &str| {
        if era == "legacy" {
            return Client::legacy_with_stream(&rig.gateway, "same", json!({ "elicitation": {} })).await;
        }
        let session = rig.gateway.open_inferred_session("client", name);
        let mut client = Client::modern(&rig.gateway, session).with_capabilities(
            json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } }),
        );
        let heard = client.attach();
        (client, heard)
    };
    [one("a").await, one("b").await]
}

fn is_refused(answer: &Value) {
    // The modern era has fewer methods: there, the others are unknown.
    assert!([-32602, -32601].map(Value::from).contains(&answer["error"]["code"]), "{answer}");
    assert!(!answer.to_string().contains("secret"), "{answer}");
}

/// Begins a call that is answered when somebody calls `release`; returns once the server has it.
async fn begin_wait(rig: &Rig, client: &Client, id: u64, meta: Value) -> tokio::task::JoinHandle<Value> {
    let waiting = client.clone();
    let call = tokio::spawn(async move {
        waiting.request(id, "tools/call", json!({ "name": "wait", "arguments": {}, "_meta": meta })).await
    });
    while !String::from_utf8_lossy(&rig.payloads("client")).contains(r#""name":"wait""#) {
        tokio::task::yield_now().await;
    }
    // It reads in order: what it answers now it read behind the call.
    client.call(9_000 + id, "echo", json!({ "nonce": "there" })).await;
    call
}

async fn hears(heard: &mut mpsc::Receiver<String>) -> Value {
    let line = tokio::time::timeout(DEADLINE, heard.recv()).await.expect("in time").expect("not over");
    serde_json::from_str(&line).expect("JSON")
}

/// Asserts that nothing has come, after everything that could have made it come is answered.
fn hears_nothing(heard: &mut mpsc::Receiver<String>) {
    assert_eq!(heard.try_recv().ok(), None);
}

#[tokio::test]
async fn progress_tokens_towards_a_server_cannot_be_guessed() {
    for era in ERAS {
        let rig = rig(era);
        let [(a, _a), (b, _b)] = two(&rig, era).await;
        let mut tokens = Vec::new();
        for (id, client) in [(1, &a), (2, &a), (1, &b), (2, &b)] {
            let params = json!({ "name": "token", "arguments": {}, "_meta": { "progressToken": 7 } });
            let answer = client.request(id, "tools/call", params).await;
            let token: Value = serde_json::from_str(text(&answer)).expect("JSON");
            let token = token.as_str().expect("a token of our own is text").to_owned();
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
async fn progress_for_a_token_that_is_not_of_the_call_reaches_nobody() {
    for era in ERAS {
        let rig = rig(era);
        let [(a, mut to_a), (b, mut to_b)] = two(&rig, era).await;
        let call = begin_wait(&rig, &a, 5, json!({ "progressToken": "mine" })).await;
        let guessed = (0..40).flat_map(|n| [json!(n), json!(n.to_string()), json!(format!("{n}-{:032}", 0))]);
        for (id, token) in (100..).zip(guessed.chain([json!("mine"), json!(null), json!({})])) {
            let answer = b.call(id, "forge", json!({ "token": token })).await;
            assert_eq!(text(&answer), "forged");
        }
        hears_nothing(&mut to_b);
        hears_nothing(&mut to_a);
        b.call(900, "release", json!({})).await;
        assert_eq!(text(&call.await.expect("no panic")), "released");
        let progress = hears(&mut to_a).await;
        assert_eq!(progress["params"]["progressToken"], "mine", "{era}: {progress}");
        hears_nothing(&mut to_a);
        hears_nothing(&mut to_b);
        // What reached nobody is on tape.
        let tapes = String::from_utf8_lossy(&rig.payloads("backend")).into_owned();
        assert_eq!(tapes.matches("notifications/progress").count(), 123, "{era}");
    }
}

#[tokio::test]
async fn a_token_of_a_call_under_way_is_refused_to_its_client_alone() {
    let rig = rig("legacy");
    let [(a, _a), (b, mut to_b)] = two(&rig, "legacy").await;
    let call = begin_wait(&rig, &a, 5, json!({ "progressToken": "same" })).await;
    let again =
        json!({ "name": "echo", "arguments": { "nonce": "n" }, "_meta": { "progressToken": "same" } });
    let refused = a.request(6, "tools/call", again.clone()).await;
    assert!(error_message(&refused).contains("progressToken"), "{refused}");
    assert_eq!(text(&b.request(6, "tools/call", again.clone()).await), "n");
    assert_eq!(hears(&mut to_b).await["params"]["progressToken"], "same");
    b.call(7, "release", json!({})).await;
    assert_eq!(text(&call.await.expect("no panic")), "released");
    // It is free again.
    assert_eq!(text(&a.request(8, "tools/call", again).await), "n");
}

#[tokio::test]
async fn tasks_are_their_clients() {
    for era in ERAS {
        let rig = rig(era);
        let [(a, mut to_a), (b, mut to_b)] = two(&rig, era).await;
        let begun = a.call(1, "begin", json!({ "secret": "the secret of a" })).await;
        let task = begun["result"]["task"]["taskId"].as_str().or(begun["result"]["taskId"].as_str());
        let task = task.expect("a task").to_owned();
        for (id, method) in (10..).zip(["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"]) {
            is_refused(&b.request(id, method, json!({ "taskId": task })).await);
            is_refused(&b.request(id, method, json!({ "taskId": "made up" })).await);
        }
        // Nor does it become another's because the server tells that one of it.
        let own = b.call(20, "begin", json!({ "secret": "the secret of b" })).await;
        assert!(own["result"].to_string().contains("task-2"), "{own}");
        let listed = b.request(21, "tasks/list", json!({})).await["result"]["tasks"].clone();
        assert_eq!(listed, json!([{ "taskId": "task-2", "status": "working" }]), "{era}");
        assert_eq!(text(&b.call(22, "status", json!({ "task": task })).await), "told");
        hears_nothing(&mut to_b);
        assert_eq!(text(&a.request(23, "tasks/get", json!({ "taskId": task })).await), "the secret of a");
        let listed = a.request(24, "tasks/list", json!({})).await["result"]["tasks"].clone();
        assert_eq!(listed[0]["taskId"], json!(task), "{era}");
        if era == "legacy" {
            assert_eq!(hears(&mut to_a).await["params"]["taskId"], json!(task));
        }
        // The refusals are on tape.
        let tapes = String::from_utf8_lossy(&rig.payloads("client")).into_owned();
        let refused = tapes.matches("there is no such task").count() + tapes.matches("-32601").count();
        assert!(refused >= 8, "{era}: {refused}");
    }
}

/// A request whose parameters are spelled as they are.
fn spelled(era: &str, id: u64, method: &str, members: &str) -> String {
    let capabilities = json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    let meta = if era == "modern" { format!(r#","_meta":{meta}"#) } else { String::new() };
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{members}{meta}}}}}"#)
}

#[tokio::test]
async fn a_task_that_servers_may_read_otherwise_than_the_gateway_is_refused() {
    for era in ERAS {
        let rig = rig(era);
        let [(a, _a), (b, _b)] = two(&rig, era).await;
        a.call(1, "begin", json!({ "secret": "the secret of a" })).await;
        b.call(1, "begin", json!({ "secret": "of b" })).await;
        let unclear = [
            // A key that is no text to us, and one to Python and JavaScript.
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
        let tried = methods.iter().flat_map(|method| unclear.map(|members| (method, members)));
        for (id, (method, members)) in (100..).zip(tried) {
            is_refused(&b.raw_request(id, &spelled(era, id, method, members)).await);
        }
        for (id, params) in (200..).zip([r#"["task-1"]"#, "null"]) {
            let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tasks/get","params":{params}}}"#);
            is_refused(&b.raw_request(id, &line).await);
        }
        // However it is written, one that all read alike is the client's own.
        let own = spelled(era, 300, "tasks/get", r#""x":{"\ud800":1},"task\u0049d":"task-2""#);
        assert_eq!(text(&b.raw_request(300, &own).await), "of b");
    }
}

#[tokio::test]
async fn a_state_that_servers_may_read_otherwise_than_the_gateway_is_refused() {
    let rig = rig("modern");
    let [(a, _a), (b, _b)] = two(&rig, "modern").await;
    a.call(1, "ask", json!({ "secret": "the secret of a" })).await;
    let unclear = [
        r#""\ud800":1,"requestState":"state-1""#,
        r#""requestState":["state-1"]"#,
        r#""RequestState":"state-1""#,
        "\"reque\u{17f}tState\":\"state-1\"",
    ];
    for method in ["tools/call", "of/nobody/knows"] {
        for (id, members) in (10..).zip(unclear) {
            let members = format!(r#""name":"ask","arguments":{{}},{members}"#);
            is_refused(&b.raw_request(id, &spelled("modern", id, method, &members)).await);
        }
    }
}

#[tokio::test]
async fn a_servers_state_is_opened_for_the_client_it_was_given_to() {
    let rig = rig("modern");
    let [(a, _a), (b, _b)] = two(&rig, "modern").await;
    let params = json!({ "name": "ask", "arguments": { "secret": "the secret of a" } });
    let asked = a.request(1, "tools/call", params.clone()).await;
    let state = asked["result"]["requestState"].as_str().expect("a state").to_owned();
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let with = |state: &str| {
        let mut params = params.clone();
        params["requestState"] = json!(state);
        params["inputResponses"] = json!({ "name": { "action": "decline" } });
        params
    };
    let mut altered = state.clone();
    altered.replace_range(12..13, if &state[12..13] == "0" { "1" } else { "0" });
    for (id, tried) in (10..).zip([state.as_str(), "state-1", "\"state-1\"", &altered, "scrubjay.", ""]) {
        is_refused(&b.request(id, "tools/call", with(tried)).await);
    }
    for (id, tried) in (20..).zip(["state-1", &altered]) {
        is_refused(&a.request(id, "tools/call", with(tried)).await);
    }
    // A legacy client is never given one.
    let (legacy, _heard) =
        Client::legacy_with_stream(&rig.gateway, "same", json!({ "elicitation": {} })).await;
    for (id, tried) in (30..).zip([state.as_str(), "state-1"]) {
        is_refused(&legacy.request(id, "tools/call", with(tried)).await);
    }
    assert_eq!(text(&a.request(40, "tools/call", with(&state)).await), "the secret of a");
}

#[tokio::test]
async fn a_parked_call_is_taken_up_by_its_own_client_though_others_have_its_name() {
    let script = repository().join("tests/backends/session_server.py");
    let script = script.to_str().expect("a path in UTF-8");
    let rig = Rig::new(&[program("one", "python3", &["-B", script], DEADLINE)], Vec::new());
    let [(a, _a), (b, _b)] = two(&rig, "modern").await;
    let mut params = json!({ "name": "ask", "arguments": {} });
    let asked = a.request(1, "tools/call", params.clone()).await;
    params["requestState"] = asked["result"]["requestState"].clone();
    params["inputResponses"] = json!({ "input-1": { "action": "accept", "content": { "name": "b" } } });
    assert!(params["requestState"].is_string(), "{asked}");
    is_refused(&b.request(2, "tools/call", params.clone()).await);
    params["inputResponses"]["input-1"]["content"]["name"] = json!("a");
    let answer = a.request(3, "tools/call", params.clone()).await;
    assert!(text(&answer).contains(r#""name": "a""#), "{answer}");
    // It is taken up once.
    is_refused(&a.request(4, "tools/call", params).await);
}

#[tokio::test]
async fn a_client_calls_off_its_own_requests_alone() {
    for era in ERAS {
        let rig = rig(era);
        let [(a, _a), (b, _b)] = two(&rig, era).await;
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
        assert_eq!(text(&call.await.expect("no panic")), "released", "{era}");
    }
}

#[tokio::test]
async fn a_question_is_answered_by_whom_it_was_put_to() {
    let script = repository().join("tests/backends/session_server.py");
    let script = script.to_str().expect("a path in UTF-8");
    let rig = Rig::new(&[program("one", "python3", &["-B", script], DEADLINE)], Vec::new());
    let [(a, mut to_a), (b, _b)] = two(&rig, "legacy").await;
    let asking = a.clone();
    let call = tokio::spawn(async move { asking.call(1, "ask", json!({})).await });
    let question = hears(&mut to_a).await;
    let forged = json!({ "action": "accept", "content": { "name": "b" } });
    for id in [question["id"].clone(), json!("scrubjay-1"), json!(1), json!("q1")] {
        b.send(&json!({ "jsonrpc": "2.0", "id": id, "result": forged }));
    }
    let answer = json!({ "action": "accept", "content": { "name": "a" } });
    a.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer }));
    let answer = call.await.expect("no panic");
    assert!(text(&answer).contains(r#""name": "a""#), "{answer}");
}

#[tokio::test]
async fn what_a_server_logs_between_calls_of_several_clients_reaches_none_of_them() {
    let rig = rig("legacy");
    let [(a, mut to_a), (b, mut to_b)] = two(&rig, "legacy").await;
    a.call(1, "log", json!({ "text": "the secret of a" })).await;
    // It says things in order: what it logged was heard before this answer.
    b.call(2, "echo", json!({ "nonce": "n" })).await;
    hears_nothing(&mut to_b);
    hears_nothing(&mut to_a);
    assert!(String::from_utf8_lossy(&rig.payloads("")).contains("notifications/message"));
}

#[tokio::test]
async fn what_a_server_logs_for_a_call_that_is_over_reaches_no_other_client() {
    for era in ERAS {
        let rig = rig(era);
        let [(a, mut to_a), (b, mut to_b)] = two(&rig, era).await;
        let meta = json!({ "io.modelcontextprotocol/logLevel": "debug" });
        let call = begin_wait(&rig, &b, 5, meta).await;
        assert_eq!(text(&a.call(1, "log", json!({ "text": "the secret of a" })).await), "logs");
        // It says things in order: what it logged was heard before this answer.
        b.call(6, "release", json!({})).await;
        assert_eq!(text(&call.await.expect("no panic")), "released");
        hears_nothing(&mut to_a);
        hears_nothing(&mut to_b);
        assert!(String::from_utf8_lossy(&rig.payloads("backend")).contains("the secret of a"), "{era}");
        // Nor when the other client has left.
        a.close_session();
        b.call(7, "log", json!({ "text": "whose?" })).await;
        b.call(8, "echo", json!({ "nonce": "n" })).await;
        hears_nothing(&mut to_b);
    }
}

#[tokio::test]
async fn what_a_server_logs_is_its_only_clients_while_there_is_no_other() {
    let rig = rig("legacy");
    let (a, mut to_a) = Client::legacy_with_stream(&rig.gateway, "same", json!({})).await;
    a.call(1, "log", json!({ "text": "between calls" })).await;
    assert_eq!(hears(&mut to_a).await["params"]["data"], "between calls");
    let call = begin_wait(&rig, &a, 5, json!({})).await;
    a.call(2, "log", json!({ "text": "beside a call" })).await;
    assert_eq!(hears(&mut to_a).await["params"]["data"], "beside a call");
    a.call(6, "release", json!({})).await;
    call.await.expect("no panic");
}

#[tokio::test]
async fn a_question_for_a_call_that_is_over_is_put_to_no_other_client() {
    for has_left in [false, true] {
        let rig = rig("legacy");
        let [(a, mut to_a), (b, mut to_b)] = two(&rig, "legacy").await;
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
            asked = hears(&mut to_b) => panic!("another client is asked: {asked}"),
        }
        hears_nothing(&mut to_a);
        hears_nothing(&mut to_b);
        b.call(8, "release", json!({})).await;
        call.await.expect("no panic");
    }
}

#[tokio::test]
async fn a_notification_with_an_id_reaches_no_server_that_others_use() {
    for (era, is_transparent) in [("legacy", false), ("modern", false), ("modern", true)] {
        let heard = tempfile::NamedTempFile::new().expect("there is a temporary directory");
        let server = heard_in(heard.path(), server(era));
        let rig = if is_transparent { Rig::transparent(server) } else { Rig::new(&[server], Vec::new()) };
        let [(a, _a), (b, _b)] = two(&rig, era).await;
        let call = begin_wait(&rig, &a, 5, json!({})).await;
        for id in 10..20 {
            let params = json!({ "requestId": id - 10, "reason": "not mine" });
            let refused = b.request(id, "notifications/cancelled", params).await;
            assert_eq!(refused["error"]["code"], -32601, "{refused}");
        }
        b.call(6, "release", json!({})).await;
        assert_eq!(text(&call.await.expect("no panic")), "released");
        let heard = std::fs::read_to_string(heard.path()).expect("it wrote what it heard");
        assert!(heard.contains("release") && !heard.contains("notifications/cancelled"), "{heard}");
        assert!(String::from_utf8_lossy(&rig.payloads("client")).contains("not mine"), "it is on tape");
    }
}

/// Requests that say nothing about where their answer goes.
fn without_id() -> [Value; 3] {
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
        let heard = tempfile::NamedTempFile::new().expect("there is a temporary directory");
        let server = BackendConfig { is_shared, ..heard_in(heard.path(), server(era)) };
        let rig = Rig::new(&[server], Vec::new());
        let [(a, _a), _] = two(&rig, era).await;
        a.call(1, "echo", json!({ "nonce": "up" })).await;
        without_id().iter().for_each(|request| a.send(request));
        // What is a notification passes, behind those.
        a.send(&json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
        let lines = lines_until(&a, heard.path(), "notifications/roots/list_changed").await;
        for method in ["tasks/cancel", "resources/unsubscribe", r#""name":"stop""#] {
            assert!(!lines.contains(method), "{lines}");
        }
        let tapes = String::from_utf8_lossy(&rig.payloads("client")).into_owned();
        assert_eq!(tapes.matches("a request without an id").count(), 3, "{tapes}");
    }
}

#[tokio::test]
async fn a_server_of_ones_own_that_nothing_is_changed_of_hears_requests_without_an_id() {
    let heard = tempfile::NamedTempFile::new().expect("there is a temporary directory");
    let rig = Rig::transparent(heard_in(heard.path(), server("legacy")));
    let (a, _a) = Client::legacy_with_stream(&rig.gateway, "a", json!({})).await;
    without_id().iter().for_each(|request| a.send(request));
    a.send(&json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
    let lines = lines_until(&a, heard.path(), "notifications/roots/list_changed").await;
    for method in ["tasks/cancel", "resources/unsubscribe", r#""name":"stop""#] {
        assert!(lines.contains(method), "{lines}");
    }
}

/// Returns what a server has heard, once it has heard something.
async fn lines_until(client: &Client, heard: &Path, awaited: &str) -> String {
    let waiting = async {
        for id in 6_000.. {
            client.call(id, "echo", json!({ "nonce": "n" })).await;
            let lines = std::fs::read_to_string(heard).expect("it wrote what it heard");
            if lines.contains(awaited) {
                return lines;
            }
        }
        unreachable!("there are ids enough")
    };
    tokio::time::timeout(DEADLINE, waiting).await.expect("it hears it in time")
}

#[tokio::test]
async fn calls_that_one_client_leaves_waiting_keep_no_other_from_being_asked() {
    let script = repository().join("tests/backends/session_server.py");
    let script = script.to_str().expect("a path in UTF-8");
    let rig = Rig::new(&[program("one", "python3", &["-B", script], DEADLINE)], Vec::new());
    let [(a, _a), (b, _b)] = two(&rig, "modern").await;
    let mut asked = Value::Null;
    for id in 1..=64 {
        asked = a.call(id, "ask", json!({})).await;
        assert_eq!(asked["result"]["resultType"], "input_required", "{id}: {asked}");
    }
    let refused = a.call(65, "ask", json!({})).await;
    assert!(error_message(&refused).contains("64 of this client"), "{refused}");
    let of_b = b.call(1, "ask", json!({})).await;
    assert_eq!(of_b["result"]["resultType"], "input_required", "{of_b}");
    // They end with their client.
    a.close_session();
    let [(a, _a), _] = two(&rig, "modern").await;
    let state = asked["result"]["requestState"].clone();
    is_refused(&a.request(1, "tools/call", json!({ "name": "ask", "requestState": state })).await);
    let again = a.call(2, "ask", json!({})).await;
    assert_eq!(again["result"]["resultType"], "input_required", "{again}");
}

/// Makes all calls of one client with ids and tokens that every client uses; returns how many went wrong.
async fn converse(client: Client, mut heard: mpsc::Receiver<String>, number: u64, is_modern: bool) {
    let listening = tokio::spawn(async move {
        let mut progress = 0;
        while let Some(line) = heard.recv().await {
            assert!(line.contains(&format!("\"client {number}, ")), "client {number} heard {line}");
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
    calls.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
    client.close_session();
    drop(client);
    assert_eq!(listening.await.expect("nobody hears another's progress"), CALLS_EACH, "client {number}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twelve_thousand_calls_with_the_same_ids_and_tokens_are_told_apart() {
    for era in ERAS {
        let rig = rig(era);
        let mut clients = tokio::task::JoinSet::new();
        for number in 0..CLIENTS / 2 {
            let (client, heard) = if era == "legacy" {
                Client::legacy_with_stream(&rig.gateway, "same", json!({})).await
            } else {
                let session = rig.gateway.open_inferred_session("client", &format!("client {number}"));
                let mut client = Client::modern(&rig.gateway, session);
                let heard = client.attach();
                (client, heard)
            };
            clients.spawn(converse(client, heard, number, era == "modern"));
        }
        while let Some(done) = clients.join_next().await {
            done.expect("no client fails");
        }
    }
}
