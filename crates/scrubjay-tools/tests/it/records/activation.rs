//! What an activation returns, which warnings it has, and how it fits into a token limit.

use serde_json::{Value, json};

use super::peer::{STALE_AFTER, TestData};

fn ids(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|r| r["id"].as_str().unwrap()).collect()
}

/// R001 ── R002 (target) ── R004 (open) ── R006
///   └─── R003                └ R005 (later)
async fn family(data: &TestData) -> super::peer::Peer {
    let mut peer = data.peer("one").await;
    peer.create(None, "root").await;
    peer.create(Some("R001"), "target").await;
    peer.create(Some("R001"), "beside").await;
    peer.create(Some("R002"), "open child").await;
    peer.create(Some("R002"), "later child").await;
    peer.create(Some("R004"), "grandchild").await;
    peer.call("transition", json!({ "id": "R005", "to_state": "LATER", "reason": "x" })).await;
    peer
}

#[tokio::test]
async fn a_bundle_follows_the_loading_rules() {
    let data = TestData::new();
    let mut peer = family(&data).await;
    let context = peer.call("activate", json!({ "id": "R002" })).await["context"].clone();
    assert_eq!(context["target"]["body"], "All about target.");
    assert_eq!(context["parent"]["body"], "All about root.");
    assert_eq!(
        (ids(&context["children"]["open"]), &context["children"]["open"][0]["body"]),
        (vec!["R004"], &json!("All about open child."))
    );
    assert_eq!(
        (ids(&context["children"]["other"]), &context["children"]["other"][0]["body"]),
        (vec!["R005"], &Value::Null)
    );
    assert_eq!(
        (ids(&context["grandchildren"]), &context["grandchildren"][0]["body"]),
        (vec!["R006"], &Value::Null)
    );
    for absent in ["siblings", "warnings", "left_out"] {
        assert_eq!(context[absent], Value::Null, "{absent}");
    }
    let text = peer.text("activate", json!({ "id": "R002" })).await;
    for part in
        ["All about target.", "All about root.", "All about open child.", "R005 [LATER]", "R006 [OPEN]"]
    {
        assert!(text.contains(part), "a host that shows only text shows {part}: {text}");
    }
}

#[tokio::test]
async fn a_token_limit_leaves_out_the_least_needed_first() {
    let data = TestData::new();
    let mut peer = family(&data).await;
    let mut last = 0;
    let mut seen = Vec::new();
    for max in [10, 75, 150, 220, 300, 350, 400, 1000] {
        let context =
            peer.call("activate", json!({ "id": "R002", "max_tokens": max })).await["context"].clone();
        let tokens = context["tokens"].as_i64().unwrap();
        assert!(tokens <= max.max(70), "{tokens} of {max}");
        assert!(tokens >= last, "a larger max_tokens must not shorten the answer");
        last = tokens;
        let left: Vec<_> = context["left_out"]
            .as_array()
            .map(|l| l.iter().map(|l| l["what"].as_str().unwrap().to_owned()).collect())
            .unwrap_or_default();
        seen.push(left.len());
        let order = ["target_body", "parent", "open_children", "siblings", "other_children", "grandchildren"];
        let places: Vec<_> = left.iter().map(|what| order.iter().position(|o| o == what).unwrap()).collect();
        assert!(places.is_sorted(), "{left:?}");
    }
    assert_eq!((seen.first(), seen.last()), (Some(&6), Some(&0)), "{seen:?}");
    let context = peer.call("activate", json!({ "id": "R002", "max_tokens": 1000 })).await["context"].clone();
    assert_eq!(ids(&context["siblings"]), ["R003"]);
    let none = peer.call("activate", json!({ "id": "R002", "max_tokens": 0 })).await["context"].clone();
    assert_eq!((&none["target"]["id"], &none["target"]["body"]), (&json!("R002"), &json!("")));
    assert_eq!(none["left_out"][1], json!({ "what": "parent", "count": 1, "ids": ["R001"] }));
}

#[tokio::test]
async fn stale_sessions_and_orphaned_records_cause_warnings() {
    let data = TestData::new();
    let (mut first, mut second) = (data.peer("one").await, data.peer("two").await);
    first.create(None, "root").await;
    first.create(Some("R001"), "child").await;
    second.call("sync_session", json!({})).await;
    for n in 0..=STALE_AFTER {
        let context =
            second.call("activate", json!({ "id": "R002", "override": true })).await["context"].clone();
        assert_eq!(context["warnings"], Value::Null, "{n} writes");
        first.call("update_record", json!({ "id": "R001", "body": format!("{n}") })).await;
    }
    let context = second.call("activate", json!({ "id": "R002", "override": true })).await["context"].clone();
    let warning = &context["warnings"][0];
    assert_eq!(
        (&warning["type"], &warning["details"]["tick_gap"]),
        (&json!("stale"), &json!(STALE_AFTER + 1))
    );
    let overview = first.call("get_project_overview", json!({})).await;
    let mut statuses: Vec<_> = overview["open_sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| (s["tick_gap"].as_i64().unwrap(), s["status"].as_str().unwrap()))
        .collect();
    statuses.sort_unstable();
    assert_eq!(
        statuses,
        [(0, "active"), (STALE_AFTER + 1, "stale")],
        "a writer's own changes must not make it stale"
    );
    let synced = second.call("sync_session", json!({})).await;
    assert_eq!(
        (&synced["session_status"], &synced["relevance"]["parents"]),
        (&json!("stale"), &json!(STALE_AFTER + 1))
    );
    let again = second.call("activate", json!({ "id": "R002", "override": true })).await;
    assert_eq!(again["context"]["warnings"], Value::Null);
    assert_eq!(again["changed"], Value::Null, "nothing changed since the last activation");

    first.call("transition", json!({ "id": "R001", "to_state": "DISCARDED", "reason": "wrong" })).await;
    let again = second.call("activate", json!({ "id": "R002", "override": true })).await;
    let warning = &again["context"]["warnings"][0];
    assert_eq!((&warning["type"], &warning["details"]["parent_id"]), (&json!("orphan"), &json!("R001")));
    assert_eq!(again["changed"]["around"], json!(["R001"]));
    assert_eq!((&again["changed"]["from_version"], &again["changed"]["fields"]), (&json!(1), &json!([])));
}

/// An overview stays small even if many sessions and records are open.
#[tokio::test]
async fn an_overview_is_bounded() {
    let data = TestData::new();
    let mut peer = data.peer("one").await;
    for n in 0..60 {
        peer.create(None, &format!("root {n}")).await;
    }
    let overview = peer.call("get_project_overview", json!({})).await;
    assert_eq!(
        (overview["root_records"].as_array().unwrap().len(), &overview["totals"]["roots"]),
        (50, &json!(60))
    );
    assert_eq!(overview["root_records"][0]["id"], "R060");
    assert_eq!(overview["open_sessions"][0]["active_records"].as_array().unwrap().len(), 50);
    assert_eq!(overview["open_sessions"][0]["active_count"], 60);
    assert_eq!(overview["recent_activity"].as_array().unwrap().len(), 20);
}
