//! A resource is followed once for all clients of a connection, and for as long as one of them wants it.

use serde_json::{Value, json};

use super::*;
use crate::gateway::stage::{ScriptedBackend, Stage};

const URI: &str = "note:///1";

fn notes(method: &str, params: &Value) -> Option<Value> {
    match method {
        "tools/list" => Some(json!({ "tools": [] })),
        "resources/list" => Some(
            json!({ "resources": [{ "name": "1", "uri": URI }, { "name": "2", "uri": "note:///refused" }] }),
        ),
        "resources/subscribe" if params["uri"] == URI => Some(json!({})),
        "resources/unsubscribe" => Some(json!({})),
        _ => None,
    }
}

async fn ask(stage: &Stage, session: &Arc<Session>, method: &str, uri: &str) -> Value {
    stage.answer(stage.legacy(session, method, &json!({ "uri": uri }))).await
}

/// Returns how often the backend was asked to begin and to end a subscription, once it has what was sent before.
async fn received(stage: &Stage, session: &Arc<Session>) -> (usize, usize) {
    for _ in 0..2 {
        stage.answer(stage.legacy(session, "tools/list", &json!({}))).await;
    }
    let count = |method| stage.params_received("one", method).len();
    (count("resources/subscribe"), count("resources/unsubscribe"))
}

#[tokio::test]
async fn clients_of_a_shared_connection_share_one_subscription() {
    let stage = Stage::with(&[ScriptedBackend::new("one", notes).shared()]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    for session in [&alice, &bob, &alice] {
        assert_eq!(ask(&stage, session, "resources/subscribe", URI).await["result"], json!({}));
    }
    assert_eq!(received(&stage, &alice).await, (1, 0));
    ask(&stage, &alice, "resources/unsubscribe", URI).await;
    ask(&stage, &alice, "resources/unsubscribe", URI).await;
    assert_eq!(received(&stage, &alice).await, (1, 0), "bob still wants it");
    stage.gateway.close_session(&bob.id, "he left");
    assert_eq!(received(&stage, &alice).await, (1, 1));
    assert!(lock(&stage.gateway.listeners.followed).is_empty());
}

#[tokio::test]
async fn clients_with_connections_of_their_own_have_subscriptions_of_their_own() {
    let stage = Stage::new(&[("one", notes)]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    for session in [&alice, &bob] {
        ask(&stage, session, "resources/subscribe", URI).await;
    }
    assert_eq!(received(&stage, &alice).await, (2, 0));
    ask(&stage, &alice, "resources/unsubscribe", URI).await;
    assert_eq!(received(&stage, &alice).await, (2, 1));
    assert!(lock(&bob.subscriptions).contains_key(URI));
}

#[tokio::test]
async fn a_subscription_that_fails_leaves_nothing_behind() {
    let stage = Stage::with(&[
        ScriptedBackend::new("one", notes).shared(),
        // With a second backend that has resources, what nobody lists belongs to none.
        ScriptedBackend::new("two", |_, _| None).shared(),
    ]);
    let alice = stage.gateway.open_session("alice");
    let used = alice.account.used();
    let refused = ask(&stage, &alice, "resources/subscribe", "note:///refused").await;
    assert_eq!(refused["error"]["message"], "no such method", "the backend's own error");
    let unknown = ask(&stage, &alice, "resources/subscribe", "note:///unknown").await;
    assert_eq!(unknown["error"]["code"], code::RESOURCE_NOT_FOUND);
    let unnamed = stage.answer(stage.legacy(&alice, "resources/subscribe", &json!({}))).await;
    assert_eq!(unnamed["error"]["code"], code::INVALID_PARAMS);
    assert!(lock(&alice.subscriptions).is_empty());
    assert!(lock(&stage.gateway.listeners.followed).is_empty());
    assert_eq!(alice.account.used(), used, "its memory is free again");
}

#[test]
fn a_listener_gets_a_notification_under_its_own_subscription() {
    let check = |params: Option<&str>, expected: &str| {
        let line = message::notification("notifications/x", params);
        let expected = message::notification("notifications/x", Some(expected));
        assert_eq!(under_subscription("notifications/x", &line, "\"l\""), expected);
    };
    const OWN: &str = r#""io.modelcontextprotocol/subscriptionId":"l""#;
    check(None, &format!(r#"{{"_meta":{{{OWN}}}}}"#));
    check(Some(r#"{ "n":1.0}"#), &format!(r#"{{"_meta":{{{OWN}}}, "n":1.0}}"#));
    check(Some(r#"{"_meta":{"x": 1}}"#), &format!(r#"{{"_meta":{{{OWN},"x": 1}}}}"#));
    check(
        Some(r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7}, "n":1.0}"#),
        &format!(r#"{{"_meta":{{{OWN}}}, "n":1.0}}"#),
    );
}
