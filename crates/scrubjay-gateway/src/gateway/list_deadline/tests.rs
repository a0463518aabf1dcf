//! How long a list waits, on a clock that stands still.

use serde_json::{Value, json};

use super::*;
use crate::gateway::stage::{ScriptedBackend, Stage};

fn server(method: &str, _: &Value) -> Option<Value> {
    (method == "tools/list").then(|| json!({ "tools": [] }))
}

/// Returns how long a list waits if nothing answers any more.
async fn waits(deadline: &mut ListDeadline, backends: &[Arc<Backend>], answered: &[usize]) -> Duration {
    let began = Instant::now();
    let answer = deadline.wait(backends, answered, std::future::pending::<Option<()>>()).await;
    assert_eq!(answer, None, "nothing answers");
    began.elapsed()
}

fn check(waited: Duration, expected: Duration) {
    // A timer of tokio is exact to a millisecond, and each of up to 40 looks is one timer.
    let late = waited.checked_sub(expected).expect("it waits that long");
    assert!(late <= Duration::from_millis(60), "{waited:?} instead of {expected:?}");
}

fn two_backends() -> Stage {
    Stage::new(&[("one", server), ("two", server)])
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_of_new_servers_is_waited_for_longer_than_the_others() {
    let stage = two_backends();
    let (backends, session) = (stage.gateway.backends(), stage.gateway.open_session("alice"));
    let mut deadline = ListDeadline::new(&backends, &session, ListKind::Tools, false);
    check(waits(&mut deadline, &backends, &[]).await, FIRST_MAX);
    let mut deadline = ListDeadline::new(&backends, &session, ListKind::Tools, false);
    deadline.answered(&backends[0], true);
    check(waits(&mut deadline, &backends, &[0]).await, QUIET);
    let mut deadline = ListDeadline::new(&backends, &session, ListKind::Tools, false);
    deadline.answered(&backends[0], false);
    check(waits(&mut deadline, &backends, &[0]).await, FIRST_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_wanted_name_is_waited_for_until_it_is_found() {
    let stage = two_backends();
    let (backends, session) = (stage.gateway.backends(), stage.gateway.open_session("alice"));
    let mut deadline = ListDeadline::new(&backends, &session, ListKind::Tools, true);
    deadline.answered(&backends[0], true);
    check(waits(&mut deadline, &backends, &[0]).await, NEW_MAX);
    let mut deadline = ListDeadline::new(&backends, &session, ListKind::Tools, true);
    deadline.answered(&backends[0], true);
    deadline.found();
    check(waits(&mut deadline, &backends, &[0]).await, QUIET);
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_gave_this_list_before_is_waited_for_for_a_moment() {
    let stage = two_backends();
    let session = stage.gateway.open_session("alice");
    stage.answer(stage.legacy(&session, "tools/list", &json!({}))).await;
    let backends = stage.gateway.backends();
    for is_wanting in [false, true] {
        let mut deadline = ListDeadline::new(&backends, &session, ListKind::Tools, is_wanting);
        check(waits(&mut deadline, &backends, &[]).await, QUIET);
    }
    let mut deadline = ListDeadline::new(&backends, &session, ListKind::Resources, false);
    check(waits(&mut deadline, &backends, &[]).await, FIRST_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_kept_clients_waiting_is_hardly_waited_for() {
    let stage = two_backends();
    let (backends, session) = (stage.gateway.backends(), stage.gateway.open_session("alice"));
    backends[1].known.note_slow();
    let mut deadline = ListDeadline::new(&backends, &session, ListKind::Tools, true);
    deadline.answered(&backends[0], true);
    deadline.found();
    check(waits(&mut deadline, &backends, &[0]).await, QUIET / 10);
}

#[tokio::test(start_paused = true)]
async fn each_good_answer_begins_the_quiet_time_again() {
    let stage = Stage::new(&[("one", server), ("two", server), ("three", server)]);
    let (backends, session) = (stage.gateway.backends(), stage.gateway.open_session("alice"));
    let began = Instant::now();
    let mut deadline = ListDeadline::new(&backends, &session, ListKind::Tools, false);
    deadline.answered(&backends[0], true);
    tokio::time::advance(QUIET / 2).await;
    deadline.answered(&backends[1], true);
    waits(&mut deadline, &backends, &[0, 1]).await;
    check(began.elapsed(), QUIET / 2 + QUIET);
}

#[tokio::test(start_paused = true)]
async fn toolsets_of_this_process_do_not_count_as_a_first_answer() {
    let own = ScriptedBackend::new("own", server).own_toolset();
    let stage = Stage::with(&[own, ScriptedBackend::new("one", server)]);
    let (backends, session) = (stage.gateway.backends(), stage.gateway.open_session("alice"));
    let mut deadline = ListDeadline::new(&backends, &session, ListKind::Tools, false);
    deadline.answered(&backends[0], true);
    check(waits(&mut deadline, &backends, &[0]).await, FIRST_MAX);
}

#[tokio::test(start_paused = true)]
async fn an_answer_ends_the_wait() {
    let stage = two_backends();
    let (backends, session) = (stage.gateway.backends(), stage.gateway.open_session("alice"));
    let mut deadline = ListDeadline::new(&backends, &session, ListKind::Tools, false);
    let began = Instant::now();
    let answered = deadline.wait(&backends, &[], std::future::ready(Some("a list"))).await;
    assert_eq!((answered, began.elapsed()), (Some("a list"), Duration::ZERO));
}
