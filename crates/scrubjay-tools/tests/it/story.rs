//! The views of the `recorder` toolset as a client meets them: a story with narratives by a model, and subscriptions to
//! a timeline.

use std::path::Path;
use std::sync::Arc;

use scrubjay_core::redact::Redactor;
use scrubjay_llm::scripted::{ScriptedAnswer, ScriptedEndpoint};
use scrubjay_llm::{LlmConfig, Secret};
use scrubjay_store::ledger::Storage;
use scrubjay_tools::{Setup, Shared, serve_recorder};
use serde_json::{Value, json};

use crate::client::{Client, Era};

async fn client(home: &Path, era: Era, llm: Option<LlmConfig>) -> Client {
    std::fs::create_dir_all(home.join("ws")).unwrap();
    let shared = Arc::new(Shared::new(Setup {
        storage: Storage::File(home.join("data/ledger.db")),
        redactor: Arc::new(Redactor::standard()),
        project: "birds".to_owned(),
        workspace: home.join("ws"),
        allow_vcs: false,
        file_bytes_max: 1 << 20,
        home: scrubjay_tape::home::Home::new(home.join("data")),
        locks: home.join("locks"),
        llm,
        stale_after_ticks: 20,
    }));
    let mut client = Client::connect_to(era, |reader, writer| serve_recorder(shared, reader, writer));
    client.greet().await;
    client
}

async fn work(client: &mut Client) -> String {
    let started = client.call("record_session_start", json!({ "title": "Count" })).await;
    client.call("record_plan", json!({ "steps": ["Look", "Tell"] })).await;
    let file = json!({ "path": "seen.txt", "action": "create", "content": "two jays\n" });
    client.call("file_op", file).await;
    let edit = json!({ "path": "seen.txt", "action": "edit", "content": "three jays\n" });
    client.call("file_op", edit).await;
    client.call("audit_event", json!({ "type": "decision", "description": "Only jays count." })).await;
    started["structuredContent"]["session_id"].as_str().unwrap().to_owned()
}

fn data(answer: &Value) -> &Value {
    &answer["structuredContent"]
}

#[tokio::test]
async fn a_narrative_is_requested_once_for_each_state_of_a_step() {
    let home = tempfile::tempdir().unwrap();
    let model = ScriptedEndpoint::answering([
        ScriptedAnswer::text("Jays were counted."),
        ScriptedAnswer::text("They were told."),
    ])
    .await;
    let llm = LlmConfig { api_key: Some(Secret::new("sk-x")), base_url: model.url(), ..LlmConfig::default() };
    let mut client = client(home.path(), Era::Legacy, Some(llm)).await;
    let id = work(&mut client).await;
    let story = client.call("get_story", json!({})).await;
    let chapter = |story: &Value| data(story)["chapters"].as_array().unwrap()[1].clone();
    assert_eq!(chapter(&story)["narrative"], "Jays were counted.");
    assert_eq!(chapter(&story)["iterations"][0]["revisions"], 2, "small edits are one iteration");
    assert_eq!(chapter(&story)["decisions"][0]["text"], "Only jays count.");
    assert!(model.asked()[0].last_text().contains("created seen.txt"));
    let again = client.call("get_story", json!({ "session_id": id })).await;
    assert_eq!((chapter(&again), model.asked().len()), (chapter(&story), 1), "the narrative is stored");
    client.call("audit_event", json!({ "type": "note", "description": "A fourth came." })).await;
    let shown =
        client.ask("resources/read", json!({ "uri": format!("scrubjay://sessions/{id}/story") })).await;
    let text = shown["result"]["contents"][0]["text"].as_str().unwrap();
    assert!(text.contains("They were told.") && text.contains("A fourth came."), "{text}");
}

#[tokio::test]
async fn without_a_model_the_story_has_no_narratives() {
    let home = tempfile::tempdir().unwrap();
    let mut client = client(home.path(), Era::Legacy, None).await;
    work(&mut client).await;
    let story = client.call("get_story", json!({})).await;
    assert_eq!(data(&story)["totals"]["files"], 1);
    assert!(story["content"][0]["text"].as_str().unwrap().contains("decision: Only jays count."));
}

