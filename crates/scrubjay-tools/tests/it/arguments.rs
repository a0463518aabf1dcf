//! How toolsets answer wrong, unknown and redacted arguments: all in the same form.

use std::sync::Arc;

use scrubjay_core::redact::Redactor;
use scrubjay_store::ledger::Storage;
use scrubjay_tape::home::Home;
use scrubjay_tools::{Setup, Shared, serve_progress, serve_recorder, serve_records, serve_tapes};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Client, Era};

const TOKEN: &str = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";

/// Every toolset on one ledger.
struct Lab {
    home: TempDir,
    recorder: Client,
    records: Client,
    tapes: Client,
    progress: Client,
}

impl Lab {
    async fn new(storage: impl FnOnce(&std::path::Path) -> Storage) -> Self {
        let home = tempfile::tempdir().unwrap();
        let root = home.path();
        let shared = Arc::new(Shared::new(Setup {
            storage: storage(root),
            redactor: Arc::new(Redactor::standard()),
            project: "birds".to_owned(),
            workspace: root.to_owned(),
            allow_vcs: false,
            file_bytes_max: 1 << 20,
            home: Home::new(root.join("data")),
            locks: root.join("locks"),
            llm: None,
            stale_after_ticks: 20,
        }));
        let [a, b, c, d] = [(); 4].map(|()| shared.clone());
        let mut lab = Self {
            recorder: Client::connect_to(Era::Legacy, |r, w| serve_recorder(a, r, w)),
            records: Client::connect_to(Era::Legacy, |r, w| serve_records(b, r, w)),
            tapes: Client::connect_to(Era::Legacy, |r, w| serve_tapes(c, r, w)),
            progress: Client::connect_to(Era::Legacy, |r, w| serve_progress(d, r, w)),
            home,
        };
        for client in [&mut lab.recorder, &mut lab.records, &mut lab.tapes, &mut lab.progress] {
            client.greet().await;
        }
        lab
    }

    async fn usual() -> Self {
        Self::new(|root| Storage::File(root.join("data/ledger.db"))).await
    }
}

