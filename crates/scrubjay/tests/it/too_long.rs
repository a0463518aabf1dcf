//! Messages beyond the limit: not forwarded, answered, recorded by length and hash, in bounded memory.

use serde_json::{Value, json};

use crate::harness::{DOWN, Lab, Process, UP};

const LIMIT: usize = 64 * 1024;
const LIMIT_OPTION: [&str; 2] = ["--max-message-size", "64KiB"];

/// The most memory that a worker may use, regardless of the length of a line.
const MEMORY_KB_MAX: u64 = 40 * 1024;

/// Asserts that the entry has the length and the hash of this line.
fn assert_measured(facts: &Value, line: &str) {
    assert_eq!(facts["bytes"], line.len());
    assert_eq!(facts["hash"], blake3::hash(line.as_bytes()).to_hex().as_str());
}

fn check_request(line: &str, id: &Value) {
    let lab = Lab::new();
    let mut wrapped = lab.wrap(&["tee", &lab.file("log")]).with(&LIMIT_OPTION).start();
    let neighbours =
        [r#"{"jsonrpc":"2.0","id":1,"method":"before"}"#, r#"{"jsonrpc":"2.0","method":"after"}"#];
    wrapped.send_line(&format!("{}\n{line}\n{}", neighbours[0], neighbours[1]));
    let mut received: Vec<String> = (0..3).map(|_| wrapped.line().expect("three lines come back")).collect();
    let refusal = received.iter().position(|line| line.contains("error")).expect("the client gets an error");
    let refusal = received.remove(refusal);
    assert_eq!(received, neighbours);
    assert_eq!(wrapped.leave(), 0);

    let answer: Value = serde_json::from_str(&refusal).unwrap();
    assert_eq!(
        (&answer["jsonrpc"], &answer["id"], &answer["error"]["code"]),
        (&json!("2.0"), id, &json!(-32600))
    );
    let words = answer["error"]["message"].as_str().unwrap();
    assert!(words.contains(&line.len().to_string()) && words.contains("--max-message-size"), "{words}");
    assert_eq!(lab.read("log"), format!("{}\n{}\n", neighbours[0], neighbours[1]).into_bytes());

    let recorded = lab.only_tape();
    let [measured] = recorded.of_kind("oversize").collect::<Vec<_>>()[..] else { panic!("{recorded:?}") };
    assert_eq!(measured.json["direction"], UP);
    assert_measured(&measured.facts(), line);
    assert!(
        recorded.messages(DOWN).any(|entry| entry.payload == refusal.as_bytes()),
        "the refusal is on tape"
    );
    assert_eq!(recorded.messages(UP).count(), 2);
}

#[test]
fn a_request_that_is_too_long_is_refused_under_its_id() {
    let long = "x".repeat(LIMIT);
    check_request(
        &format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{{"p":"{long}"}}}}"#),
        &json!(7),
    );
    check_request(
        &format!(r#"{{"params":{{"id":1,"p":"{long}"}},"method":"m","id":"la\"st"}}"#),
        &json!("la\"st"),
    );
    check_request(&format!(r#"not a message {long}"#), &Value::Null);
}

#[test]
fn a_message_of_exactly_the_limit_passes() {
    let lab = Lab::new();
    let mut wrapped = lab.wrap(&["cat"]).with(&LIMIT_OPTION).start();
    let longest = format!("\"{}\"", "y".repeat(LIMIT - 2));
    wrapped.send_line(&longest);
    assert_eq!(wrapped.line().unwrap(), longest);
    wrapped.send_line(&format!(" {longest}"));
    assert!(wrapped.line().unwrap().contains("error"));
    assert_eq!(wrapped.leave(), 0);
}

#[test]
fn an_answer_that_is_too_long_is_replaced_by_an_error() {
    let lab = Lab::new();
    let mut wrapped = lab.wrap_sample().with(&LIMIT_OPTION).start();
    wrapped.initialize();
    let answer = wrapped.call(1, "large", &json!({ "bytes": LIMIT + 1 }));
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    let bytes = answer["error"]["data"]["bytes"].as_u64().unwrap();
    assert!(bytes > LIMIT as u64, "{answer}");
    let answer = wrapped.call(2, "echo", &json!({ "text": "still here" }));
    assert_eq!(answer["result"]["content"][0]["text"], "still here");
    assert_eq!(wrapped.leave(), 0);
    let recorded = lab.only_tape();
    let measured = recorded.of_kind("oversize").next().expect("it is recorded");
    assert_eq!((&measured.json["direction"], &measured.facts()["bytes"]), (&json!(DOWN), &json!(bytes)));
    assert_eq!(measured.facts()["id"], "1");
}

#[test]
fn a_long_line_uses_bounded_memory() {
    let lab = Lab::new();
    let mut wrapped = lab.wrap(&["cat"]).with(&LIMIT_OPTION).start();
    let worker = wrapped.worker();
    let piece = vec![b'z'; 1 << 20];
    wrapped.send(br#"{"jsonrpc":"2.0","method":"m","params":""#);
    for _ in 0..200 {
        wrapped.send(&piece);
    }
    wrapped.send_line(r#"","id":8}"#);
    let answer = wrapped.message();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(8), &json!(-32600)), "{answer}");
    wrapped.send_line("and on");
    assert_eq!(wrapped.line().unwrap(), "and on");
    let used = Process::status_kb(worker, "VmHWM:");
    assert!(used < MEMORY_KB_MAX, "the worker used {used} kB");
    assert_eq!(wrapped.leave(), 0);
}
