//! A task belongs to the client that began it: no other client finds it, gets its owner changed or sees it in a list.

use scrubjay_core::message::quoted;
use serde_json::{Value, json};

use super::*;
use crate::gateway::stage::Stage;
use crate::session::Session;

/// A server that answers every request about a task.
fn server(method: &str, params: &Value) -> Option<Value> {
    method.starts_with("tasks/").then(|| json!({ "taskId": params["taskId"], "status": "working" }))
}

fn begin(stage: &Stage, client: &Arc<str>, task: &str, is_shared: bool) {
    let backend = stage.gateway.backends()[0].clone();
    let answer = Answer::Result(format!(r#"{{"task":{{"taskId":{}}}}}"#, quoted(task)));
    stage.gateway.tasks.remember(client, &backend, is_shared, &answer);
}

/// Returns the id of the backend of the task that a legacy request is about.
fn find(stage: &Stage, session: &Arc<Session>, method: &str, params: &str) -> Result<Option<String>, Answer> {
    let request = stage.request(session, method, params);
    let backend = stage.gateway.tasks.backend_for(&request)?;
    Ok(backend.map(|backend| backend.id.clone()))
}

fn refused(why: &str) -> Answer {
    Answer::error(code::INVALID_PARAMS, why)
}

#[tokio::test]
async fn another_clients_task_is_as_unknown_as_one_that_never_began() {
    let stage = Stage::new(&[("one", server)]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    begin(&stage, &alice.client, "t", true);
    let find = |session, task| find(&stage, session, "tasks/get", &json!({ "taskId": task }).to_string());
    assert_eq!(find(&alice, "t"), Ok(Some("one".to_owned())));
    assert_eq!(find(&bob, "t"), Err(refused(UNKNOWN)));
    assert_eq!(find(&bob, "t"), find(&bob, "never began"), "the error does not reveal that it is there");
    for method in ["tasks/get", "tasks/cancel", "tasks/result", "tasks/update", "tasks/of-a-later-version"] {
        let answer = stage.answer(stage.legacy(&bob, method, &json!({ "taskId": "t" }))).await;
        assert_eq!(answer["error"]["message"], UNKNOWN, "{method}");
        assert!(stage.params_received("one", method).is_empty(), "{method} reached the server");
    }
    let answer = stage.answer(stage.legacy(&alice, "tasks/get", &json!({ "taskId": "t" }))).await;
    assert_eq!(answer["result"]["taskId"], "t");
}

#[tokio::test]
async fn on_a_shared_connection_a_repeated_id_does_not_change_the_owner() {
    let stage = Stage::new(&[("one", server)]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    begin(&stage, &alice.client, "t", true);
    begin(&stage, &bob.client, "t", true);
    let tasks = &stage.gateway.tasks;
    assert_eq!(tasks.owner("one", "t").as_ref(), Some(&alice.client));
    assert!(tasks.backend(&alice.client, "t").is_some() && tasks.backend(&bob.client, "t").is_none());
    assert_eq!(tasks.owner("two", "t"), None, "another backend's task of that id is another task");
}

#[tokio::test]
async fn on_connections_of_their_own_clients_may_have_tasks_with_the_same_id() {
    let stage = Stage::new(&[("one", server)]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    begin(&stage, &alice.client, "t", false);
    begin(&stage, &bob.client, "t", false);
    let tasks = &stage.gateway.tasks;
    assert!(tasks.backend(&alice.client, "t").is_some() && tasks.backend(&bob.client, "t").is_some());
}

#[tokio::test]
async fn a_list_of_tasks_has_only_the_clients_own_in_each_member_of_that_name() {
    let stage = Stage::new(&[("one", server)]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    begin(&stage, &alice.client, "a", true);
    begin(&stage, &bob.client, "b", true);
    let check = |result: &str, expected: &str| {
        let own = stage.gateway.tasks.only_own(&alice.client, "one", result);
        assert!(matches!(&own, Answer::Result(own) if own == expected), "{result}: {own:?}");
    };
    check(
        r#"{"tasks":[{"taskId":"b"},{"taskId":"a", "n":1.0}], "nextCursor":"c","tasks":[{"taskId":"b"}]}"#,
        r#"{"tasks":[{"taskId":"a", "n":1.0}], "nextCursor":"c","tasks":[]}"#,
    );
    check(r#"{"\u0074asks":[{"taskId":"b"},{"taskId":"a"}]}"#, r#"{"\u0074asks":[{"taskId":"a"}]}"#);
    check(r#"{"tasks":[{"taskId":"unknown"},{},{"taskId":7},"a"]}"#, r#"{"tasks":[]}"#);
    check(r#"{"tasks":{"taskId":"b"}}"#, r#"{"tasks":[]}"#);
    check(r#"{ "tasks": [] }"#, r#"{ "tasks": [] }"#);
    check(r#"{"other":[{"taskId":"b"}]}"#, r#"{"other":[{"taskId":"b"}]}"#);
    for unreadable in [r#"{"\ud800":1,"tasks":[{"taskId":"b"}]}"#, r#"[{"taskId":"b"}]"#, "no JSON"] {
        let refused = stage.gateway.tasks.only_own(&alice.client, "one", unreadable);
        assert!(matches!(refused, Answer::Error(_)), "{unreadable}: {refused:?}");
    }
}

#[tokio::test]
async fn with_too_many_tasks_the_oldest_is_forgotten_together_with_its_owner() {
    let stage = Stage::new(&[("one", server)]);
    let alice = stage.gateway.open_session("alice");
    for number in 0..=TASKS_MAX {
        begin(&stage, &alice.client, &number.to_string(), true);
    }
    let tasks = &stage.gateway.tasks;
    assert!(tasks.backend(&alice.client, "0").is_none() && tasks.owner("one", "0").is_none());
    assert!(tasks.backend(&alice.client, "1").is_some() && tasks.owner("one", "1").is_some());
    let known = lock(&tasks.known);
    assert_eq!(
        (known.order.len(), known.backends.len(), known.owners.len()),
        (TASKS_MAX, TASKS_MAX, TASKS_MAX)
    );
}

#[tokio::test]
async fn with_too_many_bytes_of_ids_the_oldest_is_forgotten_together_with_its_owner() {
    let stage = Stage::new(&[("one", server)]);
    let alice = stage.gateway.open_session("alice");
    let long = |number: usize| format!("{number:0>TASK_ID_BYTES_MAX$}");
    let fitting = TASKS_BYTES_MAX / TASK_ID_BYTES_MAX;
    for number in 0..=fitting {
        begin(&stage, &alice.client, &long(number), true);
    }
    let tasks = &stage.gateway.tasks;
    assert!(tasks.backend(&alice.client, &long(0)).is_none() && tasks.owner("one", &long(0)).is_none());
    assert!(tasks.backend(&alice.client, &long(1)).is_some() && tasks.owner("one", &long(1)).is_some());
    let known = lock(&tasks.known);
    assert_eq!((known.order.len(), known.owners.len(), known.bytes), (fitting, fitting, TASKS_BYTES_MAX));
}

#[tokio::test]
async fn a_task_that_begins_twice_is_counted_once_and_one_with_a_longer_id_is_not_remembered() {
    let stage = Stage::new(&[("one", server)]);
    let alice = stage.gateway.open_session("alice");
    begin(&stage, &alice.client, "t", true);
    begin(&stage, &alice.client, "t", true);
    begin(&stage, &alice.client, &"x".repeat(TASK_ID_BYTES_MAX + 1), true);
    let known = lock(&stage.gateway.tasks.known);
    assert_eq!((known.order.len(), known.owners.len(), known.bytes), (1, 1, 1));
}

#[tokio::test]
async fn a_request_that_servers_may_read_as_about_another_task_is_refused() {
    let stage = Stage::new(&[("one", server)]);
    let alice = stage.gateway.open_session("alice");
    begin(&stage, &alice.client, "t", true);
    let check = |params: &str, expected: Result<Option<String>, Answer>| {
        assert_eq!(find(&stage, &alice, "tasks/get", params), expected, "{params}");
    };
    check(r#"{"taskId":"t"}"#, Ok(Some("one".to_owned())));
    check(r#"{"\u0074askId":"\u0074"}"#, Ok(Some("one".to_owned())));
    for unclear in [
        r#"{"taskId":"t","taskId":"t"}"#,
        r#"{"taskId":"t","taskId":"another"}"#,
        r#"{"TaskId":"t"}"#,
        r#"{"taskId":"t","taskid":"another"}"#,
        r#"{"taskId":"t","ta\u017fkId":"another"}"#,
        r#"{"taskId":7}"#,
        r#"{"taskId":null}"#,
        r#"{"id":"t"}"#,
        "{}",
        r#"["t"]"#,
    ] {
        check(unclear, Err(refused(UNCLEAR)));
    }
}

#[tokio::test]
async fn a_request_that_is_about_no_task_needs_none() {
    let stage = Stage::new(&[("one", server)]);
    let (alice, bob) = (stage.gateway.open_session("alice"), stage.gateway.open_session("bob"));
    begin(&stage, &alice.client, "t", true);
    assert_eq!(find(&stage, &alice, "tasks/list", "{}"), Ok(None));
    assert_eq!(find(&stage, &alice, "other/method", r#"{"taskId":"t"}"#), Ok(Some("one".to_owned())));
    assert_eq!(find(&stage, &bob, "other/method", r#"{"taskId":"t"}"#), Ok(None), "another client's task");
}

#[tokio::test]
async fn a_modern_client_is_refused_as_its_protocol_says() {
    let stage = Stage::new(&[("one", server)]);
    let session = stage.gateway.open_session("modern");
    let refusal = async |method: &str, capabilities: Value| {
        let params = json!({ "taskId": "t", "_meta": {
            meta::PROTOCOL_VERSION: "2026-07-28", meta::CLIENT_CAPABILITIES: capabilities,
        }});
        stage.answer(stage.legacy(&session, method, &params)).await["error"]["code"].clone()
    };
    let with_tasks = json!({ "extensions": { TASKS_EXTENSION: {} } });
    assert_eq!(refusal("tasks/get", json!({})).await, code::MISSING_CAPABILITY);
    assert_eq!(refusal("tasks/get", with_tasks.clone()).await, code::INVALID_PARAMS);
    assert_eq!(refusal("tasks/result", with_tasks).await, code::METHOD_NOT_FOUND, "a legacy method");
}

#[test]
fn an_answer_begins_a_task_only_in_the_form_of_an_era() {
    let check = |answer: Answer, expected: Option<&str>| assert_eq!(begun(&answer).as_deref(), expected);
    let result = |result: &str| Answer::Result(result.to_owned());
    check(result(r#"{"task":{"taskId":"t"}}"#), Some("t"));
    check(result(r#"{"resultType":"task","taskId":"t"}"#), Some("t"));
    check(result(r#"{"taskId":"t"}"#), None);
    check(result(r#"{"resultType":"complete","taskId":"t"}"#), None);
    check(result(r#"{"task":{"taskId":7}}"#), None);
    check(Answer::Error(r#"{"task":{"taskId":"t"}}"#.to_owned()), None);
}
