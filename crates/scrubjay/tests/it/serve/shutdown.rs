//! `shutdown` and `exit`: accepted from the client that owns the gateway, refused for clients of a shared one.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::rig::{
    Piped, Served, answer_text, bad_server, entries, initialize, open_session, scratch, scrubjay, tapped,
};

fn request(id: u64, method: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method })
}

fn exit() -> Value {
    json!({ "jsonrpc": "2.0", "method": "exit" })
}

fn echo(id: u64) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": "echo", "arguments": { "text": "still here" } } })
}

fn sample(directory: &Path) -> Vec<String> {
    tapped(directory, vec![env!("CARGO_BIN_EXE_scrubjay").to_owned(), "sample-server".to_owned()])
}

fn methods(data: &Path) -> Vec<Value> {
    entries(data, "serve").iter().filter(|e| e["via"].is_null()).map(|e| e["method"].clone()).collect()
}

#[test]
fn shutdown_ends_the_backends_and_exit_ends_the_process() {
    let scratch = scratch();
    let data = scratch.path().join("data");
    let mut piped = Piped::start(&data, &sample(scratch.path()));
    piped.ask(&initialize(1));
    assert_eq!(answer_text(piped.ask(&echo(2)).last().unwrap()), "still here");
    let answer = piped.ask(&request(3, "shutdown")).pop().unwrap();
    assert_eq!(answer, json!({ "jsonrpc": "2.0", "id": 3, "result": null }));
    // A tapped server holds this lock as long as any of its processes runs.
    let gone =
        Command::new("flock").arg("--nonblock").arg(scratch.path().join("running")).arg("true").status();
    assert!(gone.expect("flock starts").success(), "the backend is still there");
    for late in [echo(4), request(5, "tools/list"), request(6, "ping")] {
        let answer = piped.ask(&late).pop().unwrap();
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
    }
    piped.send(&exit());
    assert_eq!(piped.exit_code(), Some(0));
    let recorded = methods(&data);
    assert!(recorded.contains(&json!("shutdown")) && recorded.contains(&json!("exit")), "{recorded:?}");
    scrubjay(&data, &["tape", "verify"]);
    assert!(!scrubjay(&data, &["--json", "tape", "ls", "--all"]).contains("\"live\""));
}

#[test]
fn exit_without_shutdown_is_a_failure() {
    let scratch = scratch();
    let data = scratch.path().join("data");
    let mut piped = Piped::start(&data, &bad_server("a"));
    piped.ask(&initialize(1));
    let answer = piped.ask(&request(2, "exit")).pop().unwrap();
    assert_eq!(answer["error"]["code"], -32600, "exit has no id: {answer}");
    piped.send(&exit());
    assert_eq!(piped.exit_code(), Some(1));
    scrubjay(&data, &["tape", "verify"]);
}

#[test]
fn a_client_on_http_cannot_stop_a_shared_gateway() {
    let scratch = scratch();
    let served = Served::start(&scratch.path().join("data"), &[], &sample(scratch.path()));
    let (one, other) = (open_session(&served.target()), open_session(&served.target()));
    let refused = one.post(&request(2, "shutdown").to_string()).json();
    assert_eq!(refused["error"]["code"], -32601);
    assert!(refused["error"]["message"].as_str().unwrap().starts_with("shutdown is only taken"), "{refused}");
    let refused = one.post(&exit().to_string());
    assert_eq!(refused.status, 400);
    assert!(refused.json()["error"]["message"].as_str().unwrap().starts_with("exit is only taken"));
    for client in [one, other] {
        assert_eq!(answer_text(&client.post(&echo(3).to_string()).json()), "still here");
    }
    // Neither reached the backend.
    let received = std::fs::read_to_string(scratch.path().join("backend.in")).unwrap();
    assert!(
        received.contains("tools/call") && !received.contains("shutdown") && !received.contains("exit"),
        "{received}"
    );
}
