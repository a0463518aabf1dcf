//! Every request is answered exactly once, under its own id, regardless of its content.
//!
//! Requests are generated from a grammar of JSON that only some parsers accept: lone surrogates, numbers beyond any
//! range, nesting, repeated keys, odd ids, odd methods. They go to every tool of all toolsets and to all methods, many
//! at a time, on standard streams and on HTTP, in both eras.

use std::collections::HashMap;

use scrubjay_core::message::Parts;
use serde_json::{Value, json};

use super::http::Target;
use super::rig::{Piped, Served, entries, logged, open_session, scratch};
use crate::random::Random;

const TOOLSETS: &str = "recorder,progress,records,tapes,sample,router";
/// How many requests are under way at once.
const AT_ONCE: usize = 48;
/// Methods that answer; `subscriptions/listen` does not answer while it listens.
const METHODS: [&str; 20] = [
    "tools/list",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "resources/subscribe",
    "resources/unsubscribe",
    "completion/complete",
    "logging/setLevel",
    "ping",
    "initialize",
    "server/discover",
    "tasks/get",
    "tasks/list",
    "tasks/cancel",
    "sampling/createMessage",
    "no/such/method",
    "",
];

/// Values that a lenient parser accepts as JSON.
fn values() -> Vec<String> {
    let nested =
        |open: &str, close: &str, levels: usize| format!("{}1{}", open.repeat(levels), close.repeat(levels));
    vec![
        r#""\ud800""#.to_owned(),
        r#""\udfff\ud800 and \ud83d""#.to_owned(),
        "1e999".to_owned(),
        "-1e999".to_owned(),
        "1e-999".to_owned(),
        "123456789012345678901234567890".to_owned(),
        "-0".to_owned(),
        "0.1e1".to_owned(),
        nested("[", "]", 150),
        nested("{\"a\":", "}", 150),
        nested("[", "]", 5000),
        r#""\u0000""#.to_owned(),
        "\"\u{feff}\u{202e}\"".to_owned(),
        format!("\"{}\"", "x".repeat(20_000)),
        r#"{"a":1,"a":2,"\u0061":3}"#.to_owned(),
        "null".to_owned(),
        "true".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        "\"\"".to_owned(),
        "[null,{},[]]".to_owned(),
        r#""file:///etc/passwd\u0000""#.to_owned(),
        r#""scrubjay://../..//%00%ff?#[]""#.to_owned(),
    ]
}

/// Ids that differ in their spelling and must be kept apart.
fn id(number: usize) -> String {
    match number % 7 {
        0 => format!("{number}.5"),
        1 => format!("\"{number}\""),
        2 => format!("{number}00000000000000000000000000"),
        3 => format!("-{number}"),
        4 => format!("\"\\u0069d \\ud800 {number}\""),
        5 => format!("{number}e3"),
        _ => number.to_string(),
    }
}

/// A request: the id that its answer must have, and the line.
type Sent = (String, String);

