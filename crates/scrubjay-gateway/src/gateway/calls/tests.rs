//! Which backend gets a call, and what it gets: the client's own bytes, and nothing that belongs to another client.

use serde_json::{Value, json};

use super::*;
use crate::gateway::stage::{ScriptedBackend, Stage};

fn echo(method: &str, params: &Value) -> Option<Value> {
    match method {
        "tools/list" => Some(json!({ "tools": [{ "name": "echo", "inputSchema": {} }] })),
        "tools/call" => Some(json!({ "content": [{ "type": "text", "text": params["name"] }] })),
        "extension/method" => Some(json!({ "answered": true })),
        _ => None,
    }
}

/// A server of the modern era that demands input once, with a state of its own.
fn demanding(method: &str, params: &Value) -> Option<Value> {
    match method {
        "tools/call" if params.get("requestState").is_none() => Some(json!({
            "resultType": "input_required", "requestState": "a state",
            "inputRequests": { "q": { "method": "elicitation/create", "params": {} } },
        })),
        "tools/call" => Some(json!({ "resultType": "complete", "content": [] })),
        _ => echo(method, params),
    }
}

#[tokio::test]
async fn clients_that_cannot_be_told_apart_get_no_connection_that_one_client_owns() {
    let check = async |backend: ScriptedBackend, is_served: bool| {
        let stage = Stage::with(&[backend]);
        let session = stage.gateway.open_ambiguous_session("several", "one token");
        let answer = stage.answer(stage.modern(&session, "tools/call", &json!({ "name": "echo" }))).await;
        assert_eq!(answer["result"].is_object(), is_served, "{answer}");
        assert_eq!(stage.params_received("one", "tools/call").len(), usize::from(is_served));
        if !is_served {
            let why = answer["error"]["message"].as_str().expect("a message");
            assert!(why.contains("keeps state for each client"), "{why}");
        }
    };
    let backend = ScriptedBackend::new("one", echo);
    check(backend, false).await;
    check(backend.shared(), true).await;
    check(backend.in_eras(&[Era::Modern]), true).await;
}

