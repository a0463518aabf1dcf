//! Rules make HTTP strict, too: in front of a remote server, and in front of the gateway's backends.

use serde_json::{Value, json};

use super::rig::{Served, modern, open_session, scratch, scrubjay};
use super::upstream::{Upstream, events, json as answer};

fn recorded(data: &std::path::Path) -> Vec<Value> {
    let listed: Value =
        serde_json::from_str(&scrubjay(data, &["--json", "tape", "ls", "--all"])).expect("JSON");
    let ids = listed.as_array().expect("a list").iter().map(|tape| tape["id"].as_str().expect("an id"));
    let exported = ids.map(|id| scrubjay(data, &["--json", "tape", "export", id, "--format", "jsonl"]));
    exported
        .flat_map(|all| all.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect::<Vec<_>>())
        .collect()
}

fn reasons(entries: &[Value]) -> Vec<String> {
    let refused = entries
        .iter()
        .filter(|e| e["interception"] == json!(["refused"]) && e["direction"] == "client_to_server");
    refused.map(|e| e["applied_rules"][0].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn an_ambiguous_body_reaches_no_server() {
    let directory = scratch();
    let rules = json!({ "recorder": { "rules": [
        { "name": "no-rm", "match": { "tools": ["rm"] }, "action": "block" } ] } });
    let config = directory.path().join("config.json");
    std::fs::write(&config, rules.to_string()).expect("the test can write in its directory");
    let upstream = Upstream::start(|_| answer("", r#"{"jsonrpc":"2.0","id":2,"result":{}}"#));
    let data = directory.path().join("data");
    let served = Served::wrap_configured(&config, &data, &["--url", &upstream.url]);
    let call = modern(2, "tools/call", &json!({ "name": "ls", "arguments": {} })).to_string();
    for (body, status, why) in [
        (call.replace("\"ls\"", "\"ls\",\"name\":\"rm\""), 200, "strict/duplicate-key"),
        (call.replace("\"ls\"", "\"ls\",\"Name\":\"rm\""), 200, "strict/spelling"),
        (call.replace("\"arguments\":{}", "\"arguments\":{\"x\":NaN}"), 200, "strict/json"),
        (call.replace("\"ls\"", "\"l\ns\""), 200, "strict/line-end"),
        (call.replace("\"ls\"", "\"l\r\ns\""), 200, "strict/line-end"),
        (format!("\u{feff}{call}"), 200, "strict/byte-order-mark"),
        (format!("{call}{call}"), 400, "strict/json"),
        ("rubbish".to_owned(), 400, "strict/json"),
    ] {
        let reply = served.target().post(&body);
        assert_eq!((reply.status, &reply.json()["error"]["data"]["rule"]), (status, &json!(why)), "{body}");
    }
    let mismatch = served.target().with("Mcp-Method", "tools/call").with("Mcp-Name", "rm").post(&call);
    assert_eq!(mismatch.status, 400, "the header contradicts the body");
    assert!(upstream.asked().is_empty());
    // Line breaks between tokens end no message over HTTP, but they are still removed.
    let pretty = call.replace("\"arguments\"", "\r\n\t\"arguments\"");
    assert_eq!(served.target().post(&pretty).json()["result"], json!({}));
    assert!(!upstream.asked()[0].body.iter().any(|b| matches!(b, b'\r' | b'\n')));
    drop(served);
    let reasons = reasons(&recorded(&data));
    assert_eq!(reasons.len(), 8, "{reasons:?}");
}

#[test]
fn ambiguous_events_are_not_forwarded() {
    let directory = scratch();
    let rules = json!({ "recorder": { "rules": [
        { "name": "hush", "match": { "methods": ["notifications/secret"] }, "action": "block" } ] } });
    let config = directory.path().join("config.json");
    std::fs::write(&config, rules.to_string()).expect("the test can write in its directory");
    let secret = r#"{"jsonrpc":"2.0","method":"notifications/secret"}"#;
    let stream = format!(
        "id: 1\ndata:\n\n: a\u{b}data: {secret}\n\nevent: other\ndata: {secret}\n\n\
         data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":{{\"t\":\"\u{2028}data: \"}}}}\n\n\
         data: {{\"method\":\"notifications/x\",\"Method\":\"notifications/secret\"}}\n\n\
         data: {{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{{}}}}\n\ndata: {secret}\n"
    );
    let upstream = Upstream::start(move |_| events(&stream));
    let data = directory.path().join("data");
    let served = Served::wrap_configured(&config, &data, &["--url", &upstream.url]);
    let received = served.target().post(&modern(2, "tools/list", &json!({})).to_string()).text();
    assert!(!received.contains("secret"), "{received}");
    assert!(
        received.contains(r#""t":"\u2028data: ""#) && received.contains(r#""id":2,"result":{}"#),
        "{received}"
    );
    assert!(received.starts_with("id: 1\ndata: \n\n"), "{received}");
}

#[test]
fn ambiguous_requests_to_the_gateway_are_refused() {
    let directory = scratch();
    let sample = json!({ "id": "one", "type": "stdio", "command": env!("CARGO_BIN_EXE_scrubjay"), "args": ["sample-server"] });
    let settings = json!({ "backends": [sample], "recorder": { "rules": [
        { "name": "no", "match": { "tools": ["fail"] }, "action": "block" } ] } });
    let served = Served::configured(directory.path(), &settings.to_string(), None);
    let session = open_session(&served.target());
    let call = json!({ "jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": { "name": "echo", "arguments": { "text": "x" } } });
    let call = call.to_string();
    for (body, why) in [
        (call.replace("\"echo\"", "\"echo\",\"name\":\"fail\""), "strict/duplicate-key"),
        (call.replace("\"text\"", "\"\\ud800\""), "strict/surrogate"),
        (call.replace("\"params\"", "\"PARAMS\":{},\"params\""), "strict/spelling"),
        (call.replace("\"echo\"", "\"fail\""), "no"),
    ] {
        let answered = session.post(&body).json();
        assert_eq!(
            (&answered["id"], &answered["error"]["data"]["rule"]),
            (&json!(5), &json!(why)),
            "{body}: {answered}"
        );
    }
    // A line break within a string is not JSON, and is not repaired.
    let broken = session.post(&call.replace("\"echo\"", "\"ec\nho\""));
    assert_eq!((broken.status, &broken.json()["error"]["code"]), (400, &json!(-32700)));
    assert_eq!(session.post(&call.replace(',', ",\r\n")).json()["result"]["content"][0]["text"], "x");
    assert_eq!(session.post(&call).json()["result"]["content"][0]["text"], "x");
}
