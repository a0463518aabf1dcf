//! A client of one era and a backend that speaks only the other.

use serde_json::{Value, json};

use super::http::Target;
use super::rig::{
    Piped, Served, answer_text, fixture, initialize, modern, modern_as, open_session, post_modern, scratch,
    tapped, until,
};

/// A client's answer to a request of the server, in either era.
fn given(demand: &Value) -> Value {
    match demand["method"].as_str().expect("a method") {
        "sampling/createMessage" => json!({
            "role": "assistant", "model": "test", "content": { "type": "text", "text": "a word" },
        }),
        "elicitation/create" => {
            let fields = demand["params"]["requestedSchema"]["properties"].as_object().expect("fields");
            let content: serde_json::Map<String, Value> = fields
                .iter()
                .map(|(name, field)| {
                    (
                        name.clone(),
                        if field["type"] == "boolean" { json!(true) } else { json!(format!("my {name}")) },
                    )
                })
                .collect();
            json!({ "action": "accept", "content": content })
        }
        "roots/list" => json!({ "roots": [{ "uri": "file:///here", "name": "here" }] }),
        other => panic!("no tool asks {other}"),
    }
}

/// Calls a tool as a modern client does, again for each request for input; returns the answer and the rounds.
fn call_modern(target: &Target, tool: &str, arguments: &Value) -> (Value, usize) {
    let mut params = json!({ "name": tool, "arguments": arguments });
    for round in 1..10 {
        let answer = post_modern(target, &modern(round as u64, "tools/call", &params)).messages();
        let answer = answer.last().expect("an answer").clone();
        if answer["result"]["resultType"] != "input_required" {
            return (answer, round);
        }
        let demands = answer["result"]["inputRequests"].as_object().expect("demands");
        assert!(!demands.is_empty(), "{answer}");
        let responses: serde_json::Map<String, Value> =
            demands.iter().map(|(key, demand)| (key.clone(), given(demand))).collect();
        params["inputResponses"] = Value::from(responses);
        params["requestState"] = answer["result"]["requestState"].clone();
    }
    panic!("{tool} asks for input too often")
}

