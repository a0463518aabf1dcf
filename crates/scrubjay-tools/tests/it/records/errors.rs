//! Every error code, caused by a real call, with its hint.

use serde_json::{Value, json};

use super::peer::TestData;

fn check(error: &Value, code: &str, message: &str, hint: &str) {
    assert_eq!(error["code"], code, "{error}");
    assert!(error["message"].as_str().unwrap().contains(message), "{error}");
    assert!(error["recovery_hint"].as_str().unwrap().contains(hint), "{error}");
}

#[tokio::test]
async fn every_error_code_occurs_and_has_a_hint() {
    let data = TestData::new();
    let (mut first, mut second) = (data.peer("one").await, data.peer("two").await);
    first.create(None, "a").await;

    for (tool, arguments) in [
        ("activate", json!({ "id": "R999" })),
        ("activate", json!({ "id": "nonsense'; --" })),
        ("get_record_ref", json!({ "id": "R999" })),
        ("update_record", json!({ "id": "R999", "title": "x" })),
        ("transition", json!({ "id": "R999", "to_state": "OPEN" })),
        ("get_record_history", json!({ "id": "R999" })),
        ("get_record_diff", json!({ "id": "R999", "from": "version:1" })),
        ("get_active_sessions", json!({ "record_id": "R999" })),
        ("get_recent_activity", json!({ "record_id": "R999" })),
        ("list_records", json!({ "parent_id": "R999" })),
        ("search_records", json!({ "query": "x", "parent_id": "R999" })),
        (
            "create_record",
            json!({ "parent_id": "R999", "type": "t", "title": "t", "summary": "", "body": "" }),
        ),
        (
            "create_record",
            json!({ "type": "t", "title": "t", "summary": "", "body": "", "related": ["R999"] }),
        ),
        ("transition", json!({ "id": "R001", "to_state": "RESOLVED", "resolved_by": "R999" })),
    ] {
        let error = first.fail(tool, arguments).await;
        check(&error, "RECORD_NOT_FOUND", "no record has the id", "Check the spelling");
    }
    let error = second.fail("update_record", json!({ "id": "R001", "title": "x" })).await;
    check(&error, "NOT_ACTIVATED", "R001 is not activated", "Call activate with id R001");
    let error = second.fail("transition", json!({ "id": "R001", "to_state": "LATER", "reason": "x" })).await;
    check(&error, "NOT_ACTIVATED", "R001", "activate");
    let child = json!({ "parent_id": "R001", "type": "t", "title": "t", "summary": "", "body": "" });
    let error = second.fail("create_record", child).await;
    check(&error, "PARENT_NOT_ACTIVATED", "R001", "Activate the parent first");

    let error = first.fail("transition", json!({ "id": "R001", "to_state": "OPEN" })).await;
    check(&error, "INVALID_TRANSITION", "from OPEN to OPEN", "can go to LATER, RESOLVED, DISCARDED");
    assert_eq!(error["details"]["valid"], json!(["LATER", "RESOLVED", "DISCARDED"]));
    for (to, missing) in [("LATER", "a reason"), ("DISCARDED", "a reason"), ("RESOLVED", "resolved_by")] {
        let error = first.fail("transition", json!({ "id": "R001", "to_state": to, "reason": " " })).await;
        check(&error, "INVALID_TRANSITION", missing, missing);
    }
    second.call("activate", json!({ "id": "R001" })).await;
    first.call("update_record", json!({ "id": "R001", "body": "new" })).await;
    let error = second.fail("transition", json!({ "id": "R001", "to_state": "LATER", "reason": "x" })).await;
    check(&error, "CONFLICT", "was changed by session", "sync_session");
    assert_eq!(error["details"]["other_version"]["body"], "new");
    let recent = first.call("get_recent_activity", json!({ "types": ["conflict_detected"] })).await;
    assert_eq!(
        recent["activity"].as_array().unwrap().len(),
        1,
        "the conflict is an event although the call failed"
    );

    for tool in ["sync_session", "save_session", "close_session"] {
        let error = first.fail(tool, json!({ "session_id": "gone" })).await;
        check(&error, "SESSION_NOT_FOUND", "\"gone\"", "start one with record_session_start");
    }
    let closed = second.call("close_session", json!({})).await["session_id"].clone();
    let error = second.fail("activate", json!({ "id": "R001", "session_id": closed })).await;
    check(&error, "SESSION_NOT_FOUND", "has ended", "a session of your own");

    let mut parent = "R001".to_owned();
    for _ in 1..32 {
        parent = first.create(Some(&parent), "deeper").await;
    }
    let deepest = json!({ "parent_id": parent, "type": "t", "title": "t", "summary": "", "body": "" });
    let error = first.fail("create_record", deepest).await;
    check(&error, "DEPTH_EXCEEDED", "33 levels deep; 32 are allowed", "Consider flattening");
}

