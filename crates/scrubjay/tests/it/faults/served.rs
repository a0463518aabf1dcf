//! One gateway with its toolsets, through all faults: what it acknowledged is in the ledger and on the disk, its
//! messages are on tape, and its searches give the same results as a new index.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::{Value, json};

use super::shim::{Fault, KINDS, Kind, Mode, Shim};
use super::{is_whole_walk, walk, walk_by};
use crate::harness::{BACKGROUND_VARIABLE, Entry, Lab, Running, SCRUBJAY, UP, text};

/// Faults are injected on paths that contain one of these.
const TAPES: &str = "/data/tapes";
const LEDGER: &str = "/data/ledger.db";
const INDEX: &str = "/data/index.";
/// Changes of the workspace mostly use calls that bypass the C library; for those there is `strace`.
const WORKSPACE: &str = "/workspace/";
const OTHERS: &str = "/data/locks\n/data/processes\n/data/conversations";

/// A gateway, and all that it acknowledged.
pub(super) struct Served {
    lab: Lab,
    shim: Shim,
    gateway: Running,
    next_id: u64,
    /// The possible contents of each file; a single one if it is known.
    files: BTreeMap<String, BTreeSet<Option<String>>>,
    /// The titles of progress entries and records that were acknowledged.
    acknowledged: BTreeSet<String>,
    /// Requests that were answered with a result: both are on tape.
    answered: BTreeSet<u64>,
}

impl Served {
    pub(super) fn start() -> Self {
        Self::started("{}")
    }

    fn started(settings: &str) -> Self {
        let mut served = Self::greeted(settings, None);
        served.everything_works("at the start");
        served
    }

