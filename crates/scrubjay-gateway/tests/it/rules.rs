//! Rules on answers hold for as long as somebody waits for the answer, whatever else the gateway forgets meanwhile; and
//! what they hold back for one client holds up no other.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use scrubjay_core::entry::Direction;
use scrubjay_core::glob::Glob;
use scrubjay_core::rules::{Rule, RuleAction, RuleMatch, Rules};
use scrubjay_gateway::config::BackendConfig;
use serde_json::{Value, json};

use super::rig::{Client, DEADLINE, Rig, error_message, program, repository, text, until};

fn server() -> BackendConfig {
    let script = repository().join("tests/backends/handles_server.py");
    program("one", "python3", &["-B", script.to_str().expect("a path in UTF-8")], DEADLINE)
}

/// Rules that block the answers of a tool.
fn hide(tool: &str) -> Arc<Rules> {
    let tools = vec![Glob::parse(tool).expect("a glob")];
    let when = RuleMatch { direction: Some(Direction::ServerToClient), tools, ..RuleMatch::default() };
    let action = RuleAction::Block { code: -7, message: "no".to_owned() };
    Arc::new(Rules::new(vec![Rule { name: "hide-it".to_owned(), when, action }]))
}

/// Calls `wait`, which is answered when somebody calls `release`; returns once the server has it.
async fn begin_wait(client: &Client, id: u64) -> tokio::task::JoinHandle<Value> {
    let waiting = client.clone();
    let call = tokio::spawn(async move { waiting.call(id, "wait", json!({})).await });
    // The server reads in order, and on this one thread the call is made before anything else is.
    tokio::task::yield_now().await;
    assert_eq!(text(&client.call(9_000 + id, "echo", json!({ "nonce": "there" })).await), "there");
    call
}

#[tokio::test]
async fn an_answer_is_blocked_however_often_the_rules_changed_since_it_was_asked_for() {
    let rig = Rig::new(&[server()], Vec::new());
    rig.gateway.rule_with(&hide("wait"));
    let client = Client::legacy(&rig.gateway).await;
    assert_eq!(text(&client.call(1, "echo", json!({ "nonce": "up" })).await), "up");
    let mut calls = Vec::new();
    for id in 10..20 {
        calls.push(begin_wait(&client, id).await);
        rig.gateway.rule_with(&hide("wait"));
    }
    // Also where the last ones hide something else.
    rig.gateway.rule_with(&hide("other"));
    assert_eq!(text(&client.call(2, "release", json!({})).await), "done");
    for call in calls {
        let answer = call.await.expect("no panic");
        assert!(answer.get("result").is_none() && answer["error"]["data"]["rule"].is_string(), "{answer}");
    }
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_forgotten_by_the_rules_too() {
    let rig = Rig::new(&[server()], Vec::new());
    rig.gateway.rule_with(&hide("wait"));
    let client = Client::legacy(&rig.gateway).await;
    assert_eq!(text(&client.call(1, "echo", json!({ "nonce": "up" })).await), "up");
    client.abandon_call(2, "wait", json!({})).await;
    // No rule is in force, and no request open that one was: messages pass as they are.
    rig.gateway.rule_with(&Arc::new(Rules::new(Vec::new())));
    let twice = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo","arguments":{"nonce":"1","nonce":"2"}}}"#;
    assert_eq!(text(&client.raw_request(3, twice).await), "2");
    // The answer that comes late reaches nobody, so its entry names no rule.
    rig.gateway.rule_with(&hide("wait"));
    assert_eq!(text(&client.call(4, "release", json!({})).await), "done");
    let mut late = Vec::new();
    rig.each_entry("", |entry| {
        if String::from_utf8_lossy(entry.payload).contains("released") {
            late.push(entry.rule_marks.rules.to_owned());
        }
    });
    assert_eq!(late, [""]);
}

/// So many messages of a server may wait for one client.
const HELD_MAX: u64 = 256;

/// Rules that hold back what a server says, for longer than any test takes.
fn delay(methods: &[&str], tools: &[&str]) -> Arc<Rules> {
    let globs = |all: &[&str]| all.iter().map(|one| Glob::parse(one).expect("a glob")).collect();
    let (methods, tools) = (globs(methods), globs(tools));
    let when =
        RuleMatch { direction: Some(Direction::ServerToClient), methods, tools, ..RuleMatch::default() };
    let action = RuleAction::Delay(Duration::from_secs(600));
    Arc::new(Rules::new(vec![Rule { name: "later".to_owned(), when, action }]))
}

#[tokio::test]
async fn answers_that_wait_for_one_client_hold_up_no_other() {
    let rig = Rig::new(&[BackendConfig { is_shared: true, ..server() }], Vec::new());
    rig.gateway.rule_with(&delay(&[], &["token"]));
    let (a, b) = (Client::legacy(&rig.gateway).await, Client::legacy(&rig.gateway).await);
    let mut calls: FuturesUnordered<_> =
        (1..=HELD_MAX + 1).map(|id| a.call(id, "token", json!({}))).collect();
    // The only one that does not wait is the one for which there is no place.
    let refused = calls.next().await.expect("there are calls");
    assert!(error_message(&refused).contains("256 others for this client wait"), "{refused}");
    assert_eq!(text(&b.call(1, "echo", json!({ "nonce": "b" })).await), "b");
    assert_eq!(calls.len() as u64, HELD_MAX);
    let tapes = String::from_utf8_lossy(&rig.payloads("client")).into_owned();
    assert!(tapes.contains(r#""limit":"messages that delay rules hold back""#), "it is noted");
}

#[tokio::test]
async fn what_a_server_says_unasked_and_cannot_wait_is_noted_or_refused() {
    let rig = Rig::new(&[BackendConfig { is_shared: true, ..server() }], Vec::new());
    rig.gateway.rule_with(&delay(&["notifications/message", "elicitation/create"], &[]));
    let client = Client::legacy_with_capabilities(&rig.gateway, json!({ "elicitation": {} })).await;
    let noted = || {
        let tapes = String::from_utf8_lossy(&rig.payloads("backend")).into_owned();
        tapes.matches(r#""limit":"messages that delay rules hold back""#).count()
    };
    // Each is said while no call is under way: then it is nobody's, and takes one of the places of those.
    client.call(1, "log", json!({ "text": "logged", "times": HELD_MAX + 1 })).await;
    until("the last finds no place", || noted() == 1).await;
    client.call(2, "ask_late", json!({ "text": "who?" })).await;
    until("the question finds none", || noted() == 2).await;
    let reply = client.call(3, "reply", json!({})).await;
    assert!(text(&reply).contains("wait already"), "{reply}");
    assert_eq!(noted(), 2);
}
