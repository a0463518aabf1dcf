//! Tasks of several calls: shown as a whole, made in order, stopped at the first failure.

use scrubjay_llm::scripted::ScriptedAnswer;
use serde_json::{Value, json};

use super::super::rig::{scrubjay, until};
use super::rig::{Model, Routing};

const STEPS: (&str, &str) = ("SCRUBJAY_ROUTER_MAX_STEPS", "3");
const TASK: &str = "echo the text one and then echo the text two";

fn step(function: &str, arguments: &Value) -> Value {
    json!({ "function": function, "arguments": arguments })
}

fn planned(second: Value) -> ScriptedAnswer {
    let steps = [
        step("sample__echo", &json!({ "text": "one" })),
        second,
        step("sample__echo", &json!({ "text": "three" })),
    ];
    ScriptedAnswer::tool_call("plan_steps", &json!({ "steps": steps }))
}

fn yes() -> Value {
    json!({ "action": "accept", "content": { "confirm": true } })
}

#[test]
fn a_plan_is_shown_and_then_called_in_order() {
    let model = Model::answering(&[planned(step("sample__echo", &json!({ "text": "two" })))]);
    let destructive = ("SCRUBJAY_ROUTER_DESTRUCTIVE", "sample/echo");
    let mut routing = Routing::start(Some(&model), &[STEPS, destructive]).opened_with_forms();
    let (form, answer) = routing.task_with_form(TASK, &yes());
    let shown = r#"2. sample/echo with {"text":"two"} (it may destroy something)"#;
    assert!(form["message"].as_str().unwrap().contains(shown), "{form}");
    let content = answer["result"]["content"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let texts: Vec<&Value> = content.iter().map(|part| &part["text"]).collect();
    assert_eq!(texts, ["one", "two", "three"]);
    let steps = answer["result"]["_meta"]["scrubjay/route"]["steps"].as_array().unwrap();
    assert_eq!((steps.len(), &steps[1]["plan"]["mcpParams"]["arguments"]["text"]), (3, &json!("two")));
    let (_, answer) = routing.task_with_form(TASK, &json!({ "action": "decline" }));
    assert_eq!(answer["error"]["data"]["reason"], "declined", "{answer}");
    assert_eq!(answer["error"]["data"]["steps"].as_array().unwrap().len(), 3);
}

#[test]
fn a_plan_stops_at_the_first_failure() {
    let model = Model::answering(&[planned(step("sample__fail", &json!({ "message": "no luck" })))]);
    let task = "echo one, then fail with the message no luck";
    let mut routing = Routing::start(Some(&model), &[STEPS]).opened_with_forms();
    let (_, answer) = routing.task_with_form(task, &yes());
    assert_eq!(answer["error"]["message"], "stopped at step 2: sample/fail failed: no luck", "{answer}");
    let done = answer["error"]["data"]["done"].as_array().unwrap();
    assert_eq!((done.len(), &done[0]["result"]["content"][0]["text"]), (1, &json!("one")));
    // A client that cannot be asked gets the plan, and nothing is called.
    let mut routing = Routing::start(Some(&model), &[STEPS]).opened();
    let error = routing.task(task)["error"].clone();
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32000), &json!("needs_confirmation")));
    // There are no plans unless the configuration allows them.
    let mut routing = Routing::start(Some(&model), &[]).opened_with_forms();
    assert_eq!(routing.task("echo the text one")["error"]["data"]["reason"], "unknown_tool");
}

/// Returns the steps of the plan in the only session there is: `(what happened, in words)`, in order.
fn timeline(data: &std::path::Path) -> Vec<(String, String)> {
    timeline_of(data).expect("there is a session")
}

fn timeline_of(data: &std::path::Path) -> Option<Vec<(String, String)>> {
    let json = |args: &[&str]| -> Value { serde_json::from_str(&scrubjay(data, args)).unwrap() };
    let sessions = json(&["session", "ls", "--json"]);
    assert!(sessions.as_array().is_some_and(|all| all.len() < 2), "{sessions}");
    let id = sessions[0]["id"].as_str()?.to_owned();
    let events = json(&["session", "timeline", &id, "--json"])["events"].clone();
    let described = |event: &Value| {
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        (text("type"), text("summary"))
    };
    let steps = events.as_array().unwrap().iter().map(described);
    Some(steps.filter(|(kind, _)| kind.starts_with("plan_step")).collect())
}

