//! Learning from earlier conversations: after a task was carried out once, its tool is found.

use scrubjay_llm::scripted::ScriptedAnswer;
use serde_json::{Value, json};

use super::super::rig::{scrubjay, until};
use super::rig::{Model, Routing};

const TASK: &str = "blurt something out";
const BACKENDS: (&str, &str) = ("SCRUBJAY_ROUTER_MODE", "backends");

/// A model that gets only backends, and chooses the right one.
fn knowing() -> Model {
    let call = json!({ "mcp_method": "tools/call",
        "mcp_params": { "name": "echo", "arguments": { "text": "something" } } });
    Model::answering(&[ScriptedAnswer::tool_call("sample", &call)])
}

fn found(routing: &mut Routing, query: &str) -> Value {
    routing.call("find_tools", &json!({ "query": query }))["result"]["structuredContent"].clone()
}

#[test]
fn a_task_finds_its_tool_after_it_was_carried_out_once() {
    let model = knowing();
    let mut routing = Routing::start(Some(&model), &[BACKENDS]).opened();
    assert_eq!(found(&mut routing, TASK)["tools"], json!([]), "no tool has a word of it");
    assert_eq!(routing.task(TASK)["result"]["isError"], false);
    until("it is learned", || found(&mut routing, "blurt it")["tools"][0]["name"] == "echo");
    let learned = found(&mut routing, "blurt it");
    assert_eq!(learned["tools"][0]["why"][0]["fields"], json!(["asked_as"]), "{learned}");
    assert_eq!(learned["serves"], false, "one conversation does not raise the confidence: {learned}");
    let (_, directory) = routing.finish();
    // Another process learns it from the tape, although it has no model.
    let mut again = Routing::in_directory(directory, None, &[]).opened();
    until("it is read from the tape", || found(&mut again, "blurt it")["tools"][0]["name"] == "echo");
    assert_eq!(again.task(TASK)["error"]["data"]["candidates"][0]["name"], "echo");
    let (_, directory) = again.finish();
    let mut never =
        Routing::in_directory(directory, Some(&model), &[BACKENDS, ("SCRUBJAY_ROUTER_LEARN", "false")])
            .opened();
    assert_eq!(never.task(TASK)["result"]["isError"], false);
    assert_eq!(found(&mut never, TASK)["tools"], json!([]), "nothing is learned if it is switched off");
}

#[test]
fn without_a_model_the_router_learns_from_the_next_call() {
    let mut routing = Routing::start(None, &[]).opened();
    let query = "echo or blurt that";
    assert_eq!(routing.task(query)["error"]["data"]["candidates"][0]["name"], "echo");
    routing.call("echo", &json!({ "text": "that" }));
    let (_, directory) = routing.finish();
    let mut again = Routing::in_directory(directory, None, &[]).opened();
    until("it is read from the tape", || found(&mut again, "blurt it")["tools"][0]["name"] == "echo");
}

#[test]
fn nothing_is_learned_from_a_failed_call() {
    let call = json!({ "mcp_method": "tools/call",
        "mcp_params": { "name": "fail", "arguments": { "message": "no luck" } } });
    let model = Model::answering(&[ScriptedAnswer::tool_call("sample", &call)]);
    let mut routing = Routing::start(Some(&model), &[BACKENDS]).opened();
    assert_eq!(routing.task(TASK)["result"]["isError"], true);
    assert_eq!(found(&mut routing, TASK)["tools"], json!([]));
}

#[test]
fn eval_can_use_tapes_as_cases() {
    let model = knowing();
    let mut routing = Routing::start(Some(&model), &[BACKENDS]).opened();
    for query in [TASK, "echo the text something", TASK] {
        assert_eq!(routing.task(query)["result"]["isError"], false);
    }
    let data = routing.data();
    let (_, directory) = routing.finish();
    let report = scrubjay(&data, &["route", "eval", "--from-tapes", "--compare", "bm25", "--json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["from_tapes"]["tasks"], &report["backends"]), (&json!(3), &json!(1)), "{report}");
    let full = &report["settings"][0];
    assert_eq!(
        (&full["served"], &full["recall"][2]),
        (&json!(2), &json!(0.5)),
        "one of two is found: {report}"
    );
    assert_eq!(report["settings"][1]["setting"], "bm25");
    assert!(report["tools"].as_u64() > Some(3), "the tools are those that were listed: {report}");
    let table = scrubjay(&data, &["route", "eval", "--from-tapes"]);
    assert!(table.contains("from 3 tasks on ") && table.contains("recall@5"), "{table}");
    // With a catalog of other tools there is nothing to grade.
    let catalog = directory.path().join("catalog.json");
    std::fs::write(&catalog, r#"[{"backend": "b", "tools": [{"name": "t"}]}]"#).unwrap();
    let output = refused(&data, &["--catalog", catalog.to_str().unwrap()]);
    assert!(output.contains("none of 3 tasks"), "{output}");
    let output = refused(&directory.path().join("nowhere"), &[]);
    assert!(output.contains("no task was carried out on 0 tapes"), "{output}");
}

fn refused(data: &std::path::Path, more: &[&str]) -> String {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_scrubjay"));
    let output =
        command.arg("--data").arg(data).args(["route", "eval", "--from-tapes"]).args(more).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]));
    String::from_utf8_lossy(&output.stderr).into_owned()
}
