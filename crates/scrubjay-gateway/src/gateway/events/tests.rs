//! Which clients get a backend's notification, and which client is asked its question, while connections are shared.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::*;
use crate::backend::connection::ClientsSeen::{Nobody, One, Several};
use crate::gateway::stage::{Client, ScriptedBackend, Stage};
use crate::gateway::{Accepted, Request};

/// A server without anything.
fn nothing(method: &str, _: &Value) -> Option<Value> {
    (method == "tools/list").then(|| json!({ "tools": [] }))
}

fn able() -> Value {
    json!({ "sampling": {}, "elicitation": {}, "roots": {} })
}

/// The connection that a message of the backend came on, and the calls under way there.
struct MessageOrigin<'a> {
    owner: Owner,
    clients_seen: ClientsSeen,
    busy: &'a [&'a Request],
    /// The call that it belongs to for certain.
    only: Option<&'a Request>,
}

impl MessageOrigin<'_> {
    /// On a connection that serves all clients, without calls under way.
    fn shared(clients_seen: ClientsSeen) -> Self {
        Self { owner: None, clients_seen, busy: &[], only: None }
    }

    /// On a client's own connection, without calls under way.
    fn own(session: &Session) -> Self {
        let client = session.client.clone();
        Self { owner: Some(client.clone()), clients_seen: One(client), busy: &[], only: None }
    }
}

fn ask(stage: &Stage, origin: MessageOrigin<'_>, method: &str, params: &Value) -> oneshot::Receiver<Answer> {
    let (reply, answer) = oneshot::channel();
    stage.gateway.ask_owner(Question {
        backend: "one".to_owned(),
        owner: origin.owner,
        outside_calls: origin.busy.is_empty(),
        questions: Arc::default(),
        method: method.to_owned(),
        params: Some(params.to_string()),
        busy: origin.busy.iter().map(|request| request.call.clone()).collect(),
        only: origin.only.map(|request| request.call.clone()),
        clients_seen: origin.clients_seen,
        reply,
    });
    answer
}

/// Returns the code of the error with which a question is refused at once.
fn refusal(mut answer: oneshot::Receiver<Answer>) -> i64 {
    match answer.try_recv() {
        Ok(Answer::Error(error)) => {
            let error: Value = serde_json::from_str(&error).expect("an error is JSON");
            error["code"].as_i64().expect("an error has a code")
        }
        answered => panic!("the question is refused at once: {answered:?}"),
    }
}

fn notify(stage: &Stage, origin: MessageOrigin<'_>, method: &str, params: &Value) {
    let notification = BackendNotification {
        backend: "one".to_owned(),
        owner: origin.owner,
        clients_seen: origin.clients_seen,
        era: Era::Legacy,
        method: method.to_owned(),
        line: message::notification(method, Some(&params.to_string())),
    };
    let busy: Vec<Arc<Call>> = origin.busy.iter().map(|request| request.call.clone()).collect();
    stage.gateway.pass_to_clients(&notification, &busy);
}

/// Begins a task of a client on a shared connection.
fn begin_task(stage: &Stage, session: &Session, task: &str) {
    let backend = stage.gateway.backends()[0].clone();
    let answer = Answer::Result(json!({ "task": { "taskId": task } }).to_string());
    stage.gateway.tasks.remember(&session.client, &backend, true, &answer);
}

/// Waits for the question on a client's stream and answers it.
async fn answer_question(stage: &Stage, client: &mut Client, result: &Value) {
    let question = client.lines.recv().await.expect("the stream is open").deliver();
    let question: Value = serde_json::from_str(&question).expect("a question is JSON");
    let line = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
    stage.accept(&client.session, &line.to_string());
}