fn step_of(text: &str) -> String {
    format!(r#"sample/echo with {{"text":"{text}"}}"#)
}

#[test]
fn steps_are_recorded_as_plan_steps_of_the_session() {
    let steps =
        [step("sample__echo", &json!({ "text": "one" })), step("sample__echo", &json!({ "text": "two" }))];
    let model = Model::answering(&[ScriptedAnswer::tool_call("plan_steps", &json!({ "steps": steps }))]);
    let mut routing = Routing::start(Some(&model), &[STEPS]).opened_with_forms();
    let (_, answer) = routing.task_with_form(TASK, &yes());
    assert!(answer["result"]["content"].is_array(), "{answer}");
    let data = routing.data();
    let (_, _directory) = routing.finish();
    let recorded = timeline(&data);
    let expected = [
        ("plan_step", format!("planned: {}", step_of("one"))),
        ("plan_step", format!("planned: {}", step_of("two"))),
        ("plan_step_status", format!("current: {}", step_of("one"))),
        ("plan_step_status", format!("done: {}", step_of("one"))),
        ("plan_step_status", format!("current: {}", step_of("two"))),
        ("plan_step_status", format!("done: {}", step_of("two"))),
    ];
    assert_eq!(recorded, expected.map(|(kind, text)| (kind.to_owned(), text)));
}

#[test]
fn after_a_failed_step_none_is_current() {
    let model = Model::answering(&[planned(step("sample__fail", &json!({ "message": "no luck" })))]);
    let mut routing = Routing::start(Some(&model), &[STEPS]).opened_with_forms();
    let (_, answer) = routing.task_with_form("echo one, then fail with the message no luck", &yes());
    assert!(answer["error"].is_object(), "{answer}");
    let data = routing.data();
    let (_, _directory) = routing.finish();
    let recorded = timeline(&data);
    let ends: Vec<&str> = recorded.iter().skip(3).map(|(_, text)| text.as_str()).collect();
    let fail = r#"sample/fail with {"message":"no luck"}"#;
    let expected = [
        format!("current: {}", step_of("one")),
        format!("done: {}", step_of("one")),
        format!("current: {fail}"),
        format!("skipped: {}", step_of("three")),
        format!("failed: {fail}"),
    ];
    assert_eq!(ends, expected);
}

#[test]
fn a_plan_of_the_agent_is_continued_after_a_task() {
    let steps =
        [step("sample__echo", &json!({ "text": "one" })), step("sample__echo", &json!({ "text": "two" }))];
    let model = Model::answering(&[ScriptedAnswer::tool_call("plan_steps", &json!({ "steps": steps }))]);
    let mut routing = Routing::with_toolsets("recorder", Some(&model), &[STEPS]).opened_with_forms();
    let planned = routing.call("record_plan", &json!({ "steps": ["Mine", "Mine too"] }));
    assert_eq!(planned["result"]["structuredContent"]["current_index"], 0, "{planned}");
    let (_, answer) = routing.task_with_form(TASK, &yes());
    assert!(answer["result"]["content"].is_array(), "{answer}");
    let plan = routing.call("record_plan_step", &json!({ "status": "done" }));
    let shown = plan["result"]["structuredContent"]["steps"].as_array().unwrap();
    let statuses: Vec<&str> = shown.iter().map(|step| step["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["done", "current", "done", "done"], "{plan}");
}

#[test]
fn after_a_cancelled_task_no_step_is_current() {
    let steps =
        [step("sample__slow", &json!({ "ms": 60_000 })), step("sample__echo", &json!({ "text": "two" }))];
    let model = Model::answering(&[ScriptedAnswer::tool_call("plan_steps", &json!({ "steps": steps }))]);
    let mut routing = Routing::start(Some(&model), &[STEPS]).opened_with_forms();
    let id = routing.begin_with_form("slow down for a while and then echo the text two", &yes());
    let data = routing.data();
    let marked = |mark: &str| {
        data.join("ledger.db").exists() && {
            let recorded = timeline_of(&data).unwrap_or_default();
            recorded.iter().any(|(_, text)| text.starts_with(mark))
        }
    };
    until("the first step is under way", || marked("current: sample/slow"));
    let params = json!({ "requestId": id });
    routing.piped.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
    until("none is under way", || marked("skipped: sample/slow"));
    let recorded = timeline(&data);
    assert!(recorded.iter().any(|(_, text)| *text == format!("skipped: {}", step_of("two"))), "{recorded:?}");
}
