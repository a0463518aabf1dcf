//! Tasks in plain words through a running gateway: which calls are made, what the user is asked, what is refused.

mod flow;
mod forms;
mod learning;
mod rig;
mod seed;
mod steps;

use scrubjay_llm::scripted::ScriptedAnswer;
use serde_json::{Value, json};

use super::rig::{answer_text, entries, scrubjay};
pub(super) use rig::holds;
use rig::{Model, Routing};

const TASK: &str = "echo the text hello back to me";

fn echo(text: &str) -> ScriptedAnswer {
    ScriptedAnswer::tool_call("sample__echo", &json!({ "text": text }))
}

#[test]
fn a_task_becomes_a_call_of_a_real_tool() {
    let model = Model::answering(&[echo("hello")]);
    let mut routing = Routing::start(Some(&model), &[]).opened();
    let context = json!({ "currentWorkingDirectory": "/w", "selectionText": null });
    let answer = routing.ask("agentify/orchestrateTask", &json!({ "query": TASK, "context": context }));
    assert_eq!(answer_text(&answer), "hello", "{answer}");
    let chosen = &answer["result"]["_meta"]["scrubjay/route"];
    let plan = json!({ "backendId": "sample", "mcpMethod": "tools/call",
        "mcpParams": { "name": "echo", "arguments": { "text": "hello" } } });
    assert_eq!((&chosen["plan"], &chosen["mode"], &chosen["rank"]), (&plan, &json!("catalog"), &json!(1)));
    assert!(chosen["confidence"].as_f64().is_some_and(|c| c >= 0.5), "{chosen}");
    assert_eq!(chosen["why"][0]["word"], "echo");
    let asked = &model.asked()[0];
    let functions = asked.body["tools"].as_array().unwrap();
    assert!(!functions.is_empty() && functions.len() <= 15);
    assert_eq!(functions[0]["function"]["name"], "sample__echo");
    assert_eq!(functions[0]["function"]["parameters"]["required"], json!(["text"]));
    assert!(asked.last_text().contains(r#"Context: {"currentWorkingDirectory":"/w","selectionText":null}"#));
    // The client's request and both legs of the call are one operation on its tape.
    let data = routing.data();
    let (log, _directory) = routing.finish();
    let tape = entries(&data, "serve");
    let message = |entry: &Value| -> Value {
        serde_json::from_str(entry["raw"].as_str().unwrap_or("")).unwrap_or_default()
    };
    let request =
        tape.iter().find(|e| message(e)["method"] == "agentify/orchestrateTask").expect("it is on tape");
    let legs: Vec<&Value> =
        tape.iter().filter(|e| e["via"] == "sample" && e["operation"] == request["entry"]).collect();
    let called = legs.iter().find(|e| message(e)["method"] == "tools/call").expect("the call is on tape");
    assert_eq!(message(called)["params"]["name"], "echo");
    assert!(legs.iter().any(|e| message(e)["result"]["content"][0]["text"] == "hello"), "{legs:?}");
    let note =
        tape.iter().find(|e| e["kind"] == "note" && message(e)["event"] == "task_routed").expect("a note");
    assert!(note["entry"].as_u64() < called["entry"].as_u64(), "first recorded, then called");
    assert!(log.contains("task routed") && !log.contains("hello"), "{log}");
}

#[test]
fn a_routed_call_is_found_and_counted_once() {
    let model = Model::answering(&[echo("hello")]);
    let mut routing = Routing::start(Some(&model), &[]).opened();
    let answer = routing.task(TASK);
    assert_eq!(answer_text(&answer), "hello", "{answer}");
    // The same tool, called by the client itself.
    assert_eq!(answer_text(&routing.call("echo", &json!({ "text": "again" }))), "again");
    let data = routing.data();
    let (_, _directory) = routing.finish();
    let json = |args: &[&str]| -> Value {
        serde_json::from_str(&scrubjay(&data, &[&["--json", "tape"], args].concat())).expect("JSON")
    };
    let found = json(&["search", "tool:echo"]);
    let (client, routed) = (&found["hits"][0], &found["hits"][1]);
    assert_eq!(found["total"], 2, "{found}");
    assert_eq!((&client["via"], &routed["via"]), (&Value::Null, &json!("sample")), "{found}");
    assert_eq!(json(&["search", "tool:echo", "arg.text=hello"])["total"], 1);
    assert_eq!(json(&["search", "tool:echo", "again"])["total"], 1);
    let flow_of = |id: &Value| json(&["stats", id.as_str().expect("an id")]);
    let stats = flow_of(&routed["tape"]);
    let calls = stats["performance_profile"].as_array().expect("a list");
    let counts: Vec<(&Value, &Value)> = calls.iter().map(|p| (&p["subject"], &p["count"])).collect();
    assert!(counts.contains(&(&json!("tools/call echo"), &json!(2))), "{counts:?}");
    assert!(counts.contains(&(&json!("agentify/orchestrateTask"), &json!(1))), "{counts:?}");
    // For the task the gateway may also have requested the lists of tools.
    assert!(stats["message_flow"]["gateway_requests"].as_u64() >= Some(1), "{stats}");
    assert_eq!(stats["message_flow"]["client_requests"], 3, "{stats}");
}

#[test]
fn a_task_without_a_call_gets_a_code_and_a_reason() {
    let two = [("sample__echo", r#"{"text":"a"}"#.to_owned()), ("sample__echo", "{}".to_owned())];
    let garbled = ScriptedAnswer::tool_calls(&[("sample__echo", "{\"text\":".to_owned())]);
    let wrong = ScriptedAnswer::tool_call("sample__echo", &json!({ "text": 7 }));
    let script = [
        (vec![ScriptedAnswer::text("Which text?")], "no_tool_call", "The model chose no tool."),
        (
            vec![ScriptedAnswer::tool_calls(&two)],
            "several_tool_calls",
            "The model chose 2 tools where one is wanted.",
        ),
        (vec![garbled.clone(), garbled], "bad_arguments", "The arguments do not fit: they are not JSON."),
        (vec![wrong.clone(), wrong], "bad_arguments", "The arguments do not fit: /text: "),
        (
            vec![ScriptedAnswer::tool_call("nobody", &json!({}))],
            "unknown_tool",
            "The model chose a tool that does not exist.",
        ),
        (
            vec![ScriptedAnswer::status(401, "")],
            "model_unauthorized",
            "The model's endpoint does not accept the key",
        ),
        (
            vec![ScriptedAnswer::status(429, "")],
            "model_rate_limited",
            "The model's endpoint is asked too often",
        ),
        (
            vec![ScriptedAnswer::status(500, "")],
            "model_failed",
            "The model's endpoint failed with status 500.",
        ),
        (
            vec![ScriptedAnswer::status(200, "{}")],
            "model_failed",
            "The model's endpoint sent no usable answer",
        ),
    ];
    let answers: Vec<ScriptedAnswer> = script.iter().flat_map(|(answers, ..)| answers.clone()).collect();
    let model = Model::answering(&answers);
    let mut routing = Routing::start(Some(&model), &[]).opened();
    for (_, reason, explanation) in &script {
        let error = &routing.task(TASK)["error"];
        let message = error["message"].as_str().unwrap_or_default();
        let expected = format!("AI orchestrator could not determine an action for your query. {explanation}");
        assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32000), &json!(reason)), "{error}");
        assert!(message.starts_with(&expected), "{message}");
        assert_eq!(
            (&error["data"]["query"], &error["data"]["candidates"][0]["name"]),
            (&json!(TASK), &json!("echo"))
        );
    }
    assert_eq!(model.asked().len(), answers.len(), "one repair, and only of arguments");
}

#[test]
fn no_task_bypasses_a_rule() {
    let call =
        json!({ "mcp_method": "tools/call", "mcp_params": { "name": "echo", "arguments": { "text": "x" } } });
    let sample = json!({ "id": "sample", "type": "stdio",
        "command": env!("CARGO_BIN_EXE_scrubjay"), "args": ["sample-server"] });
    let rules = json!([{ "name": "no-echo", "match": { "tools": ["echo"] }, "action": "block", "message": "not that" }]);
    let settings = json!({ "backends": [sample], "recorder": { "rules": rules } });
    for (mode, chosen) in
        [("catalog", echo("hello")), ("backends", ScriptedAnswer::tool_call("sample", &call))]
    {
        let model = Model::answering(&[chosen.clone(), chosen]);
        let mut routing =
            Routing::configured(&settings, Some(&model), &[("SCRUBJAY_ROUTER_MODE", mode)]).opened();
        let error = &routing.task(TASK)["error"];
        assert_eq!(error["data"]["error"]["data"]["rule"], "no-echo", "{mode}: {error}");
        let answer = routing.call("orchestrate_task", &json!({ "query": TASK }));
        let failed = &answer["result"];
        assert_eq!(
            (&failed["isError"], &failed["structuredContent"]["error"]["details"]["error"]["data"]["rule"]),
            (&json!(true), &json!("no-echo")),
            "{answer}"
        );
        let data = routing.data();
        let (_, _directory) = routing.finish();
        let tape = entries(&data, "serve");
        let judged: Vec<&Value> = tape.iter().filter(|entry| entry["intercepted"] == true).collect();
        assert_eq!(judged.len(), 4, "two calls and their answers: {judged:?}");
        assert!(judged.iter().all(|entry| entry["via"] == "sample"));
    }
}

#[test]
fn rules_apply_to_requests_that_the_gateway_answers_itself() {
    let block = |name: &str, when: Value| json!({ "name": name, "match": when, "action": "block" });
    let rules = json!([
        block("no-task", json!({ "tools": ["orchestrate_task"], "backends": ["router"] })),
        block("no-method", json!({ "methods": ["agentify/*"] })),
        block("no-find", json!({ "tools": ["find_tools"], "direction": "server_to_client" })),
        block("no-ping", json!({ "methods": ["ping"], "backends": ["scrubjay"] })),
        block("no-level", json!({ "methods": ["logging/setLevel"] })),
        block("idle-rule", json!({ "backends": ["nobody"] })),
    ]);
    let settings = json!({ "backends": [rig::sample()], "recorder": { "rules": rules } });
    let mut routing = Routing::configured(&settings, None, &[]).opened();
    let mut refused = Vec::new();
    for answer in [
        routing.call("orchestrate_task", &json!({ "query": TASK })),
        routing.task(TASK),
        routing.call("find_tools", &json!({ "query": TASK })),
        routing.ask("ping", &json!({})),
        routing.ask("logging/setLevel", &json!({ "level": "info" })),
    ] {
        refused.push(answer["error"]["data"]["rule"].as_str().unwrap_or("none").to_owned());
    }
    assert_eq!(refused, ["no-task", "no-method", "no-find", "no-ping", "no-level"]);
    assert_eq!(answer_text(&routing.call("echo", &json!({ "text": "hello" }))), "hello");
    let data = routing.data();
    let (log, _directory) = routing.finish();
    assert!(log.contains("applies to nothing") && log.contains("idle-rule"), "{log}");
    // On tape the rule is noted at the client's own request, as it is at a request to a backend.
    let tape = entries(&data, "serve");
    let mut applied = Vec::new();
    for entry in tape.iter().filter(|entry| entry["intercepted"] == true) {
        assert_eq!(entry["interception"], json!(["blocked"]), "{entry}");
        let asked = tape.iter().find(|asked| asked["entry"] == entry["operation"]).expect("an operation");
        assert_eq!((&asked["direction"], asked.get("via")), (&json!("client_to_server"), None));
        let rule = entry["applied_rules"][0].as_str().unwrap_or_default();
        applied.push((entry["via"].as_str().unwrap_or_default(), rule));
    }
    let both = |via, rule| [(via, rule), (via, rule)];
    let expected = [both("router", "no-task"), both("router", "no-method")].concat();
    let expected = [&expected[..], &[("router", "no-find")], &both("scrubjay", "no-ping")].concat();
    assert_eq!(applied, [&expected[..], &both("scrubjay", "no-level")].concat());
}

#[test]
fn a_model_that_does_not_answer_times_out() {
    let model = Model::answering(&[ScriptedAnswer::never()]);
    let mut routing = Routing::start(Some(&model), &[("SCRUBJAY_LLM_TIMEOUT", "200ms")]).opened();
    let error = &routing.task(TASK)["error"];
    assert_eq!(
        (&error["code"], &error["data"]["reason"]),
        (&json!(-32000), &json!("model_timed_out")),
        "{error}"
    );
}

#[test]
fn wrong_arguments_are_corrected_once() {
    let model = Model::answering(&[ScriptedAnswer::tool_call("sample__echo", &json!({})), echo("hello")]);
    let mut routing = Routing::start(Some(&model), &[]).opened();
    let answer = routing.task(TASK);
    assert_eq!(answer_text(&answer), "hello", "{answer}");
    assert!(
        model.asked()[1].last_text().contains("\"text\" is a required property"),
        "{}",
        model.asked()[1].last_text()
    );
}

#[test]
fn the_error_of_a_backend_is_passed_on() {
    let call = |method: &str| {
        ScriptedAnswer::tool_call("sample", &json!({ "mcp_method": method, "mcp_params": {} }))
    };
    let fail = json!({ "mcp_method": "tools/call", "mcp_params": { "name": "fail", "arguments": { "message": "no luck" } } });
    let model = Model::answering(&[
        call("fs/readFile"),
        ScriptedAnswer::tool_call("sample", &fail),
        call("resources/list"),
    ]);
    let mut routing = Routing::start(Some(&model), &[("SCRUBJAY_ROUTER_MODE", "backends")]).opened();
    let error = &routing.task("read it")["error"];
    let message = error["message"].as_str().unwrap_or_default();
    assert!(error["code"] == -32601 && message.starts_with("sample/fs/readFile failed: "), "{error}");
    assert_eq!(
        (&error["data"]["backend"], &error["data"]["error"]["code"]),
        (&json!("sample"), &json!(-32601))
    );
    // A tool that fails has a result that says so.
    let answer = routing.task("fail");
    assert_eq!((answer_text(&answer), &answer["result"]["isError"]), ("no luck", &json!(true)));
    // A task may mean any method; the caller of a tool gets its result as text.
    let answer = routing.call("orchestrate_task", &json!({ "query": "what is there?" }));
    assert!(answer_text(&answer).contains("sample://"), "{answer}");
    assert_eq!(answer["result"]["_meta"]["scrubjay/route"]["plan"]["mcpMethod"], "resources/list");
}

#[test]
fn an_invalid_task_gets_all_its_problems_reported() {
    let mut routing = Routing::start(None, &[]);
    let context = json!({ "activeDocumentURI": "here", "selectionText": 3 });
    let bad = json!({ "query": "", "context": context });
    let expected = json!([
        { "path": "query", "message": "must not be empty" },
        { "path": "context.activeDocumentURI", "message": "must be a URL" },
        { "path": "context.selectionText", "message": "must be a string or null" },
    ]);
    let error = &routing.ask("agentify/orchestrateTask", &bad)["error"];
    assert_eq!((&error["code"], &error["data"]["problems"]), (&json!(-32602), &expected));
    assert_eq!(error["data"]["code"], "INVALID_ARGUMENT");
    let error = &routing.task(TASK)["error"];
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!(-32001), &json!("Gateway not fully initialized"))
    );
    let mut routing = routing.opened();
    let answer = routing.call("orchestrate_task", &bad);
    assert_eq!(answer["result"]["isError"], true, "a tool's caller reads it as a result: {answer}");
    let error = &answer["result"]["structuredContent"]["error"];
    assert_eq!((&error["code"], &error["details"]["problems"]), (&json!("INVALID_ARGUMENT"), &expected));
    assert!(error["hint"].as_str().unwrap().contains("problems"), "{error}");
}

