//! The records toolset in the real binary: killed under load, and shown by `scrubjay record`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::harness::{kill, tree_of};
use crate::random::Random;

/// How many gateways are killed on one data directory.
const ROUNDS: u64 = 6;
/// The longest time that each gateway runs under load before it is killed.
const LIFE_MS_MAX: usize = 400;
/// More calls than a gateway answers in that time.
const CALLS_MAX: u64 = 100_000;

fn command(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scrubjay"));
    command.env(crate::harness::BACKGROUND_VARIABLE, "false");
    command.arg("--data").arg(home.join("data")).env("HOME", home).env_remove("CLAUDE_CODE_SESSION_ID");
    command.current_dir(home).stderr(Stdio::null());
    command
}

/// A gateway on standard streams.
struct Gateway {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Gateway {
    fn spawn(home: &Path, conversation: &str) -> Self {
        let mut command = command(home);
        command.args(["serve", "--toolsets", "recorder,records", "--project", "birds"]);
        command.env("CLAUDE_CODE_SESSION_ID", conversation).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, stdin, stdout }
    }

    fn start(home: &Path, conversation: &str) -> Self {
        let mut gateway = Self::spawn(home, conversation);
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
        assert!(gateway.send(&hello));
        assert_eq!(gateway.receive().unwrap()["id"], 0);
        assert!(gateway.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })));
        gateway
    }

    /// Returns whether the gateway still reads.
    fn send(&mut self, message: &Value) -> bool {
        self.stdin.write_all(format!("{message}\n").as_bytes()).is_ok()
    }

    /// Returns the next answer; `None` when the gateway has ended. An incomplete line does not count.
    fn receive(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).ok().filter(|_| line.ends_with('\n'))?;
        Some(serde_json::from_str(&line).unwrap())
    }

    fn call(&mut self, id: u64, tool: &str, arguments: &Value) -> Option<Value> {
        let params = json!({ "name": tool, "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        if !self.send(&call) {
            return None;
        }
        loop {
            let answer = self.receive()?;
            if answer["id"] == id {
                assert_ne!(answer["result"]["isError"], true, "{answer}");
                return Some(answer["result"]["structuredContent"].clone());
            }
        }
    }

    /// Returns every process of the gateway: the one that was started, and its descendants.
    fn processes(&self) -> Vec<Pid> {
        tree_of(Pid::from_child(&self.child))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.processes().into_iter().for_each(|pid| kill(pid, Signal::KILL));
        let _ = self.child.wait();
    }
}

fn scrubjay(home: &Path, args: &[&str]) -> Output {
    command(home).args(args).stderr(Stdio::piped()).output().unwrap()
}

fn printed(home: &Path, args: &[&str]) -> String {
    let output = scrubjay(home, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn printed_json(home: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&printed(home, &[&["--json", "record"], args, &["--project", "birds"]].concat()))
        .unwrap()
}

/// `kill -9` at any instant: every acknowledged record is complete, and the numbers have no gap.
#[test]
fn acknowledged_records_survive_kills() {
    let home = tempfile::tempdir().unwrap();
    let mut random = Random::from_environment();
    // The acknowledged content of each record, and content that may have been written without an acknowledgement.
    let mut acknowledged: BTreeMap<String, String> = BTreeMap::new();
    let mut asked: Vec<String> = Vec::new();
    for round in 0..ROUNDS {
        let mut gateway = Gateway::start(home.path(), &format!("conversation {round}"));
        let processes = gateway.processes();
        let life = Duration::from_millis(20 + random.below(LIFE_MS_MAX) as u64);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // A random moment, because the kill may come at any instant; this waits for nothing.
                std::thread::sleep(life);
                processes.into_iter().for_each(|pid| kill(pid, Signal::KILL));
            });
            for n in 1..CALLS_MAX {
                let body = format!("round {round} call {n}");
                asked.push(body.clone());
                let record = json!({ "type": "t", "title": "t", "summary": "", "body": body });
                let Some(created) = gateway.call(n * 2, "create_record", &record) else { return };
                let id = created["record"]["id"].as_str().unwrap().to_owned();
                assert_eq!(acknowledged.insert(id.clone(), body.clone()), None, "{id} twice");
                let changed = format!("{body}, changed");
                asked.push(changed.clone());
                let change = json!({ "id": id, "body": changed });
                let Some(updated) = gateway.call(n * 2 + 1, "update_record", &change) else { return };
                assert_eq!(updated["written"], true);
                acknowledged.insert(id, changed);
            }
            panic!("the gateway was not killed");
        });
    }
    let listed = printed_json(home.path(), &["ls", "--limit", "10000"]);
    let listed = listed.as_array().unwrap();
    let numbers: Vec<_> = listed.iter().map(|r| r["id"].as_str().unwrap().to_owned()).collect();
    let expected: Vec<_> = (1..=numbers.len()).map(|n| format!("R{n:03}")).collect();
    assert_eq!(numbers, expected, "no number is missing");
    assert!(acknowledged.len() >= ROUNDS as usize && numbers.len() <= acknowledged.len() + ROUNDS as usize);
    let mut gateway = Gateway::start(home.path(), "reader");
    for (n, (id, content)) in (1..).zip(&acknowledged) {
        let bundle = gateway.call(n, "activate", &json!({ "id": id })).unwrap();
        let record = &bundle["context"]["target"];
        let (body, version) = (record["body"].as_str().unwrap(), record["version"].as_i64().unwrap());
        assert!(
            body.starts_with(content.as_str()) && asked.contains(&body.to_owned()),
            "{id}: {body} is not {content}"
        );
        assert_eq!(version, if body.ends_with("changed") { 2 } else { 1 });
    }
}