#[tokio::test]
async fn pages_and_files_are_read_by_uri() {
    let home = tempfile::tempdir().unwrap();
    let mut client = client(home.path(), Era::Modern, None).await;
    let id = work(&mut client).await;
    let read = async |client: &mut Client, rest: &str| -> Value {
        let uri = format!("scrubjay://sessions/{id}/{rest}");
        let answer = client.ask("resources/read", json!({ "uri": uri })).await;
        serde_json::from_str(answer["result"]["contents"][0]["text"].as_str().unwrap()).unwrap()
    };
    let first = read(&mut client, "timeline?limit=4").await;
    let next = first["next_after"].as_i64().unwrap();
    let rest = read(&mut client, &format!("timeline?after={next}")).await;
    let count = |page: &Value| page["events"].as_array().unwrap().len();
    assert_eq!((count(&first), count(&first) + count(&rest)), (4, first["total"].as_u64().unwrap() as usize));
    let file = read(&mut client, "evolution/seen.txt").await;
    let diff = file["revisions"][1]["diff"].as_str().unwrap();
    assert_eq!(diff, "--- a/seen.txt\n+++ b/seen.txt\n@@ -1 +1 @@\n-two jays\n+three jays\n");
    let step = json!({ "number": "1", "index": 0, "plan": 1, "text": "Look" });
    assert_eq!(file["revisions"][1]["step"], step);
    let unknown = client.ask("resources/read", json!({ "uri": "scrubjay://sessions/nobody/story" })).await;
    assert!(unknown["error"]["message"].as_str().unwrap().contains("no session"), "{unknown}");
}

#[tokio::test]
async fn a_subscriber_of_a_timeline_is_notified_of_changes() {
    let home = tempfile::tempdir().unwrap();
    let mut follower = client(home.path(), Era::Legacy, None).await;
    let id = work(&mut follower).await;
    let uri = format!("scrubjay://sessions/{id}/timeline");
    follower.ask("resources/subscribe", json!({ "uri": uri })).await;
    // Acts as another process: it opened the ledger by itself.
    let mut other = client(home.path(), Era::Legacy, None).await;
    let note = json!({ "type": "note", "description": "from elsewhere", "session_id": id });
    other.call("audit_event", note).await;
    let received = follower.receive().await;
    assert_eq!(received["method"], "notifications/resources/updated");
    assert_eq!(received["params"]["uri"], uri);
}

#[tokio::test]
async fn a_modern_client_is_notified_of_changes_and_new_sessions() {
    let home = tempfile::tempdir().unwrap();
    let mut follower = client(home.path(), Era::Modern, None).await;
    let id = work(&mut follower).await;
    let uri = format!("scrubjay://sessions/{id}/timeline");
    let wanted = json!({ "resourceSubscriptions": [uri], "resourcesListChanged": true });
    follower.send_request("subscriptions/listen", json!({ "notifications": wanted })).await;
    assert_eq!(follower.receive().await["method"], "notifications/subscriptions/acknowledged");
    let mut other = client(home.path(), Era::Legacy, None).await;
    let note = json!({ "type": "note", "description": "from elsewhere", "session_id": id });
    other.call("audit_event", note).await;
    let received = follower.receive().await;
    assert_eq!(
        (&received["method"], &received["params"]["uri"]),
        (&json!("notifications/resources/updated"), &json!(uri))
    );
    other.call("record_session_start", json!({ "title": "Another" })).await;
    assert_eq!(follower.receive().await["method"], "notifications/resources/list_changed");
}

#[tokio::test]
async fn content_is_given_whole_as_edits_or_as_base64_and_checked_against_the_expected_hash() {
    let home = tempfile::tempdir().unwrap();
    let mut client = client(home.path(), Era::Legacy, None).await;
    let disk = |name: &str| std::fs::read(home.path().join("ws").join(name)).unwrap();
    let bytes = json!({ "path": "a.bin", "action": "create", "content": "AP8K", "encoding": "base64" });
    let made = client.call("file_op", bytes).await;
    assert_eq!(disk("a.bin"), [0, 255, 10]);
    let hash = data(&made)["after_hash"].clone();
    let edit = |content: &str, expected: &Value| json!({ "path": "a.bin", "action": "edit", "content": content, "expected_hash": expected });
    client.call("file_op", edit("one two\n", &hash)).await;
    let lost = client.call("file_op", edit("three\n", &hash)).await;
    assert_eq!((&lost["isError"], &data(&lost)["error"]["code"]), (&json!(true), &json!("CONFLICT")));
    let edits = json!([{ "old_text": "two", "new_text": "2" }]);
    client.call("file_op", json!({ "path": "a.bin", "action": "edit", "edits": edits })).await;
    assert_eq!(disk("a.bin"), b"one 2\n");
    let same =
        client.call("file_op", json!({ "path": "a.bin", "action": "edit", "content": "one 2\n" })).await;
    assert_eq!((&data(&same)["unchanged"], &data(&same)["size"]), (&json!(true), &json!(6)));
    for (wrong, code) in [
        (json!({ "path": "a.bin", "action": "edit" }), "CONTENT_REQUIRED"),
        (
            json!({ "path": "a.bin", "action": "edit", "content": "!", "encoding": "base64" }),
            "INVALID_CONTENT",
        ),
        (json!({ "path": "a.bin", "action": "edit", "content": "x", "edits": [] }), "INVALID_CONTENT"),
        (json!({ "path": "a.bin", "action": "delete", "expected_hash": "zz" }), "INVALID_HASH"),
    ] {
        assert_eq!(data(&client.call("file_op", wrong).await)["error"]["code"], code);
    }
}
