//! Rules between the gateway and its backends: no message bypasses them.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::listen::{odd_server, request};
use super::rig::{
    Piped, Served, answer_text, entries, initialize, modern, open_session, post_modern, scratch, scrubjay,
    text, until,
};

fn sample(id: &str) -> Value {
    json!({ "id": id, "type": "stdio", "command": env!("CARGO_BIN_EXE_scrubjay"), "args": ["sample-server"] })
}

fn config(directory: &Path, rules: &Value, backends: &Value) -> String {
    let file = directory.join("c.json");
    let settings = json!({ "recorder": { "rules": rules }, "backends": backends });
    std::fs::write(&file, settings.to_string()).expect("the directory is ours");
    text(&file)
}

/// A gateway on standard streams in front of these backends, after the greeting.
fn start(directory: &Path, rules: &Value, backends: &Value) -> Piped {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scrubjay"));
    command.env(crate::harness::BACKGROUND_VARIABLE, "false");
    command.args(["--config", &config(directory, rules, backends), "--data"]).arg(directory.join("data"));
    command.args(["serve", "--toolsets", "none", "--log-level", "warn"]);
    let mut piped = Piped::started(command);
    piped.ask(&initialize(1));
    piped.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    piped
}

fn call(piped: &mut Piped, id: u64, tool: &str, arguments: &Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    let asked = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    piped.ask(&asked).pop().expect("an answer")
}

fn message(entry: &Value) -> Value {
    serde_json::from_str(entry["raw"].as_str().unwrap_or_default()).unwrap_or_default()
}

#[test]
fn each_action_takes_effect_and_is_recorded() {
    let scratch = scratch();
    let rules = json!([
        { "name": "no-fail", "match": { "tools": ["fail"], "backends": ["one"] }, "action": "block", "code": -32050, "message": "no" },
        { "name": "canned", "match": { "tools": ["slow"] }, "action": "mock", "result": { "content": [{ "type": "text", "text": "canned" }] } },
        { "name": "calm", "match": { "direction": "client_to_server", "tools": ["echo"] }, "action": "modify",
            "replace": [{ "path": "$.arguments.text", "pattern": "foo", "with": "bar" }] },
        { "name": "mark", "match": { "direction": "server_to_client", "tools": ["echo"] }, "action": "modify",
            "set": { "$.content[0].extra": 1 } },
        { "name": "wait", "match": { "tools": ["large"] }, "action": "delay", "delay": "20ms" },
        { "name": "note", "match": { "tools": ["*"] }, "action": "tag", "tags": ["seen"] },
    ]);
    let mut piped = start(scratch.path(), &rules, &json!([sample("one"), sample("two")]));
    let blocked = call(&mut piped, 10, "one__fail", &json!({}));
    assert_eq!(blocked["error"], json!({ "code": -32050, "message": "no", "data": { "rule": "no-fail" } }));
    let other = call(&mut piped, 11, "two__fail", &json!({}));
    assert_eq!(other["result"]["isError"], true, "the rule is about one backend: {other}");
    assert_eq!(answer_text(&call(&mut piped, 12, "one__slow", &json!({ "ms": 60_000 }))), "canned");
    let changed = call(&mut piped, 13, "one__echo", &json!({ "text": "a foo" }));
    assert_eq!((answer_text(&changed), &changed["result"]["content"][0]["extra"]), ("a bar", &json!(1)));
    assert_eq!(answer_text(&call(&mut piped, 14, "two__large", &json!({ "bytes": 5 }))).len(), 5);
    piped.finish();
    let tape = entries(&scratch.path().join("data"), "serve");
    let of = |rule: &str| -> Vec<&Value> {
        let named =
            |entry: &&Value| entry["applied_rules"].as_array().is_some_and(|r| r.contains(&json!(rule)));
        tape.iter().filter(named).collect()
    };
    let blocked = of("no-fail");
    assert_eq!(blocked.len(), 2, "{blocked:?}");
    let asked =
        tape.iter().find(|e| message(e)["id"] == 10 && e.get("via").is_none()).expect("it is on tape");
    for entry in blocked {
        assert_eq!((&entry["via"], &entry["interception"]), (&json!("one"), &json!(["blocked"])));
        assert_eq!(entry["operation"], asked["entry"], "both legs are one operation");
    }
    assert_eq!(of("canned").len(), 2);
    for (rule, direction) in [("calm", "client_to_server"), ("mark", "server_to_client")] {
        let changed = of(rule);
        assert_eq!((changed.len(), &changed[0]["direction"]), (1, &json!(direction)), "{changed:?}");
        let before = &tape[usize::try_from(changed[0]["entry"].as_u64().unwrap()).unwrap() - 1];
        assert_eq!((&before["kind"], &before["raw"]), (&json!("original"), &changed[0]["original_message"]));
    }
    assert_eq!(of("wait").len(), 2, "the call and its answer");
    let waited = tape.iter().find(|e| message(e)["id"] == 14 && e["role"] == "answer").expect("answered");
    assert!(waited["response_time_ns"].as_u64() >= Some(40_000_000), "both wait: {waited}");
    assert!(of("note").iter().all(|entry| entry["tags"] == json!(["seen"])));
    // The effects of rules between gateway and backend are reported once, at the client's own call.
    let data = scratch.path().join("data");
    let search = |query: &str| -> Value {
        serde_json::from_str(&scrubjay(&data, &["--json", "tape", "search", query])).expect("JSON")
    };
    for (query, names) in [
        ("rule:no-fail", vec!["one__fail"]),
        ("rule:canned", vec!["one__slow"]),
        ("rule:calm OR rule:wait", vec!["two__large", "one__echo"]),
        ("type:original", vec!["one__echo"]),
        ("tag:seen tool:*echo", vec!["one__echo"]),
        ("tag:seen -rule:calm tool:*", vec!["two__large", "two__fail"]),
        ("\"a bar\" \"a foo\"", vec!["one__echo"]),
    ] {
        let found = search(query);
        let hits = found["hits"].as_array().expect("a list").iter();
        let seen: Vec<&str> = hits.map(|hit| hit["name"].as_str().unwrap_or_default()).collect();
        assert_eq!(seen, names, "{query}: {found}");
        assert!(found["hits"][0]["intercepted"] == true || query.starts_with("tag:"), "{found}");
    }
    scrubjay(&scratch.path().join("data"), &["tape", "verify"]);
}

