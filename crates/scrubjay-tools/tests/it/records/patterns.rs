//! The four ways to work with records, step by step, with two clients at once.

use serde_json::{Value, json};

use super::peer::{Peer, TestData, without};

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|r| r["id"].as_str().unwrap()).collect()
}

fn kinds(activity: &Value) -> Vec<&str> {
    activity.as_array().unwrap().iter().map(|a| a["type"].as_str().unwrap()).collect()
}

/// Continue existing work: overview, activate, update, create below, save, close.
#[tokio::test]
async fn existing_work_can_be_continued() {
    let data = TestData::new();
    let mut before = data.peer("before").await;
    before.create(None, "Which nest?").await;
    before.create(Some("R001"), "Which tree?").await;
    before.call("close_session", json!({ "summary": "asked" })).await;

    let mut peer = data.peer("now").await;
    let overview = peer.call("get_project_overview", json!({})).await;
    assert_eq!(overview["project"]["id"], "birds");
    assert_eq!((&overview["project"]["tick"], &overview["open_sessions"]), (&json!(2), &json!([])));
    assert_eq!(ids(&overview["root_records"]), ["R001"]);
    assert_eq!(ids(&overview["open_records"]), ["R002", "R001"]);
    assert_eq!(overview["later_records"], json!([]));
    let activity = kinds(&overview["recent_activity"]);
    assert_eq!(activity, ["session_closed", "record_created", "record_created", "session_started"]);

    let activated = peer.call("activate", json!({ "id": "R1" })).await;
    assert_eq!((&activated["already_loaded"], &activated["conflict"]), (&json!(false), &Value::Null));
    let target = without(activated["context"]["target"].clone(), &["created", "modified"]);
    assert_eq!(
        target,
        json!({ "id": "R001", "type": "question", "title": "Which nest?", "summary": "About Which nest?.",
            "body": "All about Which nest?.", "state": "OPEN", "parent_id": null, "version": 1 })
    );
    assert_eq!(activated["context"]["children"]["open"][0]["body"], "All about Which tree?.");
    assert_eq!(activated["context"]["parent"], Value::Null);
    let session = activated["session_id"].as_str().unwrap().to_owned();

    let updated = peer.call("update_record", json!({ "id": "R001", "body": "An old nest." })).await;
    assert_eq!(
        (&updated["record"]["body"], &updated["record"]["version"]),
        (&json!("An old nest."), &json!(2))
    );
    assert_eq!((&updated["written"], &updated["conflict"]), (&json!(true), &Value::Null));
    let created = json!({ "parent_id": "R001", "type": "conclusion", "title": "The old one",
        "summary": "It is free.", "body": "Nobody is in it.", "related": ["R002"],
        "metadata": { "confidence": 0.8 } });
    let created = peer.call("create_record", created).await;
    let record = without(created["record"].clone(), &["created", "modified"]);
    assert_eq!(
        record,
        json!({ "id": "R003", "type": "conclusion", "title": "The old one", "summary": "It is free.",
            "body": "Nobody is in it.", "state": "OPEN", "parent_id": "R001", "related": ["R002"],
            "metadata": { "confidence": 0.8 }, "version": 1 })
    );
    assert_eq!((&created["auto_activated"], &created["tick"]), (&json!(true), &json!(4)));

    let saved = peer.call("save_session", json!({ "summary": "found one" })).await;
    assert_eq!((&saved["success"], &saved["saved_records"]), (&json!(true), &json!(["R001", "R003"])));
    let resolved = json!({ "id": "R001", "to_state": "RESOLVED", "resolved_by": "R003" });
    let resolved = peer.call("transition", resolved).await;
    assert_eq!(
        (&resolved["record"]["state"], &resolved["record"]["resolved_by"]),
        (&json!("RESOLVED"), &json!("R003"))
    );
    assert_eq!(ids(&resolved["cascade_warning"]["open_children"]), ["R002", "R003"]);
    let closed = peer.call("close_session", json!({})).await;
    assert_eq!(closed["deactivated_records"], json!(["R001", "R003"]));
    assert!(closed["unsaved_warning"].as_str().unwrap().contains("R001"), "{closed}");
    assert_eq!(closed["session_id"], json!(session));
    assert_eq!(peer.call("get_active_sessions", json!({ "record_id": "R001" })).await["sessions"], json!([]));
}