    /// Starts a gateway with these settings, and a fault waiting for it.
    fn greeted(settings: &str, fault: Option<&Fault>) -> Self {
        let (lab, shim) = (Lab::new(), Shim::new());
        std::fs::write(lab.file("settings"), settings).unwrap();
        std::fs::create_dir(lab.file("workspace")).unwrap();
        let mut command = Command::new(SCRUBJAY);
        command.args(["--config", &lab.file("settings")]);
        command.arg("--data").arg(lab.data()).args(["serve", "--project", "birds", "--toolsets"]);
        command.args(["recorder,progress,records,tapes,sample", "--workspace", &lab.file("workspace")]);
        command.env("HOME", lab.file("")).env_remove("SCRUBJAY_DATA").env_remove("CLAUDE_CODE_SESSION_ID");
        command.env(BACKGROUND_VARIABLE, "false").current_dir(lab.file("workspace"));
        shim.load_into(&mut command);
        fault.inspect(|fault| shim.arm(fault));
        let gateway = Running::start(&mut command);
        let (files, acknowledged, answered) = Default::default();
        let mut served = Self { lab, shim, gateway, next_id: 1, files, acknowledged, answered };
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "faults", "version": "1" } });
        let greeting = served.gateway.ask(0, "initialize", &hello);
        assert!(greeting["result"].is_object(), "{greeting}");
        served.gateway.send_line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        served
    }

    pub(super) fn pid(&self) -> rustix::process::Pid {
        self.gateway.pid()
    }

    /// Calls a tool, which must answer in any case; returns the error, if there is one.
    fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value, String> {
        let id = self.next_id;
        self.next_id += 1;
        let answer = self.gateway.ask(id, "tools/call", &json!({ "name": tool, "arguments": arguments }));
        if answer["error"].is_object() {
            return Err(answer["error"].to_string());
        }
        self.answered.insert(id);
        match answer["result"]["isError"] == true {
            true => Err(answer["result"].to_string()),
            false => Ok(answer["result"]["structuredContent"].clone()),
        }
    }

    /// Changes a file, and remembers its possible contents.
    fn change(&mut self, name: &str, action: &str, content: Option<&str>) -> Result<(), String> {
        let done = self.call("file_op", &json!({ "path": name, "action": action, "content": content }));
        let wanted = content.map(str::to_owned);
        let may_hold = self.files.entry(name.to_owned()).or_insert_with(|| [None].into());
        if done.is_ok() {
            may_hold.clear();
        }
        may_hold.insert(wanted);
        done.map(drop)
    }

    fn log(&mut self, title: &str) -> Result<(), String> {
        let entry = json!({ "projectId": "birds", "title": title, "content": "seen from the window" });
        self.call("log_progress", &entry)?;
        self.acknowledged.insert(title.to_owned());
        Ok(())
    }

    fn record(&mut self, title: &str) -> Result<(), String> {
        let record = json!({ "type": "note", "title": title, "summary": "", "body": "a body" });
        self.call("create_record", &record)?;
        self.acknowledged.insert(title.to_owned());
        Ok(())
    }

    /// Uses each toolset once; some calls may fail.
    pub(super) fn story(&mut self, name: &str) {
        let file = format!("{name}.txt");
        // Long enough for several pages.
        let _ = self.change(&file, "create", Some(&"one\n".repeat(2000)));
        let _ = self.change(&file, "edit", Some(&"two\n".repeat(9000)));
        let _ = self.log(&format!("entry {name}"));
        let _ = self.record(&format!("record {name}"));
        let _ = self.call("echo", &json!({ "text": format!("echo {name}") }));
        let _ = self.call("search_tapes", &json!({ "query": "echo" }));
        let _ = self.change(&file, "delete", None);
    }

    /// Each tool works, in the same process.
    pub(super) fn everything_works(&mut self, when: &str) {
        let number = self.next_id;
        let file = format!("after {number}.txt");
        let works =
            |done: Result<(), String>, what: &str| done.unwrap_or_else(|e| panic!("{when}: {what}: {e}"));
        works(self.change(&file, "create", Some("here")), "file_op");
        works(self.change(&file, "edit", Some("there")), "file_op");
        works(self.log(&format!("entry after {number}")), "log_progress");
        works(self.record(&format!("record after {number}")), "create_record");
        let echoed = self.call("echo", &json!({ "text": format!("needle{number}") }));
        works(echoed.map(drop), "echo");
        let found = self.call("search_tapes", &json!({ "query": format!("needle{number}") }));
        let found = found.unwrap_or_else(|e| panic!("{when}: search_tapes: {e}"));
        // If a tape ends between a request and its answer, a search finds them separately.
        assert!(found["total"].as_u64() >= Some(1), "{when}: {found}");
    }

    /// Lets one call fail; returns whether that call was reached.
    fn inject(&mut self, fault: &Fault) -> bool {
        let name =
            format!("{:?}-{}-{:?}-{}-{}", fault.kind, fault.left, fault.mode, fault.error, self.next_id);
        self.shim.arm(fault);
        self.story(&name);
        self.recovers(fault)
    }

    /// Ends the fault, and checks that everything works again; returns whether a call had failed.
    fn recovers(&mut self, fault: &Fault) -> bool {
        let Some(place) = self.shim.disarm() else { return false };
        let when = format!("after {fault:?} at {place}");
        self.everything_works(&when);
        self.check_files(&when);
        true
    }

    pub(super) fn check_files(&mut self, when: &str) {
        for (name, may_hold) in &mut self.files {
            let holds = std::fs::read_to_string(self.lab.file(&format!("workspace/{name}"))).ok();
            assert!(may_hold.contains(&holds), "{when}: {name} holds {:?}", holds.map(|text| text.len()));
            *may_hold = [holds].into();
        }
    }

    /// Ends the gateway, and checks everything that it left.
    pub(super) fn finish(mut self) {
        self.gateway.close_stdin();
        assert_eq!(self.gateway.exit_code(), 0, "{}", self.gateway.stderr_text());
        assert!(!self.gateway.stderr_text().contains("panicked"), "{}", self.gateway.stderr_text());
        self.check_tapes();
        self.check_ledger();
        self.check_index();
    }

    fn check_tapes(&self) {
        let lab = &self.lab;
        lab.start_again();
        lab.verify();
        let tapes = lab.tapes();
        let (mut asked, mut answered) = (BTreeSet::new(), BTreeSet::new());
        for tape in &tapes {
            for entry in lab.export(text(&tape["id"])).of_kind("message").filter(|entry| is_of_client(entry))
            {
                let Ok(message) = serde_json::from_slice::<Value>(&entry.payload) else { continue };
                let Some(id) = message["id"].as_u64() else { continue };
                let into = if entry.json["direction"] == UP { &mut asked } else { &mut answered };
                into.insert(id);
            }
        }
        for id in &self.answered {
            assert!(asked.contains(id) && answered.contains(id), "request {id} is not on tape: {tapes:?}");
        }
    }

    fn check_ledger(&self) {
        let lab = &self.lab;
        // State and the event that reports it are one transaction.
        let output = lab.run_ok(&["--json", "session", "timeline", "latest", "--limit", "100000"]);
        let output = String::from_utf8(output).unwrap();
        for title in &self.acknowledged {
            assert!(output.contains(&format!("{title}\"")), "{title:?} was acknowledged: {output}");
        }
        for (name, may_hold) in self.files.iter().rev().take(10) {
            if let Some(Some(holds)) = may_hold.first() {
                let kept = lab.run_ok(&["session", "cat", "latest", name]);
                assert_eq!(kept, holds.as_bytes(), "{name}");
            }
        }
    }

    fn check_index(&self) {
        let ask = || {
            let mut found = self.lab.json(&["tape", "search", "echo", "limit:1000", "--json"]);
            found["took_ms"].take();
            found
        };
        let found = ask();
        assert!(found["total"].as_u64().unwrap() > 0, "{found}");
        self.lab.run(&["index", "rebuild"]);
        assert_eq!(found["total"], ask()["total"]);
        assert_eq!(found["hits"], ask()["hits"]);
    }
}

