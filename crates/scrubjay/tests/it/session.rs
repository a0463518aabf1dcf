//! `scrubjay session`: shows and undoes what an agent did through the recorder.

use std::sync::Arc;

use scrubjay_core::redact::Redactor;
use scrubjay_store::ledger::revision::{self, Revision, RevisionSource, RevisionState};
use scrubjay_store::ledger::{CommitDurability, Ledger, Storage, blob};
use serde_json::json;

use crate::harness::{Lab, text};

/// Lets an agent work in a workspace; returns where that is.
fn work(lab: &Lab) -> String {
    let workspace = lab.file("workspace");
    std::fs::create_dir(&workspace).unwrap();
    let mut agent =
        lab.start(&["serve", "--toolsets", "recorder", "--workspace", &workspace, "--project", "birds"]);
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    agent.ask(0, "initialize", &hello);
    let calls = [
        ("record_session_start", json!({ "id": "s1", "title": "Count \u{1b}[31mjays" })),
        ("record_plan", json!({ "steps": ["Look", "Tell"] })),
        ("file_op", json!({ "path": "a.txt", "action": "create", "content": "one\n" })),
        ("file_op", json!({ "path": "a.txt", "action": "edit", "content": "two\n" })),
        ("file_op", json!({ "path": "b.txt", "action": "create", "content": "b\n" })),
        ("file_op", json!({ "path": "../c.txt", "action": "create", "content": "c\n" })),
    ];
    for (id, (name, arguments)) in (1..).zip(calls) {
        let params = json!({ "name": name, "arguments": arguments });
        let answer = agent.ask(id, "tools/call", &params);
        assert!(answer["error"].is_null(), "{answer}");
    }
    agent.close_stdin();
    assert_eq!(agent.exit_code(), 0);
    workspace
}

fn shown(lab: &Lab, arguments: &[&str]) -> String {
    String::from_utf8(lab.run_ok(arguments)).unwrap()
}

#[test]
fn the_command_line_shows_what_an_agent_did() {
    let lab = Lab::new();
    assert!(shown(&lab, &["session", "ls"]).contains("no sessions yet"));
    work(&lab);
    let sessions = lab.json(&["session", "ls", "--json"]);
    assert_eq!((&sessions[0]["id"], &sessions[0]["project_id"]), (&json!("s1"), &json!("birds")));
    let listed = shown(&lab, &["session", "ls"]);
    assert!(listed.contains("s1") && !listed.contains('\u{1b}'), "recorded text is inert: {listed:?}");
    let timeline = lab.json(&["session", "timeline", "s1", "--json"]);
    let kinds: Vec<&str> = timeline["events"].as_array().unwrap().iter().map(|e| text(&e["type"])).collect();
    let expected = [
        "session_started",
        "plan_step",
        "plan_step",
        "file_create",
        "file_edit",
        "file_create",
        "file_refused",
        "session_closed",
    ];
    assert_eq!(kinds, expected);
    let page = shown(&lab, &["session", "timeline", "s1", "--limit", "2"]);
    assert!(page.contains("2 of 8 events; more with --after"), "{page}");
    let rows = shown(&lab, &["session", "timeline", "s1"]);
    let edited = rows.lines().find(|row| row.contains("edited a.txt")).unwrap();
    assert!(
        edited.contains("1 Look") && edited.contains("+1 -1"),
        "step, lines, and the verb once: {edited}"
    );
    assert!(!rows.contains("file_edit") && rows.contains("8 events; 2 steps (1 left, 1 pending)"), "{rows}");
    let story = shown(&lab, &["session", "story", "s"]);
    assert!(story.contains("2 steps (1 left, 1 pending), 8 events, 2 files"), "{story}");
    assert!(story.contains("created a.txt (+2 -1) in 2 edits"), "{story}");
    assert!(shown(&lab, &["session", "evolution", "s1"]).contains("b.txt"));
    assert!(shown(&lab, &["session", "evolution", "s1", "a.txt"]).contains("-one\n+two\n"));
    let unknown = lab.run_failing(&["session", "story", "nobody"]);
    assert!(unknown.contains("session ls"), "{unknown}");
}

