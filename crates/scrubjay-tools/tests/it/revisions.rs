//! Contents, limits and settled changes as a client of the `recorder` toolset sees them.

use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use scrubjay_core::redact::Redactor;
use scrubjay_store::ledger::revision::{self, Revision, RevisionSource, RevisionState};
use scrubjay_store::ledger::{CommitDurability, Ledger, Storage, blob};
use scrubjay_tools::{Setup, Shared, serve_recorder};
use serde_json::{Value, json};

use crate::client::{Client, Era};

fn storage(home: &Path) -> Storage {
    Storage::File(home.join("data/ledger.db"))
}

fn shared(home: &Path, workspace: &str) -> Arc<Shared> {
    std::fs::create_dir_all(home.join(workspace)).unwrap();
    Arc::new(Shared::new(Setup {
        storage: storage(home),
        redactor: Arc::new(Redactor::standard()),
        project: "birds".to_owned(),
        workspace: home.join(workspace),
        allow_vcs: false,
        file_bytes_max: 1 << 20,
        home: scrubjay_tape::home::Home::new(home.join("data")),
        locks: home.join("locks"),
        llm: None,
        stale_after_ticks: 20,
    }))
}

async fn client(shared: Arc<Shared>, era: Era) -> Client {
    let mut client = Client::connect_to(era, |reader, writer| serve_recorder(shared, reader, writer));
    client.greet().await;
    client
}

/// Calls a tool that must succeed; returns its data.
async fn done(client: &mut Client, tool: &str, arguments: Value) -> Value {
    let mut answer = client.call(tool, arguments).await;
    assert_ne!(answer["isError"], json!(true), "{answer}");
    answer["structuredContent"].take()
}

async fn failed(client: &mut Client, tool: &str, arguments: Value) -> Value {
    let mut answer = client.call(tool, arguments).await;
    assert_eq!(answer["isError"], json!(true), "{answer}");
    answer["structuredContent"]["error"].take()
}

async fn resource(client: &mut Client, uri: &Value) -> Value {
    let mut answer = client.ask("resources/read", json!({ "uri": uri })).await;
    assert!(answer["error"].is_null(), "{answer}");
    answer["result"]["contents"][0].take()
}

#[tokio::test]
async fn an_event_links_to_the_contents_before_and_after_it() {
    for era in Era::BOTH {
        let home = tempfile::tempdir().unwrap();
        let mut client = client(shared(home.path(), "ws"), era).await;
        std::fs::create_dir_all(home.path().join("ws/src")).unwrap();
        std::fs::write(home.path().join("ws/src/a b.txt"), "was there\n").unwrap();
        let edit = json!({ "path": "src/a b.txt", "action": "edit", "content": "is there\n" });
        let made = done(&mut client, "file_op", edit).await;
        let id = made["event_id"].as_i64().unwrap();
        let page = done(&mut client, "get_timeline", json!({ "after": id - 1 })).await;
        let change = page["events"][0]["change"].clone();
        assert_eq!(
            (&change["before"]["hash"], &change["after"]["hash"]),
            (&made["before_hash"], &made["after_hash"])
        );
        let before = resource(&mut client, &change["before"]["uri"]).await;
        let after = resource(&mut client, &change["after"]["uri"]).await;
        assert_eq!((&before["text"], &before["mimeType"]), (&json!("was there\n"), &json!("text/plain")));
        assert_eq!(after["text"], "is there\n");
        let evolution = done(&mut client, "get_evolution", json!({ "path": "src/a b.txt" })).await;
        assert_eq!(evolution["revisions"][0]["initial_content"], "was there\n");

        // The same through the tool, for hosts without resources.
        let wanted = json!({ "path": "src/a b.txt", "revision": change["revision"], "side": "before" });
        let answer = done(&mut client, "get_evolution", wanted).await;
        assert_eq!((&answer["content"], &answer["hash"]), (&json!("was there\n"), &made["before_hash"]));
        let bytes = json!({ "path": "b.bin", "action": "create", "content": "AP8K", "encoding": "base64" });
        done(&mut client, "file_op", bytes).await;
        let page = done(&mut client, "get_evolution", json!({ "path": "b.bin" })).await;
        let blob = resource(&mut client, &page["revisions"][0]["uri"]).await;
        assert_eq!(BASE64_STANDARD.decode(blob["blob"].as_str().unwrap()).unwrap(), [0, 255, 10]);
        let wanted = json!({ "path": "b.bin", "revision": page["revisions"][0]["id"] });
        let answer = done(&mut client, "get_evolution", wanted).await;
        assert_eq!((&answer["encoding"], &answer["content"]), (&json!("base64"), &json!("AP8K")));

        let wrong = json!({ "path": "b.bin", "revision": change["revision"] });
        assert_eq!(failed(&mut client, "get_evolution", wrong).await["code"], "REVISION_NOT_FOUND");
        let wrong = json!({ "path": "b.bin", "revision": page["revisions"][0]["id"], "side": "before" });
        assert_eq!(failed(&mut client, "get_evolution", wrong).await["code"], "NO_CONTENT");
        assert_eq!(
            failed(&mut client, "get_evolution", json!({ "revision": 1 })).await["code"],
            "PATH_REQUIRED"
        );
    }
}

