//! What is sent to a client is on its tape first, and marked there if the client does not get it.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::budget::MemoryLimits;
use crate::gateway::stage::{Client, Stage};

fn client(stage: &Stage) -> Client {
    stage.client("alice", &json!({}))
}

fn taped(stage: &Stage) -> Vec<String> {
    stage.taped("alice", Direction::ServerToClient)
}

/// Ends the client's session, and returns how many messages its tape marks as undelivered, by the reason.
fn undelivered(stage: &Stage, client: &Client) -> BTreeMap<String, u64> {
    stage.gateway.close_session(&client.session.id, "the test is over");
    let mut all = BTreeMap::new();
    for note in stage.notes("alice").iter().filter(|note| note["event"] == "undelivered") {
        let why = note["why"].as_str().expect("there is a reason").to_owned();
        *all.entry(why).or_default() += note["messages"].as_u64().expect("a number");
    }
    all
}

#[tokio::test]
async fn lines_reach_the_client_in_the_order_of_the_tape() {
    let stage = Stage::new(&[]);
    let mut alice = client(&stage);
    for number in 0..10 {
        let line = message(number);
        if number % 2 == 0 {
            assert!(alice.session.send(&alice.outbox, line).await);
        } else {
            alice.session.send_on_standing_stream(line);
        }
    }
    let expected: Vec<String> = (0..10).map(message).collect();
    assert_eq!(taped(&stage), expected);
    assert_eq!(alice.received(), expected);
    assert_eq!(undelivered(&stage, &alice), BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn what_a_client_does_not_read_is_on_tape_as_undelivered() {
    let stage = Stage::new(&[]);
    let alice = client(&stage);
    let (full, mut lines) = mpsc::channel(1);
    assert!(alice.session.send(&full, message(1)).await);
    assert!(!alice.session.send(&full, message(2)).await, "there is no place for it");
    assert_eq!(lines.recv().await.map(Outgoing::deliver), Some(message(1)));
    drop(lines);
    assert!(!alice.session.send(&full, message(3)).await, "the client has left");
    assert_eq!(taped(&stage), [message(1), message(2), message(3)]);
    let expected = [("client did not read".to_owned(), 1), ("client left".to_owned(), 1)];
    assert_eq!(undelivered(&stage, &alice), expected.into());
}

#[tokio::test]
async fn without_memory_a_line_is_recorded_and_dropped() {
    let stage = Stage::new(&[]);
    let mut alice = client(&stage);
    let all = alice.session.account.charge(MemoryUse::Call, MemoryLimits::default().session_bytes_max);
    let all = all.expect("an idle session may make one charge of any size");
    alice.session.send(&alice.outbox, message(1)).await;
    alice.session.send_on_standing_stream(message(2));
    assert!(alice.received().is_empty());
    assert_eq!(taped(&stage), [message(1), message(2)]);
    drop(all);
    alice.session.send_on_standing_stream(message(3));
    assert_eq!(alice.received(), [message(3)]);
    assert_eq!(undelivered(&stage, &alice), [("dropped by limit".to_owned(), 2)].into());
}

#[tokio::test]
async fn what_was_dropped_is_noted_once_in_a_while() {
    let stage = Stage::new(&[]);
    let alice = client(&stage);
    for _ in 0..100 {
        alice.session.note_dropped(1, 1000, "limits.max_memory");
    }
    let notes = stage.notes("alice");
    assert!(notes.len() < 100, "a flood does not fill the tape with notes");
    assert_eq!(
        (&notes[0]["event"], &notes[0]["limit"]),
        (&json!("undelivered"), &json!("limits.max_memory"))
    );
}

fn message(number: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"data":{number}}}}}"#)
}
