//! The `recorder` toolset as a client uses it: what `file_op` does with deceptive paths.

use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use scrubjay_core::redact::Redactor;
use scrubjay_store::ledger::event::{self, Event, EventKind, EventPage};
use scrubjay_store::ledger::revision::{self, RevisionState};
use scrubjay_store::ledger::{Ledger, Storage, blob};
use scrubjay_tools::{Setup, Shared, serve_recorder};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Client, Era};

/// A workspace next to a directory that must never be changed, and a client that may change files in it.
struct Lab {
    scratch: TempDir,
    client: Client,
}

impl Lab {
    async fn new(era: Era) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        for directory in ["ws/src", "ws-evil"] {
            std::fs::create_dir_all(scratch.path().join(directory)).unwrap();
        }
        let shared = Arc::new(Shared::new(Setup {
            storage: storage(scratch.path()),
            redactor: Arc::new(Redactor::standard()),
            project: "birds".to_owned(),
            workspace: scratch.path().join("ws"),
            allow_vcs: false,
            file_bytes_max: 1 << 20,
            home: scrubjay_tape::home::Home::new(scratch.path().join("data")),
            locks: scratch.path().join("locks"),
            llm: None,
            stale_after_ticks: 20,
        }));
        let mut client = Client::connect_to(era, |reader, writer| serve_recorder(shared, reader, writer));
        client.greet().await;
        Self { scratch, client }
    }

    fn disk(&self, path: &str) -> PathBuf {
        self.scratch.path().join("ws").join(path)
    }

    async fn file_op(&mut self, arguments: Value) -> Value {
        let caller =
            json!({ "session": "s1", "toldBy": "connection", "client": { "name": "t", "version": "1" } });
        let params =
            json!({ "name": "file_op", "arguments": arguments, "_meta": { "scrubjay/caller": caller } });
        self.client.ask("tools/call", params).await["result"].take()
    }

    async fn done(&mut self, arguments: Value) -> Value {
        let mut result = self.file_op(arguments).await;
        assert_ne!(result["isError"], json!(true), "{result}");
        result["structuredContent"].take()
    }

    /// Makes a call that must be refused; returns the error.
    async fn refused(&mut self, arguments: Value) -> Value {
        let mut result = self.file_op(arguments.clone()).await;
        assert_eq!(result["isError"], json!(true), "{arguments}: {result}");
        result["structuredContent"]["error"].take()
    }

    async fn ledger(&self) -> Ledger {
        Ledger::open(&storage(self.scratch.path()), Arc::new(Redactor::standard())).await.unwrap()
    }
}

fn storage(home: &Path) -> Storage {
    Storage::File(home.join("data/ledger.db"))
}

async fn timeline(ledger: &Ledger, session: &str) -> Vec<Event> {
    event::page(&mut ledger.read().await.unwrap(), EventPage { session, after: 0, limit: 1000 })
        .await
        .unwrap()
}

