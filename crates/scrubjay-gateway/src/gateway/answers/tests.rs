//! Each request gets one answer, whatever happens on the way; the tape has the answer that the client gets.

use scrubjay_core::entry::Direction::ServerToClient;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::budget::{MemoryLimits, MemoryUse};
use crate::config::Naming;
use crate::gateway::stage::{Stage, recordings};
use crate::gateway::{Accepted, TakeOptions};
use crate::relay::Options;
use crate::session::Session;

/// A server that takes every method.
fn takes_all(method: &str, _: &Value) -> Option<Value> {
    match method {
        "tools/list" => Some(json!({ "tools": [{ "name": "echo", "inputSchema": {} }] })),
        _ => Some(json!({ "content": [] })),
    }
}

/// Takes all memory of a session until it is dropped.
fn all_memory(session: &Session) -> Charge {
    let all = session.account.charge(MemoryUse::Call, MemoryLimits::default().session_bytes_max);
    all.expect("an idle session may make one charge of any size")
}

#[tokio::test]
async fn a_request_that_its_client_cancels_has_no_answer() {
    let stage = Stage::new(&[("one", takes_all)]);
    let session = stage.gateway.open_session("alice");
    let request = stage.legacy(&session, "tools/call", &json!({ "name": "echo" }));
    let id = request.id.as_raw();
    let line = format!(r#"{{"method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#);
    assert!(matches!(stage.accept(&session, &line), Accepted::NoReply));
    assert_eq!(stage.gateway.answer(request).await, None);
    assert!(stage.taped("alice", ServerToClient).is_empty());
    assert!(stage.params_received("one", "tools/call").is_empty());
}

#[tokio::test]
async fn another_clients_request_with_the_same_id_is_not_cancelled() {
    let stage = Stage::new(&[("one", takes_all)]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    let request = stage.legacy(&alice, "tools/call", &json!({ "name": "echo" }));
    let id = request.id.as_raw();
    let line = format!(r#"{{"method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#);
    assert!(matches!(stage.accept(&bob, &line), Accepted::NoReply));
    assert!(stage.answer(request).await["result"].is_object());
}

#[tokio::test]
async fn an_answer_that_is_ready_is_sent_even_if_the_request_is_cancelled() {
    let stage = Stage::new(&[]);
    let session = stage.gateway.open_session("alice");
    let request = stage.legacy(&session, "ping", &json!({}));
    request.call.cancel();
    assert_eq!(stage.answer(request).await["result"], json!({}));
}

#[tokio::test]
async fn a_panic_becomes_an_error_answer() {
    let data = tempfile::tempdir().expect("there is a temporary directory");
    let take_options: TakeOptions = Box::new(|_| panic!("as the test wants"));
    let gateway = Gateway::new(
        Naming::WhereNeeded,
        recordings(data.path()),
        Options::default(),
        Some(take_options),
        |_, _| Vec::new(),
    );
    let session = gateway.open_session("alice");
    let (outbox, _lines) = mpsc::channel(1);
    let params = json!({ "protocolVersion": "2025-11-25", "initializationOptions": {} });
    let line = json!({ "jsonrpc": "2.0", "id": "i", "method": "initialize", "params": params }).to_string();
    let Accepted::Request(request) = gateway.accept(&session, &line, &outbox) else {
        panic!("it is accepted")
    };
    let answer = gateway.answer(request).await.expect("there is an answer");
    let answer: Value = serde_json::from_str(&answer).expect("an answer is JSON");
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("i"), &json!(code::INTERNAL)));
    let why = answer["error"]["message"].as_str().expect("a message");
    assert!(!why.contains("as the test wants"), "the reason is in the log: {why}");
    assert!(matches!(gateway.accept(&session, &line, &outbox), Accepted::Request(_)), "its id is free again");
}

#[tokio::test]
async fn methods_of_the_other_era_and_notifications_with_an_id_reach_no_backend() {
    let stage = Stage::new(&[("one", takes_all)]);
    let (legacy, modern) = (stage.gateway.open_session("legacy"), stage.gateway.open_session("modern"));
    // Its only backend gets what the gateway does not know.
    stage.answer(stage.legacy(&legacy, "extension/method", &json!({}))).await;
    stage.answer(stage.modern(&modern, "extension/method", &json!({}))).await;
    assert_eq!(stage.params_received("one", "extension/method").len(), 2);
    let check = async |request: Box<Request>| {
        let method = request.method.clone();
        let before = stage.params_received("one", &method).len();
        let answer = stage.answer(request).await;
        assert_eq!(answer["error"]["code"], code::METHOD_NOT_FOUND, "{method}: {answer}");
        assert_eq!(stage.params_received("one", &method).len(), before, "{method} reached the backend");
    };
    let params = json!({ "uri": "note:///1", "level": "info", "protocolVersion": "2025-11-25" });
    for method in ["subscriptions/listen", "notifications/cancelled", "notifications/x"] {
        check(stage.legacy(&legacy, method, &params)).await;
    }
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "notifications/initialized",
        "notifications/x",
    ] {
        check(stage.modern(&modern, method, &params)).await;
    }
}

#[tokio::test]
async fn params_with_a_key_that_cannot_be_read_reach_no_backend() {
    let stage = Stage::new(&[("one", takes_all)]);
    let session = stage.gateway.open_session("alice");
    for params in [r#"{"name":"echo","\ud800":1}"#, r#"{"name":"echo","_meta":{"\ud800":1}}"#] {
        let answer = stage.answer(stage.request(&session, "tools/call", params)).await;
        assert_eq!(answer["error"]["code"], code::INVALID_PARAMS, "{answer}");
    }
    assert!(stage.params_received("one", "tools/call").is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_memory_for_an_answer_the_tape_has_the_error_that_the_client_gets() {
    let stage = Stage::new(&[("one", takes_all)]);
    let session = stage.gateway.open_session("alice");
    let request = stage.legacy(&session, "ping", &json!({}));
    let all = all_memory(&session);
    let answer = stage.gateway.answer(request).await.expect("nobody calls it off");
    let error: Value = serde_json::from_str(&answer).expect("an answer is JSON");
    assert_eq!(error["error"]["code"], code::INTERNAL, "{answer}");
    assert_eq!(stage.taped("alice", ServerToClient), [answer]);
    let notes = stage.notes("alice");
    assert!(notes.iter().any(|note| note["event"] == "undelivered"), "{notes:?}");
    drop(all);
    let request = stage.legacy(&session, "ping", &json!({}));
    assert_eq!(stage.answer(request).await["result"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn without_memory_the_error_is_queued_on_a_stream_that_carries_other_messages() {
    let stage = Stage::new(&[]);
    let session = stage.gateway.open_session("alice");
    let (outbox, mut lines) = mpsc::channel(4);
    let request = stage.legacy(&session, "ping", &json!({}));
    let all = all_memory(&session);
    stage.gateway.answer_on(request, &outbox).await;
    let answer = lines.recv().await.map(Outgoing::deliver);
    let taped = stage.taped("alice", ServerToClient);
    assert_eq!(answer.as_slice(), taped, "the client gets what is on its tape");
    assert!(taped[0].contains("error"), "{taped:?}");
    drop(all);
}
