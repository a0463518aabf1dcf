//! How a conversation opens, in either era or both, and how it ends.

use std::error::Error;

use scrubjay_tools::{ServeError, serve_sample};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{Client, Era};

const INVALID_PARAMS: i64 = -32602;
const UNSUPPORTED_VERSION: i64 = -32022;

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("expected an error, got {answer}"))
}

async fn assert_echoes(client: &mut Client) {
    let result = client.call("echo", json!({"text": "alive"})).await;
    assert_eq!(result["content"][0]["text"], "alive", "{result}");
}

#[tokio::test(start_paused = true)]
async fn discover_returns_the_server_and_its_capabilities() {
    let mut client = Client::connect(Era::Modern);
    let answer = client.ask("server/discover", json!({})).await;
    let result = &answer["result"];
    assert_eq!(result["supportedVersions"].as_array().unwrap().last().unwrap(), "2026-07-28");
    assert_eq!(result["capabilities"], json!({"prompts": {}, "resources": {}, "tools": {}}));
    let server = &result["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(server["name"], "scrubjay-sample");
    assert_eq!(server["version"], env!("CARGO_PKG_VERSION"));
    assert!(result["instructions"].as_str().unwrap().contains("sample://readme"));
    client.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn initialize_echoes_a_known_version_and_offers_the_newest_otherwise() {
    for (asked, negotiated) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let mut client = Client::connect(Era::Legacy);
        let answer = client.initialize(asked).await;
        assert_eq!(answer["result"]["protocolVersion"], negotiated, "asked for {asked}");
        assert_eq!(answer["result"]["serverInfo"]["name"], "scrubjay-sample");
        client.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_modern_client_may_skip_discover() {
    let mut client = Client::connect(Era::Modern);
    assert_echoes(&mut client).await;
    client.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_may_discover_and_then_initialize() {
    let mut client = Client::open(Era::Modern).await;
    client.initialize("2025-11-25").await;
    client.era = Era::Legacy;
    assert_echoes(&mut client).await;
    client.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_may_cancel_its_probe_and_initialize() {
    let mut client = Client::open(Era::Modern).await;
    let params = json!({"requestId": 1, "reason": "probe timed out"});
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})).await;
    client.initialize("2025-11-25").await;
    client.era = Era::Legacy;
    assert_echoes(&mut client).await;
    client.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_legacy_conversation_takes_modern_requests_too() {
    let mut client = Client::open(Era::Legacy).await;
    for era in [Era::Legacy, Era::Modern, Era::Legacy] {
        client.era = era;
        assert_echoes(&mut client).await;
    }
    client.era = Era::Modern;
    assert!(client.ask("server/discover", json!({})).await["result"].is_object());
    client.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_modern_conversation_refuses_requests_without_context() {
    let mut client = Client::open(Era::Modern).await;
    assert_echoes(&mut client).await;
    client.era = Era::Legacy;
    assert_eq!(code(&client.ask("tools/list", json!({})).await), INVALID_PARAMS);
    client.era = Era::Modern;
    assert_echoes(&mut client).await;
    client.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_before_initialize_is_refused_without_ending_the_connection() {
    let mut client = Client::connect(Era::Legacy);
    assert_eq!(code(&client.ask("tools/list", json!({})).await), INVALID_PARAMS);
    assert_eq!(code(&client.ask("server/discover", json!({})).await), INVALID_PARAMS);
    assert_eq!(client.ask("ping", json!({})).await["result"], json!({}));
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    client.initialize("2025-11-25").await;
    assert_echoes(&mut client).await;
    client.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_unknown_version_is_refused_with_the_known_ones() {
    let mut client = Client::connect(Era::Legacy);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2099-01-01",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    for method in ["server/discover", "tools/list"] {
        let answer = client.ask(method, json!({"_meta": meta})).await;
        assert_eq!(code(&answer), UNSUPPORTED_VERSION);
        assert!(answer["error"]["data"]["supported"].as_array().unwrap().contains(&json!("2026-07-28")));
    }
    // The refused request opened nothing: a notification is still dropped, `initialize` still works.
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    client.initialize("2025-11-25").await;
    client.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_without_a_message_is_no_error() {
    Client::connect(Era::Legacy).close().await.unwrap();
    Client::open(Era::Modern).await.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_is_given_five_seconds_after_the_client_leaves() {
    let mut client = Client::open(Era::Legacy).await;
    client.send_request("tools/call", json!({"name": "slow", "arguments": {"ms": 60_000}})).await;
    // An answer proves that the slow call, sent first, has been read.
    assert_echoes(&mut client).await;
    let start = Instant::now();
    client.close().await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 5, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_written_is_an_error() {
    let (writer, other_end) = tokio::io::duplex(64);
    drop(other_end);
    let line: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
    let error = serve_sample(line, writer).await.unwrap_err();
    assert!(matches!(error, ServeError::Open(_)), "{error}");
    assert!(error.source().is_some());
}
