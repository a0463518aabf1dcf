//! Who may use the HTTP front, and how its sessions and streams begin and end.

use std::process::Command;

use serde_json::{Value, json};

use super::rig::{
    Served, answer_text, fixture, initialize, modern, open_session, post_modern, scratch, tapped, text, until,
};

fn start() -> (tempfile::TempDir, Served) {
    let scratch = scratch();
    let served = Served::start(&scratch.path().join("data"), &[], &fixture(&[]));
    (scratch, served)
}

fn call(id: u64, tool: &str, arguments: &Value) -> String {
    let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": id } });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
}

#[test]
fn foreign_hosts_and_origins_are_refused() {
    let (_scratch, served) = start();
    let target = served.target();
    let hello = initialize(1).to_string();
    for (name, value) in [
        ("Host", "evil.example"),
        ("Host", "127.0.0.1.evil.example"),
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
        ("Origin", "http://localhost.evil.example"),
        ("Sec-Fetch-Site", "cross-site"),
    ] {
        for reply in [
            target.clone().with(name, value).post(&hello),
            target.clone().with(name, value).get(),
            target.clone().with(name, value).delete(),
        ] {
            assert_eq!(reply.status, 403, "{name}: {value}");
        }
    }
    for (name, value) in [("Origin", "http://localhost:3000"), ("Host", "localhost")] {
        assert_eq!(target.clone().with(name, value).post(&hello).status, 200, "{name}: {value}");
    }
}

#[test]
fn a_configured_token_is_required() {
    let scratch = scratch();
    let file = scratch.path().join("token");
    super::rig::write_private(&file, "a-token-of-good-length\n");
    let options = ["--auth-token-file", &text(&file)];
    let served = Served::start(&scratch.path().join("data"), &options, &fixture(&[]));
    let hello = initialize(1).to_string();
    for wrong in ["", "Bearer", "Bearer a-token-of-good-lengt", "Bearer a-token-of-good-length2", "Basic abc"]
    {
        let reply = served.target().with("Authorization", wrong).post(&hello);
        assert_eq!(reply.status, 401, "{wrong:?}");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    }
    for right in ["Bearer", "bearer", "BEARER"] {
        let right = served.target().with("Authorization", &format!("{right} a-token-of-good-length"));
        assert_eq!(right.post(&hello).status, 200);
    }
}

#[test]
fn pages_of_allowed_origins_may_call_and_read() {
    let directory = scratch();
    let backend = fixture(&[]);
    let config = json!({
        "serve": { "auth_token": "a-token", "allowed_origins": ["https://app.example"] },
        "backends": [{ "id": "one", "type": "stdio", "command": backend[0], "args": backend[1..] }],
    });
    let served = Served::configured(directory.path(), &config.to_string(), None);
    let hello = initialize(1).to_string();
    for origin in ["https://app.example", "http://localhost:6274"] {
        let page = served.target().with("Origin", origin);
        let asking = page.clone().with("Access-Control-Request-Method", "POST");
        let asking = asking.with("Access-Control-Request-Headers", "authorization,mcp-param-region");
        let asked = asking.options();
        assert_eq!(asked.status, 204);
        assert_eq!(asked.header("access-control-allow-origin"), Some(origin));
        assert_eq!(asked.header("access-control-allow-headers"), Some("authorization,mcp-param-region"));
        assert!(asked.header("access-control-allow-methods").is_some_and(|m| m.contains("DELETE")));
        assert_eq!(asked.header("access-control-allow-credentials"), None);
        for (token, status) in [("Bearer a-token", 200), ("", 401)] {
            let reply = page.clone().with("Authorization", token).post(&hello);
            assert_eq!(reply.status, status);
            assert_eq!(reply.header("access-control-allow-origin"), Some(origin));
            let readable = reply.header("access-control-expose-headers").unwrap_or_default();
            for header in ["Mcp-Session-Id", "MCP-Protocol-Version", "WWW-Authenticate"] {
                assert!(readable.contains(header), "{readable}");
            }
        }
    }
    let foreign = served.target().with("Origin", "https://evil.example");
    let foreign = foreign.with("Access-Control-Request-Method", "POST").options();
    assert_eq!((foreign.status, foreign.header("access-control-allow-origin")), (403, None));
    // A client that is not a page gets no CORS headers.
    let plain = served.target().with("Authorization", "Bearer a-token").post(&hello);
    assert_eq!((plain.status, plain.header("access-control-allow-origin")), (200, None));
    // An OPTIONS request that is not a preflight is treated like any other request.
    assert_eq!(served.target().options().status, 401);
}