#[tokio::test]
async fn wrong_records_projects_versions_and_times_are_refused() {
    let data = TestData::new();
    let mut peer = data.peer("one").await;
    peer.create(None, "a").await;
    let record =
        |title: &str, body: &str| json!({ "type": "t", "title": title, "summary": "", "body": body });
    let error = peer.fail("create_record", record(" ", "")).await;
    check(&error, "INVALID_RECORD", "title must not be empty", "Nothing was written");
    let error = peer.fail("create_record", record("t", &"x".repeat(100_001))).await;
    check(&error, "INVALID_RECORD", "body has at most 100000 characters", "");
    let error = peer.fail("create_record", record("t", "a\0b")).await;
    check(&error, "INVALID_RECORD", "NUL", "");
    let error = peer.fail("update_record", json!({ "id": "R001" })).await;
    check(&error, "INVALID_RECORD", "nothing to change", "");
    let error = peer.fail("search_records", json!({ "query": "?!" })).await;
    check(&error, "INVALID_RECORD", "words", "");
    let error = peer.fail("get_record_diff", json!({ "id": "R001", "from": "last_save" })).await;
    check(&error, "VERSION_NOT_FOUND", "last_save", "save_session");
    let error = peer.fail("get_record_diff", json!({ "id": "R001", "from": "yesterday" })).await;
    check(&error, "INVALID_VERSION", "yesterday", "2026-01-31T09:00:00Z");
    let error = peer.fail("get_recent_activity", json!({ "since": "noon" })).await;
    check(&error, "INVALID_TIME", "noon", "2026-01-31");
    let error = peer.fail("get_recent_activity", json!({ "types": ["file_edit"] })).await;
    check(&error, "INVALID_TYPE", "file_edit", "record_created");
    for tool in ["get_project_overview", "list_records", "activate", "save_session", "get_record_history"] {
        let error = peer.fail(tool, json!({ "project_id": "fish", "id": "R001" })).await;
        check(&error, "PROJECT_NOT_FOUND", "fish", "create_project");
    }
    peer.call("create_project", json!({ "id": "fish", "name": "Fish" })).await;
    let error = peer.fail("create_project", json!({ "id": "fish", "name": "Fish" })).await;
    check(&error, "PROJECT_EXISTS", "fish", "project_id");
    let error = peer.fail("create_project", json!({ "id": "a\nb", "name": "Fish" })).await;
    check(&error, "INVALID_PROJECT", "id", "");
    // Each argument has one name, so that a rule about it cannot be bypassed with another.
    let error = peer.fail("get_project", json!({ "project_id": "fish" })).await;
    check(&error, "INVALID_ARGUMENT", "project_id is no argument of this tool: it takes id", "");
    let error = peer.fail("create_project", json!({ "project_id": "wet", "name": "Wet" })).await;
    check(&error, "INVALID_ARGUMENT", "project_id is no argument of this tool: it takes", "");
    let error = peer.fail("get_active_sessions", json!({ "id": "R001" })).await;
    check(&error, "INVALID_ARGUMENT", "record_id is required", "");
    let session = peer.call("sync_session", json!({})).await["session_id"].clone();
    let error = peer.fail("sync_session", json!({ "session_id": session, "project_id": "fish" })).await;
    check(&error, "SESSION_IN_OTHER_PROJECT", "birds", "");
    let wrong = peer.fail("transition", json!({ "id": "R001", "to_state": "GONE" })).await;
    let states = "to_state must be one of OPEN, LATER, RESOLVED, DISCARDED, not \"GONE\"";
    check(&wrong, "INVALID_ARGUMENT", states, "call again");
    assert_eq!(wrong["details"]["problems"][0]["allowed"], json!(["OPEN", "LATER", "RESOLVED", "DISCARDED"]));
    assert_eq!(peer.tick().await, 1, "nothing of all this was written");
}