#[tokio::test]
async fn a_question_that_could_be_for_either_of_two_clients_is_asked_of_neither() {
    let stage = Stage::new(&[("one", nothing)]);
    let (mut alice, mut bob) = (stage.client("alice", &able()), stage.client("bob", &able()));
    let of_alice = stage.legacy(&alice.session, "tools/call", &json!({}));
    let of_bob = stage.legacy(&bob.session, "tools/call", &json!({}));
    for (seen, busy) in [
        (Several, vec![]),
        (Several, vec![&*of_alice]),
        (Several, vec![&*of_alice, &*of_bob]),
        // Without certainty that it belongs to this call: it may be about an earlier one.
        (One(alice.session.client.clone()), vec![&*of_alice]),
    ] {
        let origin = MessageOrigin { owner: None, clients_seen: seen, busy: &busy, only: None };
        assert_eq!(refusal(ask(&stage, origin, "roots/list", &json!({}))), code::INTERNAL);
    }
    // With two clients there is nobody to ask, even if neither has spoken on the connection.
    let origin = MessageOrigin::shared(Nobody);
    assert_eq!(refusal(ask(&stage, origin, "roots/list", &json!({}))), code::METHOD_NOT_FOUND);
    assert!(alice.received().is_empty() && bob.received().is_empty());
}

