//! Records behind the real binary: killed under load, and looked at by people.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::harness::{Chance, kill};

/// How many gateways are killed on one data directory.
const ROUNDS: u64 = 6;
/// Each lives at most so long under load.
const LIFE_MS_MAX: u64 = 400;
/// More than a gateway does in that time.
const CALLS_MAX: u64 = 100_000;

fn command(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scrubjay"));
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
    fn start(home: &Path, conversation: &str) -> Self {
        let mut command = command(home);
        command.args(["serve", "--toolsets", "recorder,records", "--project", "birds"]);
        command.env("CLAUDE_CODE_SESSION_ID", conversation).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut gateway = Self { child, stdin, stdout };
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
        assert!(gateway.say(&hello));
        assert_eq!(gateway.hear().unwrap()["id"], 0);
        assert!(gateway.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })));
        gateway
    }

    /// Returns whether anybody listens.
    fn say(&mut self, message: &Value) -> bool {
        self.stdin.write_all(format!("{message}\n").as_bytes()).is_ok()
    }

    /// Returns the next answer; nothing once the gateway is gone. A line cut short was not said.
    fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).ok().filter(|_| line.ends_with('\n'))?;
        Some(serde_json::from_str(&line).unwrap())
    }

    fn call(&mut self, id: u64, tool: &str, arguments: &Value) -> Option<Value> {
        let params = json!({ "name": tool, "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        if !self.say(&call) {
            return None;
        }
        loop {
            let answer = self.hear()?;
            if answer["id"] == id {
                assert_ne!(answer["result"]["isError"], true, "{answer}");
                return Some(answer["result"]["structuredContent"].clone());
            }
        }
    }

    /// Returns every process of the gateway: the one that was started, and those below.
    fn processes(&self) -> Vec<Pid> {
        let mut all = vec![i32::try_from(self.child.id()).unwrap()];
        let mut at = 0;
        while let Some(pid) = all.get(at) {
            let children =
                std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
            at += 1;
        }
        all.into_iter().rev().filter_map(Pid::from_raw).collect()
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

/// `kill -9` at any instant: what was acknowledged is there, whole, and the numbers have no gap.
#[test]
fn what_was_acknowledged_survives_kills() {
    let home = tempfile::tempdir().unwrap();
    let mut chance = Chance::new();
    // What each record says, by what its writer was told; and what may have been written without being told.
    let mut acknowledged: BTreeMap<String, String> = BTreeMap::new();
    let mut asked: Vec<String> = Vec::new();
    for round in 0..ROUNDS {
        let mut gateway = Gateway::start(home.path(), &format!("conversation {round}"));
        let victims = gateway.processes();
        let life = Duration::from_millis(20 + chance.below(LIFE_MS_MAX));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // Not to wait for anything: to strike at any instant.
                std::thread::sleep(life);
                victims.into_iter().for_each(|pid| kill(pid, Signal::KILL));
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
            panic!("nobody was killed");
        });
    }
    let listed = printed_json(home.path(), &["ls", "--limit", "10000"]);
    let listed = listed.as_array().unwrap();
    let numbers: Vec<_> = listed.iter().map(|r| r["id"].as_str().unwrap().to_owned()).collect();
    let expected: Vec<_> = (1..=numbers.len()).map(|n| format!("R{n:03}")).collect();
    assert_eq!(numbers, expected, "no number is missing");
    assert!(acknowledged.len() >= ROUNDS as usize && numbers.len() <= acknowledged.len() + ROUNDS as usize);
    // The last of each round, where a kill can have cut something short, and the first ones.
    let ids = acknowledged
        .keys()
        .filter(|id| listed.len() < 60 || id.ends_with('7'))
        .chain(acknowledged.keys().last());
    for id in ids {
        let said = &acknowledged[id];
        let record = printed_json(home.path(), &["show", id]);
        let (body, version) = (record["body"].as_str().unwrap(), record["version"].as_i64().unwrap());
        assert!(
            body.starts_with(said.as_str()) && asked.contains(&body.to_owned()),
            "{id}: {body} is not {said}"
        );
        assert_eq!(version, if body.ends_with("changed") { 2 } else { 1 });
    }
}

/// People see what agents wrote, as text that cannot steer a terminal, and as JSON.
#[test]
fn people_look_at_records() {
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
