//! Sessions in the real binary: which work belongs to which session, under which id, and when a session ends.

use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Lab, Running, SCRUBJAY, kill, text, tree_of};

/// An agent at a gateway of its own.
struct Agent {
    gateway: Running,
    next: u64,
}

impl Agent {
    /// Starts a gateway in a workspace, like a host that sets these variables.
    fn start(lab: &Lab, workspace: &str, variables: &[(&str, &str)], name: &str) -> Self {
        let mut command = Command::new(SCRUBJAY);
        command.arg("--data").arg(lab.data()).args(["serve", "--toolsets", "recorder,records,progress"]);
        command.args(["--workspace", workspace, "--project", "birds"]);
        for variable in ["SCRUBJAY_DATA", "CLAUDE_CODE_SESSION_ID", "TRACEPARENT"] {
            command.env_remove(variable);
        }
        command.envs(variables.iter().copied());
        let mut gateway = Running::start(&mut command);
        let client = json!({ "name": name, "version": "1" });
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        gateway.ask(0, "initialize", &hello);
        Self { gateway, next: 1 }
    }

    fn ask(&mut self, tool: &str, arguments: Value) -> Value {
        self.next += 1;
        let answer =
            self.gateway.ask(self.next, "tools/call", &json!({ "name": tool, "arguments": arguments }));
        answer["result"].clone()
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.ask(tool, arguments);
        assert_ne!(result["isError"], true, "{tool}: {result}");
        result["structuredContent"].clone()
    }

    fn leave(mut self) {
        self.gateway.close_stdin();
        assert_eq!(self.gateway.exit_code(), 0);
    }
}

fn workspace(lab: &Lab) -> String {
    let workspace = lab.file("workspace");
    std::fs::create_dir_all(&workspace).unwrap();
    workspace
}

fn session(lab: &Lab, id: &str) -> Value {
    let sessions = lab.json(&["session", "ls", "--json"]);
    let found = sessions.as_array().unwrap().iter().find(|session| session["id"] == id).cloned();
    found.unwrap_or_else(|| panic!("no session {id} in {sessions}"))
}

/// Returns the files that a session changed.
fn files(lab: &Lab, session: &str) -> Vec<String> {
    let files = lab.json(&["session", "evolution", session, "--json"]);
    files["files"].as_array().unwrap().iter().map(|file| text(&file["path"]).to_owned()).collect()
}

/// Two agents of one parent process in one workspace have sessions of their own, and see that they use one record.
#[test]
fn two_agents_of_one_process_have_separate_sessions() {
    let lab = Lab::new();
    let workspace = workspace(&lab);
    let mut one = Agent::start(&lab, &workspace, &[], "agent");
    let mut two = Agent::start(&lab, &workspace, &[], "agent");
    let start = |agent: &mut Agent, title: &str| {
        text(&agent.call("record_session_start", json!({ "title": title }))["session_id"]).to_owned()
    };
    let (first, second) = (start(&mut one, "one"), start(&mut two, "two"));
    assert_ne!(first, second);
    one.call("file_op", json!({ "path": "one.txt", "action": "create", "content": "1\n" }));
    two.call("file_op", json!({ "path": "two.txt", "action": "create", "content": "2\n" }));
    one.call("file_op", json!({ "path": "one.txt", "action": "edit", "content": "11\n" }));
    let record = json!({ "type": "question", "title": "Which bird?", "summary": "", "body": "Which?" });
    one.call("create_record", record);
    let seen = two.call("activate", json!({ "id": "R001" }));
    assert_eq!(seen["conflict"]["session_id"], json!(first), "{seen}");
    assert_eq!(
        (files(&lab, &first), files(&lab, &second)),
        (vec!["one.txt".to_owned()], vec!["two.txt".to_owned()])
    );
    // The tape of each says the same.
    one.leave();
    two.leave();
    let of_tapes: Vec<Value> = lab.tapes().iter().map(|tape| tape["session"]["id"].clone()).collect();
    assert!(of_tapes.contains(&json!(first)) && of_tapes.contains(&json!(second)), "{of_tapes:?}");
}