/// What each tool that asks for input returns after the answers above.
const ASKING: [(&str, &str); 6] = [
    ("test_sampling", "LLM response: a word"),
    ("test_elicitation", r#"content: {"email":"my email","username":"my username"}"#),
    ("test_input_required_result_elicitation", "Hello, my name!"),
    ("test_input_required_result_list_roots", "Roots: file:///here"),
    ("test_input_required_result_multi_round", "my name likes my color"),
    ("test_input_required_result_multiple_inputs", "a word"),
];

fn arguments(tool: &str) -> Value {
    match tool {
        "test_sampling" => json!({ "prompt": "say a word" }),
        "test_elicitation" => json!({ "message": "who are you?" }),
        _ => json!({}),
    }
}

#[test]
fn a_modern_client_gets_questions_as_results() {
    let scratch = scratch();
    let backend = tapped(scratch.path(), fixture(&["--era", "legacy"]));
    let served = Served::start(&scratch.path().join("data"), &[], &backend);
    let target = served.target();
    for (tool, expected) in ASKING {
        let (answer, rounds) = call_modern(&target, tool, &arguments(tool));
        assert!(answer_text(&answer).contains(expected), "{tool}: {answer}");
        assert_eq!(answer["result"]["resultType"], "complete", "{tool}");
        let least = if tool.ends_with("multi_round") { 3 } else { 2 };
        assert!(rounds >= least, "{tool} took {rounds} rounds");
    }
    // Members that only modern requests have are not sent to a legacy backend, because some refuse them.
    for line in backend_heard(scratch.path()).lines().filter(|line| line.contains("tools/")) {
        assert!(!line.contains("io.modelcontextprotocol/"), "{line}");
    }
    // A client is not asked for input of a kind that it does not support.
    let params = json!({ "name": "test_sampling", "arguments": { "prompt": "x" } });
    let answer = post_modern(&target, &modern_as(1, "tools/call", &params, &json!({}), None)).json();
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    // A `requestState` that the gateway did not issue is refused.
    let params =
        json!({ "name": "test_sampling", "arguments": { "prompt": "x" }, "requestState": "made up" });
    let answer = post_modern(&target, &modern(2, "tools/call", &params)).json();
    assert_ne!(answer["result"]["resultType"], "complete", "{answer}");
}

#[test]
fn only_its_own_client_can_resume_a_call_that_waits_for_input() {
    let scratch = scratch();
    let served = Served::start(&scratch.path().join("data"), &[], &fixture(&["--era", "legacy"]));
    let target = served.target();
    let mut params = json!({ "name": "test_elicitation", "arguments": { "message": "who are you?" } });
    let demand = post_modern(&target, &modern(1, "tools/call", &params)).json()["result"].clone();
    params["requestState"] = demand["requestState"].clone();
    params["inputResponses"] = json!({ "input-1": given(&demand["inputRequests"]["input-1"]) });
    let mut stranger = modern(1, "tools/call", &params);
    stranger["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]["name"] = json!("stranger");
    let refused = post_modern(&target, &stranger).json();
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    // The client that it was issued to may have another trace meanwhile.
    params["_meta"] = json!({ "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" });
    let answer = post_modern(&target, &modern(2, "tools/call", &params)).json();
    assert!(answer_text(&answer).contains("my username"), "{answer}");
}

#[test]
fn a_question_without_a_certain_owner_is_refused() {
    let scratch = scratch();
    let backend = tapped(scratch.path(), fixture(&["--era", "legacy"]));
    let (command, args) = (&backend[0], json!(backend[1..]));
    let config = format!(
        "serve: {{ toolsets: [] }}\nbackends:\n  - {{ id: one, type: stdio, command: {command}, args: {args}, shared: true }}\n"
    );
    let served = Served::configured(scratch.path(), &config, None);
    // Two clients with the same name and the same ids, like two windows of one program.
    let target = served.target().with("MCP-Protocol-Version", "2026-07-28");
    let target = target.with("Mcp-Method", "tools/call").with("Mcp-Name", "test_reconnection");
    let slow = json!({ "name": "test_reconnection", "arguments": { "seconds": 60 } });
    let _busy = target.begin("POST", &modern(1, "tools/call", &slow).to_string());
    until("the backend is asked", || backend_heard(scratch.path()).contains("test_reconnection"));
    let (answer, rounds) = call_modern(&served.target(), "test_sampling", &arguments("test_sampling"));
    assert_eq!((rounds, &answer["result"]["isError"]), (1, &json!(true)), "{answer}");
    assert!(answer_text(&answer).contains("cannot be told"), "{answer}");
}

#[test]
fn a_question_during_another_call_of_the_same_client_reaches_it() {
    let scratch = scratch();
    let backend = tapped(scratch.path(), fixture(&["--era", "legacy"]));
    let served = Served::start(&scratch.path().join("data"), &[], &backend);
    let target = served.target().with("MCP-Protocol-Version", "2026-07-28");
    let target = target.with("Mcp-Method", "tools/call").with("Mcp-Name", "test_reconnection");
    let slow = json!({ "name": "test_reconnection", "arguments": { "seconds": 60 } });
    let _busy = target.begin("POST", &modern(1, "tools/call", &slow).to_string());
    until("the backend is asked", || backend_heard(scratch.path()).contains("test_reconnection"));
    let (answer, rounds) = call_modern(&served.target(), "test_sampling", &arguments("test_sampling"));
    assert_eq!((rounds, &answer["result"]["isError"]), (2, &Value::Null), "{answer}");
}

#[test]
fn a_modern_client_gets_progress_and_logs_of_a_legacy_backend() {
    let scratch = scratch();
    let served = Served::start(&scratch.path().join("data"), &[], &fixture(&["--era", "legacy"]));
    let target = served.target();
    let params = json!({ "name": "test_tool_with_progress", "_meta": { "progressToken": "mine" } });
    assert_progress(&post_modern(&target, &modern(1, "tools/call", &params)).messages(), &json!("mine"));
    let params = json!({ "name": "test_tool_with_logging" });
    for (level, expected) in [(None, 0), (Some("info"), 3), (Some("error"), 0)] {
        let request = modern_as(2, "tools/call", &params, &json!({}), level);
        let received = post_modern(&target, &request).messages();
        let logged = received.iter().filter(|m| m["method"] == "notifications/message").count();
        assert_eq!(logged, expected, "{level:?}: {received:?}");
        assert!(received.last().expect("an answer")["result"].is_object(), "{received:?}");
    }
}

fn assert_progress(received: &[Value], token: &Value) {
    let progress: Vec<&Value> = received.iter().filter(|m| m["method"] == "notifications/progress").collect();
    let steps: Vec<&Value> = progress.iter().map(|m| &m["params"]["progress"]).collect();
    assert_eq!(steps, [&json!(0), &json!(50), &json!(100)], "{received:?}");
    assert!(progress.iter().all(|m| m["params"]["progressToken"] == *token), "{received:?}");
    assert!(received.last().expect("an answer")["result"]["content"].is_array(), "{received:?}");
}

#[test]
fn a_backend_that_exits_on_the_probe_is_restarted() {
    let scratch = scratch();
    let backend = fixture(&["--era", "legacy", "--exit-on-probe"]);
    let served = Served::start(&scratch.path().join("data"), &[], &backend);
    // Two starts of Python may take longer than the gateway waits for a list.
    let list = modern(1, "tools/list", &json!({}));
    until("its tools are listed", || {
        post_modern(&served.target(), &list).text().contains("\"test_sampling\"")
    });
    let (answer, _) = call_modern(&served.target(), "test_sampling", &arguments("test_sampling"));
    assert_eq!(answer_text(&answer), "LLM response: a word");
}

/// Answers the gateway's requests until the answer to `id` arrives; returns all messages.
fn converse(piped: &mut Piped, request: &Value) -> Vec<Value> {
    piped.send(request);
    let mut received = Vec::new();
    loop {
        let message = piped.receive();
        let is_request = message.get("method").is_some() && message.get("id").is_some();
        if is_request {
            piped.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": given(&message) }));
        }
        let is_answer = message.get("method").is_none() && message["id"] == request["id"];
        received.push(message);
        if is_answer {
            return received;
        }
    }
}

fn call(id: u64, tool: &str, arguments: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
        "name": tool, "arguments": arguments, "_meta": { "progressToken": id },
    }})
}

