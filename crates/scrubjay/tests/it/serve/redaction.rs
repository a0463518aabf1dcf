//! Canary secrets through the gateway: both legs, and errors.

use serde_json::json;

use super::rig::{Piped, initialize, scratch, scrubjay};

const CANARY: &str = "c4n4ry-pw-0123456789";

fn call(id: u64, tool: &str, text: &str) -> serde_json::Value {
    let arguments = json!({ "text": text, "message": text, "password": CANARY });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool, "arguments": arguments } })
}

#[test]
fn secrets_reach_no_tape() {
    let scratch = scratch();
    let data = scratch.path().join("data");
    let server = [env!("CARGO_BIN_EXE_scrubjay").to_owned(), "sample-server".to_owned()];
    let mut piped = Piped::start(&data, &server);
    piped.ask(&initialize(1));
    piped.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let texts = [
        format!("DB_PASSWORD={CANARY}"),
        format!("Authorization: Bearer {CANARY}"),
        json!({ "api_key": CANARY }).to_string(),
        format!("see https://user:{CANARY}@example.com/"),
    ];
    for (id, text) in (10..).step_by(3).zip(&texts) {
        let answers = piped.ask(&call(id, "echo", text));
        assert!(
            answers.iter().any(|a| a.to_string().contains(CANARY)),
            "the client gets it as it is: {answers:?}"
        );
        piped.ask(&call(id + 1, "fail", text));
        piped.ask(&call(id + 2, &format!("no such tool, token={CANARY}"), text));
    }
    piped.finish();
    let tapes: serde_json::Value =
        serde_json::from_str(&scrubjay(&data, &["tape", "ls", "--all", "--json"])).unwrap();
    let mut seen = 0;
    for tape in tapes.as_array().unwrap() {
        let exported =
            scrubjay(&data, &["tape", "export", tape["id"].as_str().unwrap(), "--format", "jsonl"]);
        assert!(!exported.contains(CANARY), "{exported}");
        seen += exported.matches("[redacted:").count();
    }
    assert!(seen >= 4 * texts.len(), "both legs are on tape: {seen}");
}
