//! What moves on is on tape first; only a refusal is sent without that, and nothing is lost when a tape ends.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::budget::{Budget, MemoryLimits};
use crate::gateway::NewTape;
use crate::gateway::stage::{Stage, recordings};
use crate::relay::Options;

const LINE: &str = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;

fn session(data: &Path) -> Session {
    let recording = recordings(data)(NewTape::of_backend("test"));
    let budget = Budget::new(MemoryLimits::default());
    Session::new("handle".to_owned(), recording, Options::default(), &budget, None)
}

#[test]
fn what_cannot_be_recorded_does_not_move_on_except_a_refusal() {
    // Tapes cannot be made below a file.
    let file = tempfile::NamedTempFile::new().expect("there is a temporary directory");
    let session = session(file.path());
    assert!(session.record_inbound(LINE).is_err());
    assert!(session.record_outgoing(LINE.to_owned()).is_err());
    let mut was_sent = false;
    assert!(session.record_then(Direction::ServerToClient, LINE, |_| was_sent = true).is_err());
    assert!(!was_sent, "it would have been sent");
    assert_eq!(session.record_refusal(LINE.to_owned()).text(), LINE, "its client waits for it");
}

#[tokio::test]
async fn a_move_to_another_session_is_noted_once() {
    let stage = Stage::new(&[]);
    let session = stage.gateway.open_session("alice");
    stage.accept(&session, LINE);
    for id in ["first", "first", "second"] {
        session.move_to(id);
        assert_eq!(session.recorded_as().map(|now| now.id).as_deref(), Some(id));
    }
    let moves: Vec<_> = stage.notes("alice").iter().map(|note| note["session"].clone()).collect();
    assert_eq!(moves, ["first", "second"]);
}

#[tokio::test]
async fn what_comes_after_the_end_of_a_session_is_on_another_tape() {
    let stage = Stage::new(&[]);
    let session = stage.gateway.open_session("alice");
    stage.accept(&session, LINE);
    stage.gateway.close_session(&session.id, "she left");
    session.record(Direction::ServerToClient, LINE).expect("it is recorded");
    let kinds = |name: &str| stage.tape(name).iter().map(|entry| entry.kind).collect::<Vec<_>>();
    assert_eq!(kinds("alice"), [EntryKind::Message, EntryKind::End]);
    assert_eq!(kinds("after the end"), [EntryKind::Message]);
}

#[tokio::test]
async fn a_tape_that_is_sealed_later_is_complete() {
    let stage = Stage::new(&[]);
    let session = stage.gateway.open_session("alice");
    stage.accept(&session, LINE);
    stage.gateway.shut_down_sealing("the gateway stops", Duration::ZERO);
    let end = stage.tape("alice").pop().expect("there are entries");
    assert!(end.kind == EntryKind::End && end.text.contains("the gateway stops"), "{end:?}");
}