/// Makes a call that must fail; checks the form of its error, and returns it.
async fn failed(client: &mut Client, tool: &str, arguments: Value) -> Value {
    let mut result = client.call(tool, arguments.clone()).await;
    assert_eq!(result["isError"], json!(true), "{tool} {arguments}: {result}");
    let error = result["structuredContent"]["error"].take();
    let text = result["content"][0]["text"].as_str().unwrap();
    for member in ["code", "message", "hint", "recovery_hint"] {
        assert!(error[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {error}");
    }
    assert_eq!(error["hint"], error["recovery_hint"]);
    assert!(text.contains(error["message"].as_str().unwrap()), "{text}");
    error
}

async fn check(client: &mut Client, tool: &str, arguments: Value, expected: &[(&str, &str)]) {
    let error = failed(client, tool, arguments).await;
    assert_eq!(error["code"], "INVALID_ARGUMENT", "{error}");
    let problems = error["details"]["problems"].as_array().unwrap();
    let found: Vec<(&str, &str)> =
        problems.iter().map(|p| (p["path"].as_str().unwrap(), p["message"].as_str().unwrap())).collect();
    assert_eq!(found, expected, "{tool}");
}

#[tokio::test]
async fn wrong_arguments_are_named_with_what_they_may_be() {
    let mut lab = Lab::usual().await;
    let recorder = &mut lab.recorder;
    check(recorder, "record_plan", json!({}), &[("steps", "is required")]).await;
    check(
        recorder,
        "record_plan",
        json!({ "steps": "one" }),
        &[("steps", "must be a list of strings, not \"one\"")],
    )
    .await;
    check(recorder, "record_plan", json!({ "steps": ["a", 2] }), &[("steps[1]", "must be a string, not 2")])
        .await;
    check(
        recorder,
        "record_plan_step",
        json!({ "step": "a", "status": "finished", "index": "x" }),
        &[
            ("index", "must be a whole number, not \"x\""),
            ("status", "must be one of current, done, failed, skipped, not \"finished\""),
        ],
    )
    .await;
    check(
        recorder,
        "file_op",
        json!({ "path": "a", "action": "destroy" }),
        &[("action", "must be one of create, edit, delete, not \"destroy\"")],
    )
    .await;
    check(
        recorder,
        "file_op",
        json!({ "path": "a", "action": "edit", "edits": [{ "old_text": "a", "new_text": "b" }, { "old_text": 1 }] }),
        &[("edits[1].new_text", "is required"), ("edits[1].old_text", "must be a string, not 1")],
    )
    .await;
    check(
        recorder,
        "record_plan",
        json!({ "steps": ["a"], "sesion_id": "x" }),
        &[("sesion_id", "is no argument of this tool: did you mean session_id?")],
    )
    .await;
    check(
        &mut lab.records,
        "create_record",
        json!({ "type": "t", "title": "t", "summary": "s", "body": "b", "state": "open", "related": "R1" }),
        &[
            ("related", "must be a list of strings, not \"R1\""),
            ("state", "must be one of OPEN, LATER, RESOLVED, DISCARDED, not \"open\""),
        ],
    )
    .await;
    check(
        &mut lab.tapes,
        "search_tapes",
        json!({ "param_filters": [{ "field": "a", "test": "like" }], "limit": -1, "sort_by": 3 }),
        &[
            ("limit", "must be at least 0, not -1"),
            ("param_filters[0].test", "must be one of exists, equals, contains, greater, less, not \"like\""),
            ("sort_by", "must be one of time, response_time, size, tokens, not 3"),
        ],
    )
    .await;
}

#[tokio::test]
async fn an_unknown_argument_is_ignored_and_named() {
    let mut lab = Lab::usual().await;
    let result = lab.recorder.call("record_plan", json!({ "steps": ["a"], "toolCallId": "7" })).await;
    assert_ne!(result["isError"], json!(true), "{result}");
    assert_eq!(result["content"][1]["text"], "Not used: toolCallId; this tool has no such arguments.");
    let arguments = json!({ "projectId": "p", "title": "t", "content": "c", "chatInput": 1 });
    let result = lab.progress.call("log_progress", arguments).await;
    assert_eq!(result["content"][1]["text"], "Not used: chatInput; this tool has no such arguments.");
}

/// Messages and hints are made where a refusal occurs, not parsed from a text: a colon in a path changes nothing.
#[tokio::test]
async fn a_path_with_a_colon_keeps_its_message() {
    let mut lab = Lab::usual().await;
    let there = json!({ "path": "notes: today.txt", "action": "create", "content": "a" });
    assert_ne!(lab.recorder.call("file_op", there.clone()).await["isError"], json!(true));
    let error = failed(&mut lab.recorder, "file_op", there).await;
    assert_eq!(error["message"], "notes: today.txt exists already");
    assert_eq!(error["hint"], "Change it with action edit.");
    let outside = json!({ "path": "../a: b", "action": "create", "content": "a" });
    let error = failed(&mut lab.recorder, "file_op", outside).await;
    assert_eq!(error["message"], "\"../a: b\" is outside the workspace");
    assert_eq!(error["hint"], "Give a path relative to the workspace's root.");
    let session =
        lab.recorder.call("record_plan", json!({ "steps": ["a"] })).await["structuredContent"]["session_id"]
            .take();
    let named = json!({ "session_id": session, "path": "a: b" });
    let error = failed(&mut lab.recorder, "get_evolution", named).await;
    assert_eq!(error["message"], format!("session {} changed no file a: b", session.as_str().unwrap()));
}

#[tokio::test]
async fn a_ledger_that_cannot_be_used_is_named_by_every_toolset() {
    let mut lab = Lab::new(|root| {
        std::fs::write(root.join("notes.txt"), "no database").unwrap();
        Storage::File(root.join("notes.txt"))
    })
    .await;
    let path = lab.home.path().join("notes.txt");
    let words = format!("cannot use {} as the ledger: it is not a SQLite database", path.display());
    let error = failed(&mut lab.recorder, "record_plan", json!({ "steps": ["a"] })).await;
    assert_eq!((&error["code"], &error["message"]), (&json!("STORAGE"), &json!(words)));
    let error = failed(&mut lab.records, "get_project_overview", json!({})).await;
    assert_eq!((&error["code"], &error["message"]), (&json!("STORAGE"), &json!(words)));
    let arguments = json!({ "projectId": "p", "title": "t", "content": "c" });
    let params = json!({ "name": "log_progress", "arguments": arguments });
    let error = lab.progress.ask("tools/call", params).await["error"].take();
    assert_eq!((&error["code"], &error["message"]), (&json!(-32603), &json!(words)));
    assert_eq!(error["data"]["code"], "STORAGE");
    assert!(error["data"]["hint"].as_str().unwrap().contains("`storage`"), "{error}");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "no database");
    // Once the ledger can be opened, calls succeed without a restart.
    std::fs::remove_file(lab.home.path().join("notes.txt")).unwrap();
    let result = lab.recorder.call("record_plan", json!({ "steps": ["a"] })).await;
    assert_ne!(result["isError"], json!(true), "{result}");
}

/// Makes a call whose texts contain a secret; returns which arguments the answer names as redacted.
async fn stored(client: &mut Client, tool: &str, arguments: Value) -> Value {
    let mut result = client.call(tool, arguments).await;
    assert_ne!(result["isError"], json!(true), "{result}");
    let redacted = result["structuredContent"]["redacted"].take();
    let names: Vec<&str> = redacted.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let text = result["content"].as_array().unwrap().last().unwrap()["text"].as_str().unwrap().to_owned();
    let expected = format!("Secrets were taken out before it was stored: {}.", names.join(", "));
    assert_eq!(text == expected, !names.is_empty(), "{text}");
    redacted
}

#[tokio::test]
async fn redacted_arguments_are_named_in_the_answer() {
    let mut lab = Lab::usual().await;
    let secret = format!("use {TOKEN}");
    let (recorder, records, progress) = (&mut lab.recorder, &mut lab.records, &mut lab.progress);
    let plain = json!({ "steps": ["a", "b"] });
    assert_eq!(stored(recorder, "record_plan", plain).await, Value::Null);
    assert_eq!(stored(recorder, "record_plan", json!({ "steps": ["a", secret] })).await, json!(["steps[1]"]));
    assert_eq!(stored(recorder, "record_plan_step", json!({ "step": secret })).await, json!(["step"]));
    let note = json!({ "type": "note", "description": secret });
    assert_eq!(stored(recorder, "audit_event", note).await, json!(["description"]));
    let start = json!({ "title": secret, "user_message": "hello" });
    assert_eq!(stored(recorder, "record_session_start", start).await, json!(["title"]));
    let entry = json!({ "projectId": "p", "title": secret, "content": secret, "tags": ["a"] });
    assert_eq!(stored(progress, "log_progress", entry).await, json!(["content", "title"]));
    let record = json!({ "type": "t", "title": "t", "summary": "s", "body": secret,
        "metadata": { "password": "hunter2" } });
    assert_eq!(stored(records, "create_record", record).await, json!(["body", "metadata"]));
    let change = json!({ "id": "R001", "summary": secret });
    assert_eq!(stored(records, "update_record", change).await, json!(["summary"]));
    let moved = json!({ "id": "R001", "to_state": "LATER", "reason": secret });
    assert_eq!(stored(records, "transition", moved).await, json!(["reason"]));
    // A query is not stored, so it is not named.
    let mut found = records.call("search_records", json!({ "query": TOKEN })).await;
    assert_eq!(found["structuredContent"]["redacted"].take(), Value::Null);
}