#[test]
fn a_legacy_client_on_stdio_gets_questions_as_requests() {
    let scratch = scratch();
    let backend = tapped(scratch.path(), fixture(&["--era", "modern"]));
    let mut piped = Piped::start(&scratch.path().join("data"), &backend);
    piped.ask(&initialize(1));
    piped.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    for (number, (tool, expected)) in ASKING.into_iter().enumerate() {
        let received = converse(&mut piped, &call(10 + number as u64, tool, &arguments(tool)));
        assert!(answer_text(received.last().expect("an answer")).contains(expected), "{tool}: {received:?}");
        let asked = received.iter().filter(|m| m.get("method").is_some() && m.get("id").is_some()).count();
        assert!(asked >= 1, "{tool} asks by requests: {received:?}");
    }
    assert_progress(&piped.ask(&call(20, "test_tool_with_progress", &json!({}))), &json!(20));
    let level =
        json!({ "jsonrpc": "2.0", "id": 21, "method": "logging/setLevel", "params": { "level": "info" } });
    assert_eq!(piped.ask(&level).last().expect("an answer")["result"], json!({}));
    let received = piped.ask(&call(22, "test_tool_with_logging", &json!({})));
    assert_eq!(received.iter().filter(|m| m["method"] == "notifications/message").count(), 3, "{received:?}");
    // Cancelled: the backend gets the cancellation, and no answer comes.
    piped.send(&call(23, "test_reconnection", &json!({ "seconds": 60 })));
    until("the backend is asked", || backend_heard(scratch.path()).contains("test_reconnection"));
    piped.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 23 } }),
    );
    until("the backend gets the cancellation", || {
        backend_heard(scratch.path()).contains("notifications/cancelled")
    });
    let received = piped.ask(&call(24, "test_simple_text", &json!({})));
    assert_eq!(received.len(), 1, "{received:?}");
}

