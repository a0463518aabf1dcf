//! Calls under way show whose a message is only if all of them are of one session.

use serde_json::json;

use super::*;
use crate::gateway::Request;
use crate::gateway::stage::Stage;
use crate::session::Session;

/// Returns the place of the call that a message belongs to.
fn only(requests: &[&Request]) -> Option<usize> {
    let busy: Vec<Arc<Call>> = requests.iter().map(|request| request.call.clone()).collect();
    let only = only_session(&busy)?;
    busy.iter().position(|call| Arc::ptr_eq(call, &only))
}

#[tokio::test]
async fn a_message_belongs_to_the_newest_call_if_all_calls_are_of_one_session() {
    let stage = Stage::new(&[]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    let call = |session: &Arc<Session>| stage.legacy(session, "tools/call", &json!({}));
    let (newest, oldest, of_bob) = (call(&alice), call(&alice), call(&bob));
    assert_eq!(only(&[]), None);
    assert_eq!(only(&[&newest]), Some(0));
    assert_eq!(only(&[&newest, &oldest]), Some(0));
    assert_eq!(only(&[&of_bob, &newest, &oldest]), None);
    assert_eq!(only(&[&newest, &oldest, &of_bob]), None);
}

#[tokio::test]
async fn two_calls_of_an_inferred_session_may_be_of_two_clients() {
    let stage = Stage::new(&[]);
    let session = stage.gateway.open_inferred_session("trace", "token and name");
    let call = || stage.modern(&session, "tools/call", &json!({}));
    let (first, second) = (call(), call());
    assert_eq!(only(&[&first]), Some(0), "a single call is of one of them");
    assert_eq!(only(&[&first, &second]), None);
}