/// A session has one id on the tape and in the ledger, with the host's own id stored next to it; commands take both.
#[test]
fn a_session_has_one_id_and_can_be_named_by_the_hosts_id() {
    let lab = Lab::new();
    let workspace = workspace(&lab);
    let host = [("CLAUDE_CODE_SESSION_ID", "5ba4-host-chat")];
    let mut agent = Agent::start(&lab, &workspace, &host, "agent");
    let logged =
        agent.call("log_progress", json!({ "projectId": "birds", "title": "Seen", "content": "A jay." }));
    agent.call("record_plan", json!({ "steps": ["Look"] }));
    let record = json!({ "type": "question", "title": "Which bird?", "summary": "", "body": "Which?" });
    agent.call("create_record", record);
    agent.leave();
    assert!(logged["id"].is_string(), "{logged}");
    let listed = lab.json(&["session", "ls", "--json"]);
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    let id = text(&listed[0]["id"]);
    assert_eq!(
        (&listed[0]["host_session"], &listed[0]["told_by"]),
        (&json!("5ba4-host-chat"), &json!("host_session"))
    );
    for tape in lab.tapes() {
        assert_eq!(tape["session"]["id"], id, "{tape}");
    }
    for name in [id, &id[..6], "5ba4-host-chat", "latest"] {
        let timeline = lab.json(&["session", "timeline", name, "--json"]);
        assert_eq!(timeline["session"]["id"], id, "{name}");
        let shown = lab.json(&["session", "show", name, "--json"]);
        assert_eq!(shown["id"], id, "{name}");
        let tapes = lab.json(&["tape", "ls", "--session", name, "--json"]);
        assert_eq!((tapes.as_array().unwrap().len(), &tapes[0]["session"]["id"]), (1, &json!(id)), "{name}");
        assert_eq!(lab.export(name).id(), text(&tapes[0]["id"]), "{name}");
        let found = lab.json(&["tape", "search", &format!("session:{name} tool:record_plan"), "--json"]);
        assert_eq!(
            (&found["total"], &found["hits"][0]["session"]),
            (&json!(1), &json!(id)),
            "{name}: {found}"
        );
        let entries = lab.json(&["progress", "search", "--project", "birds", "--session", name, "--json"]);
        assert_eq!(entries["entries"][0]["hostSessionId"], "5ba4-host-chat", "{name}: {entries}");
        let records = lab.json(&["record", "ls", "--project", "birds", "--session", name, "--json"]);
        assert_eq!(records[0]["id"], "R001", "{name}: {records}");
    }
    let history = lab.json(&["record", "history", "R001", "--project", "birds", "--json"]);
    assert_eq!(
        (&history[0]["session_id"], &history[0]["host_session"]),
        (&json!(id), &json!("5ba4-host-chat"))
    );
    for listing in [&["session", "ls"][..], &["tape", "ls"], &["progress", "search", "--project", "birds"]] {
        let shown = String::from_utf8(lab.run_ok(&[listing, &["--host-ids"]].concat())).unwrap();
        assert!(shown.contains("HOST ID") && shown.contains("5ba4-host-chat"), "{listing:?}: {shown}");
    }
}

/// If an agent names a session in the middle of a conversation, its tape and the search use that session.
#[test]
fn a_tape_follows_its_connection_to_another_session() {
    let lab = Lab::new();
    let mut agent = Agent::start(&lab, &workspace(&lab), &[], "agent");
    agent.call("record_plan", json!({ "steps": ["Look"] }));
    agent.call("record_session_start", json!({ "id": "chosen-by-agent", "title": "Mine" }));
    agent.call("audit_event", json!({ "type": "note", "description": "a nuthatch" }));
    let live: Vec<Value> = lab.tapes().iter().map(|tape| tape["session"]["id"].clone()).collect();
    assert!(live.contains(&json!("chosen-by-agent")), "{live:?}");
    agent.leave();
    let sealed: Vec<Value> = lab.tapes().iter().map(|tape| tape["session"]["id"].clone()).collect();
    assert!(sealed.contains(&json!("chosen-by-agent")), "{sealed:?}");
    let found = lab.json(&["tape", "search", "session:chosen-by-agent nuthatch", "--json"]);
    assert!(found["total"].as_u64().unwrap() > 0, "{found}");
}