#[test]
fn rewind_changes_files_only_after_confirmation() {
    let lab = Lab::new();
    let workspace = work(&lab);
    let read = |name: &str| std::fs::read_to_string(format!("{workspace}/{name}")).ok();
    let events = lab.json(&["session", "timeline", "s1", "--json"]);
    let created = events["events"][3]["id"].to_string();
    let back = ["session", "rewind", "s1", "--to", &created];
    let planned = shown(&lab, &back);
    assert!(planned.contains("-two\n+one\n") && planned.contains("2 files would change"), "{planned}");
    assert_eq!(read("a.txt").as_deref(), Some("two\n"), "without --yes no file changes");

    std::fs::write(format!("{workspace}/a.txt"), "mine\n").unwrap();
    let refused = lab.run(&[&back[..], &["--yes"]].concat());
    assert!(refused.code == 1 && refused.stderr.contains("--force"), "{}", refused.stderr);
    assert!(
        String::from_utf8(refused.stdout).unwrap().contains("-mine\n+one\n"),
        "the changes that would be lost are shown"
    );
    assert_eq!(read("a.txt").as_deref(), Some("mine\n"));
    lab.run_ok(&[&back[..], &["--yes", "--force"]].concat());
    assert_eq!((read("a.txt").as_deref(), read("b.txt")), (Some("one\n"), None));

    // A rewind is recorded, so it can be undone, too. The changes that it overwrote were recorded first.
    let events = lab.json(&["session", "timeline", "s1", "--json"]);
    let found = events["events"].as_array().unwrap().iter().find(|e| e["type"] == "file_observed").unwrap();
    lab.run_ok(&["session", "rewind", "s1", "--to", &found["id"].to_string(), "--file", "a.txt", "--yes"]);
    assert_eq!((read("a.txt").as_deref(), read("b.txt")), (Some("mine\n"), None));
    let unknown = lab.run_failing(&["session", "rewind", "s1", "--to", "99999"]);
    assert!(unknown.contains("no event 99999"), "{unknown}");
}

#[test]
fn cat_prints_any_content_byte_for_byte() {
    let lab = Lab::new();
    let workspace = work(&lab);
    let page = lab.json(&["session", "evolution", "s1", "a.txt", "--json"]);
    let revisions: Vec<String> =
        page["revisions"].as_array().unwrap().iter().map(|r| r["id"].to_string()).collect();
    let events: Vec<String> =
        page["revisions"].as_array().unwrap().iter().map(|r| r["event_id"].to_string()).collect();
    let cat = |arguments: &[&str]| lab.run_ok(&[&["session", "cat", "s1", "a.txt"], arguments].concat());
    assert_eq!(cat(&[]), b"two\n");
    assert_eq!(cat(&["--at", &revisions[0]]), b"one\n");
    assert_eq!(cat(&["--at", &revisions[1], "--before"]), b"one\n");
    assert_eq!(cat(&["--at", &format!("event:{}", events[0])]), b"one\n");
    assert_eq!(cat(&["--at", "2200-01-01T00:00:00Z"]), b"two\n");
    for (arguments, message) in [
        (["--at", "99999"], "no revision 99999"),
        (["--at", "event:1"], "no state that was recorded by event 1"),
        (["--at", "1970-01-01T00:00:00Z"], "1970-01-01"),
    ] {
        let wrong = lab.run_failing(&[&["session", "cat", "s1", "a.txt"], &arguments[..]].concat());
        assert!(wrong.contains(message), "{wrong}");
    }
    let wrong = lab.run(&["session", "cat", "s1", "a.txt", "--at", "yesterday"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("event:N"), "{}", wrong.stderr);

    // Bytes that are not text are printed unchanged; the evolution begins with the content before the session.
    std::fs::write(format!("{workspace}/old.bin"), [0, 159, 255]).unwrap();
    std::fs::write(format!("{workspace}/old.txt"), "was here\n").unwrap();
    let mut agent =
        lab.start(&["serve", "--toolsets", "recorder", "--workspace", &workspace, "--project", "birds"]);
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    agent.ask(0, "initialize", &hello);
    // The session ended with the earlier agent's connection.
    let again = json!({ "name": "record_session_start", "arguments": { "id": "s1" } });
    agent.ask(9, "tools/call", &again);
    for (id, path) in [(1, "old.bin"), (2, "old.txt")] {
        let edit = json!({ "session_id": "s1", "path": path, "action": "edit", "content": "new\n" });
        agent.ask(id, "tools/call", &json!({ "name": "file_op", "arguments": edit }));
    }
    agent.close_stdin();
    assert_eq!(agent.exit_code(), 0);
    let first =
        lab.json(&["session", "evolution", "s1", "old.bin", "--json"])["revisions"][0]["id"].to_string();
    assert_eq!(lab.run_ok(&["session", "cat", "s1", "old.bin", "--at", &first]), [0, 159, 255]);
    let evolution = shown(&lab, &["session", "evolution", "s1", "old.txt"]);
    assert!(evolution.contains("the content before:\nwas here\n"), "{evolution}");
    assert!(evolution.contains("9 B, 1 line\n") || evolution.contains("9 B, 1 line "), "{evolution}");
}

/// Uses the ledger of a lab as another process would.
fn with_ledger<T>(lab: &Lab, work: impl AsyncFnOnce(&Ledger) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let storage = Storage::File(lab.data().join("ledger.db"));
        let ledger = Ledger::open(&storage, Arc::new(Redactor::standard())).await.unwrap();
        let done = work(&ledger).await;
        ledger.close().await;
        done
    })
}

