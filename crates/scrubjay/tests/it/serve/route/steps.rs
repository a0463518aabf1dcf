//! Tasks of several calls: shown whole, made in order, stopped at the first surprise.

use scrubjay_llm::scripted::Answer;
use serde_json::{Value, json};

use super::rig::{Model, Routing};

const STEPS: (&str, &str) = ("SCRUBJAY_ROUTER_MAX_STEPS", "3");
const TASK: &str = "echo the text one and then echo the text two";

fn step(function: &str, arguments: &Value) -> Value {
    json!({ "function": function, "arguments": arguments })
}

fn planned(second: Value) -> Answer {
    let steps = [
        step("sample__echo", &json!({ "text": "one" })),
        second,
        step("sample__echo", &json!({ "text": "three" })),
    ];
    Answer::tool_call("plan_steps", &json!({ "steps": steps }))
}

fn yes() -> Value {
    json!({ "action": "accept", "content": { "confirm": true } })
}

#[test]
fn a_plan_is_shown_whole_and_then_made_in_order() {
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
fn a_plan_stops_at_the_first_surprise() {
    let model = Model::answering(&[planned(step("sample__fail", &json!({ "message": "no luck" })))]);
    let task = "echo one, then fail with the message no luck";
    let mut routing = Routing::start(Some(&model), &[STEPS]).opened_with_forms();
    let (_, answer) = routing.task_with_form(task, &yes());
    assert_eq!(answer["error"]["message"], "stopped at step 2: sample/fail failed: no luck", "{answer}");
    let done = answer["error"]["data"]["done"].as_array().unwrap();
    assert_eq!((done.len(), &done[0]["result"]["content"][0]["text"]), (1, &json!("one")));
    // Whoever cannot be asked gets the plan and nothing is called.
    let mut routing = Routing::start(Some(&model), &[STEPS]).opened();
    let error = routing.task(task)["error"].clone();
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32000), &json!("needs_confirmation")));
    // Without being asked for, there are no plans.
    let mut routing = Routing::start(Some(&model), &[]).opened_with_forms();
    assert_eq!(routing.task("echo the text one")["error"]["data"]["reason"], "unknown_tool");
}
