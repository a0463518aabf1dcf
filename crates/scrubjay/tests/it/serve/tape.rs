//! All messages of both legs are on tape, in order, and a request to a backend names the client that caused it.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};

use super::rig::{Piped, bad_server, entries, fixture, initialize, modern, scratch, scrubjay, tapped};

fn wire(directory: &Path, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(directory.join(name)).expect("the tap wrote it");
    text.lines().map(str::to_owned).collect()
}

fn on_tape<'a>(entries: &'a [Value], direction: &str, via: bool) -> Vec<&'a Value> {
    let of_leg = |e: &&Value| {
        e["kind"] == "message"
            && e["direction"] == direction
            && e.get("via").is_some_and(|v| !v.is_null()) == via
    };
    entries.iter().filter(of_leg).collect()
}

fn raw(entry: &Value) -> String {
    entry["raw"].as_str().expect("`raw` is the message's text").to_owned()
}

fn call(id: u64, tool: &str) -> Value {
    let params = json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": id } });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

/// Runs a conversation with many calls at once, and requests to the client in between.
fn converse(piped: &mut Piped) {
    piped.ask(&initialize(1));
    piped.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    piped.ask(&json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }));
    let tools = ["test_simple_text", "test_tool_with_progress", "test_image_content", "no_such_tool"];
    let ids = 10..50;
    for id in ids.clone() {
        let tool = tools[usize::try_from(id).expect("small") % tools.len()];
        piped.send(&call(id, tool));
    }
    let mut answered = 0;
    while answered < ids.clone().count() {
        answered += usize::from(piped.receive().get("method").is_none());
    }
    piped.send(&call(60, "test_input_required_result_elicitation"));
    let question = piped.receive();
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({ "action": "accept", "content": { "name": "Jay" } });
    piped.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer }));
    piped.receive_answer(&json!(60));
}

#[test]
fn both_legs_are_recorded_in_order() {
    let scratch = scratch();
    let data = scratch.path().join("data");
    let mut piped = Piped::start(&data, &tapped(scratch.path(), fixture(&["--era", "legacy"])));
    converse(&mut piped);
    let (sent, received) = piped.finish();
    let session = entries(&data, "serve");
    // The client's leg, as the client saw it.
    let taped: Vec<String> = on_tape(&session, "client_to_server", false).into_iter().map(raw).collect();
    assert_eq!(taped, sent, "what the client sent");
    let taped: Vec<String> = on_tape(&session, "server_to_client", false).into_iter().map(raw).collect();
    assert_eq!(taped, received, "what the client received");
    // The backend's leg, its greeting included: the connection is this client's.
    for (direction, name) in [("client_to_server", "backend.in"), ("server_to_client", "backend.out")] {
        let taped: Vec<String> = on_tape(&session, direction, true).into_iter().map(raw).collect();
        assert_eq!(taped, wire(scratch.path(), name), "{name}, in order");
    }
    assert!(on_tape(&session, "client_to_server", true).len() > 30, "calls went to the backend");
    scrubjay(&data, &["tape", "verify"]);
}

#[test]
fn requests_to_a_backend_name_the_clients_request() {
    let scratch = scratch();
    let data = scratch.path().join("data");
    let mut piped = Piped::start(&data, &fixture(&["--era", "legacy"]));
    converse(&mut piped);
    piped.finish();
    let session = entries(&data, "serve");
    let mut requests: HashMap<u64, Value> = HashMap::new();
    for entry in on_tape(&session, "client_to_server", false) {
        let message: Value = serde_json::from_str(&raw(entry)).expect("JSON");
        requests.insert(entry["entry"].as_u64().expect("a number"), message);
    }
    let mut tools = 0;
    let is_greeting =
        |entry: &&Value| ["initialize", "notifications/initialized"].iter().any(|m| entry["method"] == *m);
    for entry in on_tape(&session, "client_to_server", true).into_iter().filter(|e| !is_greeting(e)) {
        let operation = entry["operation"].as_u64().unwrap_or_else(|| panic!("no operation: {entry}"));
        let behind = requests.get(&operation).unwrap_or_else(|| panic!("no request of a client: {entry}"));
        let message: Value = serde_json::from_str(&raw(entry)).expect("JSON");
        if message["method"] == "tools/call" {
            tools += 1;
            assert_eq!(behind["params"]["name"], message["params"]["name"], "{entry}");
        }
    }
    assert!(tools > 30, "{tools} calls of tools");
    for entry in on_tape(&session, "server_to_client", true).into_iter().filter(|e| !is_greeting(e)) {
        let operation = entry["operation"].as_u64().unwrap_or_else(|| panic!("no operation: {entry}"));
        assert!(requests.contains_key(&operation), "{entry}");
    }
}

#[test]
fn a_changed_definition_is_recorded_once() {
    let scratch = scratch();
    let data = scratch.path().join("data");
    let mut piped = Piped::start(&data, &bad_server("jay"));
    piped.ask(&initialize(1));
    let list = |id: u64| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" });
    piped.ask(&list(2));
    piped.ask(&list(3));
    piped.ask(&call(4, "jay_redefine"));
    piped.ask(&list(5));
    piped.ask(&list(6));
    piped.finish();
    let notes: Vec<Value> = entries(&data, "serve")
        .iter()
        .filter(|entry| entry["kind"] == "note")
        .map(|entry| serde_json::from_str(&raw(entry)).expect("a note is JSON"))
        .collect();
    let changed: Vec<&Value> = notes.iter().filter(|note| note["event"] == "definition_changed").collect();
    assert_eq!(changed.len(), 1, "one change, noted once: {notes:?}");
    assert_eq!((&changed[0]["kind"], &changed[0]["name"]), (&json!("tools"), &json!("jay_echo")));
    assert_ne!(changed[0]["before"], changed[0]["after"]);
}

#[test]
fn no_process_outlives_the_gateway() {
    let scratch = scratch();
    let (data, file) = (scratch.path().join("data"), scratch.path().join("pid"));
    let mut piped = Piped::start(&data, &bad_server("jay"));
    piped.ask(&initialize(1));
    let arguments = json!({ "how": "escaped_grandchild", "pid_file": file });
    let params = json!({ "name": "jay_misbehave", "arguments": arguments });
    let request = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
    let received = piped.ask(&request);
    let why = received.last().expect("an answer")["error"]["message"].as_str().expect("an error").to_owned();
    assert!(why.contains("exit status: 5"), "{why}");
    let pid = std::fs::read_to_string(&file).expect("written before the crash");
    let alive = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    assert!(alive(), "it left its process group, so it still runs");
    piped.finish();
    assert!(!alive(), "it ends with the gateway");
}

#[test]
fn a_modern_client_on_stdio_is_recorded() {
    let scratch = scratch();
    let data = scratch.path().join("data");
    let mut piped = Piped::start(&data, &fixture(&["--era", "modern"]));
    piped.ask(&modern(1, "server/discover", &json!({})));
    piped.ask(&modern(2, "tools/list", &json!({})));
    let received = piped.ask(&modern(3, "tools/call", &json!({ "name": "test_simple_text" })));
    assert_eq!(received.last().expect("an answer")["result"]["resultType"], "complete");
    let (sent, received) = piped.finish();
    let session = entries(&data, "serve");
    let leg = |direction| on_tape(&session, direction, false).into_iter().map(raw).collect::<Vec<_>>();
    assert_eq!((leg("client_to_server"), leg("server_to_client")), (sent, received));
    scrubjay(&data, &["tape", "verify"]);
}
