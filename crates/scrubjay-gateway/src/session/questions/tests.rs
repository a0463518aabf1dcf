//! A question to a client gets the client's answer once, and leaves nothing behind.

use serde_json::Value;

use super::*;
use crate::delivery::Outgoing;
use crate::gateway::stage::{Client, Stage};

fn client(stage: &Stage, name: &str) -> Client {
    stage.client(name, &serde_json::json!({ "roots": {} }))
}

/// Waits for a question on a client's stream; returns its id and its method.
async fn next_question(client: &mut Client) -> (JsonId, Value) {
    let line = client.lines.recv().await.map(Outgoing::deliver).expect("the stream is open");
    let question: Value = serde_json::from_str(&line).expect("a question is JSON");
    (JsonId::from_raw(&question["id"].to_string()), question["method"].clone())
}

fn result(text: &str) -> Answer {
    Answer::Result(text.to_owned())
}

#[tokio::test]
async fn a_question_is_answered_once_by_the_client_that_was_asked() {
    let stage = Stage::new(&[]);
    let (mut alice, bob) = (client(&stage, "alice"), client(&stage, "bob"));
    let asking = tokio::spawn({
        let session = alice.session.clone();
        async move { session.ask(None, "roots/list", Some("{}")).await }
    });
    let (id, method) = next_question(&mut alice).await;
    assert_eq!(method, "roots/list");
    assert!(!bob.session.take_answer(&id, result("bob's")), "bob was not asked");
    for made_up in ["1", "\"1\"", "\"scrubjay-77\"", "\"scrubjay-\"", "\"scrubjay\"", "null"] {
        assert!(!alice.session.take_answer(&JsonId::from_raw(made_up), result("{}")), "{made_up}");
    }
    assert!(alice.session.take_answer(&id, result("hers")));
    assert!(!alice.session.take_answer(&id, result("again")));
    assert_eq!(asking.await.expect("it is answered"), result("hers"));
}

#[tokio::test]
async fn a_question_that_nobody_waits_for_any_more_takes_no_answer() {
    let stage = Stage::new(&[]);
    let mut alice = client(&stage, "alice");
    let asking = tokio::spawn({
        let session = alice.session.clone();
        async move { session.ask(None, "roots/list", None).await }
    });
    let (id, _) = next_question(&mut alice).await;
    asking.abort();
    assert!(asking.await.is_err(), "it was aborted");
    assert!(!alice.session.take_answer(&id, result("{}")));
    assert!(lock(&alice.session.asks).is_empty());
}

#[tokio::test]
async fn a_question_ends_with_the_session_of_its_client() {
    let stage = Stage::new(&[]);
    let mut alice = client(&stage, "alice");
    let asking = tokio::spawn({
        let session = alice.session.clone();
        async move { session.ask(None, "roots/list", None).await }
    });
    next_question(&mut alice).await;
    stage.gateway.close_session(&alice.session.id, "she left");
    assert!(matches!(asking.await, Ok(Answer::Error(_))));
}

#[tokio::test]
async fn a_question_that_does_not_reach_its_client_fails_at_once() {
    let stage = Stage::new(&[]);
    let alice = client(&stage, "alice");
    let (closed, _) = tokio::sync::mpsc::channel(1);
    let answer = alice.session.ask(Some(&closed), "roots/list", None).await;
    assert!(matches!(answer, Answer::Error(_)), "{answer:?}");
    assert!(lock(&alice.session.asks).is_empty());
}

#[tokio::test]
async fn no_more_questions_wait_for_a_client_than_the_limit() {
    let stage = Stage::new(&[]);
    let alice = client(&stage, "alice");
    for number in 0..CALLS_MAX as u64 {
        lock(&alice.session.asks).insert(u64::MAX - number, oneshot::channel().0);
    }
    let answer = alice.session.ask(None, "roots/list", None).await;
    assert!(matches!(answer, Answer::Error(_)), "{answer:?}");
    assert_eq!(lock(&alice.session.asks).len(), CALLS_MAX);
}
