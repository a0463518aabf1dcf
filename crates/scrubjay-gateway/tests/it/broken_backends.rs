//! Lists and calls while some backends are broken: lists name those and have the tools of all others, and every call to
//! a good one succeeds.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use scrubjay_gateway::config::BackendConfig;
use serde_json::{Value, json};

use super::rig::{Client, DEADLINE, Rig, program, repository, text};

const GOOD_BACKENDS: usize = 11;

fn good(number: usize) -> BackendConfig {
    let script = repository().join("tests/backends/bad_server.py");
    let id = format!("good{number}");
    program(&id, "python3", &["-B", script.to_str().expect("a path in UTF-8"), &id], DEADLINE)
}

/// Eleven good backends, and between them one that hangs, one that exits and one that floods.
fn fourteen_backends() -> Vec<BackendConfig> {
    let mut backends: Vec<BackendConfig> = (0..GOOD_BACKENDS).map(good).collect();
    backends.insert(2, program("hangs", "sleep", &["1000"], DEADLINE));
    backends.insert(5, program("exits", "false", &[], DEADLINE));
    backends.insert(
        9,
        program("floods", "yes", &["{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}"], DEADLINE),
    );
    backends
}

async fn assert_complete(client: &Client, id: u64) {
    let listed = client.request(id, "tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().expect("a list of tools");
    let names: BTreeSet<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!((names.len(), tools.len()), (4 * GOOD_BACKENDS, 4 * GOOD_BACKENDS), "{names:?}");
    let missing = listed["result"]["_meta"]["scrubjay/incomplete"].as_array().expect("the missing backends");
    let missing = missing.iter().filter(|m| m["state"] == "missing");
    let missing: BTreeSet<&str> = missing.filter_map(|m| m["backend"].as_str()).collect();
    assert_eq!(missing, BTreeSet::from(["exits", "floods", "hangs"]), "{listed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_broken_backends_do_not_affect_eleven_good_ones() {
    let rig = Rig::new(&fourteen_backends(), Vec::new());
    let legacy = Client::legacy(&rig.gateway).await;
    let modern = Client::modern(&rig.gateway, rig.gateway.open_inferred_session("modern", "modern"));
    for client in [&legacy, &modern] {
        for id in 10..13 {
            assert_complete(client, id).await;
        }
        let calls = (0..GOOD_BACKENDS).map(|number| async move {
            let sent = format!("to {number}");
            let id = 20 + u64::try_from(number).expect("small");
            let answer: Value = client.call(id, &format!("good{number}_echo"), json!({ "text": sent })).await;
            assert_eq!(text(&answer), sent);
        });
        join_all(calls).await;
    }
}

#[tokio::test]
async fn two_hundred_first_calls_request_the_list_once() {
    let rig = Rig::new(&[good(0)], Vec::new());
    let client = Client::modern(&rig.gateway, rig.gateway.open_inferred_session("modern", "modern"));
    let calls = (1..=200).map(|id| client.call(id, "good0_echo", json!({ "text": "once" })));
    assert!(join_all(calls).await.iter().all(|answer| text(answer) == "once"));
    let tape = String::from_utf8_lossy(&rig.payloads("modern")).into_owned();
    assert_eq!(tape.matches(r#""method":"tools/list""#).count(), 1, "{tape}");
}

#[tokio::test]
async fn a_backend_that_hangs_is_listed_from_its_last_good_list() {
    let rig = Rig::new(&[good(0), good(1)], Vec::new());
    let client = Client::legacy(&rig.gateway).await;
    let tools = client.list_tools(1).await;
    assert_eq!(tools.len(), 8);
    // The second backend sleeps during a call and reads nothing.
    let caller = client.clone();
    let hanging_call =
        tokio::spawn(async move { caller.call(2, "good1_misbehave", json!({ "how": "hang" })).await });
    let listed = loop {
        let listed = client.request(3, "tools/list", json!({})).await;
        if listed["result"]["_meta"].is_object() {
            break listed;
        }
    };
    let tools = listed["result"]["tools"].as_array().expect("a list of tools");
    assert_eq!(tools.len(), 8, "{listed}");
    let incomplete = &listed["result"]["_meta"]["scrubjay/incomplete"][0];
    assert_eq!((&incomplete["backend"], &incomplete["state"]), (&json!("good1"), &json!("last_good")));
    hanging_call.abort();
}
