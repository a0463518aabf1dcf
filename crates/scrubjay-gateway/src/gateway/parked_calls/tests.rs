//! Calls are parked within limits, and only their own client takes them up, once.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::oneshot::error::TryRecvError;

use super::*;
use crate::gateway::stage::Stage;
use crate::session::Session;

/// Parks a call that never ends by itself; returns where its demand's answer comes, and a handle of its task.
fn park(
    stage: &Stage,
    session: &Arc<Session>,
    state: &str,
) -> Result<oneshot::Receiver<Answer>, TooManyParked> {
    let request = stage.modern(session, "tools/call", &json!({ "name": "x" }));
    let (_, demands) = mpsc::channel(1);
    let (reply, answer) = oneshot::channel();
    let running = RunningCall {
        task: tokio::spawn(std::future::pending()),
        demands,
        questions: None,
        was_asked: true,
        call: request.call.clone(),
        method: request.method.clone(),
    };
    let replies = vec![("input-1".to_owned(), reply)];
    let since = tokio::time::Instant::now();
    stage.gateway.parked.park(state, ParkedCall { running, replies, since }).map(|()| answer)
}

#[tokio::test]
async fn only_the_client_that_was_asked_takes_its_call_up_and_once() {
    let stage = Stage::new(&[]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    park(&stage, &alice, "state").expect("there is room");
    let of_bob = stage.modern(&bob, "tools/call", &json!({}));
    assert!(stage.gateway.parked.take("state", &of_bob.call).is_none(), "another client's");
    assert!(stage.gateway.parked.holds("state"), "it still waits for its own client");
    let of_alice = stage.modern(&alice, "tools/call", &json!({}));
    assert!(stage.gateway.parked.take("state", &of_alice.call).is_some());
    assert!(stage.gateway.parked.take("state", &of_alice.call).is_none(), "only once");
}

#[tokio::test]
async fn sessions_inferred_to_be_of_one_client_take_up_each_others_calls() {
    let stage = Stage::new(&[]);
    let open = |client| stage.gateway.open_inferred_session("trace", client);
    let (first, second, other) = (open("alice"), open("alice"), open("bob"));
    park(&stage, &first, "state").expect("there is room");
    let of_other = stage.modern(&other, "tools/call", &json!({}));
    assert!(stage.gateway.parked.take("state", &of_other.call).is_none());
    let of_second = stage.modern(&second, "tools/call", &json!({}));
    assert!(stage.gateway.parked.take("state", &of_second.call).is_some());
}

#[tokio::test(start_paused = true)]
async fn one_client_parks_only_its_part_and_what_is_too_old_makes_room() {
    let stage = Stage::new(&[]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    for number in 0..PARKED_EACH_MAX {
        park(&stage, &alice, &number.to_string()).expect("there is room");
    }
    assert_eq!(park(&stage, &alice, "one more").expect_err("no room"), TooManyParked::OfThisClient);
    park(&stage, &bob, "bob's").expect("another client has room");
    tokio::time::advance(PARKED_FOR).await;
    park(&stage, &alice, "later").expect("the others waited for too long");
    assert_eq!(lock(&stage.gateway.parked.calls).len(), 1);
}

#[tokio::test]
async fn all_clients_together_park_no_more_than_the_limit() {
    let stage = Stage::new(&[]);
    let clients = PARKED_MAX / PARKED_EACH_MAX;
    for client in 0..clients {
        let session = stage.gateway.open_session("a client");
        for number in 0..PARKED_EACH_MAX {
            park(&stage, &session, &format!("{client}.{number}")).expect("there is room");
        }
    }
    let late = stage.gateway.open_session("late");
    assert_eq!(park(&stage, &late, "one more").expect_err("no room"), TooManyParked::OfAll);
}

#[tokio::test]
async fn the_calls_of_a_client_that_left_are_called_off_and_no_others() {
    let stage = Stage::new(&[]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    let mut of_alice = park(&stage, &alice, "alice's").expect("there is room");
    park(&stage, &bob, "bob's").expect("there is room");
    stage.gateway.close_session(&alice.id, "she left");
    assert_eq!(of_alice.try_recv(), Err(TryRecvError::Closed), "nobody answers the backend any more");
    assert!(!stage.gateway.parked.holds("alice's") && stage.gateway.parked.holds("bob's"));
}

#[tokio::test]
async fn a_client_that_comes_back_answers_its_backend() {
    let stage = Stage::new(&[]);
    let session = stage.gateway.open_session("alice");
    let mut answer = park(&stage, &session, "state").expect("there is room");
    let params = json!({ "requestState": "state", "inputResponses": { "input-1": { "action": "accept" } } });
    let request = stage.modern(&session, "tools/call", &params);
    assert!(stage.gateway.unpark(&request).is_some());
    assert_eq!(answer.try_recv(), Ok(Answer::Result(r#"{"action":"accept"}"#.to_owned())));
}

#[tokio::test]
async fn a_state_that_nobody_was_given_is_refused_and_a_sealed_one_is_the_backends() {
    let stage = Stage::new(&[]);
    let session = stage.gateway.open_session("alice");
    let back_with = |state| stage.modern(&session, "tools/call", &json!({ "requestState": state }));
    let made_up = stage.gateway.unpark(&back_with("made up")).expect("it is ours to refuse");
    assert_eq!(made_up.await, foreign_state());
    assert!(stage.gateway.unpark(&back_with("scrubjay.code.state")).is_none());
    let legacy = stage.legacy(&session, "tools/call", &json!({ "requestState": "made up" }));
    assert!(stage.gateway.unpark(&legacy).is_none(), "a legacy client's params are its server's business");
}