#[test]
fn an_idle_session_ends_after_its_timeout() {
    let directory = scratch();
    let backend = fixture(&[]);
    let config = json!({
        "serve": { "session_idle": "1s" },
        "backends": [{ "id": "one", "type": "stdio", "command": backend[0], "args": backend[1..] }],
    });
    let served = Served::configured(directory.path(), &config.to_string(), None);
    let session = open_session(&served.target());
    // Its open stream ends with it, within the time limit of these tests.
    let mut standing = session.get();
    while standing.event().is_some() {}
    let list = json!({ "jsonrpc": "2.0", "id": 5, "method": "tools/list" }).to_string();
    assert_eq!(session.post(&list).status, 404);
}

#[test]
fn other_machines_are_served_only_with_a_token() {
    let scratch = scratch();
    let output = Command::new(env!("CARGO_BIN_EXE_scrubjay"))
        .arg("--data")
        .arg(scratch.path())
        .args(["serve", "--http", "0.0.0.0:0", "--", "true"])
        .output()
        .expect("scrubjay starts");
    assert!(!output.status.success());
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("--auth-token-file"), "{complaint}");
}

#[test]
fn unacceptable_headers_and_bodies_are_refused() {
    let (_scratch, served) = start();
    let target = served.target();
    let hello = initialize(1).to_string();
    assert_eq!(target.clone().with("Content-Type", "text/plain").post(&hello).status, 415);
    assert_eq!(target.clone().with("Content-Type", "").post(&hello).status, 415);
    assert_eq!(target.clone().with("Accept", "application/json").post(&hello).status, 406);
    assert_eq!(target.clone().with("Accept", "text/event-stream").post(&hello).status, 406);
    assert_eq!(target.clone().with("Accept", "*/*").post(&hello).status, 200);
    assert_eq!(target.post(&" ".repeat((16 << 20) + 1)).status, 413);
    for (body, code) in [("{", -32700), ("[]", -32600), ("7", -32600), ("", -32700)] {
        let reply = target.post(body);
        assert_eq!(reply.status, 400, "{body:?}");
        assert_eq!(reply.json()["error"]["code"], code, "{body:?}");
    }
}

#[test]
fn a_session_lasts_until_it_is_deleted() {
    let (_scratch, served) = start();
    let target = served.target();
    let list = json!({ "jsonrpc": "2.0", "id": 5, "method": "tools/list" }).to_string();
    assert_eq!(target.post(&list).status, 400, "no session is named");
    assert_eq!(target.clone().with("Mcp-Session-Id", "made-up").post(&list).status, 404);
    let session = open_session(&target);
    let other = open_session(&target);
    assert!(session.post(&list).json()["result"]["tools"].is_array());
    assert_eq!(session.clone().with("MCP-Protocol-Version", "1999-01-01").post(&list).status, 400);
    assert_eq!(session.clone().with("Accept", "application/json").get().status, 406);
    assert_eq!(target.get().status, 400);
    // When a session ends, calls under way are cancelled and their streams end.
    let mut busy = session.post(&call(6, "test_streaming_elicitation", &json!({})));
    assert!(busy.event().is_some());
    assert_eq!(session.delete().status, 200);
    while let Some(event) = busy.event() {
        assert_ne!(event.message["id"], 6, "there is no answer after the end of the session");
    }
    assert_eq!(session.post(&list).status, 404);
    assert_eq!(session.delete().status, 404);
    assert!(other.post(&list).json()["result"]["tools"].is_array(), "the other session is still open");
}