/// Records the intent to create a file, like a process that is killed right after that.
fn leave_open(lab: &Lab, workspace: &str, event_id: i64, path: &str) {
    with_ledger(lab, async |ledger| {
        let mut write = ledger.write(CommitDurability::Power).await.unwrap();
        let after = Some(blob::put(&mut write, b"x").await.unwrap());
        let meant = Revision {
            id: 0,
            workspace: std::fs::canonicalize(workspace).unwrap().to_str().unwrap().to_owned(),
            path: path.to_owned(),
            event_id,
            source: RevisionSource::Enforced,
            state: RevisionState::Pending,
            before: None,
            after,
            size: 1,
            lines: 1,
            added: 1,
            removed: 0,
            mode: None,
        };
        revision::insert(&mut write, &meant).await.unwrap();
        write.commit().await.unwrap();
    });
}

#[test]
fn pending_changes_are_settled_at_the_next_start_and_before_reading() {
    let lab = Lab::new();
    let workspace = work(&lab);
    let events = lab.json(&["session", "timeline", "s1", "--json"]);
    let event = events["events"].as_array().unwrap().last().unwrap()["id"].as_i64().unwrap();
    leave_open(&lab, &workspace, event, "x.txt");
    let settled = || {
        let page = lab.json(&["session", "timeline", "s1", "--json"]);
        let settled = page["events"].as_array().unwrap().iter().filter(|e| e["type"] == "file_settled");
        settled.map(|e| text(&e["summary"]).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(settled().len(), 1, "reading the timeline settles the change");
    assert!(settled()[0].contains("it was not made"), "{:?}", settled());

    leave_open(&lab, &workspace, event, "y.txt");
    std::fs::write(format!("{workspace}/y.txt"), "x").unwrap();
    let mut agent =
        lab.start(&["serve", "--toolsets", "recorder", "--workspace", &workspace, "--project", "birds"]);
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    agent.ask(0, "initialize", &hello);
    // This agent calls no tool.
    let root = std::fs::canonicalize(&workspace).unwrap();
    with_ledger(&lab, async |ledger| {
        loop {
            let mut read = ledger.read().await.unwrap();
            if revision::pending(&mut read, root.to_str().unwrap(), None).await.unwrap().is_empty() {
                break;
            }
            tokio::task::yield_now().await;
        }
    });
    agent.close_stdin();
    assert_eq!(agent.exit_code(), 0);
    assert!(settled()[1].contains("it was made"), "{:?}", settled());
}

#[test]
fn a_workspace_that_moved_can_be_named() {
    let lab = Lab::new();
    let old = work(&lab);
    let new = lab.file("elsewhere");
    std::fs::rename(&old, &new).unwrap();
    let events = lab.json(&["session", "timeline", "s1", "--json"]);
    let created = events["events"][3]["id"].to_string();
    let gone = lab.run_failing(&["session", "rewind", "s1", "--to", &created]);
    assert!(gone.contains("--workspace"), "{gone}");
    let wrong = lab.file("wrong");
    std::fs::create_dir(&wrong).unwrap();
    let refused = lab.run_failing(&["session", "rewind", "s1", "--to", &created, "--workspace", &wrong]);
    assert!(refused.contains("does not hold what was recorded"), "{refused}");

    let planned = shown(&lab, &["session", "rewind", "s1", "--to", &created, "--workspace", &new]);
    assert!(
        planned.contains("the workspace moved from") && planned.contains("2 files would change"),
        "{planned}"
    );
    // After it was named once, it is known.
    lab.run_ok(&["session", "rewind", "s1", "--to", &created, "--yes"]);
    assert_eq!(std::fs::read_to_string(format!("{new}/a.txt")).unwrap(), "one\n");
    let evolution = lab.json(&["session", "evolution", "s1", "a.txt", "--json"]);
    assert_eq!(evolution["total"], 3, "one history: {evolution}");
    assert!(text(&evolution["workspace"]).ends_with("/elsewhere"), "{evolution}");
    let output = shown(&lab, &["session", "evolution", "s1", "a.txt"]);
    assert!(output.contains("before it moved to") && output.contains(" · in "), "{output}");
    let timeline = shown(&lab, &["session", "timeline", "s1"]);
    assert!(timeline.contains("workspace moved: "), "{timeline}");
}