/// The whole answer, text and data, as it is sent.
fn bytes(answer: &Value) -> usize {
    answer.to_string().len()
}

#[tokio::test]
async fn no_answer_is_longer_than_asked_for() {
    let home = tempfile::tempdir().unwrap();
    let mut client = client(shared(home.path(), "ws"), Era::Modern).await;
    let line = |n: usize| format!("line {n} with some words in it\n");
    let long = |seed: usize| (0..6000).map(|n| line(n * seed)).collect::<String>();
    let create = json!({ "path": "long.txt", "action": "create", "content": long(1) });
    done(&mut client, "file_op", create).await;
    for seed in 2..6 {
        let edit = json!({ "path": "long.txt", "action": "edit", "content": long(seed) });
        done(&mut client, "file_op", edit).await;
        let note = json!({ "type": "note", "description": "word ".repeat(15_000) });
        done(&mut client, "audit_event", note).await;
    }
    for (tool, arguments) in [
        ("get_evolution", json!({ "path": "long.txt" })),
        ("get_evolution", json!({ "path": "long.txt", "revision": 1 })),
        ("get_timeline", json!({})),
        ("get_story", json!({})),
        ("get_evolution", json!({})),
    ] {
        let answer = client.call(tool, arguments.clone()).await;
        // Four bytes a token, in the data and once more in the text.
        assert!(bytes(&answer) < 2 * 4 * 8000 + 4000, "{tool} {arguments}: {}", bytes(&answer));
        let mut shorter = arguments.clone();
        shorter["max_tokens"] = json!(1500);
        let answer = client.call(tool, shorter).await;
        assert!(bytes(&answer) < 2 * 4 * 1500 + 4000, "{tool} {arguments}: {}", bytes(&answer));
    }
    let session = done(&mut client, "list_sessions", json!({})).await["sessions"][0]["id"].clone();
    let uri = |rest: &str| json!(format!("scrubjay://sessions/{}/{rest}", session.as_str().unwrap()));
    for view in ["timeline", "story", "evolution/long.txt"] {
        let answer = resource(&mut client, &uri(view)).await;
        assert!(bytes(&answer) < 4 * 8000 + 4000, "{view}: {}", bytes(&answer));
        let answer = resource(&mut client, &uri(&format!("{view}?max_tokens=1000"))).await;
        assert!(bytes(&answer) < 4 * 1000 + 4000, "{view}: {}", bytes(&answer));
    }
    // A text that was cut can be read in full: at its address, or part by part.
    let page = done(&mut client, "get_evolution", json!({ "path": "long.txt" })).await;
    let cut = &page["revisions"][0];
    assert!(cut["cut"].as_str().unwrap().contains(cut["uri"].as_str().unwrap()), "{}", cut["cut"]);
    assert_eq!(page["next_after"], cut["id"], "the page ended where there was no more room");
    assert_eq!(resource(&mut client, &cut["uri"]).await["text"], long(1));
    let (mut whole, mut offset) = (String::new(), json!(0));
    while !offset.is_null() {
        let wanted = json!({ "path": "long.txt", "revision": cut["id"], "offset": offset });
        let part = done(&mut client, "get_evolution", wanted).await;
        whole.push_str(part["content"].as_str().unwrap());
        offset = part["next_offset"].clone();
    }
    assert_eq!(whole, long(1));
}

#[tokio::test]
async fn long_steps_and_titles_are_refused_with_their_limit() {
    let home = tempfile::tempdir().unwrap();
    let mut client = client(shared(home.path(), "ws"), Era::Legacy).await;
    let long = |count: usize| "s".repeat(count);
    for (tool, arguments, named) in [
        (
            "record_session_start",
            json!({ "title": long(201) }),
            "title has 201 characters and may have at most 200",
        ),
        ("record_session_start", json!({ "user_message": long(100_001) }), "100000"),
        ("record_session_end", json!({ "summary": long(100_001) }), "100000"),
        ("record_plan", json!({ "steps": ["fine", long(501)] }), "step 2 of the plan has 501"),
        ("record_plan_step", json!({ "step": long(501) }), "at most 500"),
    ] {
        let error = failed(&mut client, tool, arguments).await;
        assert_eq!(error["code"], "TOO_LONG");
        assert!(error["message"].as_str().unwrap().contains(named), "{error}");
    }
    done(&mut client, "record_session_start", json!({ "title": long(200) })).await;
    let plan = done(&mut client, "record_plan", json!({ "steps": [long(500), "next"] })).await;
    assert_eq!((&plan["steps"][1]["number"], &plan["steps"][1]["index"]), (&json!("2"), &json!(1)));
    let page = done(&mut client, "get_timeline", json!({})).await;
    let step = page["events"].as_array().unwrap().last().unwrap()["step"]["text"].clone();
    assert_eq!(step, "next");
    let shown = page["events"][1]["step"]["text"].as_str().unwrap();
    assert_eq!(shown.chars().count(), 200, "what is long is shown cut");
}