/// A session ends and its tape is sealed when the host closes the stream, sends a signal, or kills the gateway.
#[test]
fn a_session_ends_when_its_host_ends() {
    for signal in [None, Some(Signal::TERM), Some(Signal::INT), Some(Signal::KILL)] {
        let lab = Lab::new();
        let mut agent = Agent::start(&lab, &workspace(&lab), &[], "agent");
        let started = agent.call("record_session_start", json!({ "title": "Watch" }));
        let id = text(&started["session_id"]).to_owned();
        assert_eq!(session(&lab, &id)["status"], "active");
        match signal {
            None => agent.leave(),
            // The process that a host knows. If it is killed, the kernel signals its other process.
            Some(signal) => {
                kill(agent.gateway.pid(), signal);
                agent.gateway.rest();
                agent.gateway.wait();
            }
        }
        // No other process is started in between, so this is what the gateway itself left.
        let names = std::fs::read_dir(lab.data().join("tapes")).unwrap();
        let live =
            names.filter(|name| name.as_ref().unwrap().path().extension().is_some_and(|e| e == "live"));
        assert_eq!(live.count(), 0, "{signal:?}: a tape is not sealed");
        assert_eq!(session(&lab, &id)["status"], "closed", "{signal:?}");
    }
}

/// If all processes of a gateway are killed at once, its session holds no record after the next process reads sessions.
#[test]
fn a_killed_gateway_holds_no_records() {
    let lab = Lab::new();
    let workspace = workspace(&lab);
    let mut one = Agent::start(&lab, &workspace, &[("CLAUDE_CODE_SESSION_ID", "one")], "agent");
    let mut two = Agent::start(&lab, &workspace, &[("CLAUDE_CODE_SESSION_ID", "two")], "agent");
    let record = json!({ "type": "question", "title": "Which bird?", "summary": "", "body": "Which?" });
    one.call("create_record", record);
    let seen = two.call("activate", json!({ "id": "R001" }));
    assert!(seen["conflict"].is_object(), "{seen}");
    for pid in tree_of(one.gateway.pid()) {
        kill(pid, Signal::KILL);
    }
    one.gateway.rest();
    one.gateway.wait();
    let seen = two.call("activate", json!({ "id": "R001" }));
    assert!(seen["conflict"].is_null(), "{seen}");
    let sessions = lab.json(&["session", "ls", "--json"]);
    let of = |host: &str| {
        let all = sessions.as_array().unwrap();
        all.iter().find(|session| session["host_session"] == host).unwrap()["status"].clone()
    };
    assert_eq!((of("one"), of("two")), (json!("closed"), json!("active")));
}

/// A session that ended accepts no more work, and the error says what to do.
#[test]
fn a_closed_session_refuses_calls() {
    let lab = Lab::new();
    let mut agent = Agent::start(&lab, &workspace(&lab), &[], "agent");
    agent.call("record_session_start", json!({ "id": "s1", "title": "First" }));
    agent.call("record_session_end", json!({}));
    for (tool, arguments) in [
        ("file_op", json!({ "session_id": "s1", "path": "a.txt", "action": "create", "content": "a" })),
        ("record_plan", json!({ "session_id": "s1", "steps": ["more"] })),
        ("audit_event", json!({ "session_id": "s1", "type": "note", "description": "late" })),
        ("activate", json!({ "session_id": "s1", "id": "R001" })),
    ] {
        let refused = agent.ask(tool, arguments);
        assert_eq!(refused["isError"], true, "{tool}: {refused}");
        let error = &refused["structuredContent"]["error"];
        assert!(text(&error["message"]).contains("has ended"), "{tool}: {refused}");
        assert!(text(&error["recovery_hint"]).contains("record_session_start"), "{tool}: {refused}");
    }
    let events = lab.json(&["session", "timeline", "s1", "--json"])["events"].as_array().unwrap().len();
    let again = agent.call("record_session_start", json!({ "id": "s1" }));
    assert_eq!(again["resumed"], true);
    let timeline = lab.json(&["session", "timeline", "s1", "--json"]);
    assert_eq!(timeline["events"].as_array().unwrap().len(), events + 1);
    assert_eq!(timeline["events"][events]["type"], "session_resumed");
}