/// Start a new topic: it does not exist yet, so it is created, with children.
#[tokio::test]
async fn a_new_topic_can_be_started() {
    let data = TestData::new();
    let mut peer = data.peer("now").await;
    let overview = peer.call("get_project_overview", json!({})).await;
    assert_eq!((&overview["totals"]["records"], &overview["root_records"]), (&json!(0), &json!([])));
    assert_eq!(peer.call("search_records", json!({ "query": "migration" })).await["total"], 0);
    let root = peer.create(None, "Migration").await;
    assert_eq!(root, "R001");
    let child = peer.create(Some(&root), "When?").await;
    let grandchild = peer.create(Some(&child), "In autumn?").await;
    assert_eq!(grandchild, "R003");
    let found = peer.call("search_records", json!({ "query": "migration", "states": ["OPEN"] })).await;
    assert_eq!((&found["total"], &found["results"][0]["id"]), (&json!(1), &json!("R001")));
    assert_eq!((&found["results"][0]["relevance"], &found["matched"]), (&json!(1.0), &json!("all")));
    assert_eq!(found["results"][0]["snippet"], "All about **Migration**.");
    let again = peer.call("activate", json!({ "id": "R001" })).await;
    assert_eq!(again["already_loaded"], true);
    assert_eq!(ids(&again["context"]["grandchildren"]), ["R003"]);
    let saved = peer.call("save_session", json!({})).await;
    assert_eq!((&saved["saved_records"], &saved["tick"]), (&json!(["R001", "R002", "R003"]), &json!(4)));
    let closed = peer.call("close_session", json!({})).await;
    assert_eq!((&closed["success"], &closed["unsaved_warning"]), (&json!(true), &Value::Null));
}

/// A new chat for a subtopic, while the first goes on; the first then sees what was done.
#[tokio::test]
async fn a_subtopic_can_get_a_new_chat() {
    let data = TestData::new();
    let (mut first, mut second) = (data.peer("one").await, data.peer("two").await);
    first.create(None, "Topic").await;
    first.create(Some("R001"), "Subtopic").await;
    let activated = second.call("activate", json!({ "id": "R002" })).await;
    assert_eq!(activated["context"]["parent"]["body"], "All about Topic.");
    let s1 = first.call("activate", json!({ "id": "R001" })).await["session_id"].clone();
    assert_eq!(activated["conflict"]["session_id"], s1, "the first has it active since it made it");
    let s2 = activated["session_id"].clone();
    second.call("update_record", json!({ "id": "R002", "summary": "Deep.", "title": "Subtopic!" })).await;
    second.create(Some("R002"), "Answer").await;
    let resolved =
        json!({ "id": "R002", "to_state": "RESOLVED", "resolved_by": "R003", "reason": "answered" });
    second.call("transition", resolved).await;
    second.call("close_session", json!({ "summary": "done" })).await;

    let synced = first.call("sync_session", json!({})).await;
    let synced = without(synced, &["session_id"]);
    let change = |record: &str, kind: &str, tick: i64, old: Value, new: Value| {
        let mut change = json!({ "record_id": record, "change_type": kind, "new_value": new,
            "by_session": s2, "at_tick": tick });
        if !old.is_null() {
            change["old_value"] = old;
        }
        change
    };
    let mut last = change(
        "R002",
        "state_changed",
        5,
        json!({ "state": "OPEN", "resolved_by": null }),
        json!({ "state": "RESOLVED", "resolved_by": "R003" }),
    );
    last["reason"] = json!("answered");
    assert_eq!(
        synced,
        json!({
            "project_tick": 5, "session_tick_before": 2, "tick_gap": 3, "session_status": "active",
            "more": false, "relevance": { "active": 2, "parents": 0, "children": 1, "elsewhere": 0 },
            "warning": "3 writes occurred since your last sync; 3 by other sessions, 3 of them on your active \
                        records, their parents or children",
            "changes": [
                change("R002", "modified", 3,
                    json!({ "title": "Subtopic", "summary": "About Subtopic." }),
                    json!({ "title": "Subtopic!", "summary": "Deep." })),
                change("R003", "created", 4, Value::Null,
                    json!({ "type": "question", "title": "Answer", "summary": "About Answer.",
                        "body": "All about Answer.", "state": "OPEN" })),
                last,
            ],
        })
    );
    let again = first.call("sync_session", json!({})).await;
    assert_eq!(
        (&again["tick_gap"], &again["changes"], &again["warning"]),
        (&json!(0), &json!([]), &Value::Null)
    );
    let shown = first.call("activate", json!({ "id": "R002" })).await;
    assert_eq!(shown["changed"]["fields"], json!(["title", "summary", "state", "resolved_by"]));
    assert_eq!((&shown["changed"]["from_version"], &shown["changed"]["to_version"]), (&json!(1), &json!(3)));
    assert_eq!((&shown["changed"]["by_session"], &shown["conflict"]), (&s2, &Value::Null));
    assert_eq!(shown["changed"]["around"], json!(["R003"]));
}