/// Returns requests for a tool, with an odd value instead of an argument, all arguments or the name, or in addition.
fn calls(tool: &Value, random: &mut Random, numbers: &mut impl Iterator<Item = usize>) -> Vec<Sent> {
    let name = &tool["name"];
    let properties: Vec<&String> =
        tool["inputSchema"]["properties"].as_object().into_iter().flatten().map(|(name, _)| name).collect();
    let mut all = Vec::new();
    for value in values() {
        let property = match properties.len() {
            0 => "odd".to_owned(),
            count => properties[random.below(count)].clone(),
        };
        for params in [
            format!(r#"{{"name":{name},"arguments":{{"{property}":{value}}}}}"#),
            format!(r#"{{"name":{name},"arguments":{value}}}"#),
            format!(r#"{{"name":{name},"arguments":{{}},"_meta":{{"odd":{value}}}}}"#),
        ] {
            let id = id(numbers.next().unwrap());
            all.push((
                id.clone(),
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#),
            ));
        }
    }
    all
}

/// Returns requests with odd parameters, methods, versions and members.
fn odd_requests(numbers: &mut impl Iterator<Item = usize>) -> Vec<Sent> {
    let mut all = Vec::new();
    let mut add = |line: &dyn Fn(&str) -> String| {
        let id = id(numbers.next().unwrap());
        all.push((id.clone(), line(&id)));
    };
    for method in METHODS {
        for value in values() {
            add(&|id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{value}}}"#));
            for member in
                ["name", "uri", "cursor", "ref", "level", "taskId", "_meta", "requestState", "arguments"]
            {
                add(&|id| {
                    format!(
                        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"{member}":{value}}}}}"#
                    )
                });
            }
        }
    }
    for value in values() {
        add(&|id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{value}}}"#));
        add(&|id| format!(r#"{{"jsonrpc":{value},"id":{id},"method":"ping"}}"#));
        add(&|id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping","odd":{value}}}"#));
    }
    // Not JSON, but recognisable as a request.
    for value in
        ["NaN", "Infinity", "-Infinity", "01", "+1", "'x'", "undefined", "\"\\x\"", "\"\t\"", "[1,]", "0x10"]
    {
        add(&|id| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"a","arguments":{value}}}}}"#
            )
        });
    }
    add(&|id| format!(r#"{{"jsonrpc":"2.0","id":{id}}}"#));
    add(&|id| format!(r#"{{"jsonrpc":"2.0","id":{id},"id":{id},"method":"ping"}}"#));
    add(&|id| format!(r#"{{"id":{id},"method":"ping"}}"#));
    add(&|id| format!("\u{feff}{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}"));
    all
}

/// Reads answers until every request has exactly one.
fn receive_all(piped: &mut Piped, sent: &[Sent]) {
    let mut open: HashMap<&str, &str> = sent.iter().map(|(id, line)| (id.as_str(), line.as_str())).collect();
    while !open.is_empty() {
        let line = piped.receive_line();
        let parts = Parts::of(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        if parts.method.is_some() {
            continue;
        }
        let id = parts.id.map(|id| id.get().to_owned());
        let asked = id.as_deref().and_then(|id| open.remove(id));
        let still: Vec<_> = open.values().take(3).collect();
        assert!(asked.is_some(), "an answer to nothing: {line}\nopen are {still:?}");
        assert!(parts.result.is_some() != parts.error.is_some(), "{line}");
    }
}

fn tools(piped: &mut Piped) -> Vec<Value> {
    let listed = piped.ask(&json!({ "jsonrpc": "2.0", "id": "tools", "method": "tools/list" }));
    listed.last().unwrap()["result"]["tools"].as_array().unwrap().clone()
}

fn greet(piped: &mut Piped) {
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } });
    piped.ask(&json!({ "jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params }));
    piped.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
}

#[test]
fn every_request_on_standard_streams_is_answered_once() {
    let scratch = scratch();
    let mut command = logged(scratch.path(), &json!({}));
    command.args(["serve", "--toolsets", TOOLSETS, "--workspace"]).arg(scratch.path());
    let mut piped = Piped::started(command);
    greet(&mut piped);
    let tools = tools(&mut piped);
    assert!(tools.len() > 30, "all toolsets are served: {}", tools.len());
    let (mut random, mut numbers) = (Random::from_environment(), 1..);
    let mut sent: Vec<Sent> = tools.iter().flat_map(|tool| calls(tool, &mut random, &mut numbers)).collect();
    sent.extend(odd_requests(&mut numbers));
    let mut sent_count = 0;
    for some in sent.chunks(AT_ONCE) {
        let lines: String = some.iter().map(|(_, line)| format!("{line}\n")).collect();
        piped.send_bytes(lines.as_bytes());
        receive_all(&mut piped, some);
        sent_count += some.len();
    }
    // Bytes that are not UTF-8, and a batch, in which each request is answered.
    piped.send_bytes(
        b"{\"jsonrpc\":\"2.0\",\"id\":\"bytes\",\"method\":\"ping\",\"params\":{\"x\":\"\xff\xfe\"}}\n",
    );
    receive_all(&mut piped, &[("\"bytes\"".to_owned(), String::new())]);
    piped.send_bytes(b"[{\"jsonrpc\":\"2.0\",\"id\":1.5e1,\"method\":\"ping\"},7,{\"jsonrpc\":\"2.0\",\"id\":\"b\",\"method\":\"x\"}]\n");
    let batch: Vec<Value> = serde_json::from_str(&piped.receive_line()).unwrap();
    assert_eq!(
        batch.iter().map(|answer| answer["id"].clone()).collect::<Vec<_>>(),
        [json!(15.0), json!("b")]
    );
    piped.ask(&json!({ "jsonrpc": "2.0", "id": "last", "method": "ping" }));
    piped.finish();
    let received = entries(&scratch.path().join("data"), "serve");
    let on_tape = received.iter().filter(|entry| {
        entry["direction"] == "client_to_server" && entry["via"].is_null() && entry["kind"] == "message"
    });
    assert!(on_tape.count() >= sent_count, "what was refused is on tape too");
}

/// Returns the id of an answer over HTTP, in its original spelling.
fn answered(target: &Target, line: &str) -> Option<String> {
    let answer = target.post(line).raw_answer();
    Parts::of(&answer).unwrap_or_else(|e| panic!("{e}: {answer} to {line}")).id.map(|id| id.get().to_owned())
}

#[test]
fn every_request_on_http_is_answered_in_both_eras() {
    let scratch = scratch();
    let settings = format!("serve: {{ toolsets: [{TOOLSETS}] }}\n");
    let served = Served::configured(scratch.path(), &settings, None);
    let target = open_session(&served.target());
    let mut numbers = 1..;
    for value in values() {
        for tool in ["file_op", "log_progress", "create_project", "find_tools", "orchestrate_task", "echo"] {
            let number = id(numbers.next().unwrap());
            let call = |meta: &str| {
                format!(
                    r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"x":{value}}}{meta}}}}}"#
                )
            };
            assert_eq!(answered(&target, &call("")).as_deref(), Some(number.as_str()), "{tool} {value:.80}");
            let modern = served.target().with("MCP-Protocol-Version", "2026-07-28");
            let modern = modern.with("Mcp-Method", "tools/call").with("Mcp-Name", tool);
            let meta = r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}}"#;
            assert_eq!(
                answered(&modern, &call(meta)).as_deref(),
                Some(number.as_str()),
                "{tool} {value:.80}"
            );
        }
    }
    for line in
        [r#"{"jsonrpc":"2.0","id":77,"method":"ping","params":{"x":NaN}}"#, r#"{"jsonrpc":"2.0","id":77}"#]
    {
        assert_eq!(answered(&target, line).as_deref(), Some("77"), "{line}");
    }
}