#[test]
fn without_a_model_the_nearest_tools_are_returned() {
    let mut routing = Routing::start(None, &[]).opened();
    let error = &routing.task(TASK)["error"];
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-32000), &json!("no_model")));
    let best = &error["data"]["candidates"][0];
    assert_eq!(
        (&best["name"], &best["backend"], &best["needs"]),
        (&json!("echo"), &json!("sample"), &json!(["text"]))
    );
    assert!(best["score"].as_f64() > Some(0.0) && best["why"][0]["word"] == "echo", "{best}");
    let listed = routing.ask("tools/list", &json!({}));
    let names: Vec<&str> =
        listed["result"]["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert!(names.ends_with(&["orchestrate_task", "find_tools"]), "{names:?}");
    let found = routing.call("find_tools", &json!({ "query": TASK }))["result"]["structuredContent"].clone();
    assert_eq!((&found["serves"], &found["tools"][0]["name"]), (&json!(true), &json!("echo")), "{found}");
    assert_eq!(found["tools"][0]["inputSchema"]["required"], json!(["text"]));
}

#[test]
fn a_task_that_no_tool_serves_is_not_sent_to_the_model() {
    let model = Model::answering(&[echo("never")]);
    let mut routing = Routing::start(Some(&model), &[]).opened_with_forms();
    for query in ["order a large pizza with mushrooms", "book a flight to Lisbon on Friday", "???"] {
        let error = &routing.task(query)["error"];
        let reason = error["data"]["reason"].as_str().unwrap_or_default();
        assert!(error["code"] == -32000 && ["nothing_fits", "unsure"].contains(&reason), "{query}: {error}");
        let found = routing.call("find_tools", &json!({ "query": query }));
        assert_eq!(found["result"]["structuredContent"]["serves"], false, "{found}");
    }
    assert!(model.asked().is_empty(), "no model is asked about it");
}