#[tokio::test]
async fn of_a_renamed_tool_only_the_name_changes_byte_for_byte() {
    let stage = Stage::new(&[("one", echo), ("two", echo)]);
    let session = stage.gateway.open_session("alice");
    stage.answer(stage.legacy(&session, "tools/list", &json!({}))).await;
    let call = async |params: &str| stage.answer(stage.request(&session, "tools/call", params)).await;
    call(
        r#"{ "arguments" : {"n":1.0, "name":"one__echo","e":1.00}, "n\u0061me" :"one__\u0065cho" , "x":[] }"#,
    )
    .await;
    assert_eq!(
        stage.params_received("one", "tools/call"),
        [r#"{ "arguments" : {"n":1.0, "name":"one__echo","e":1.00}, "n\u0061me" :"echo" , "x":[] }"#]
    );
    assert!(stage.params_received("two", "tools/call").is_empty());
}

#[tokio::test]
async fn a_call_by_a_tools_own_name_is_passed_on_as_it_came() {
    let stage = Stage::new(&[("one", echo)]);
    let session = stage.gateway.open_session("alice");
    let params = r#"{ "name":"\u0065cho" , "arguments" : {"n":1.0}}"#;
    stage.answer(stage.request(&session, "tools/call", params)).await;
    assert_eq!(stage.params_received("one", "tools/call"), [params]);
}

#[tokio::test]
async fn a_method_that_the_gateway_does_not_know_is_passed_on_to_the_only_backend() {
    let check = async |backends: &[ScriptedBackend], served_by: Option<&str>| {
        let stage = Stage::with(backends);
        let session = stage.gateway.open_session("alice");
        let answer = stage.answer(stage.legacy(&session, "extension/method", &json!({}))).await;
        for id in ["one", "two", "own"] {
            let received = stage.params_received(id, "extension/method").len();
            assert_eq!(received, usize::from(served_by == Some(id)), "{id}");
        }
        match served_by {
            Some(_) => assert_eq!(answer["result"]["answered"], true),
            None => assert_eq!(answer["error"]["code"], code::METHOD_NOT_FOUND),
        }
    };
    let backend = |id| ScriptedBackend::new(id, echo);
    check(&[backend("one")], Some("one")).await;
    check(&[backend("one"), backend("two")], None).await;
    check(&[backend("own").own_toolset(), backend("one")], Some("one")).await;
    check(&[backend("own").own_toolset()], None).await;
    check(&[], None).await;
}

#[tokio::test]
async fn a_state_reaches_the_backend_only_from_the_client_that_it_was_given_to() {
    let stage = Stage::with(&[ScriptedBackend::new("one", demanding).in_eras(&[Era::Modern])]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    let first = stage.answer(stage.modern(&alice, "tools/call", &json!({ "name": "echo" }))).await;
    let state = first["result"]["requestState"].as_str().expect("a state").to_owned();
    assert_ne!(state, "a state", "it is sealed");
    let received = || stage.params_received("one", "tools/call").len();
    assert_eq!(received(), 1);
    let back = |state: &str| json!({ "name": "echo", "requestState": state, "inputResponses": {} });
    let Answer::Error(foreign) = foreign_state() else { panic!("it is an error") };
    let foreign: Value = serde_json::from_str(&foreign).expect("an error is JSON");
    for request in [
        stage.modern(&bob, "tools/call", &back(&state)),
        stage.modern(&bob, "tools/call", &back("a state")),
        stage.modern(&alice, "tools/call", &back("a state")),
        stage.legacy(&bob, "tools/call", &back(&state)),
        stage.legacy(&bob, "tools/call", &back("a state")),
    ] {
        assert_eq!(stage.answer(request).await["error"], foreign);
        assert_eq!(received(), 1, "it reached the backend");
    }
    let second = stage.answer(stage.modern(&alice, "tools/call", &back(&state))).await;
    assert_eq!(second["result"]["resultType"], "complete");
    let passed: Value = serde_json::from_str(&stage.params_received("one", "tools/call")[1]).expect("JSON");
    assert_eq!(passed["requestState"], "a state");
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_nobody_has_gets_the_error_code_of_the_clients_era() {
    let stage = Stage::new(&[("one", echo), ("two", echo)]);
    let (alice, bob) = (stage.gateway.open_session("legacy"), stage.gateway.open_session("modern"));
    let params = json!({ "uri": "note:///1" });
    let legacy = stage.answer(stage.legacy(&alice, "resources/read", &params)).await;
    let modern = stage.answer(stage.modern(&bob, "resources/read", &params)).await;
    for (answer, code) in [(legacy, code::RESOURCE_NOT_FOUND), (modern, code::INVALID_PARAMS)] {
        assert_eq!((&answer["error"]["code"], &answer["error"]["data"]), (&json!(code), &params), "{answer}");
    }
}

#[tokio::test]
async fn a_call_without_the_name_it_needs_reaches_no_backend() {
    let stage = Stage::new(&[("one", echo)]);
    let session = stage.gateway.open_session("alice");
    for (method, params) in [
        ("tools/call", r#"{"Name":"echo"}"#),
        ("tools/call", r#"{"name":7}"#),
        ("tools/call", r#"{"name":"unknown"}"#),
        ("prompts/get", "{}"),
        ("resources/read", r#"{"URI":"note:///1"}"#),
        ("completion/complete", r#"{"ref":{}}"#),
        ("logging/setLevel", r#"{"level":"loud"}"#),
    ] {
        let answer = stage.answer(stage.request(&session, method, params)).await;
        assert_eq!(answer["error"]["code"], code::INVALID_PARAMS, "{method} {params}: {answer}");
        assert!(stage.params_received("one", method).is_empty(), "{method} {params}");
    }
}