/// Creates special files in the workspace; returns their names.
fn put_odd_things(lab: &Lab) -> Vec<&'static str> {
    let mut odd = vec!["pipe", "socket", "src"];
    mknodat(CWD, lab.disk("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    drop(UnixListener::bind(lab.disk("socket")).unwrap());
    let device = mknodat(CWD, lab.disk("device"), FileType::CharacterDevice, Mode::RUSR, makedev(1, 3));
    // Only root may make one.
    odd.extend(device.is_ok().then_some("device"));
    symlink(lab.scratch.path().join("ws-evil"), lab.disk("way")).unwrap();
    symlink(lab.scratch.path().join("ws-evil/canary"), lab.disk("link")).unwrap();
    std::fs::write(lab.scratch.path().join("ws-evil/canary"), "canary").unwrap();
    std::fs::write(lab.disk("file"), "a file").unwrap();
    odd
}

#[tokio::test]
async fn forbidden_changes_are_refused_and_recorded() {
    for era in Era::BOTH {
        let mut lab = Lab::new(era).await;
        let odd = put_odd_things(&lab);
        let session =
            lab.done(json!({ "path": "a", "action": "create", "content": "a" })).await["session_id"].take();
        let long = ["n".repeat(256), "d/".repeat(2500) + "x", "d/".repeat(200) + "x"];
        let evil = format!("{}-evil/canary", lab.scratch.path().join("ws").display());
        let mut cases: Vec<(&str, &str, &str)> = Vec::new();
        for name in odd {
            cases.extend(["create", "edit", "delete"].map(|action| (name, action, "NOT_A_REGULAR_FILE")));
        }
        for action in ["create", "edit", "delete"] {
            cases.extend(["link", "way/canary"].map(|path| (path, action, "SYMLINK")));
            cases.extend(
                [".git/hooks/pre-commit", ".GIT/config", "sub/.git/config", ".hg/hgrc", "git~1/config"]
                    .map(|path| (path, action, "PROTECTED_PATH")),
            );
            cases.extend(
                ["../x", "src/../../x", "/etc/passwd", &evil].map(|path| (path, action, "OUTSIDE_WORKSPACE")),
            );
            cases.extend(
                ["", "/", ".", "src/", "src/../a", "a\0b", "a\nb"]
                    .map(|path| (path, action, if path == "/" { "OUTSIDE_WORKSPACE" } else { "BAD_PATH" })),
            );
            cases.extend(long.iter().map(|path| (path.as_str(), action, "BAD_PATH")));
            cases.push(("file/below", action, "NOT_A_DIRECTORY"));
        }
        let mut events = Vec::new();
        for (path, action, code) in &cases {
            let content = (*action != "delete").then_some("x");
            let error = lab.refused(json!({ "path": path, "action": action, "content": content })).await;
            assert_eq!(error["code"], *code, "{action} {path:?}: {error}");
            assert!(error["recovery_hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{error}");
            events.push(error["details"]["event_id"].as_i64().unwrap());
        }
        let timeline_events = timeline(&lab.ledger().await, session.as_str().unwrap()).await;
        let refusals: Vec<_> =
            timeline_events.iter().filter(|event| event.kind == EventKind::FileRefused).collect();
        assert_eq!(
            refusals.iter().map(|event| event.id).collect::<Vec<_>>(),
            events,
            "each is on the timeline"
        );
        for (refusal, (path, action, _)) in refusals.iter().zip(&cases) {
            assert_eq!(refusal.details["action"], *action);
            let shown: String = path.chars().take(4096).collect();
            assert_eq!(refusal.details["path"], shown.as_str());
        }
        assert_eq!(std::fs::read(lab.scratch.path().join("ws-evil/canary")).unwrap(), b"canary");
        assert_eq!(std::fs::read_dir(lab.scratch.path().join("ws-evil")).unwrap().count(), 1);
        assert!(!lab.disk(".git").exists() && !lab.disk("d").exists());
    }
}

/// On a file system that distinguishes them, names that look alike are different files.
#[tokio::test]
async fn names_that_look_alike_are_two_files() {
    let mut lab = Lab::new(Era::Legacy).await;
    let pairs = [["Read.me", "read.me"], ["caf\u{e9}", "cafe\u{301}"], ["src/Ä/x", "src/A\u{308}/x"]];
    for pair in pairs {
        for (number, path) in pair.into_iter().enumerate() {
            let content = format!("{number}\n");
            let made = lab.done(json!({ "path": path, "action": "create", "content": content })).await;
            assert_eq!(made["path"], path);
            assert_eq!(made["before_hash"], Value::Null);
        }
        lab.done(json!({ "path": pair[0], "action": "edit", "content": "edited\n" })).await;
        lab.done(json!({ "path": pair[1], "action": "delete" })).await;
        assert_eq!(std::fs::read_to_string(lab.disk(pair[0])).unwrap(), "edited\n");
        assert!(!lab.disk(pair[1]).exists());
    }
    let (ledger, root) = (lab.ledger().await, lab.disk("").canonicalize().unwrap());
    let mut read = ledger.read().await.unwrap();
    for pair in pairs {
        for (path, last) in pair.into_iter().zip([Some(blob::hash(b"edited\n")), None]) {
            let evolution = revision::page(&mut read, root.to_str().unwrap(), path, 0, 10).await.unwrap();
            assert_eq!(evolution.len(), 2, "{path}");
            assert!(evolution.iter().all(|revision| revision.state == RevisionState::Done));
            assert_eq!(evolution[1].after, last, "{path}");
        }
    }
}

#[tokio::test]
async fn an_absolute_path_in_the_workspace_equals_its_relative_path() {
    let mut lab = Lab::new(Era::Modern).await;
    let absolute = lab.disk("src/a.txt");
    let made = lab.done(json!({ "path": absolute, "action": "create", "content": "one\n" })).await;
    assert_eq!(made["path"], "src/a.txt");
    let stale = json!({ "path": "./src//a.txt", "action": "edit", "content": "two\n", "expected_hash": "0".repeat(64) });
    let error = lab.refused(stale).await;
    assert_eq!(
        (&error["code"], &error["details"]["current_hash"]),
        (&json!("CONFLICT"), &made["after_hash"])
    );
    let right = json!({ "path": "src/a.txt", "action": "edit", "content": "two\n", "expected_hash": made["after_hash"] });
    assert_eq!(lab.done(right).await["before_hash"], made["after_hash"]);
    let nowhere = json!({ "path": "b", "action": "create", "content": "", "session_id": "no such" });
    assert_eq!(lab.refused(nowhere).await["code"], "SESSION_NOT_FOUND");
    assert!(!lab.disk("b").exists());
}
