//! Whose connection is in which slot, which one loses its slot, and how long a failed start is not repeated.

use serde_json::{Value, json};

use super::*;
use crate::backend::Backend;
use crate::gateway::stage::{ScriptedBackend, Stage};
use crate::session::Session;

fn server(method: &str, _: &Value) -> Option<Value> {
    (method == "tools/list").then(|| json!({ "tools": [] }))
}

fn backend(stage: &Stage) -> Arc<Backend> {
    stage.gateway.backends()[0].clone()
}

fn owner(session: &Session) -> Owner {
    Some(session.client.clone())
}

async fn connect(stage: &Stage, session: &Arc<Session>) -> Arc<Connection> {
    let connection = backend(stage).connection(session, &session.facts()).await;
    connection.expect("the backend starts")
}

#[tokio::test]
async fn a_legacy_connection_serves_its_owner_alone() {
    let stage = Stage::new(&[("one", server)]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    let (of_alice, of_bob) = (connect(&stage, &alice).await, connect(&stage, &bob).await);
    assert!(!Arc::ptr_eq(&of_alice, &of_bob));
    assert_eq!((of_alice.owner(), of_bob.owner()), (owner(&alice), owner(&bob)));
    let backend = backend(&stage);
    let slots = &backend.slots;
    for era in [Era::Legacy, Era::Modern] {
        let serving = slots.open_for(&alice.client, era);
        assert!(matches!(serving.as_slice(), [one] if Arc::ptr_eq(one, &of_alice)), "{era:?}");
    }
    assert!(slots.open_for(&"carol".into(), Era::Legacy).is_empty());
    assert!(Arc::ptr_eq(&connect(&stage, &alice).await, &of_alice), "it is not opened twice");
}

#[tokio::test]
async fn a_shared_connection_serves_all_clients_and_a_modern_one_those_of_its_era() {
    let shared = ScriptedBackend::new("one", server).shared();
    for (scripted, of_legacy) in [(shared, 1), (shared.in_eras(&[Era::Modern]), 0)] {
        let stage = Stage::with(&[scripted]);
        let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
        let connection = connect(&stage, &alice).await;
        assert!(Arc::ptr_eq(&connect(&stage, &bob).await, &connection));
        assert_eq!(connection.owner(), None);
        let backend = backend(&stage);
        let slots = &backend.slots;
        assert_eq!(slots.open_for(&bob.client, Era::Modern).len(), 1);
        assert_eq!(slots.open_for(&bob.client, Era::Legacy).len(), of_legacy);
        backend.end_client(&alice.client, "she left");
        assert!(connection.is_open(), "it is not hers");
        assert!(slots.remove_idle(Duration::ZERO).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn with_all_slots_taken_the_longest_idle_connection_loses_its_slot_after_a_while() {
    let stage = Stage::new(&[("one", server)]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    let of_alice = connect(&stage, &alice).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let of_bob = connect(&stage, &bob).await;
    let backend = backend(&stage);
    let slots = &backend.slots;
    let carol: Owner = Some("carol".into());
    assert!(slots.legacy_slot(&owner(&alice), 2).is_some(), "she has one");
    assert!(slots.legacy_slot(&carol, 2).is_none(), "both were just used");
    tokio::time::advance(EVICT_AFTER).await;
    of_alice.follow();
    of_bob.touch();
    assert!(slots.legacy_slot(&carol, 2).is_none(), "one follows a resource, the other was just used");
    of_alice.unfollow();
    assert!(slots.legacy_slot(&carol, 2).is_some());
    assert!(!of_alice.is_open() && of_bob.is_open());
    assert!(slots.legacy(&owner(&alice)).is_none() && slots.legacy(&owner(&bob)).is_some());
}

#[tokio::test(start_paused = true)]
async fn only_connections_that_were_not_used_for_that_long_are_removed() {
    let stage = Stage::new(&[("one", server)]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    let (of_alice, of_bob) = (connect(&stage, &alice).await, connect(&stage, &bob).await);
    let silence = Duration::from_secs(60);
    tokio::time::advance(2 * silence).await;
    of_bob.touch();
    backend(&stage).end_idle(silence);
    assert!(!of_alice.is_open() && of_bob.is_open());
    assert!(connect(&stage, &alice).await.is_open(), "it is opened again when it is needed");
}

#[tokio::test]
async fn the_second_of_two_connections_in_one_slot_is_closed() {
    let stage = Stage::new(&[("one", server)]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    let (first, second) = (connect(&stage, &alice).await, connect(&stage, &bob).await);
    let slot = ConnectionSlot::default();
    assert!(Arc::ptr_eq(&slot.put(first.clone()), &first));
    assert!(Arc::ptr_eq(&slot.put(second.clone()), &first));
    assert!(first.is_open() && !second.is_open());
    first.close("test");
    assert!(slot.open().is_none() && slot.has_closed());
    assert!(slot.take_closed().is_some() && !slot.has_closed());
}

#[tokio::test]
async fn a_slot_that_was_removed_is_not_its_owners_any_more() {
    let slots = ConnectionSlots::default();
    let alice: Owner = Some("alice".into());
    let slot = slots.legacy_slot(&alice, 1).expect("it is free");
    assert!(slots.holds(&alice, &slot));
    assert!(slots.remove(&alice).is_none(), "no connection was opened");
    assert!(!slots.holds(&alice, &slot));
    let again = slots.legacy_slot(&alice, 1).expect("it is free");
    assert!(!slots.holds(&alice, &slot) && slots.holds(&alice, &again));
}

#[tokio::test]
async fn a_slot_with_a_start_under_way_is_not_taken_away() {
    let slots = ConnectionSlots::default();
    let (alice, bob): (Owner, Owner) = (Some("alice".into()), Some("bob".into()));
    let slot = slots.legacy_slot(&alice, 1).expect("it is free");
    let starting = slot.starting.lock().await;
    assert!(slots.legacy_slot(&bob, 1).is_none());
    assert!(slots.remove_idle(Duration::ZERO).is_empty() && slots.holds(&alice, &slot));
    drop(starting);
    assert!(slots.legacy_slot(&bob, 1).is_some(), "nothing came of the start");
    assert!(!slots.holds(&alice, &slot));
}

#[tokio::test(start_paused = true)]
async fn the_pause_after_failed_starts_grows_up_to_its_limit() {
    let mut back_off = BackOff::default();
    back_off.note_failure("first".to_owned());
    assert_eq!(back_off.blocked_by(), None, "the server may just have been restarted");
    let mut last = Duration::ZERO;
    for number in 2..40 {
        back_off.note_failure(number.to_string());
        let pause = back_off.until.as_ref().expect("there was a failure").0 - Instant::now();
        assert!(pause >= last && pause <= BACK_OFF_MAX && pause >= BACK_OFF_MIN, "{number}: {pause:?}");
        assert_eq!(back_off.blocked_by(), Some(number.to_string().as_str()));
        last = pause;
    }
    assert_eq!(last, BACK_OFF_MAX);
    tokio::time::advance(BACK_OFF_MAX).await;
    assert_eq!(back_off.blocked_by(), None);
    assert_eq!(back_off.last_failure().as_deref(), Some("39"), "it is still the reason");
    back_off.reset();
    assert_eq!(back_off.last_failure(), None);
}
