//! A client leaves with all that is its own, and takes nothing of another client with it.

use scrubjay_core::entry::EntryKind;
use serde_json::{Value, json};

use super::*;
use crate::gateway::stage::Stage;

fn server(method: &str, _: &Value) -> Option<Value> {
    (method == "tools/list").then(|| json!({ "tools": [] }))
}

async fn list(stage: &Stage, session: &Arc<Session>) {
    stage.answer(stage.legacy(session, "tools/list", &json!({}))).await;
}

fn connections(stage: &Stage) -> usize {
    stage.gateway.backends()[0].open_connections().len()
}

#[tokio::test]
async fn a_clients_connections_end_with_its_last_session() {
    let stage = Stage::new(&[("one", server)]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    let inferred = [(); 2].map(|()| stage.gateway.open_inferred_session("trace", "token and name"));
    for session in [&alice, &bob, &inferred[0], &inferred[1]] {
        list(&stage, session).await;
    }
    assert_eq!(connections(&stage), 3, "the inferred sessions are of one client");
    assert!(stage.gateway.close_session(&alice.id, "she left"));
    assert_eq!(connections(&stage), 2);
    assert!(stage.gateway.close_session(&inferred[0].id, "it was idle"));
    assert_eq!(connections(&stage), 2, "the client has another session");
    assert!(stage.gateway.close_session(&inferred[1].id, "it was idle"));
    assert_eq!(connections(&stage), 1);
    assert!(!stage.gateway.close_session(&alice.id, "again"), "it is gone");
    assert!(stage.gateway.session(&alice.id).is_none() && stage.gateway.session(&bob.id).is_some());
}

#[tokio::test]
async fn no_connection_is_opened_for_a_session_that_is_over() {
    let stage = Stage::new(&[("one", server)]);
    let alice = stage.gateway.open_session("alice");
    stage.gateway.close_session(&alice.id, "she left");
    let backend = stage.gateway.backends()[0].clone();
    assert!(backend.connection(&alice, &alice.facts()).await.is_err());
    assert_eq!(connections(&stage), 0);
}

#[tokio::test]
async fn the_requests_of_a_client_that_leaves_are_cancelled_and_its_tape_ends() {
    let stage = Stage::new(&[("one", server)]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    let of_alice = stage.legacy(&alice, "tools/call", &json!({ "name": "x" }));
    let of_bob = stage.legacy(&bob, "ping", &json!({}));
    stage.gateway.close_session(&alice.id, "she left");
    assert_eq!(stage.gateway.answer(of_alice).await, None);
    assert_eq!(stage.answer(of_bob).await["result"], json!({}));
    let ends = |name: &str| stage.tape(name).iter().filter(|entry| entry.kind == EntryKind::End).count();
    assert_eq!((ends("alice"), ends("bob")), (1, 0));
    let end = stage.tape("alice").pop().expect("there are entries");
    assert!(end.text.contains("she left"), "{end:?}");
}

#[tokio::test]
async fn on_leave_is_called_once_for_each_client() {
    let stage = Stage::new(&[]);
    let left = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = left.clone();
    stage.gateway.on_leave(Box::new(move |connection, reason| {
        lock(&noted).push((connection, reason.to_owned()));
    }));
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    stage.gateway.close_session(&alice.id, "she left");
    stage.gateway.close_session(&alice.id, "again");
    stage.gateway.shut_down("the gateway stops");
    let expected = [(alice.connection(), "she left"), (bob.connection(), "the gateway stops")];
    assert_eq!(*lock(&left), expected.map(|(connection, reason)| (connection, reason.to_owned())));
    assert_eq!(stage.gateway.session_count(), 0);
}

#[test]
fn handles_are_long_and_differ() {
    let (first, second) = (handle(), handle());
    assert!(first.len() >= 32 && first.len() == second.len(), "160 bits: {first}");
    assert_ne!(first, second);
}