/// The ledger sees the file changes: a record that cites changed code becomes suspect by itself.
#[test]
fn a_record_is_suspect_once_the_code_it_cites_has_changed() {
    let home = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::start(home.path(), "one");
    let mut n = 0;
    let mut call = |tool: &str, arguments: Value| {
        n += 1;
        gateway.call(n, tool, &arguments).unwrap()
    };
    let file =
        |action: &str, content: &str| json!({ "path": "nest.rs", "action": action, "content": content });
    call("file_op", file("create", "one\ntwo\nthree\nfour\n"));
    let record = |title: &str, lines: &str| {
        json!({ "type": "decision", "title": title, "summary": "s", "body": "b",
            "citations": [format!("nest.rs#{lines}")] })
    };
    call("create_record", record("Why two", "L2-L3"));
    call("create_record", record("Why four", "L4-L4"));
    let suspects = |listed: &Value, key: &str| -> Vec<String> {
        let listed = listed[key].as_array().unwrap().iter().filter(|r| r["suspect"] == true);
        listed.map(|r| r["id"].as_str().unwrap().to_owned()).collect()
    };
    let none: [&str; 0] = [];
    assert_eq!(suspects(&call("list_records", json!({})), "records"), none);

    call("file_op", file("edit", "one\n2\nthree\nfour\n"));
    let context = call("activate", json!({ "id": "R001" }))["context"].clone();
    let warning = context["warnings"].as_array().unwrap().iter().find(|w| w["type"] == "suspect").unwrap();
    assert!(warning.to_string().contains("-two\\n+2\\n"), "with the difference: {warning}");
    assert_eq!(suspects(&call("list_records", json!({})), "records"), ["R001"]);
    assert_eq!(suspects(&call("get_project_overview", json!({})), "root_records"), ["R001"]);

    // A change by another program is noticed when the file is read the next time.
    std::fs::write(home.path().join("nest.rs"), "one\ntwo\nthree\n4\n").unwrap();
    call("file_op", file("edit", "0\ntwo\nthree\n4\n"));
    assert_eq!(suspects(&call("list_records", json!({})), "records"), ["R002"]);
    drop(gateway);
    let shown = printed(home.path(), &["record", "show", "R002", "--project", "birds"]);
    assert!(shown.contains("nest.rs#L4-L4 has changed since") && shown.contains("-four\n"), "{shown}");
}

/// The user configures after how many changes by others a session counts as stale.
#[test]
fn a_session_is_stale_after_as_many_writes_as_configured() {
    let home = tempfile::tempdir().unwrap();
    let write = json!({ "type": "t", "title": "t", "summary": "s", "body": "b" });
    for (allowed, is_stale) in [(2, true), (4, false)] {
        std::fs::write(home.path().join("scrubjay.yaml"), format!("records: {{ stale_after: {allowed} }}\n"))
            .unwrap();
        let mut one = Gateway::start(home.path(), &format!("one of {allowed}"));
        let mut two = Gateway::start(home.path(), &format!("two of {allowed}"));
        one.call(1, "create_record", &write).unwrap();
        for n in 1..=3 {
            two.call(n, "create_record", &write).unwrap();
        }
        let context = one.call(2, "activate", &json!({ "id": "R001" })).unwrap()["context"].clone();
        let warned =
            context["warnings"].as_array().is_some_and(|all| all.iter().any(|w| w["type"] == "stale"));
        assert_eq!(warned, is_stale, "after {allowed}: {context}");
    }
}