/// Tells whether an entry is between the client and the gateway.
fn is_of_client(entry: &Entry) -> bool {
    entry.json["via"].is_null()
}

/// Lets each kind of call on some files fail, one after the other, in one gateway.
fn walk_through(texts: &'static str, at_least: u32) {
    walk_through_with("{}", texts, at_least);
}

fn walk_through_with(settings: &str, texts: &'static str, at_least: u32) {
    let mut served = Served::started(settings);
    let mut failed_calls = 0;
    for kind in KINDS {
        failed_calls += walk(kind, texts, |fault| served.inject(fault));
    }
    assert!(failed_calls >= at_least, "only {failed_calls} calls failed on {texts}");
    served.finish();
}

#[test]
fn the_ledger_recovers_from_every_fault() {
    walk_through(LEDGER, 15);
}

#[test]
fn the_index_recovers_from_every_fault() {
    walk_through(INDEX, 15);
}

#[test]
fn recording_resumes_after_every_fault() {
    walk_through(TAPES, 10);
}

#[test]
fn recording_with_syncs_resumes_after_every_fault() {
    walk_through_with(r#"{ "durability": "power", "limits": { "max_tape_size": "100KiB" } }"#, TAPES, 10);
}

#[test]
fn faults_in_other_files_of_the_data_directory_are_survived() {
    walk_through(OTHERS, 1);
}

#[test]
fn faults_in_the_workspace_leave_files_complete() {
    walk_through(WORKSPACE, 1);
}

/// A regression test: a full disk while a file's change is recorded; afterwards everything must work.
#[test]
fn a_full_disk_during_a_commit_does_not_block_the_ledger() {
    let mut served = Served::start();
    for error in super::ERRORS {
        let fault =
            Fault { kind: Kind::Write, mode: Mode::Fails, error, left: 1, texts: "/data/ledger.db-wal" };
        assert!(served.inject(&fault));
    }
    served.finish();
}

/// Faults during the first use, while the databases are created; each in a gateway of its own.
#[test]
fn databases_that_could_not_be_created_are_created_later() {
    for texts in [LEDGER, INDEX] {
        let mut failed_calls = 0;
        for kind in [Kind::Open, Kind::Write] {
            failed_calls += walk_by(
                kind,
                texts,
                |left| left * 3 + 2,
                |fault| {
                    let mut served = Served::greeted("{}", Some(fault));
                    served.story("first");
                    let call_failed = served.recovers(fault);
                    if call_failed && is_whole_walk() {
                        served.finish();
                    }
                    call_failed
                },
            );
        }
        assert!(failed_calls >= 3, "only {failed_calls} calls failed on {texts}");
    }
}