/// Records an intent in the client's session, as a process does that is killed then.
async fn leave_open(home: &Path, workspace: &str, event_id: i64, path: &str, after: &[u8]) {
    let ledger = Ledger::open(&storage(home), Arc::new(Redactor::standard())).await.unwrap();
    let mut write = ledger.write(CommitDurability::Power).await.unwrap();
    let after = blob::put(&mut write, after).await.unwrap();
    let root = home.join(workspace).canonicalize().unwrap();
    let meant = Revision {
        id: 0,
        workspace: root.to_str().unwrap().to_owned(),
        path: path.to_owned(),
        event_id,
        source: RevisionSource::Enforced,
        state: RevisionState::Pending,
        before: None,
        after: Some(after),
        size: 1,
        lines: 1,
        added: 1,
        removed: 0,
        mode: None,
    };
    revision::insert(&mut write, &meant).await.unwrap();
    write.commit().await.unwrap();
}

#[tokio::test]
async fn open_changes_are_settled_at_the_start_and_before_views_are_read() {
    let home = tempfile::tempdir().unwrap();
    let started = shared(home.path(), "ws");
    let mut first = client(started, Era::Legacy).await;
    let note = json!({ "type": "note", "description": "about to create a" });
    let noted = done(&mut first, "audit_event", note).await;
    let (session, event) = (noted["session_id"].clone(), noted["event_id"].as_i64().unwrap());
    leave_open(home.path(), "ws", event, "a", b"a").await;
    std::fs::write(home.path().join("ws/a"), "a").unwrap();
    // Another process starts: what the first one left is settled before anyone changes a file.
    let next = shared(home.path(), "ws");
    next.settle().await;
    let ledger = Ledger::open(&storage(home.path()), Arc::new(Redactor::standard())).await.unwrap();
    let root = home.path().join("ws").canonicalize().unwrap();
    let open = async || {
        let mut read = ledger.read().await.unwrap();
        revision::pending(&mut read, root.to_str().unwrap(), None).await.unwrap().len()
    };
    assert_eq!(open().await, 0);
    // A change that is left open while the server runs is settled before a view is read.
    leave_open(home.path(), "ws", event, "b", b"b").await;
    assert_eq!(open().await, 1);
    let mut reader = client(next, Era::Legacy).await;
    let page = done(&mut reader, "get_timeline", json!({ "session_id": session })).await;
    let settled: Vec<_> = page["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["type"] == "file_settled")
        .map(|event| (event["subject"].as_str().unwrap(), event["details"]["outcome"].as_str().unwrap()))
        .collect();
    assert_eq!((settled, open().await), (vec![("a", "done"), ("b", "failed")], 0));
}

#[tokio::test]
async fn a_workspace_that_moved_is_recognised_by_its_files() {
    let home = tempfile::tempdir().unwrap();
    let mut before = client(shared(home.path(), "old"), Era::Legacy).await;
    let create = json!({ "path": "a.txt", "action": "create", "content": "one\n" });
    let made = done(&mut before, "file_op", create).await;
    before.close().await.unwrap();
    std::fs::rename(home.path().join("old"), home.path().join("new")).unwrap();
    let mut after = client(shared(home.path(), "new"), Era::Legacy).await;
    let edit = json!({ "path": "a.txt", "action": "edit", "content": "two\n" });
    let edited = done(&mut after, "file_op", edit).await;
    assert_eq!((&edited["before_hash"], &edited["changed_by_others"]), (&made["after_hash"], &json!(false)));
    let evolution = done(&mut after, "get_evolution", json!({ "path": "a.txt" })).await;
    assert_eq!(evolution["total"], 2, "one life: {evolution}");
    assert!(evolution["moved_from"][0].as_str().unwrap().ends_with("/old"), "{evolution}");
    let earlier = json!({ "path": "a.txt", "session_id": made["session_id"] });
    assert_eq!(done(&mut after, "get_evolution", earlier).await["total"], 2);
}
