//! What all tools have in common: they are listed and described, and change the tick as the table says.

use serde_json::{Value, json};

use super::peer::TestData;

const TOOLS: [&str; 18] = [
    "activate",
    "close_session",
    "create_project",
    "create_record",
    "get_active_sessions",
    "get_project",
    "get_project_overview",
    "get_recent_activity",
    "get_record_diff",
    "get_record_history",
    "get_record_ref",
    "list_projects",
    "list_records",
    "save_session",
    "search_records",
    "sync_session",
    "transition",
    "update_record",
];

#[tokio::test]
async fn eighteen_tools_are_described() {
    let data = TestData::new();
    let mut peer = data.peer("one").await;
    let answer = peer.ask("tools/list", json!({})).await;
    let tools = answer["result"]["tools"].as_array().unwrap();
    let mut names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, TOOLS);
    for tool in tools {
        assert!(tool["description"].as_str().is_some_and(|text| text.len() > 15), "{tool}");
        assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
        let properties = tool["inputSchema"]["properties"].as_object().unwrap();
        let project =
            ["create_project", "list_projects", "get_project"].contains(&tool["name"].as_str().unwrap());
        assert!(project || properties.contains_key("project_id"), "{tool}");
        for (name, property) in properties {
            assert!(property["description"].is_string() || property["$ref"].is_string(), "{name} of {tool}");
        }
    }
}

#[tokio::test]
async fn each_tool_advances_the_clock_as_documented() {
    let data = TestData::new();
    let mut peer = data.peer("one").await;
    let record = json!({ "type": "t", "title": "t", "summary": "", "body": "" });
    for (tool, arguments, ticks) in [
        ("create_project", json!({ "name": "Other" }), 0),
        ("list_projects", json!({}), 0),
        ("get_project", json!({}), 0),
        ("create_record", record, 1),
        ("get_project_overview", json!({}), 0),
        ("search_records", json!({ "query": "t" }), 0),
        ("list_records", json!({}), 0),
        ("get_record_ref", json!({ "id": "R001" }), 0),
        ("activate", json!({ "id": "R001" }), 0),
        ("sync_session", json!({}), 0),
        ("update_record", json!({ "id": "R001", "title": "T" }), 1),
        ("transition", json!({ "id": "R001", "to_state": "LATER", "reason": "x" }), 1),
        ("save_session", json!({}), 1),
        ("get_record_history", json!({ "id": "R001" }), 0),
        ("get_record_diff", json!({ "id": "R001", "from": "tick:1" }), 0),
        ("get_active_sessions", json!({ "record_id": "R001" }), 0),
        ("get_recent_activity", json!({}), 0),
        ("close_session", json!({}), 0),
    ] {
        let before = peer.tick().await;
        peer.call(tool, arguments).await;
        assert_eq!(peer.tick().await - before, ticks, "{tool}");
    }
}

#[tokio::test]
async fn projects_lists_and_comparisons() {
    let data = TestData::new();
    let mut peer = data.peer("one").await;
    let fish =
        peer.call("create_project", json!({ "id": "fish", "name": "Fish", "description": "Wet." })).await;
    assert_eq!(
        (&fish["name"], &fish["description"], &fish["tick"]),
        (&json!("Fish"), &json!("Wet."), &json!(0))
    );
    let own = peer.call("create_project", json!({ "name": "No id" })).await;
    assert!(own["id"].as_str().unwrap().len() > 8);
    for title in ["a", "b", "c"] {
        peer.create(None, title).await;
    }
    peer.create(Some("R002"), "d").await;
    let there = json!({ "project_id": "fish", "type": "t", "title": "f", "summary": "", "body": "" });
    assert_eq!(peer.call("create_record", there).await["record"]["id"], "R001");
    let projects = peer.call("list_projects", json!({})).await;
    let listed: Vec<_> = projects["projects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| (p["id"].clone(), p["tick"].clone(), p["open_sessions"].clone(), p["open_records"].clone()))
        .collect();
    assert!(listed.contains(&(json!("birds"), json!(4), json!(1), json!(4))), "{listed:?}");
    assert!(listed.contains(&(json!("fish"), json!(1), json!(1), json!(1))), "{listed:?}");

    let mut check = async |arguments: Value, expected: &[&str], total: i64| {
        let list = peer.call("list_records", arguments.clone()).await;
        let ids: Vec<_> =
            list["records"].as_array().unwrap().iter().map(|r| r["id"].as_str().unwrap()).collect();
        assert_eq!((ids.as_slice(), list["total"].as_i64()), (expected, Some(total)), "{arguments}");
    };
    check(json!({}), &["R001", "R002", "R003", "R004"], 4).await;
    check(json!({ "parent_id": null }), &["R001", "R002", "R003"], 3).await;
    check(json!({ "parent_id": null, "depth": 2 }), &["R001", "R002", "R004", "R003"], 4).await;
    check(json!({ "parent_id": "R002" }), &["R004"], 1).await;
    check(json!({ "limit": 2, "after": "R001" }), &["R002", "R003"], 4).await;
    check(json!({ "states": ["LATER"] }), &[], 0).await;
    check(json!({ "types": ["question"], "project_id": "fish" }), &[], 0).await;

    let reference = peer.call("get_record_ref", json!({ "id": "R002" })).await;
    assert_eq!((&reference["children_count"], &reference["open_children_count"]), (&json!(1), &json!(1)));
    peer.call("save_session", json!({})).await;
    peer.call("update_record", json!({ "id": "R001", "title": "A", "body": "one\ntwo\n" })).await;
    peer.call("transition", json!({ "id": "R001", "to_state": "LATER", "reason": "busy" })).await;
    let diff = peer.call("get_record_diff", json!({ "id": "R001", "from": "last_save" })).await;
    assert_eq!((&diff["from_version"]["version"], &diff["to_version"]["version"]), (&json!(1), &json!(3)));
    assert_eq!(diff["diff"]["title"], json!({ "old": "a", "new": "A" }));
    assert_eq!(diff["diff"]["state"], json!({ "old": "OPEN", "new": "LATER" }));
    assert_eq!(diff["diff"]["summary"], Value::Null);
    assert!(diff["diff"]["body"].as_str().unwrap().ends_with("+one\n+two\n"), "{diff}");
    let stamp = diff["from_version"]["modified"].clone();
    let by_time =
        peer.call("get_record_diff", json!({ "id": "R001", "from": stamp, "to": "version:2" })).await;
    assert_eq!((&by_time["from_version"]["version"], &by_time["diff"]["state"]), (&json!(1), &Value::Null));
    let since = peer.call("get_record_history", json!({ "id": "R001", "limit": 1 })).await;
    assert_eq!(since["history"][0]["summary"], "OPEN → LATER: busy");
}