#[test]
fn a_broken_stream_is_resumed_where_it_broke() {
    let (_scratch, served) = start();
    let session = open_session(&served.target());
    let answer_to = |message: &Value| {
        let content = json!({ "action": "accept", "content": { "name": "Jay" } });
        json!({ "jsonrpc": "2.0", "id": message["id"], "result": content }).to_string()
    };
    // Progress, a request to the client, and the rest only after its answer.
    let mut stream = session.post(&call(7, "test_streaming_elicitation", &json!({})));
    let first = stream.event().expect("progress");
    assert_eq!(first.message["params"]["progress"], 0);
    let seen = first.id.expect("events of legacy streams have ids");
    drop(stream);
    // A client that disconnects cancels nothing: the request is still there, and so is everything after it.
    let mut stream = session.clone().with("Last-Event-ID", &seen).get();
    assert_eq!(stream.status, 200);
    let question = stream.event().expect("the question");
    assert_eq!(question.message["method"], "elicitation/create");
    assert_eq!(session.post(&answer_to(&question.message)).status, 202);
    let mut rest = Vec::new();
    while let Some(event) = stream.event() {
        rest.push(event);
    }
    assert_eq!(rest.len(), 2, "the rest comes exactly once: {rest:?}");
    assert_eq!(rest[0].message["params"]["progress"], 1);
    assert_eq!(answer_text(&rest[1].message), "Hello, Jay!");
    // Resumed after the request: the same two events. Resumed after the last event: refused, as nothing can follow.
    let again = session.clone().with("Last-Event-ID", question.id.as_deref().expect("an id")).get();
    assert_eq!(again.messages(), [rest[0].message.clone(), rest[1].message.clone()]);
    let last = rest[1].id.as_deref().expect("an id");
    assert_eq!(session.clone().with("Last-Event-ID", last).get().status, 405);
    // A stream belongs to its session.
    let other = open_session(&served.target());
    assert_eq!(other.with("Last-Event-ID", &seen).get().status, 404);
}

#[test]
fn the_standing_stream_gets_change_notifications() {
    let (_scratch, served) = start();
    let session = open_session(&served.target());
    let mut standing = session.get();
    assert!(standing.is_stream());
    let changed = session.post(&call(8, "test_trigger_tool_change", &json!({}))).messages();
    assert_eq!(answer_text(changed.last().expect("an answer")), "Tool list changed");
    let event = standing.event().expect("a notification of the change");
    assert_eq!(event.message["method"], "notifications/tools/list_changed");
    drop(standing);
    // An event without a connected client waits for the client that resumes the stream.
    session.post(&call(9, "test_trigger_prompt_change", &json!({}))).messages();
    let mut standing = session.clone().with("Last-Event-ID", event.id.as_deref().expect("an id")).get();
    assert_eq!(standing.event().expect("the change").message["method"], "notifications/prompts/list_changed");
}

#[test]
fn disconnecting_cancels_calls_of_modern_clients_only() {
    let scratch = scratch();
    let backend = tapped(scratch.path(), fixture(&[]));
    let served = Served::start(&scratch.path().join("data"), &[], &backend);
    let received = || std::fs::read_to_string(scratch.path().join("backend.in")).unwrap_or_default();
    let target = served.target().with("MCP-Protocol-Version", "2026-07-28");
    let target = target.with("Mcp-Method", "tools/call").with("Mcp-Name", "test_reconnection");
    // The client leaves before the first byte of the answer.
    let slow = json!({ "name": "test_reconnection", "arguments": { "seconds": 60 } });
    let leaving = target.begin("POST", &modern(1, "tools/call", &slow).to_string());
    until("the backend is asked", || received().contains("test_reconnection"));
    drop(leaving);
    until("the backend gets the cancellation", || received().matches("notifications/cancelled").count() == 1);
    // A listener leaves in the middle of a stream, and the gateway still answers.
    let listen = modern(2, "subscriptions/listen", &json!({ "notifications": { "toolsListChanged": true } }));
    let mut listening = post_modern(&served.target(), &listen);
    let acknowledged = listening.event().expect("an acknowledgement").message;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    drop(listening);
    // A legacy client that disconnects has cancelled nothing.
    let session = open_session(&served.target());
    let leaving = session.begin("POST", &call(3, "test_reconnection", &json!({ "seconds": 1.25 })));
    until("the backend is asked", || received().contains("1.25"));
    drop(leaving);
    let answered = || std::fs::read_to_string(scratch.path().join("backend.out")).unwrap_or_default();
    until("the backend answers", || answered().contains("Reconnection test completed"));
    assert_eq!(
        received().matches("notifications/cancelled").count(),
        1,
        "only the modern call was cancelled"
    );
    // If a client ends its session, its server ends.
    let _leaving = session.begin("POST", &call(4, "test_reconnection", &json!({ "seconds": 61.5 })));
    until("the backend is asked", || received().contains("61.5"));
    let pids = std::fs::read_to_string(scratch.path().join("backend.pid")).expect("servers were started");
    let its_own = format!("/proc/{}", pids.lines().last().expect("the client's own came last"));
    assert!(std::path::Path::new(&its_own).exists());
    assert_eq!(session.delete().status, 200);
    until("its server is gone", || !std::path::Path::new(&its_own).exists());
}

