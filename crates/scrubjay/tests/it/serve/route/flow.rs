//! Around a task: the catalog is cached and renewed, progress is forwarded, and a task can be cancelled.

use scrubjay_llm::scripted::ScriptedAnswer;
use serde_json::{Value, json};

use super::super::rig::{answer_text, bad_server, entries, until};
use super::rig::{Model, Routing};
use super::{TASK, echo};

fn found(routing: &mut Routing, query: &str) -> Value {
    routing.call("find_tools", &json!({ "query": query }))["result"]["structuredContent"]["tools"].clone()
}

#[test]
fn the_catalog_is_cached_until_a_list_changes() {
    let server = bad_server("jay");
    let backend = json!({ "id": "bad", "type": "stdio", "command": server[0], "args": server[1..] });
    let mut routing = Routing::before(&json!([backend]), None, &[]).opened();
    let before = found(&mut routing, "jay echo")[0].clone();
    assert_eq!(before["tool"], "jay_echo", "{before}");
    for _ in 0..20 {
        found(&mut routing, "jay echo");
    }
    routing.call("jay_redefine", &json!({}));
    until("the changed definition is found", || found(&mut routing, "jay echo")[0] != before);
    let data = routing.data();
    let (_, _directory) = routing.finish();
    let lists = |entry: &&Value| {
        entry["via"] == "bad" && entry["raw"].as_str().is_some_and(|raw| raw.contains("\"tools/list\""))
    };
    let asked = entries(&data, "serve").iter().filter(lists).count();
    assert!(asked <= 6, "the backend was asked {asked} times for its list");
}

#[test]
fn progress_of_the_chosen_call_reaches_the_client() {
    let model = Model::answering(&[ScriptedAnswer::tool_call("sample__count", &json!({ "to": 3 }))]);
    let mut routing = Routing::start(Some(&model), &[]).opened();
    let params = json!({ "query": "count to the number 3", "_meta": { "progressToken": "mine" } });
    let id = routing.send("agentify/orchestrateTask", &params);
    let received = routing.piped.receive_answer(&id);
    let progress: Vec<&Value> = received.iter().filter(|m| m["method"] == "notifications/progress").collect();
    assert_eq!(progress.len(), 3, "{received:?}");
    assert!(progress.iter().all(|m| m["params"]["progressToken"] == "mine"), "{progress:?}");
}

#[test]
fn a_task_can_be_cancelled() {
    let model = Model::answering(&[ScriptedAnswer::never()]);
    let mut routing = Routing::start(Some(&model), &[]).opened();
    let id = routing.send("agentify/orchestrateTask", &json!({ "query": TASK }));
    until("the model is asked", || model.asked().len() == 1);
    let params = json!({ "requestId": id });
    routing.piped.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
    assert_eq!(routing.call("echo", &json!({ "text": "still works" }))["result"]["isError"], false);
    let (_, received) = routing.piped.finish();
    assert!(received.iter().all(|line| !line.contains(&format!("\"id\":{id},"))), "{received:?}");
}

/// A server with one tool that has the name of one of our own.
const NAMESAKE: &str = r#"
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    tool = {"name": "find_tools", "description": "Finds hammers.", "inputSchema": {"type": "object"}}
    results = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "namesake", "version": "1"}},
        "tools/list": {"tools": [tool]},
        "tools/call": {"content": [{"type": "text", "text": "a hammer"}]},
    }
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] in results:
        answer["result"] = results[asked["method"]]
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(answer), flush=True)
"#;

#[test]
fn a_backends_tool_with_the_name_of_an_own_tool_gets_a_prefix() {
    let backend =
        json!({ "id": "box", "type": "stdio", "command": "python3", "args": ["-B", "-c", NAMESAKE] });
    let model = Model::answering(&[ScriptedAnswer::tool_call("box__find_tools", &json!({}))]);
    let mut routing = Routing::before(&json!([backend]), Some(&model), &[]).opened();
    let listed = routing.ask("tools/list", &json!({}));
    let names: Vec<&Value> =
        listed["result"]["tools"].as_array().unwrap().iter().map(|t| &t["name"]).collect();
    assert_eq!(names, ["box__find_tools", "orchestrate_task", "find_tools"]);
    assert_eq!(answer_text(&routing.call("box__find_tools", &json!({}))), "a hammer");
    assert_eq!(found(&mut routing, "find hammers")[0]["name"], "box__find_tools");
    assert_eq!(answer_text(&routing.task("find hammers")), "a hammer");
}

#[test]
fn simultaneous_tasks_each_get_their_own_answer() {
    let model = Model::answering(&[echo("hello")]);
    let mut routing = Routing::start(Some(&model), &[]).opened();
    let ids: Vec<Value> =
        (0..30).map(|_| routing.send("agentify/orchestrateTask", &json!({ "query": TASK }))).collect();
    let mut open: std::collections::HashSet<String> = ids.iter().map(ToString::to_string).collect();
    while !open.is_empty() {
        let received = routing.piped.receive();
        if received.get("result").is_some() {
            assert_eq!(answer_text(&received), "hello");
            assert!(open.remove(&received["id"].to_string()), "{received}");
        }
    }
    assert_eq!(model.asked().len(), 30);
}