#[test]
fn a_disabled_router_offers_no_tools_or_methods() {
    let mut routing = Routing::start(None, &[("SCRUBJAY_ROUTER_MODE", "off")]).opened();
    assert_eq!(routing.task(TASK)["error"]["code"], -32601);
    let listed = routing.ask("tools/list", &json!({})).to_string();
    assert!(listed.contains("\"echo\"") && !listed.contains("orchestrate_task"), "{listed}");
    assert_eq!(routing.call("find_tools", &json!({ "query": TASK }))["error"]["code"], -32602);
}

#[test]
fn with_llm_required_serve_does_not_start_without_a_key() {
    let scratch = super::rig::scratch();
    let run = |key: Option<&str>| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_scrubjay"));
        command.env(crate::harness::BACKGROUND_VARIABLE, "false");
        command.arg("--data").arg(scratch.path().join("data")).args(["serve", "--toolsets", "sample"]);
        command.env("HOME", scratch.path()).env("SCRUBJAY_LLM_REQUIRED", "true").env_remove("OPENAI_API_KEY");
        command.envs(key.map(|key| ("OPENAI_API_KEY", key))).current_dir(scratch.path());
        command.stdin(std::process::Stdio::null()).output().expect("scrubjay starts")
    };
    let refused = run(None);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("set OPENAI_API_KEY or llm.api_key"));
    assert!(run(Some("sk-0123456789")).status.success());
    scrubjay(&scratch.path().join("data"), &["tape", "verify"]);
}
