//! Only the client that owns the gateway ends it, and nothing is accepted after that but its `exit`.

use futures_util::FutureExt;
use serde_json::{Value, json};

use super::*;
use crate::gateway::stage::Stage;

fn server(method: &str, _: &Value) -> Option<Value> {
    (method == "tools/list").then(|| json!({ "tools": [] }))
}

/// Returns the code of the error with which a line is refused; `None` if it is not refused.
fn refusal(accepted: Accepted) -> Option<i64> {
    let Accepted::Refused(answer) = accepted else { return None };
    let answer: Value = serde_json::from_str(&answer).expect("an answer is JSON");
    answer["error"]["code"].as_i64()
}

const REQUEST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
const EXIT_LINE: &str = r#"{"jsonrpc":"2.0","method":"exit"}"#;

#[tokio::test]
async fn a_client_that_may_be_one_of_several_ends_nothing() {
    let stage = Stage::new(&[("one", server)]);
    let session = stage.gateway.open_session("alice");
    for line in [r#"{"id":1,"method":"shutdown"}"#, r#"{"method":"shutdown"}"#, EXIT_LINE] {
        assert_eq!(refusal(stage.accept(&session, line)), Some(code::METHOD_NOT_FOUND), "{line}");
    }
    assert!(matches!(stage.accept(&session, REQUEST), Accepted::Request(_)));
    assert_eq!(stage.gateway.exited().now_or_never(), None, "the process goes on");
}

#[tokio::test]
async fn the_owner_may_exit_with_and_without_a_shutdown() {
    let stage = Stage::new(&[("one", server)]);
    stage.gateway.let_client_end_it();
    let session = stage.gateway.open_session("alice");
    for line in [r#"{"id":1,"method":"exit"}"#, r#"{"method":"shutdown"}"#] {
        assert_eq!(refusal(stage.accept(&session, line)), Some(code::INVALID_REQUEST), "{line}");
    }
    assert!(matches!(stage.accept(&session, EXIT_LINE), Accepted::NoReply));
    assert_eq!(stage.gateway.exited().await, 1, "it did not shut down first");
}

#[tokio::test]
async fn after_a_shutdown_only_exit_is_taken() {
    let stage = Stage::new(&[("one", server)]);
    stage.gateway.let_client_end_it();
    let session = stage.gateway.open_session("alice");
    // Not with the request itself: it would also end the processes that other tests have started.
    stage.gateway.ending.is_shut_down.store(true, Ordering::Relaxed);
    for line in [REQUEST, r#"{"id":2,"method":"shutdown"}"#] {
        assert_eq!(refusal(stage.accept(&session, line)), Some(code::INVALID_REQUEST), "{line}");
    }
    let notification = r#"{"method":"notifications/x"}"#;
    assert!(matches!(stage.accept(&session, notification), Accepted::NoReply));
    assert!(stage.gateway.backends()[0].open_connections().is_empty(), "no backend was started");
    assert!(matches!(stage.accept(&session, EXIT_LINE), Accepted::NoReply));
    assert_eq!(stage.gateway.exited().await, 0);
}