fn backend_heard(directory: &std::path::Path) -> String {
    std::fs::read_to_string(directory.join("backend.in")).unwrap_or_default()
}

#[test]
fn a_legacy_client_on_http_gets_questions_on_the_stream_of_its_call() {
    let scratch = scratch();
    let served = Served::start(&scratch.path().join("data"), &[], &fixture(&["--era", "modern"]));
    let session = open_session(&served.target());
    for (number, (tool, expected)) in ASKING.into_iter().enumerate() {
        let id = 10 + number as u64;
        let mut reply = session.post(&call(id, tool, &arguments(tool)).to_string());
        assert!(reply.is_stream(), "{tool} asks before it answers");
        let mut asked = 0;
        let answer = loop {
            let message = reply.event().expect("an answer comes before the end").message;
            if message["id"] == id {
                break message;
            }
            asked += 1;
            let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": given(&message) });
            assert_eq!(session.post(&answer.to_string()).status, 202);
        };
        assert!(answer_text(&answer).contains(expected), "{tool}: {answer}");
        assert!(asked >= 1 && reply.event().is_none(), "{tool}: the stream ends with the answer");
    }
    let received = session.post(&call(30, "test_tool_with_progress", &json!({})).to_string()).messages();
    assert_progress(&received, &json!(30));
}

#[test]
fn each_subscriber_gets_one_notification_of_a_changed_resource() {
    let scratch = scratch();
    let backend = tapped(scratch.path(), fixture(&["--era", "modern"]));
    let served = Served::start(&scratch.path().join("data"), &[], &backend);
    let uri = "test://watched-resource";
    let legacy = |method: &str, id: u64| {
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": { "uri": uri } }).to_string()
    };
    let sessions = [open_session(&served.target()), open_session(&served.target())];
    let mut streams: Vec<_> = sessions.iter().map(Target::get).collect();
    for session in &sessions {
        for id in [40, 41] {
            assert_eq!(session.post(&legacy("resources/subscribe", id)).json()["result"], json!({}));
        }
    }
    let received = || std::fs::read_to_string(scratch.path().join("backend.in")).unwrap_or_default();
    let followed = || received().matches("resourceSubscriptions").count();
    let sent = || std::fs::read_to_string(scratch.path().join("backend.out")).unwrap_or_default();
    until("the backend acknowledges the subscription", || {
        sent().lines().any(|l| l.contains("acknowledged") && l.contains("resourceSubscriptions"))
    });
    assert_eq!(followed(), 1, "one subscription for all sessions");
    let trigger = |id: u64, tool: &str| {
        let received = sessions[0].post(&call(id, tool, &json!({})).to_string()).messages();
        assert!(received.last().expect("an answer")["result"]["content"].is_array(), "{received:?}");
    };
    trigger(42, "test_trigger_resource_update");
    // Then another event, so that a repetition of the first would be seen before it.
    trigger(43, "test_trigger_tool_change");
    for stream in &mut streams {
        let methods: Vec<Value> =
            (0..2).map(|_| stream.event().expect("an event").message["method"].clone()).collect();
        assert_eq!(methods, ["notifications/resources/updated", "notifications/tools/list_changed"]);
    }
    // The last unsubscription ends it.
    for session in &sessions {
        assert!(!received().contains("notifications/cancelled"), "another session is still subscribed");
        assert_eq!(session.post(&legacy("resources/unsubscribe", 44)).json()["result"], json!({}));
    }
    until("the backend gets the cancellation of its subscription", || {
        received().contains("notifications/cancelled")
    });
}