#[tokio::test]
async fn the_question_of_a_call_goes_to_the_client_of_that_call() {
    let stage = Stage::new(&[("one", nothing)]);
    let (mut alice, mut bob) = (stage.client("alice", &able()), stage.client("bob", &able()));
    let line = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {} }).to_string();
    let accepted = stage.gateway.accept(&alice.session, &line, &alice.outbox);
    let Accepted::Request(of_alice) = accepted else { panic!("a request is accepted") };
    let origin =
        MessageOrigin { owner: None, clients_seen: Several, busy: &[&of_alice], only: Some(&of_alice) };
    let answer = ask(&stage, origin, "roots/list", &json!({}));
    answer_question(&stage, &mut alice, &json!({ "roots": [] })).await;
    assert_eq!(answer.await, Ok(Answer::Result(r#"{"roots":[]}"#.to_owned())));
    assert!(bob.received().is_empty());
}

#[tokio::test]
async fn the_only_client_there_is_gets_the_question_of_a_shared_connection_unless_another_used_it() {
    let stage = Stage::new(&[("one", nothing)]);
    let mut alice = stage.client("alice", &able());
    let (its_own, anothers) = (One(alice.session.client.clone()), One("one that left".into()));
    let answer = ask(&stage, MessageOrigin::shared(its_own), "roots/list", &json!({}));
    answer_question(&stage, &mut alice, &json!({ "roots": [] })).await;
    assert!(matches!(answer.await, Ok(Answer::Result(_))));
    let refused = refusal(ask(&stage, MessageOrigin::shared(anothers), "roots/list", &json!({})));
    assert_eq!(refused, code::METHOD_NOT_FOUND);
    assert!(alice.received().is_empty());
}

#[tokio::test]
async fn nobody_is_asked_in_a_session_that_several_clients_may_share() {
    let stage = Stage::new(&[("one", nothing)]);
    let session = stage.gateway.open_inferred_session("trace", "token and name");
    let modern = json!({});
    let (first, second) =
        (stage.modern(&session, "tools/call", &modern), stage.modern(&session, "tools/call", &modern));
    let its_own = One(session.client.clone());
    let refused = |origin| refusal(ask(&stage, origin, "elicitation/create", &json!({})));
    assert_eq!(refused(MessageOrigin::shared(its_own.clone())), code::METHOD_NOT_FOUND);
    let origin =
        MessageOrigin { owner: None, clients_seen: its_own.clone(), busy: &[&second, &first], only: None };
    assert_eq!(refused(origin), code::INTERNAL);
    // Of a task that began there it is known whose it is, and not which of its two calls may be asked.
    begin_task(&stage, &session, "t");
    let origin = MessageOrigin { owner: None, clients_seen: its_own, busy: &[&second, &first], only: None };
    let answer = ask(&stage, origin, "elicitation/create", &json!({ "taskId": "t" }));
    assert_eq!(refusal(answer), code::INTERNAL);
}

#[tokio::test]
async fn the_question_of_a_task_goes_to_the_client_that_began_it_while_that_has_a_call() {
    let stage = Stage::new(&[("one", nothing)]);
    let (mut alice, mut bob) = (stage.client("alice", &able()), stage.client("bob", &able()));
    begin_task(&stage, &alice.session, "t");
    let of_bob = stage.legacy(&bob.session, "tools/call", &json!({}));
    let params = json!({ "_meta": { "io.modelcontextprotocol/related-task": { "taskId": "t" } } });
    let origin = MessageOrigin { owner: None, clients_seen: Several, busy: &[&of_bob], only: Some(&of_bob) };
    assert_eq!(refusal(ask(&stage, origin, "elicitation/create", &params)), code::INTERNAL);
    assert!(alice.received().is_empty() && bob.received().is_empty());
    let of_alice = stage.modern(&alice.session, "tools/call", &json!({}));
    let origin =
        MessageOrigin { owner: None, clients_seen: Several, busy: &[&of_bob, &of_alice], only: None };
    let mut answer = ask(&stage, origin, "elicitation/create", &params);
    let demand = of_alice.demands.as_ref().map(|demands| demands.len());
    assert_eq!((demand, answer.try_recv()), (Some(1), Err(TryRecvError::Empty)), "her call brings it to her");
    assert!(bob.received().is_empty());
}

#[tokio::test]
async fn a_client_is_asked_only_for_what_it_declared() {
    let stage = Stage::new(&[("one", nothing)]);
    let mut alice = stage.client("alice", &json!({ "roots": {}, "sampling": null }));
    for method in ["sampling/createMessage", "elicitation/create"] {
        let answer = ask(&stage, MessageOrigin::own(&alice.session), method, &json!({}));
        assert_eq!(refusal(answer), code::METHOD_NOT_FOUND, "{method}");
    }
    assert!(alice.received().is_empty());
    let answer = ask(&stage, MessageOrigin::own(&alice.session), "roots/list", &json!({}));
    answer_question(&stage, &mut alice, &json!({ "roots": [] })).await;
    assert!(matches!(answer.await, Ok(Answer::Result(_))));
}

#[tokio::test]
async fn the_notification_of_a_task_goes_to_the_client_that_began_it_alone() {
    let stage = Stage::new(&[("one", nothing)]);
    let (mut alice, mut bob) = (stage.client("alice", &able()), stage.client("bob", &able()));
    begin_task(&stage, &alice.session, "t");
    let of_bob = stage.legacy(&bob.session, "tools/call", &json!({}));
    let related = json!({ "_meta": { "io.modelcontextprotocol/related-task": { "taskId": "t" } } });
    for (method, params, received) in [
        ("notifications/tasks/status", json!({ "taskId": "t" }), 1),
        ("notifications/message", related.clone(), 1),
        ("notifications/tools/list_changed", related, 1),
        ("notifications/tasks/status", json!({ "taskId": "began nowhere" }), 0),
    ] {
        for busy in [vec![], vec![&*of_bob]] {
            let origin = MessageOrigin { owner: None, clients_seen: Several, busy: &busy, only: None };
            notify(&stage, origin, method, &params);
            assert_eq!((alice.received().len(), bob.received().len()), (received, 0), "{method} {params}");
        }
    }
}

#[tokio::test]
async fn a_message_of_no_call_reaches_nobody_if_it_could_be_for_either_of_two_clients() {
    let stage = Stage::new(&[("one", nothing)]);
    let mut alice = stage.client("alice", &able());
    let its_own = One(alice.session.client.clone());
    let log = json!({ "level": "info", "data": "x" });
    let methods = ["notifications/message", "notifications/elicitation/complete"];
    for method in methods {
        notify(&stage, MessageOrigin::shared(its_own.clone()), method, &log);
        assert_eq!(alice.received().len(), 1, "{method}: the only client there is, and ever was");
        notify(&stage, MessageOrigin::shared(Several), method, &log);
        assert!(alice.received().is_empty(), "{method}: it may be for a client that left");
    }
    let of_alice = stage.legacy(&alice.session, "tools/call", &json!({}));
    let origin = MessageOrigin { owner: None, clients_seen: its_own.clone(), busy: &[&of_alice], only: None };
    notify(&stage, origin, "notifications/message", &log);
    assert!(alice.received().is_empty(), "it belongs to no call for certain");
    let mut bob = stage.client("bob", &able());
    for method in methods {
        notify(&stage, MessageOrigin::shared(its_own.clone()), method, &log);
        assert!(alice.received().is_empty() && bob.received().is_empty(), "{method}");
        notify(&stage, MessageOrigin::own(&alice.session), method, &log);
        assert_eq!((alice.received().len(), bob.received().len()), (1, 0), "{method} on her own connection");
    }
}

#[tokio::test]
async fn an_updated_resource_is_announced_to_the_clients_of_its_connection_that_subscribed() {
    let stage = Stage::new(&[("one", nothing)]);
    let mut clients = [stage.client("a", &able()), stage.client("b", &able()), stage.client("c", &able())];
    let second = clients[1].session.clone();
    for Client { session, .. } in &clients[..2] {
        let room = session.account.nothing(crate::budget::MemoryUse::State);
        lock(&session.subscriptions).insert("note:///1".to_owned(), (None, room));
    }
    let mut received = |origin, uri| {
        notify(&stage, origin, "notifications/resources/updated", &json!({ "uri": uri }));
        clients.each_mut().map(|client| client.received().len())
    };
    assert_eq!(received(MessageOrigin::shared(Several), "note:///1"), [1, 1, 0]);
    assert_eq!(received(MessageOrigin::shared(Several), "note:///2"), [0, 0, 0]);
    assert_eq!(received(MessageOrigin::own(&second), "note:///1"), [0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn with_a_shared_connection_in_each_era_a_change_is_announced_once_to_each_client() {
    let both = ScriptedBackend::new("one", nothing).in_eras(&[Era::Legacy, Era::Modern]).shared();
    let stage = Stage::with(&[both]);
    let mut legacy = stage.client("legacy", &able());
    let (outbox, lines) = mpsc::channel(64);
    let mut modern = Client { session: stage.gateway.open_session("modern"), outbox, lines };
    let method = "notifications/tools/list_changed";
    let envelope = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let line = json!({
        "jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen",
        "params": { "_meta": envelope, "notifications": { "toolsListChanged": true } },
    });
    let accepted = stage.gateway.accept(&modern.session, &line.to_string(), &modern.outbox);
    let Accepted::Request(listen) = accepted else { panic!("a request is accepted") };
    let (gateway, outbox) = (stage.gateway.clone(), modern.outbox.clone());
    let listening = tokio::spawn(async move { gateway.answer_on(listen, &outbox).await });
    let acknowledged = modern.lines.recv().await.expect("the stream is open").deliver();
    assert!(acknowledged.contains("subscriptions/acknowledged"), "{acknowledged}");
    stage.answer(stage.legacy(&legacy.session, "tools/list", &json!({}))).await;
    let connections = stage.gateway.backends()[0].open_connections();
    assert_eq!(connections.len(), 2, "one for each era");
    legacy.received();
    let notify = |era| {
        let notification = BackendNotification {
            backend: "one".to_owned(),
            owner: None,
            clients_seen: Several,
            era,
            method: method.to_owned(),
            line: message::notification(method, None),
        };
        stage.gateway.pass_to_clients(&notification, &[]);
    };
    notify(Era::Legacy);
    assert_eq!((legacy.received().len(), modern.received().len()), (1, 0));
    notify(Era::Modern);
    assert_eq!((legacy.received().len(), modern.received().len()), (0, 1));
    // With one connection, what comes there is for the clients of both eras.
    connections.iter().filter(|connection| connection.era == Era::Legacy).for_each(|c| c.close("test"));
    notify(Era::Modern);
    assert_eq!((legacy.received().len(), modern.received().len()), (1, 1));
    listening.abort();
}