#[test]
fn rules_apply_to_a_backend_of_the_client() {
    let scratch = scratch();
    let rules =
        json!([{ "name": "no", "match": { "backends": ["mine"], "tools": ["echo"] }, "action": "block" }]);
    let mut piped = start(scratch.path(), &rules, &json!([sample("one")]));
    let mut greeting = initialize(2);
    greeting["params"]["initializationOptions"] = json!({ "backends": [sample("mine")] });
    piped.ask(&greeting);
    assert_eq!(call(&mut piped, 10, "mine__echo", &json!({ "text": "x" }))["error"]["data"]["rule"], "no");
    assert_eq!(answer_text(&call(&mut piped, 11, "one__echo", &json!({ "text": "x" }))), "x");
}

/// A server that answers one call, and exits.
const BRIEF: &str = r#"
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    known = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "b", "version": "1"}},
        "tools/list": {"tools": [{"name": "last", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "last words"}]},
    }
    result = known.get(asked["method"])
    answer = {"result": result} if result else {"error": {"code": -32601, "message": "no"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
    if asked["method"] == "tools/call":
        break
"#;

#[test]
fn a_delayed_answer_is_delivered_after_its_backend_exits() {
    let scratch = scratch();
    let rules = json!([{ "name": "wait", "match": { "direction": "server_to_client", "tools": ["last"] },
        "action": "delay", "delay": "2s" }]);
    let brief = json!({ "id": "brief", "type": "stdio", "command": "python3", "args": ["-c", BRIEF] });
    let mut piped = start(scratch.path(), &rules, &json!([brief]));
    assert_eq!(answer_text(&call(&mut piped, 10, "last", &json!({}))), "last words");
}

/// A server that asks its client for words, sends a notification, and answers with the words.
const ASKER: &str = r#"
import json, sys
def say(**members):
    print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)
for line in sys.stdin:
    received = json.loads(line)
    if received.get("id") == "q":
        say(id=call, result={"content": [{"type": "text", "text": json.dumps(received.get("result", received.get("error")))}]})
    elif received.get("method") == "tools/call":
        call = received["id"]
        say(method="notifications/message", params={"level": "error", "data": "gossip"})
        say(id="q", method="sampling/createMessage", params={"messages": [], "maxTokens": 1})
    elif "id" in received:
        known = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "logging": {}}, "serverInfo": {"name": "a", "version": "1"}},
            "tools/list": {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]},
        }
        result = known.get(received["method"])
        say(id=received["id"], **({"result": result} if result else {"error": {"code": -32601, "message": "no"}}))
