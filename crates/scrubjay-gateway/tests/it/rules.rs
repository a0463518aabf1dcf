//! Rules apply to an answer as long as a client waits for it, even if the rules change meanwhile. Messages that rules
//! delay for one client do not block another.

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

/// Makes rules that block the answers of a tool.
fn block_answers(tool: &str) -> Arc<Rules> {
    let tools = vec![Glob::parse(tool).expect("a glob")];
    let when = RuleMatch { direction: Some(Direction::ServerToClient), tools, ..RuleMatch::default() };
    let action = RuleAction::Block { code: -7, message: "no".to_owned() };
    Arc::new(Rules::new(vec![Rule { name: "block-answers".to_owned(), when, action }]))
}

/// Calls `wait`, which is answered when a client calls `release`; returns when the server has read the call.
async fn begin_wait(client: &Client, id: u64) -> tokio::task::JoinHandle<Value> {
    let caller = client.clone();
    let call = tokio::spawn(async move { caller.call(id, "wait", json!({})).await });
    // The test has one thread, so the call is sent before `echo`, and the server reads in order.
    tokio::task::yield_now().await;
    assert_eq!(text(&client.call(9_000 + id, "echo", json!({ "nonce": "there" })).await), "there");
    call
}

#[tokio::test]
async fn an_answer_is_blocked_even_if_the_rules_changed_since_its_request() {
    let rig = Rig::new(&[server()], Vec::new());
    rig.gateway.rule_with(&block_answers("wait"));
    let client = Client::legacy(&rig.gateway).await;
    assert_eq!(text(&client.call(1, "echo", json!({ "nonce": "up" })).await), "up");
    let mut calls = Vec::new();
    for id in 10..20 {
        calls.push(begin_wait(&client, id).await);
        rig.gateway.rule_with(&block_answers("wait"));
    }
    // The last rules block the answers of another tool only.
    rig.gateway.rule_with(&block_answers("other"));
    assert_eq!(text(&client.call(2, "release", json!({})).await), "done");
    for call in calls {
        let answer = call.await.expect("the call does not panic");
        assert!(answer.get("result").is_none() && answer["error"]["data"]["rule"].is_string(), "{answer}");
    }
}

#[tokio::test]
async fn rules_do_not_apply_to_abandoned_calls() {
    let rig = Rig::new(&[server()], Vec::new());
    rig.gateway.rule_with(&block_answers("wait"));
    let client = Client::legacy(&rig.gateway).await;
    assert_eq!(text(&client.call(1, "echo", json!({ "nonce": "up" })).await), "up");
    client.abandon_call(2, "wait", json!({})).await;
    // Without rules, and without open requests that rules apply to, messages pass unchanged.
    rig.gateway.rule_with(&Arc::new(Rules::new(Vec::new())));
    let duplicate_member = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo","arguments":{"nonce":"1","nonce":"2"}}}"#;
    assert_eq!(text(&client.raw_request(3, duplicate_member).await), "2");
    // The late answer reaches no client, so its entry names no rule.
    rig.gateway.rule_with(&block_answers("wait"));
    assert_eq!(text(&client.call(4, "release", json!({})).await), "done");
    let mut rules_of_late_answer = Vec::new();
    rig.each_entry("", |entry| {
        if String::from_utf8_lossy(entry.payload).contains("released") {
            rules_of_late_answer.push(entry.rule_marks.rules.to_owned());
        }
    });
    assert_eq!(rules_of_late_answer, [""]);
}

/// The most delayed messages of a server that wait for one client: the gateway's own limit.
const DELAYED_MAX: u64 = 256;

/// Makes rules that delay messages of a server, for longer than any test takes.
fn delay(methods: &[&str], tools: &[&str]) -> Arc<Rules> {
    let globs =
        |patterns: &[&str]| patterns.iter().map(|pattern| Glob::parse(pattern).expect("a glob")).collect();
    let (methods, tools) = (globs(methods), globs(tools));
    let when =
        RuleMatch { direction: Some(Direction::ServerToClient), methods, tools, ..RuleMatch::default() };
    let action = RuleAction::Delay(Duration::from_secs(600));
    Arc::new(Rules::new(vec![Rule { name: "delay".to_owned(), when, action }]))
}

#[tokio::test]
async fn delayed_answers_for_one_client_do_not_block_another() {
    let rig = Rig::new(&[BackendConfig { is_shared: true, ..server() }], Vec::new());
    rig.gateway.rule_with(&delay(&[], &["token"]));
    let (a, b) = (Client::legacy(&rig.gateway).await, Client::legacy(&rig.gateway).await);
    let mut calls: FuturesUnordered<_> =
        (1..=DELAYED_MAX + 1).map(|id| a.call(id, "token", json!({}))).collect();
    // All answers are delayed, except for the one above the limit: its call is refused.
    let refused = calls.next().await.expect("there are calls");
    assert!(error_message(&refused).contains("256 others for this client wait"), "{refused}");
    assert_eq!(text(&b.call(1, "echo", json!({ "nonce": "b" })).await), "b");
    assert_eq!(calls.len() as u64, DELAYED_MAX);
    let tapes = String::from_utf8_lossy(&rig.payloads("client")).into_owned();
    assert!(
        tapes.contains(r#""limit":"messages that delay rules hold back""#),
        "the refusal is noted on tape"
    );
}

#[tokio::test]
async fn messages_above_the_limit_of_delayed_ones_are_noted_or_refused() {
    let rig = Rig::new(&[BackendConfig { is_shared: true, ..server() }], Vec::new());
    rig.gateway.rule_with(&delay(&["notifications/message", "elicitation/create"], &[]));
    let client = Client::legacy_with_capabilities(&rig.gateway, json!({ "elicitation": {} })).await;
    let notes = || {
        let tapes = String::from_utf8_lossy(&rig.payloads("backend")).into_owned();
        tapes.matches(r#""limit":"messages that delay rules hold back""#).count()
    };
    // The server logs while no call is under way. Such a message belongs to no client, and counts towards the limit of
    // the connection.
    client.call(1, "log", json!({ "text": "logged", "times": DELAYED_MAX + 1 })).await;
    until("the last message is above the limit", || notes() == 1).await;
    client.call(2, "ask_late", json!({ "text": "who?" })).await;
    until("the question is above the limit", || notes() == 2).await;
    let reply = client.call(3, "reply", json!({})).await;
    assert!(text(&reply).contains("wait already"), "{reply}");
    assert_eq!(notes(), 2);
}
