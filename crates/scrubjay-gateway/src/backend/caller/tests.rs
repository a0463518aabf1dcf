//! A toolset gets the caller from the gateway, whatever the client wrote in its place.

use super::*;
use crate::gateway::stage::Stage;

#[tokio::test]
async fn a_caller_that_the_client_made_up_is_replaced_wherever_it_stands() {
    let stage = Stage::new(&[]);
    let session = stage.gateway.open_session("alice");
    let call = stage.legacy(&session, "tools/call", &json!({})).call.clone();
    let own = caller(&call).to_string();
    let check = |params: Option<&str>, expected: &str| {
        let expected = expected.replace("OWN", &own);
        assert_eq!(with_caller(&call, params).as_deref(), Some(expected.as_str()), "{params:?}");
    };
    check(None, r#"{"_meta":{"scrubjay/caller":OWN}}"#);
    check(Some("null"), r#"{"_meta":{"scrubjay/caller":OWN}}"#);
    check(Some(r#"{ "n":1.0}"#), r#"{"_meta":{"scrubjay/caller":OWN}, "n":1.0}"#);
    check(Some(r#"{"_meta":{"x": 1}}"#), r#"{"_meta":{"scrubjay/caller":OWN,"x": 1}}"#);
    check(
        Some(r#"{"_meta":{"scrubjay/caller":{"session":"bob's"}, "x":1}}"#),
        r#"{"_meta":{"scrubjay/caller":OWN, "x":1}}"#,
    );
    check(
        Some(r#"{"_meta":{"scrubjay/caller":1,"scrubjay/caller":2}}"#),
        r#"{"_meta":{"scrubjay/caller":OWN,"scrubjay/caller":OWN}}"#,
    );
    check(
        Some(r#"{"_meta":{"scrubjay/caller":1},"name":"x","_meta":{"scrubjay/caller":2}}"#),
        r#"{"_meta":{"scrubjay/caller":OWN},"name":"x","_meta":{"scrubjay/caller":OWN}}"#,
    );
    check(
        Some(r#"{"_meta":{},"_meta":{"scrubjay/caller":2}}"#),
        r#"{"_meta":{"scrubjay/caller":OWN},"_meta":{"scrubjay/caller":OWN}}"#,
    );
    check(
        Some(r#"{"\u005fmeta":{"scrubjay\/calle\u0072":1}}"#),
        r#"{"\u005fmeta":{"scrubjay\/calle\u0072":OWN}}"#,
    );
    check(Some(r#"{"_meta":7,"n":1}"#), r#"{"_meta":{"scrubjay/caller":OWN},"n":1}"#);
    check(Some(r#"{"_meta":null}"#), r#"{"_meta":{"scrubjay/caller":OWN}}"#);
}

#[tokio::test]
async fn each_client_has_a_connection_of_its_own_from_which_its_handle_cannot_be_derived() {
    let stage = Stage::new(&[]);
    let caller_of = |name: &str| -> (Value, String) {
        let session = stage.gateway.open_session(name);
        let call = stage.legacy(&session, "tools/call", &json!({})).call.clone();
        (caller(&call), session.id.clone())
    };
    let ((alice, handle), (bob, _)) = (caller_of("alice"), caller_of("bob"));
    assert_ne!(alice["connection"], bob["connection"]);
    assert!(!alice.to_string().contains(&handle), "{alice}");
    assert_eq!(alice["client"], Value::Null, "it gave no name");
    assert!(
        alice["tape"].is_string() && alice["entry"].is_number(),
        "where its request is recorded: {alice}"
    );
}
