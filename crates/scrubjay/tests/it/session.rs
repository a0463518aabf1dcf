//! `scrubjay session`: what an agent did through the recorder, as a person looks at it and takes it back.

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
    String::from_utf8(lab.run_well(arguments)).unwrap()
}

#[test]
fn people_see_what_was_done() {
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
    let story = shown(&lab, &["session", "story", "s"]);
    assert!(story.contains("created a.txt (+2 -1) in 2 edits"), "{story}");
    assert!(shown(&lab, &["session", "evolution", "s1"]).contains("b.txt"));
    assert!(shown(&lab, &["session", "evolution", "s1", "a.txt"]).contains("-one\n+two\n"));
    let unknown = lab.run_badly(&["session", "story", "nobody"]);
    assert!(unknown.contains("session ls"), "{unknown}");
}

#[test]
fn files_go_back_only_when_asked_to() {
    let lab = Lab::new();
    let workspace = work(&lab);
    let read = |name: &str| std::fs::read_to_string(format!("{workspace}/{name}")).ok();
    let events = lab.json(&["session", "timeline", "s1", "--json"]);
    let created = events["events"][3]["id"].to_string();
    let back = ["session", "rewind", "s1", "--to", &created];
    let planned = shown(&lab, &back);
    assert!(planned.contains("-two\n+one\n") && planned.contains("2 files would change"), "{planned}");
    assert_eq!(read("a.txt").as_deref(), Some("two\n"), "a look changes nothing");

    std::fs::write(format!("{workspace}/a.txt"), "mine\n").unwrap();
    let refused = lab.run(&[&back[..], &["--yes"]].concat());
    assert!(refused.code == 1 && refused.stderr.contains("--force"), "{}", refused.stderr);
    assert!(
        String::from_utf8(refused.stdout).unwrap().contains("-mine\n+one\n"),
        "what is at stake is shown"
    );
    assert_eq!(read("a.txt").as_deref(), Some("mine\n"));
    lab.run_well(&[&back[..], &["--yes", "--force"]].concat());
    assert_eq!((read("a.txt").as_deref(), read("b.txt")), (Some("one\n"), None));

    // Taking back is recorded, so it can be taken back: what nobody had recorded is there too.
    let events = lab.json(&["session", "timeline", "s1", "--json"]);
    let found = events["events"].as_array().unwrap().iter().find(|e| e["type"] == "file_observed").unwrap();
    lab.run_well(&["session", "rewind", "s1", "--to", &found["id"].to_string(), "--file", "a.txt", "--yes"]);
    assert_eq!((read("a.txt").as_deref(), read("b.txt")), (Some("mine\n"), None));
    let unknown = lab.run_badly(&["session", "rewind", "s1", "--to", "99999"]);
    assert!(unknown.contains("no event 99999"), "{unknown}");
}