#[test]
fn a_slow_answer_comes_on_a_stream_that_can_be_resumed_from_its_start() {
    let (_scratch, served) = start();
    let session = open_session(&served.target());
    let mut slow = session.begin("POST", &call(2, "test_reconnection", &json!({ "seconds": 0.5 })));
    let mut head = [0; 2048];
    let mut received = String::new();
    while !received.contains("\ndata: \n\n") {
        let read = std::io::Read::read(&mut slow, &mut head).expect("it is open");
        assert!(read > 0, "{received}");
        received += std::str::from_utf8(&head[..read]).expect("text");
    }
    let field = |name: &str| received.lines().find_map(|line| line.strip_prefix(name));
    assert_eq!(field("retry: "), Some("1000"), "{received}");
    let event = field("id: ").expect("an id").to_owned();
    drop(slow);
    let resumed = session.clone().with("Last-Event-ID", &event).get().messages();
    assert_eq!(resumed.last().expect("an answer")["id"], 2, "{resumed:?}");
}

#[test]
fn headers_that_contradict_the_body_are_refused() {
    let (_scratch, served) = start();
    let target = served.target();
    assert_eq!(post_modern(&target, &modern(1, "tools/list", &json!({}))).status, 200);
    let params = json!({ "name": "test_custom_header", "arguments": { "region": "eu", "count": 7 } });
    let request = modern(2, "tools/call", &params);
    let with = |region: &str, count: &str| {
        let target = target.clone().with("Mcp-Param-Region", region).with("Mcp-Param-Count", count);
        post_modern(&target, &request)
    };
    assert_eq!(answer_text(&with("eu", "7").json()), "region=eu, count=7");
    assert_eq!(with("=?base64?ZXU=?=", "7.0").status, 200);
    // In an encoded value, white space counts.
    let params = json!({ "name": "test_custom_header", "arguments": { "region": " us-west1", "count": 7 } });
    let spaced = target.clone().with("Mcp-Param-Count", "7");
    let spaced = |region: &str| {
        let target = spaced.clone().with("Mcp-Param-Region", region);
        post_modern(&target, &modern(2, "tools/call", &params)).status
    };
    assert_eq!(spaced("=?base64?IHVzLXdlc3Qx?="), 200);
    assert_eq!(spaced("=?base64?dXMtd2VzdDE=?="), 400);
    for (region, count) in [("us", "7"), ("", "7"), ("eu", ""), ("eu", "8"), ("=?base64?ZXU?=", "7")] {
        let reply = with(region, count);
        assert_eq!(reply.status, 400, "{region} {count}");
        assert_eq!(reply.json()["error"]["code"], -32020, "{region} {count}");
    }
    // An argument that is missing is not repeated in a header.
    let params = json!({ "name": "test_custom_header", "arguments": { "region": "eu" } });
    let target = target.with("Mcp-Param-Region", "eu");
    assert_eq!(post_modern(&target, &modern(3, "tools/call", &params)).status, 200);
    let extra = target.with("Mcp-Param-Count", "7");
    assert_eq!(post_modern(&extra, &modern(4, "tools/call", &params)).status, 400);
}
