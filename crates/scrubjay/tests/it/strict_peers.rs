//! Rules against the official Python SDK's server: no spelling of a message runs a tool that a rule blocks.
//!
//! Needs `scripts/install-peers` and `SCRUBJAY_PEERS`.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Lab, Running, UP, text, wait_for};
use crate::needs::peers;

const EVIL: &str =
    r#"{"jsonrpc":"2.0","id":99,"method":"tools/call","params":{"name":"delete_all","arguments":{}}}"#;

/// Returns the command of a server that leaves `mark` when it deletes.
fn deletes(mark: &str) -> Vec<String> {
    let python = peers().join(".venv/bin/python");
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/backends/python_deletes.py");
    [python.to_str().unwrap(), server.to_str().unwrap(), mark].map(str::to_owned).into()
}

fn configured(lab: &Lab, rules: &Value, command: &[String]) -> String {
    let file = lab.file("config.json");
    let backend = json!({ "id": "deletes", "type": "stdio", "command": command[0], "args": command[1..] });
    let settings = json!({ "recorder": { "rules": rules }, "backends": [backend] });
    std::fs::write(&file, settings.to_string()).unwrap();
    file
}

fn no_deletes() -> Value {
    json!([{ "name": "no-deletes", "match": { "tools": ["delete_*"] }, "action": "block" }])
}

/// Starts the server behind `wrap` or `serve`, and sends the greeting.
fn start(lab: &Lab, verb: &str, rules: &Value, command: &[String]) -> Running {
    let config = configured(lab, rules, command);
    let mut arguments = vec!["--config", &config, verb];
    if verb == "wrap" {
        arguments.extend(["--name", "python", "--"]);
        arguments.extend(command.iter().map(String::as_str));
    } else {
        arguments.extend(["--toolsets", "none"]);
    }
    let mut running = lab.start(&arguments);
    let client = json!({ "name": "it", "version": "1" });
    running.ask(
        0,
        "initialize",
        &json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client }),
    );
    running.send_line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    // A gateway answers before its backends have started.
    let mut asked = 0;
    wait_for("the server's tools", || {
        asked += 1;
        let listed = running.ask(asked, "tools/list", &json!({}));
        listed.to_string().contains("delete_all").then_some(())
    });
    running
}

fn echo(id: u64, x: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"hi","x":{x}}}}}}}"#
    )
}

/// Lines that some parser reads as a call of `delete_all`, and the reason for which each is refused.
fn attacks() -> Vec<(Vec<u8>, &'static str)> {
    let evil = EVIL.replace(":99,", ":41,");
    let text: Vec<(String, &'static str)> = vec![
        (echo(41, &format!("[\r{EVIL}\r]")), "strict/line-end"),
        (format!("{}\r{EVIL}", echo(41, "0")), "strict/line-end"),
        (format!("\r{evil}"), "strict/line-end"),
        (echo(41, &format!("[\u{2028}{EVIL}\u{2028}]")), "strict/line-end"),
        (evil.replace("\"name\"", "\"name\":\"echo\",\"name\""), "strict/duplicate-key"),
        (evil.replace("\"name\"", "\"name\":\"echo\",\"Name\""), "strict/spelling"),
        (evil.replace("\"params\"", "\"params\":{\"name\":\"echo\"},\"params\""), "strict/duplicate-key"),
        (evil.replace("{}}", "{},\"x\":NaN}"), "strict/json"),
        (evil.replace("{}}", "{\"x\":-Infinity}}"), "strict/json"),
        (evil.replace("delete_all", "delete_all\\u0000"), "strict/name"),
        (evil.replace("delete_all", "\\ud800delete_all"), "strict/surrogate"),
        (evil.replace("\"delete_all\"", "[\"delete_all\"]"), "strict/name"),
        (format!("\u{feff}{evil}"), "strict/byte-order-mark"),
    ];
    let mut all: Vec<_> = text.into_iter().map(|(line, why)| (line.into_bytes(), why)).collect();
    all.push((evil.clone().into_bytes(), "no-deletes"));
    let mut broken = evil.clone().into_bytes();
    broken.insert(evil.find("delete_all").unwrap(), 0xff);
    all.push((broken, "strict/utf-8"));
    all
}

/// Returns the next response.
fn answer(running: &mut Running) -> Value {
    loop {
        let message = running.message();
        if message.get("method").is_none() {
            return message;
        }
    }
}

fn check_attacks(verb: &str) {
    let lab = Lab::new();
    let mark = lab.file("deleted");
    let command = deletes(&mark);
    let mut running = start(&lab, verb, &no_deletes(), &command);
    for (n, (line, why)) in attacks().into_iter().enumerate() {
        running.send(&[line.as_slice(), b"\n"].concat());
        let refusal = answer(&mut running);
        assert_eq!(refusal["error"]["data"]["rule"], why, "{verb}: {} {refusal}", line.escape_ascii());
        // When the server answers this, it has read everything before.
        let id = 1000 + n as u64;
        let answer_after =
            running.ask(id, "tools/call", &json!({ "name": "echo", "arguments": { "text": "still" } }));
        assert_eq!(answer_after["result"]["content"][0]["text"], "still", "{verb}: {answer_after}");
        assert!(!Path::new(&mark).exists(), "{verb}: deleted by {}", line.escape_ascii());
    }
    running.close_stdin();
    assert_eq!(running.exit_code(), 0);
    check_tape(&lab, verb);
}

/// Every refusal is on the tape with its reason, in text and in JSON.
fn check_tape(lab: &Lab, verb: &str) {
    let name = if verb == "wrap" { "python" } else { "serve" };
    let tape = lab.tapes().into_iter().find(|tape| text(&tape["name"]).starts_with(name)).expect("a tape");
    let tape = lab.export(text(&tape["id"]));
    let refused: Vec<String> = tape
        .messages(UP)
        .filter(|entry| entry.json["interception"] == json!(["refused"]))
        .map(|entry| text(&entry.json["applied_rules"][0]).to_owned())
        .collect();
    let expected: Vec<&str> =
        attacks().iter().map(|(_, why)| *why).filter(|why| why.starts_with("strict/")).collect();
    assert_eq!(refused, expected, "{verb}");
    let shown = String::from_utf8(lab.run_ok(&["tape", "show", &tape.id()])).unwrap();
    assert!(shown.contains("refused by strict/line-end"), "{shown}");
    let found = lab.json(&["tape", "search", "rule:strict/line-end", "--json"]);
    assert!(found["total"].as_u64() >= Some(1), "{found}");
    lab.verify();
}

/// Without rules the same bytes pass and the tool runs: the attack is real.
fn runs_without_rules(verb: &str) {
    let lab = Lab::new();
    let mark = lab.file("deleted");
    let command = deletes(&mark);
    let mut running = start(&lab, verb, &json!([]), &command);
    running.send_line(&echo(41, &format!("[\r{EVIL}\r]")));
    wait_for("the tool to run", || Path::new(&mark).exists().then_some(()));
}

#[test]
#[ignore = "needs peers"]
fn no_spelling_bypasses_a_rule_in_wrap() {
    check_attacks("wrap");
}

#[test]
#[ignore = "needs peers"]
fn no_spelling_bypasses_a_rule_in_serve() {
    check_attacks("serve");
}

#[test]
#[ignore = "needs peers"]
fn the_attack_succeeds_without_rules_in_wrap() {
    runs_without_rules("wrap");
}

#[test]
#[ignore = "needs peers"]
fn the_attack_succeeds_without_rules_in_serve() {
    runs_without_rules("serve");
}
