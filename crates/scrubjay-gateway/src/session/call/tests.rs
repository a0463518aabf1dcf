//! The table of requests under way: which ids and progress tokens are taken, by whom, and for how long.

use super::*;
use crate::budget::{Budget, MemoryLimits};
use crate::gateway::NewTape;
use crate::gateway::stage::recordings;
use crate::relay::Options;

fn session(data: &tempfile::TempDir, client: Option<&str>) -> Arc<Session> {
    let recording = recordings(data.path())(NewTape::of_backend("test"));
    let budget = Budget::new(MemoryLimits::default());
    Arc::new(Session::new("handle".to_owned(), recording, Options::default(), &budget, client))
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("there is a temporary directory")
}

fn call(session: &Arc<Session>, id: &str, token: Option<&str>) -> Arc<Call> {
    let (outbox, _) = mpsc::channel(1);
    let facts = Arc::default();
    let call = Call::new(session.clone(), JsonId::from_raw(id), None, outbox, facts, Some("warning"), None);
    Arc::new(call.with_progress_token(token.map(str::to_owned)))
}

fn begin(session: &Arc<Session>, call: &Arc<Call>) -> Option<CallGuard> {
    session.begin_call(call.id.clone(), call.clone())
}

#[test]
fn an_id_is_taken_for_as_long_as_its_request_is_under_way() {
    let data = directory();
    let session = session(&data, None);
    let (first, second) = (call(&session, "1", None), call(&session, "1", None));
    let guard = begin(&session, &first).expect("the id is free");
    assert!(begin(&session, &second).is_none(), "the id is taken");
    assert!(begin(&session, &call(&session, "\"1\"", None)).is_some(), "a text is another id than a number");
    assert!(session.call(&first.id).is_some_and(|found| Arc::ptr_eq(&found, &first)));
    drop(guard);
    assert!(session.call(&first.id).is_none());
    assert!(begin(&session, &second).is_some(), "the id is free again");
}

#[test]
fn clients_that_seem_to_be_one_may_use_the_same_ids_and_cancel_none_of_them_by_id() {
    let data = directory();
    let session = session(&data, Some("token and name"));
    let (first, second) = (call(&session, "1", Some("7")), call(&session, "1", Some("7")));
    let guards = (begin(&session, &first), begin(&session, &second));
    assert!(guards.0.is_some() && guards.1.is_some());
    assert!(session.call(&first.id).is_none(), "it may be another client's");
    assert!(!session.has_live_token(&second), "each has a stream of its own");
}

#[test]
fn a_progress_token_is_taken_for_as_long_as_its_request_is_under_way() {
    let data = directory();
    let session = session(&data, None);
    let guard = begin(&session, &call(&session, "1", Some("7"))).expect("the id is free");
    let _without = begin(&session, &call(&session, "2", None)).expect("the id is free");
    assert!(session.has_live_token(&call(&session, "3", Some("7"))));
    assert!(
        !session.has_live_token(&call(&session, "3", Some("\"7\""))),
        "a text is another token than a number"
    );
    assert!(!session.has_live_token(&call(&session, "3", None)), "two without a token share none");
    drop(guard);
    assert!(!session.has_live_token(&call(&session, "3", Some("7"))));
}

#[test]
fn no_more_requests_are_under_way_than_the_limit() {
    let data = directory();
    let session = session(&data, None);
    let under_way = |number: usize| begin(&session, &call(&session, &number.to_string(), None));
    let mut guards: Vec<_> = (0..CALLS_MAX).map(under_way).collect();
    assert!(guards.iter().all(Option::is_some));
    assert!(under_way(CALLS_MAX).is_none());
    guards.pop();
    assert!(under_way(CALLS_MAX).is_some());
}

#[test]
fn a_call_wants_log_messages_from_its_level_up_and_those_of_no_known_level() {
    let data = directory();
    let session = session(&data, None);
    let call = call(&session, "1", None);
    let wants = |level: &str| {
        let params = format!(r#"{{"level":{level},"data":"x"}}"#);
        call.wants_log(&message::notification("notifications/message", Some(&params)))
    };
    assert!(wants("\"warning\"") && wants("\"emergency\"") && wants("\"chatty\"") && wants("3"));
    assert!(!wants("\"notice\"") && !wants("\"debug\""));
}

#[test]
fn calls_are_of_one_client_by_their_session_or_by_what_it_is_inferred_from() {
    let data = directory();
    let open = |client| call(&session(&data, client), "1", None);
    let (named, other) = (open(None), open(None));
    assert!(named.is_of_client_of(&named) && !named.is_of_client_of(&other));
    assert!(open(Some("a")).is_of_client_of(&open(Some("a"))));
    assert!(!open(Some("a")).is_of_client_of(&open(Some("b"))));
    assert!(!open(Some("handle")).is_of_client_of(&named), "an inferred client is never a named one");
}