/// A modern client opens no session: each request has all that the toolset needs to know.
#[test]
fn modern_clients_can_use_records() {
    let home = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::spawn(home.path(), "one");
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "m", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {} });
    let mut ask = |id: u64, tool: &str, arguments: Value| {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        assert!(
            gateway.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }))
        );
        let answer = gateway.receive().unwrap();
        assert_eq!(
            (&answer["id"], &answer["result"]["resultType"]),
            (&json!(id), &json!("complete")),
            "{answer}"
        );
        answer["result"].clone()
    };
    let record = json!({ "type": "t", "title": "nest", "summary": "s", "body": "b" });
    let created = ask(1, "create_record", record);
    assert_eq!(created["structuredContent"]["record"]["id"], "R001");
    let context = ask(2, "activate", json!({ "id": "R001" }))["structuredContent"]["context"].clone();
    assert_eq!(context["target"]["title"], "nest");
    let again = ask(3, "activate", json!({ "id": "R001" }));
    assert_eq!(again["structuredContent"]["already_loaded"], true, "it is one session: {again}");
    let missing = ask(4, "activate", json!({ "id": "R009" }));
    assert_eq!(missing["structuredContent"]["error"]["code"], "RECORD_NOT_FOUND", "{missing}");
}

/// People see what agents wrote, as text that cannot control a terminal, and as JSON.
#[test]
fn the_command_line_shows_records() {
    let home = tempfile::tempdir().unwrap();
    let at = home.path();
    let mut gateway = Gateway::start(at, "one");
    let mut n = 0;
    let mut call = |tool: &str, arguments: Value| {
        n += 1;
        gateway.call(n, tool, &arguments).unwrap()
    };
    let record = |parent: Option<&str>, title: &str| {
        json!({ "parent_id": parent, "type": "question",
        "title": title, "summary": "s", "body": "first\nsecond\n" })
    };
    call("create_record", record(None, "Which \u{1b}[31mnest?"));
    call("create_record", record(Some("R001"), "Which tree?"));
    call("create_record", record(Some("R002"), "Oak?"));
    call("update_record", json!({ "id": "R001", "body": "first\n\u{1b}]0;second\u{7}!\n" }));
    call("transition", json!({ "id": "R002", "to_state": "LATER", "reason": "winter" }));
    drop(gateway);

    let ls = printed(at, &["record", "ls", "--project", "birds"]);
    assert!(ls.contains("R002  LATER  question  R001"), "{ls}");
    let tree = printed(at, &["record", "tree", "--project", "birds", "--depth", "2"]);
    assert_eq!(
        tree,
        "R001 [OPEN] question: Which \\u{1b}[31mnest?\n  R002 [LATER] question: Which tree? (+1)\n"
    );
    let below = printed(at, &["record", "tree", "R002", "--project", "birds"]);
    assert_eq!(below, "R002 [LATER] question: Which tree?\n  R003 [OPEN] question: Oak?\n");
    let show = printed(at, &["record", "show", "r1", "--project", "birds"]);
    assert!(show.contains("\\u{1b}]0;second\\u{7}!") && show.contains("version: 2 of 2"), "{show}");
    let history = printed(at, &["record", "history", "R001", "--project", "birds"]);
    assert!(history.contains("-second\n+\\u{1b}]0;second\\u{7}!\n"), "{history}");
    let diff = printed(at, &["record", "diff", "R002", "--project", "birds"]);
    assert!(diff.contains("state: \"OPEN\" → \"LATER\""), "{diff}");
    for text in [&ls, &tree, &show, &history, &diff] {
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{text:?}");
    }

    assert_eq!(printed_json(at, &["ls", "--state", "later"])[0]["id"], "R002");
    assert_eq!(printed_json(at, &["tree"]).as_array().unwrap().len(), 3);
    assert_eq!(printed_json(at, &["show", "R001"])["body"], "first\n\u{1b}]0;second\u{7}!\n");
    assert_eq!(printed_json(at, &["history", "R002"])[0]["reason"], "winter");
    let diff = printed_json(at, &["diff", "R002", "--from", "1", "--to", "2"]);
    assert_eq!(diff["diff"]["state"], json!({ "old": "OPEN", "new": "LATER" }));
    let missing = scrubjay(at, &["record", "show", "R999", "--project", "birds"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no record has the id \"R999\""));
    let nowhere = scrubjay(at, &["record", "ls", "--project", "fish"]);
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("known are [\"birds\"]"), "{nowhere:?}");
}