"#;

#[test]
fn rules_apply_to_requests_and_notifications_of_a_backend() {
    let asked = json!({ "direction": "server_to_client", "methods": ["sampling/*"] });
    let answered = json!({ "direction": "client_to_server", "methods": ["sampling/*"] });
    for (rule, expected) in [
        (json!({ "name": "r", "match": asked, "action": "block", "message": "not here" }), "not here"),
        (
            json!({ "name": "r", "match": asked, "action": "mock", "result": { "canned": 1 } }),
            r#"{"canned": 1}"#,
        ),
        (json!({ "name": "r", "match": asked, "action": "delay", "delay": "10ms" }), r#"{"model": "m"}"#),
        (
            json!({ "name": "r", "match": answered, "action": "modify", "set": { "$.model": "n" } }),
            r#"{"model": "n"}"#,
        ),
    ] {
        let scratch = scratch();
        let hush =
            json!({ "name": "hush", "match": { "methods": ["notifications/message"] }, "action": "block" });
        let asker = json!({ "id": "asker", "type": "stdio", "command": "python3", "args": ["-c", ASKER] });
        let mut piped = start(scratch.path(), &json!([rule, hush]), &json!([asker]));
        let params = json!({ "name": "ask", "arguments": {} });
        piped.send(&json!({ "jsonrpc": "2.0", "id": 10, "method": "tools/call", "params": params }));
        let mut received = piped.receive();
        if received["method"] == "sampling/createMessage" {
            piped.send(&json!({ "jsonrpc": "2.0", "id": received["id"], "result": { "model": "m" } }));
            received = piped.receive();
        }
        assert!(answer_text(&received).contains(expected), "{rule}: {received}");
        let (_, received) = piped.finish();
        assert!(!received.concat().contains("gossip"), "{received:?}");
        let tape = entries(&scratch.path().join("data"), "serve");
        let hushed = tape.iter().find(|e| e["applied_rules"] == json!(["hush"])).expect("it is on tape");
        assert_eq!((&hushed["interception"], &hushed["via"]), (&json!(["blocked"]), &json!("asker")));
        assert!(tape.iter().any(|e| e["applied_rules"] == json!(["r"])), "{rule}");
    }
}

#[test]
fn rules_apply_to_lists() {
    let scratch = scratch();
    let rules = json!([
        { "name": "hide", "match": { "direction": "server_to_client", "methods": ["tools/list"] }, "action": "modify",
            "remove": ["$.tools[0]"] },
        { "name": "no-prompts", "match": { "methods": ["prompts/*"] }, "action": "mock", "result": { "prompts": [] } },
    ]);
    let mut piped = start(scratch.path(), &rules, &json!([sample("one")]));
    let mut list = |id: u64, method: &str| {
        let asked = json!({ "jsonrpc": "2.0", "id": id, "method": method });
        piped.ask(&asked).pop().expect("an answer")["result"].clone()
    };
    let names: Vec<String> = list(10, "tools/list")["tools"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|tool| tool["name"].as_str().expect("a name").to_owned())
        .collect();
    let of_sample: Vec<&String> =
        names.iter().filter(|name| !name.starts_with("orchestrate") && !name.starts_with("find_")).collect();
    assert_eq!(of_sample.len(), 5, "one of six is gone: {names:?}");
    assert_eq!(list(11, "prompts/list")["prompts"], json!([]));
}

#[test]
fn a_hidden_list_is_not_taken_from_an_earlier_run() {
    let scratch = scratch();
    // A server that answers the first time, and then hangs.
    let (flag, server) = (scratch.path().join("seen"), env!("CARGO_BIN_EXE_scrubjay"));
    let script =
        format!("[ -e {0} ] && exec sleep 1000; touch {0}; exec {server} sample-server", flag.display());
    let backends = json!([{ "id": "one", "type": "stdio", "command": "sh", "args": ["-c", script] }]);
    let list = json!({ "jsonrpc": "2.0", "id": 10, "method": "tools/list" });
    let lists_fail = |rules: &Value| {
        let mut piped = start(scratch.path(), rules, &backends);
        let listed = piped.ask(&list).pop().expect("an answer")["result"]["tools"].to_string();
        piped.finish();
        listed.contains("\"fail\"")
    };
    assert!(lists_fail(&json!([])), "the tool is listed");
    assert!(lists_fail(&json!([])), "its last list is used");
    assert!(!lists_fail(
        &json!([{ "name": "hide", "match": { "methods": ["tools/*"] }, "action": "block" }])
    ));
}

#[test]
fn rules_apply_to_wrap_listen() {
    let scratch = scratch();
    let rules = json!([
        { "name": "no-pid", "match": { "tools": ["pid"], "backends": ["odd"] }, "action": "block" },
        { "name": "hush", "match": { "methods": ["notifications/quiet"] }, "action": "block" },
    ]);
    let config = config(scratch.path(), &rules, &json!([]));
    let served =
        Served::wrap(&scratch.path().join("data"), &["--config", &config], &odd_server(scratch.path()));
    let legacy = open_session(&served.target());
    let answer = legacy.post(&request(2, "tools/call", &json!({ "name": "pid" }))).json();
    assert_eq!(answer["error"]["data"]["rule"], "no-pid", "{answer}");
    let answer = post_modern(&served.target(), &modern(3, "tools/call", &json!({ "name": "pid" }))).json();
    assert_eq!(answer["error"]["data"]["rule"], "no-pid", "{answer}");
    for method in ["notifications/quiet", "notifications/loud"] {
        let notification = json!({ "jsonrpc": "2.0", "method": method });
        assert_eq!(legacy.post(&notification.to_string()).status, 202);
    }
    until("the server receives it", || super::listen::log(scratch.path()).contains("notifications/loud"));
    let log = super::listen::log(scratch.path());
    assert!(!log.contains("notifications/quiet") && !log.contains("\"pid\""), "{log}");
}

#[test]
fn rules_apply_to_wrap_url() {
    let scratch = scratch();
    let rules = json!([{ "name": "no", "match": { "methods": ["odd/*"] }, "action": "block" }]);
    let config = config(scratch.path(), &rules, &json!([]));
    let behind = Served::wrap(&scratch.path().join("behind"), &[], &odd_server(scratch.path()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_scrubjay"));
    command.env(crate::harness::BACKGROUND_VARIABLE, "false");
    command.args(["--config", &config, "--data"]).arg(scratch.path().join("data"));
    command.args(["wrap", "--url", &format!("http://{}/mcp", behind.address)]);
    let mut piped = Piped::started(command);
    piped.ask(&initialize(1));
    let asked = json!({ "jsonrpc": "2.0", "id": 2, "method": "odd/method" });
    let answer = piped.ask(&asked).pop().expect("an answer");
    assert_eq!(answer["error"]["data"]["rule"], "no", "{answer}");
    piped.finish();
    assert!(!super::listen::log(scratch.path()).contains("odd/method"));
}

#[test]
fn secrets_of_rules_reach_no_tape() {
    const CANARY: &str = "c4n4ry-pw-0123456789";
    let scratch = scratch();
    let rules = json!([
        { "name": "no", "match": { "tools": ["fail"] }, "action": "block", "message": format!("token={CANARY}") },
        { "name": "canned", "match": { "tools": ["slow"] }, "action": "mock", "result": { "password": CANARY } },
        { "name": "set", "match": { "direction": "client_to_server", "tools": ["echo"] }, "action": "modify",
            "set": { "$.arguments.api_key": CANARY } },
    ]);
    let mut piped = start(scratch.path(), &rules, &json!([sample("one")]));
    for (id, tool) in [(10, "fail"), (11, "slow"), (12, "echo")] {
        call(&mut piped, id, tool, &json!({ "text": "x", "password": CANARY }));
    }
    piped.finish();
    let data = scratch.path().join("data");
    assert_eq!(super::route::holds(&data, CANARY), None);
    let tapes: Value =
        serde_json::from_str(&scrubjay(&data, &["tape", "ls", "--all", "--json"])).expect("JSON");
    for tape in tapes.as_array().expect("a list") {
        let id = tape["id"].as_str().expect("an id");
        assert!(!scrubjay(&data, &["tape", "export", id, "--format", "jsonl"]).contains(CANARY));
    }
}