/// Two sessions change one record; the second decides, after it has seen both versions.
#[tokio::test]
async fn conflicts_can_be_resolved() {
    let data = TestData::new();
    let (mut first, mut second) = (data.peer("one").await, data.peer("two").await);
    first.create(None, "Shared").await;
    let seen = second.call("activate", json!({ "id": "R001" })).await;
    let s2 = seen["session_id"].clone();
    let s1 = seen["conflict"]["session_id"].clone();
    assert!(seen["conflict"]["message"].as_str().unwrap().contains(s1.as_str().unwrap()));
    assert_eq!(seen["context"]["warnings"][0]["type"], "conflict");
    let quiet = second.call("activate", json!({ "id": "R001", "override": true })).await;
    assert_eq!((&quiet["conflict"], &quiet["already_loaded"]), (&Value::Null, &json!(true)));
    let both = second.call("get_active_sessions", json!({ "record_id": "R001" })).await;
    let mut current: Vec<_> = both["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| (s["session_id"].clone(), s["is_current"].clone()))
        .collect();
    current.sort_by_key(|(_, is_current)| is_current.as_bool());
    assert_eq!(current, [(s1.clone(), json!(false)), (s2.clone(), json!(true))]);

    first.call("update_record", json!({ "id": "R001", "body": "version A" })).await;
    let conflict = second.call("update_record", json!({ "id": "R001", "body": "version B" })).await;
    assert_eq!(conflict["written"], false);
    assert_eq!(conflict["conflict"]["other_version"]["body"], "version A");
    assert_eq!(
        (&conflict["conflict"]["by_session"], &conflict["conflict"]["activated_version"]),
        (&s1, &json!(1))
    );
    assert_eq!(conflict["record"]["body"], "version A", "nothing was written");
    assert_eq!(second.tick().await, 2);
    let touching =
        second.call("update_record", json!({ "id": "R001", "body": "version B", "merge": true })).await;
    assert_eq!((&touching["written"], &touching["conflict"]["fields"]), (&json!(false), &json!(["body"])));
    let forced = json!({ "id": "R001", "body": "merged version", "force": true });
    let forced = second.call("update_record", forced).await;
    assert_eq!(
        (&forced["record"]["body"], &forced["record"]["version"]),
        (&json!("merged version"), &json!(3))
    );
    assert_eq!((&forced["overridden_session"], &forced["conflict"]), (&s1, &Value::Null));
    let merged = json!({ "id": "R001", "title": "Shared!", "merge": true });
    let merged = first.call("update_record", merged).await;
    assert_eq!((&merged["merged"], &merged["record"]["body"]), (&json!(["body"]), &json!("merged version")));
    assert_eq!((&merged["record"]["title"], &merged["record"]["version"]), (&json!("Shared!"), &json!(4)));

    check_what_was_recorded(&mut first, &s2).await;
}

/// The timeline and the history show both versions and who decided.
async fn check_what_was_recorded(first: &mut Peer, s2: &Value) {
    let recent = first.call("get_recent_activity", json!({ "record_id": "R001" })).await;
    let mut names = kinds(&recent["activity"]);
    names.reverse();
    assert_eq!(
        names,
        [
            "record_created",
            "activation",
            "activation",
            "record_updated",
            "conflict_detected",
            "conflict_detected",
            "conflict_resolved",
            "record_updated",
            "record_updated"
        ]
    );
    let resolved = first.call("get_recent_activity", json!({ "types": ["conflict_resolved"] })).await;
    assert_eq!(&resolved["activity"][0]["session_id"], s2);
    assert_eq!(resolved["activity"][0]["record_id"], "R001");
    let history = first.call("get_record_history", json!({ "id": "R001" })).await;
    let versions: Vec<_> = history["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| (v["version"].clone(), v["summary"].clone()))
        .collect();
    assert_eq!(
        versions,
        [
            (json!(4), json!("changed title")),
            (json!(3), json!("changed body")),
            (json!(2), json!("changed body")),
            (json!(1), json!("created: Shared"))
        ]
    );
    let diff = "--- R001@2\n+++ R001@3\n@@ -1 +1 @@\n-version A\n\\ No newline at end of file\n+merged version\n\\ No newline at end of file\n";
    assert_eq!(history["history"][1]["diff"], diff);
}
