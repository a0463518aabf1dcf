//! Selection for conversations over HTTP: those of the gateway's clients, and of `wrap --listen` and `--url`.

use serde_json::{Value, json};

use super::listen::{odd_server, request};
use super::rig::{Piped, Served, entries, initialize, open_session, scratch, text};

const FOCUSED: &str = "recorder: { strategy: { kind: error_focused, before: 0, after: 0 } }";

/// Returns the ids of the recorded requests and answers of one leg.
fn ids(entries: &[Value], on_backend: bool) -> Vec<&str> {
    let of_leg = entries.iter().filter(|entry| entry["via"].is_string() == on_backend);
    of_leg
        .filter(|entry| entry["kind"] == "message")
        .filter_map(|entry| entry["jsonrpc_id"].as_str())
        .collect()
}

#[test]
fn selection_applies_to_wrap_listen() {
    let directory = scratch();
    let config = directory.path().join("c.yaml");
    std::fs::write(&config, FOCUSED).unwrap();
    let data = directory.path().join("data");
    let served = Served::wrap(&data, &["--config", &text(&config)], &odd_server(directory.path()));
    let host = open_session(&served.target());
    host.post(&request(2, "tools/list", &json!({})));
    host.post(&request(3, "tools/call", &json!({ "name": "nobody" })));
    host.post(&request(4, "tools/list", &json!({})));
    drop(served);
    let recorded = entries(&data, "odd");
    assert_eq!(ids(&recorded, false), ["1", "1", "3", "3"], "the greeting and the failure");
    assert_eq!(ids(&recorded, true).len(), 4, "and both legs of each");
    let operations: Vec<&Value> =
        recorded.iter().filter(|entry| entry["via"].is_string()).map(|entry| &entry["operation"]).collect();
    let began = |method: &str| {
        let of_client = |entry: &&Value| entry["via"].is_null() && entry["method"] == method;
        recorded.iter().find(of_client).map(|entry| entry["entry"].clone()).expect("it is on tape")
    };
    let (greeting, failed) = (began("initialize"), began("tools/call"));
    assert_eq!(operations, [&greeting, &greeting, &failed, &failed], "named by their numbers on the tape");
}

#[test]
fn selection_applies_to_wrap_url() {
    let directory = scratch();
    let far = Served::wrap(&directory.path().join("far"), &[], &odd_server(directory.path()));
    let config = directory.path().join("c.yaml");
    std::fs::write(&config, FOCUSED).unwrap();
    let data = directory.path().join("data");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_scrubjay"));
    command.env(crate::harness::BACKGROUND_VARIABLE, "false");
    command.arg("--data").arg(&data).arg("--config").arg(&config);
    command.args(["wrap", "--name", "near", "--url", &format!("http://{}/mcp", far.address)]);
    let mut piped = Piped::started(command);
    piped.ask(&initialize(1));
    for (id, tool) in [(2, "pid"), (3, "nobody"), (4, "pid")] {
        let params = json!({ "name": tool });
        piped.ask(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }));
    }
    piped.finish();
    assert_eq!(ids(&entries(&data, "near"), false), ["1", "1", "3", "3"]);
}
