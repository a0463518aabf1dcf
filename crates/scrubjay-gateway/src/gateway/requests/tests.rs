//! What is accepted of a client and what is refused, and that either is on its tape.

use scrubjay_core::entry::Direction::ClientToServer;
use serde_json::{Value, json};

use super::*;
use crate::budget::MemoryLimits;
use crate::gateway::stage::Stage;

fn server(method: &str, params: &Value) -> Option<Value> {
    match method {
        "tools/list" => Some(json!({ "tools": [{ "name": "echo", "inputSchema": {} }] })),
        "tools/call" => Some(json!({ "content": [{ "type": "text", "text": params["name"] }] })),
        _ => None,
    }
}

/// Returns the error with which a line is refused.
fn refusal(accepted: Accepted) -> Value {
    let Accepted::Refused(answer) = accepted else { panic!("the line is refused") };
    let mut answer: Value = serde_json::from_str(&answer).expect("an answer is JSON");
    answer["error"]["id"] = answer["id"].take();
    answer["error"].take()
}

fn text_of(bytes: usize) -> String {
    "x".repeat(bytes)
}

#[tokio::test]
async fn a_line_that_is_refused_is_on_tape_and_its_error_names_the_request() {
    let (long_id, long_method) = (text_of(message::ID_BYTES_MAX), text_of(METHOD_BYTES_MAX + 1));
    let lines = [
        ("not JSON".to_owned(), code::PARSE, json!(null)),
        ("7".to_owned(), code::INVALID_REQUEST, json!(null)),
        ("[]".to_owned(), code::INVALID_REQUEST, json!(null)),
        ("{}".to_owned(), code::INVALID_REQUEST, json!(null)),
        (r#"{"jsonrpc":"2.0","id":1}"#.to_owned(), code::INVALID_REQUEST, json!(1)),
        (r#"{"jsonrpc":"2.0","result":{}}"#.to_owned(), code::INVALID_REQUEST, json!(null)),
        // A server may take it for a notification, and perform it.
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"tools/call"}"#.to_owned(),
            code::INVALID_REQUEST,
            json!(null),
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"notifications/x"}"#.to_owned(),
            code::INVALID_REQUEST,
            json!(null),
        ),
        (r#"{"jsonrpc":"2.0","id":2,"method":"server/discover"}"#.to_owned(), code::INVALID_PARAMS, json!(2)),
        // Longer than the limit with its quotes.
        (format!(r#"{{"id":"{long_id}","method":"ping"}}"#), code::INVALID_REQUEST, json!(null)),
        (format!(r#"{{"id":3,"method":"{long_method}"}}"#), code::INVALID_REQUEST, json!(3)),
        (format!(r#"{{"method":"{long_method}"}}"#), code::INVALID_REQUEST, json!(null)),
    ];
    let stage = Stage::new(&[]);
    let session = stage.gateway.open_session("alice");
    for (line, code, id) in &lines {
        let error = refusal(stage.accept(&session, line));
        assert_eq!((&error["code"], &error["id"]), (&json!(code), id), "{line}: {error}");
    }
    let taped = stage.taped("alice", ClientToServer);
    assert_eq!(taped, lines.map(|(line, ..)| line));
}

#[tokio::test]
async fn an_id_and_a_method_may_have_as_many_bytes_as_the_limit() {
    let stage = Stage::new(&[]);
    let session = stage.gateway.open_session("alice");
    let id = format!("\"{}\"", text_of(message::ID_BYTES_MAX - 2));
    let line = format!(r#"{{"id":{id},"method":"{}"}}"#, text_of(METHOD_BYTES_MAX));
    let Accepted::Request(request) = stage.accept(&session, &line) else { panic!("it is accepted") };
    assert_eq!((request.id.as_raw(), request.method.len()), (id.as_str(), METHOD_BYTES_MAX));
}

#[tokio::test]
async fn only_notifications_are_passed_on_without_an_id() {
    let stage = Stage::new(&[("one", server)]);
    let session = stage.gateway.open_session("alice");
    let list = async || stage.answer(stage.legacy(&session, "tools/list", &json!({}))).await;
    list().await;
    for method in ["tools/call", "resources/subscribe", "unknown", "Notifications/x"] {
        let line = json!({ "jsonrpc": "2.0", "method": method, "params": { "name": "echo" } }).to_string();
        assert!(matches!(stage.accept(&session, &line), Accepted::NoReply), "{method}");
    }
    let line = r#"{"jsonrpc":"2.0","method":"notifications/x","params":{ "n":1.0}}"#;
    assert!(matches!(stage.accept(&session, line), Accepted::NoReply));
    // Its answer comes after what was sent before it.
    list().await;
    for method in ["tools/call", "resources/subscribe", "unknown", "Notifications/x"] {
        assert!(stage.params_received("one", method).is_empty(), "{method}");
    }
    assert_eq!(stage.params_received("one", "notifications/x"), [r#"{ "n":1.0}"#]);
    let notes = stage.notes("alice");
    let refused: Vec<&Value> =
        notes.iter().filter(|note| note["event"] == "refused").map(|note| &note["method"]).collect();
    assert_eq!(refused, ["tools/call", "resources/subscribe", "unknown", "Notifications/x"]);
}

#[tokio::test]
async fn a_progress_token_in_use_is_refused() {
    let stage = Stage::new(&[]);
    let session = stage.gateway.open_session("alice");
    let line = |id: u8, token: &str| {
        format!(r#"{{"id":{id},"method":"tools/list","params":{{"_meta":{{"progressToken":{token}}}}}}}"#)
    };
    let Accepted::Request(first) = stage.accept(&session, &line(1, "7")) else { panic!("it is accepted") };
    let error = refusal(stage.accept(&session, &line(2, "7")));
    assert_eq!((&error["code"], &error["id"]), (&json!(code::INVALID_PARAMS), &json!(2)));
    assert!(matches!(stage.accept(&session, &line(3, "\"7\"")), Accepted::Request(_)), "another token");
    drop(first);
    assert!(matches!(stage.accept(&session, &line(4, "7")), Accepted::Request(_)), "it is free again");
}

#[tokio::test]
async fn a_request_id_in_use_is_refused() {
    let stage = Stage::new(&[]);
    let session = stage.gateway.open_session("alice");
    let line = r#"{"id":1,"method":"tools/list"}"#;
    let Accepted::Request(first) = stage.accept(&session, line) else { panic!("it is accepted") };
    assert_eq!(refusal(stage.accept(&session, line))["code"], code::INVALID_REQUEST);
    drop(first);
    assert!(matches!(stage.accept(&session, line), Accepted::Request(_)), "it is free again");
}

#[tokio::test]
async fn an_answer_to_no_question_is_recorded_and_ignored() {
    let stage = Stage::new(&[]);
    let session = stage.gateway.open_session("alice");
    let lines = [
        r#"{"jsonrpc":"2.0","id":"scrubjay-1","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"no"}}"#,
    ];
    for line in lines {
        assert!(matches!(stage.accept(&session, line), Accepted::NoReply), "{line}");
    }
    assert_eq!(stage.taped("alice", ClientToServer), lines);
}

#[tokio::test]
async fn without_memory_a_message_may_be_sent_again_later() {
    let stage = Stage::new(&[]);
    let session = stage.gateway.open_session("alice");
    let all = session.account.charge(MemoryUse::Delivery, MemoryLimits::default().session_bytes_max);
    let all = all.expect("an idle session may make one charge of any size");
    let lines = [r#"{"id":1,"method":"tools/list"}"#, r#"{"method":"notifications/x"}"#];
    for (line, id) in lines.into_iter().zip([json!(1), json!(null)]) {
        let Accepted::Full(answer) = stage.accept(&session, line) else { panic!("there is no room") };
        let answer: Value = serde_json::from_str(&answer).expect("an answer is JSON");
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code::INTERNAL)), "{line}");
    }
    drop(all);
    assert!(matches!(stage.accept(&session, lines[0]), Accepted::Request(_)), "the id is not taken");
    assert_eq!(stage.taped("alice", ClientToServer), [lines[0], lines[1], lines[0]]);
}
