//! The forms that users get before a call, in both eras.

use scrubjay_llm::scripted::ScriptedAnswer;
use serde_json::{Value, json};

use super::super::rig::{Served, answer_text, modern_as, post_modern, repository, text};
use super::rig::{Model, Routing};
use super::{TASK, echo};

const ASK: (&str, &str) = ("SCRUBJAY_ROUTER_DESTRUCTIVE", "sample/echo");

fn accept(content: &Value) -> Value {
    json!({ "action": "accept", "content": content })
}

#[test]
fn a_destructive_call_needs_confirmation() {
    let model = Model::answering(&[echo("hello")]);
    let mut routing = Routing::start(Some(&model), &[ASK]).opened_with_forms();
    let (form, answer) = routing.task_with_form(TASK, &accept(&json!({ "confirm": true })));
    let message = form["message"].as_str().unwrap();
    assert!(message.starts_with(r#"Call sample/echo with {"text":"hello"}?"#), "{message}");
    assert_eq!(answer_text(&answer), "hello");
    for no in
        [json!({ "action": "decline" }), json!({ "action": "cancel" }), accept(&json!({ "confirm": false }))]
    {
        let (_, answer) = routing.task_with_form(TASK, &no);
        let error = &answer["error"];
        assert_eq!(
            (&error["code"], &error["data"]["reason"]),
            (&json!(-32000), &json!("declined")),
            "{answer}"
        );
        assert_eq!(error["data"]["plan"]["backendId"], "sample");
    }
}

#[test]
fn a_client_without_forms_gets_the_plan_instead() {
    let model = Model::answering(&[echo("hello")]);
    let mut routing = Routing::start(Some(&model), &[ASK]).opened();
    let error = routing.task(TASK)["error"].clone();
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32000), &json!("needs_confirmation")));
    assert_eq!(error["data"]["plan"]["mcpParams"]["arguments"], json!({ "text": "hello" }));
    let mut routing = Routing::start(Some(&model), &[ASK, ("SCRUBJAY_ROUTER_ALLOWED", "sample/*")]).opened();
    assert_eq!(answer_text(&routing.task(TASK)), "hello", "the owner allowed it");
    let mut routing =
        Routing::start(Some(&model), &[ASK, ("SCRUBJAY_ROUTER_CONFIRM_DESTRUCTIVE", "false")]).opened();
    assert_eq!(answer_text(&routing.task(TASK)), "hello", "the owner switched the confirmation off");
}

#[test]
fn an_unsure_router_asks_which_tool_is_meant() {
    let model = Model::answering(&[echo("hello")]);
    let mut routing = Routing::start(Some(&model), &[("SCRUBJAY_ROUTER_THRESHOLD", "1")]).opened_with_forms();
    let (form, answer) = routing.task_with_form(TASK, &accept(&json!({ "tool": "echo" })));
    let choices = form["requestedSchema"]["properties"]["tool"]["enum"].as_array().unwrap();
    assert!(choices[0] == "echo" && choices.last().unwrap() == "none of these", "{choices:?}");
    assert_eq!(answer_text(&answer), "hello");
    assert_eq!(model.asked()[0].body["tools"].as_array().unwrap().len(), 1, "only the chosen one is left");
    for other in ["none of these", "delete_everything"] {
        let (_, answer) = routing.task_with_form(TASK, &accept(&json!({ "tool": other })));
        assert_eq!(answer["error"]["data"]["reason"], "unsure", "{answer}");
        assert!(answer["error"]["data"]["missing"].is_string());
    }
    assert_eq!(model.asked().len(), 1);
}

#[test]
fn a_question_of_the_model_is_put_to_the_user_once() {
    let question = ScriptedAnswer::text("Which text shall I send?");
    let model = Model::answering(&[question.clone(), echo("hello"), question]);
    let mut routing = Routing::start(Some(&model), &[]).opened_with_forms();
    let (form, answer) = routing.task_with_form("echo a text", &accept(&json!({ "answer": "hello" })));
    assert_eq!(form["message"], "Which text shall I send?");
    assert_eq!(answer_text(&answer), "hello");
    let last = model.asked()[1].last_text().to_owned();
    assert!(
        last.ends_with("You asked: \"Which text shall I send?\"\nThe user answered: \"hello\""),
        "{last}"
    );
    let (_, answer) = routing.task_with_form("echo a text", &accept(&json!({ "answer": "anything" })));
    assert_eq!(answer["error"]["data"]["reason"], "no_tool_call", "not a second time");
    assert_eq!(answer["error"]["data"]["missing"], "Which text shall I send?");
}

/// Sends a task to a gateway over HTTP as a modern client that supports forms.
fn post(served: &Served, id: u64, method: &str, params: &Value) -> Value {
    let request = modern_as(id, method, params, &json!({ "elicitation": {} }), None);
    post_modern(&served.target(), &request).json()
}

#[test]
fn a_modern_client_confirms_by_repeating_its_request() {
    let model = Model::answering(&[echo("hello")]);
    let scratch = super::super::rig::scratch();
    let sample = json!({ "id": "sample", "type": "stdio", "command": env!("CARGO_BIN_EXE_scrubjay"),
        "args": ["sample-server"] });
    let config = json!({ "backends": [sample], "llm": { "base_url": model.url() },
        "router": { "destructive": ["sample/echo"] }, "serve": { "toolsets": ["router"] } });
    let served = Served::configured(scratch.path(), &config.to_string(), None);
    for (method, task) in [
        ("agentify/orchestrateTask", json!({ "query": TASK })),
        ("tools/call", json!({ "name": "orchestrate_task", "arguments": { "query": TASK } })),
    ] {
        let asked = post(&served, 1, method, &task)["result"].clone();
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let demand = &asked["inputRequests"]["input-1"];
        assert_eq!(demand["method"], "elicitation/create");
        let mut again = task.clone();
        again["requestState"] = asked["requestState"].clone();
        again["inputResponses"] = json!({ "input-1": accept(&json!({ "confirm": true })) });
        let answer = post(&served, 2, method, &again);
        assert_eq!((answer_text(&answer), &answer["result"]["resultType"]), ("hello", &json!("complete")));
        assert_eq!(answer["result"]["_meta"]["scrubjay/route"]["plan"]["backendId"], "sample");
        let answer = post(&served, 3, method, &json!({ "name": "orchestrate_task", "query": "" }));
        assert!(answer["error"]["code"] == -32602 || answer["result"]["isError"] == true, "{answer}");
    }
}

#[test]
fn a_backend_can_ask_the_client_during_a_task() {
    let script = text(&repository().join("tests/conformance/conformance_server.py"));
    for era in ["legacy", "modern"] {
        let fixture = json!({ "id": "fixture", "type": "stdio", "command": "python3", "args": ["-B", script, "--era", era] });
        let call = json!({ "mcp_method": "tools/call",
            "mcp_params": { "name": "test_input_required_result_elicitation", "arguments": {} } });
        let model = Model::answering(&[ScriptedAnswer::tool_call("fixture", &call)]);
        let mode = ("SCRUBJAY_ROUTER_MODE", "backends");
        let mut routing = Routing::before(&json!([fixture]), Some(&model), &[mode]).opened_with_forms();
        let (_, answer) = routing.task_with_form("greet me", &accept(&json!({ "name": "Jay" })));
        assert!(answer_text(&answer).contains("Jay"), "{era}: {answer}");
    }
}
