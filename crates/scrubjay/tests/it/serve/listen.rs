//! `scrubjay wrap --listen`: hosts over HTTP get the server's messages unchanged, each from a server of its own.

use std::path::Path;

use serde_json::{Value, json};

use super::http::Target;
use super::rig::{
    Served, answer_text, entries, initialize, modern, open_session, post_modern, repository, scratch, text,
    until,
};

/// A server with unusual JSON spelling, which no library writes; its input goes to `server.log`.
pub(super) fn odd_server(directory: &Path) -> Vec<String> {
    let script = repository().join("tests/backends/verbatim_server.py");
    let log = directory.join("server.log");
    ["--", "python3", "-B", &text(&script), &text(&log)].map(ToOwned::to_owned).to_vec()
}

pub(super) fn log(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("server.log")).unwrap_or_default()
}

pub(super) fn request(id: u64, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

fn call(target: &Target, id: u64, tool: &str) -> Value {
    target.post(&request(id, "tools/call", &json!({ "name": tool }))).json()
}

pub(super) const LIST: &str = r#"{ "tools" : [{"name":"pid","inputSchema":{"type":"object"}, "x-odd" : 1.0}], "_meta":{"odd":1e400}, "nextCursor":"page two", "ttlMs":  7, "resultType":"complete","cacheScope":"public"}"#;
pub(super) const GREETING: &str = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"experimental":{"odd":{"n":1.50}}},"serverInfo":{"name":"odd","version":"0.0","odd":true},"instructions":"be odd"}"#;
pub(super) const DISCOVERED: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"experimental":{"odd":{"n":1.50}}},"ttlMs":5,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"odd","version":"0"}}}"#;

pub(super) fn result(id: u64, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

pub(super) fn error(id: u64, what: &str) -> String {
    let error = format!(r#"{{"data":{{"n":1.0}},"code":-32000,"message":"odd: {what}"}}"#);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}

/// What hosts of both eras receive, byte for byte.
fn check_messages(target: &Target) {
    assert_eq!(target.post(&initialize(1).to_string()).raw_answer(), result(1, GREETING));
    let legacy = open_session(target);
    // With its cursor, because nothing is aggregated here.
    let list = legacy.post(&request(2, "tools/list", &json!({ "cursor": "x" }))).raw_answer();
    assert_eq!(list, result(2, LIST));
    assert_eq!(
        legacy.post(&request(3, "tools/call", &json!({ "name": "nobody" }))).raw_answer(),
        error(3, "nobody")
    );
    for method in ["ping", "odd/method", "logging/setLevel", "resources/subscribe", "prompts/list"] {
        assert_eq!(legacy.post(&request(4, method, &json!({}))).raw_answer(), error(4, method));
    }
    assert_eq!(
        post_modern(target, &modern(5, "server/discover", &json!({}))).raw_answer(),
        result(5, DISCOVERED)
    );
    assert_eq!(post_modern(target, &modern(6, "tools/list", &json!({}))).raw_answer(), result(6, LIST));
    let unknown = modern(7, "tools/call", &json!({ "name": "nobody" }));
    assert_eq!(post_modern(target, &unknown).raw_answer(), error(7, "nobody"));
    assert_eq!(
        post_modern(target, &modern(8, "odd/method", &json!({}))).raw_answer(),
        error(8, "odd/method")
    );
}

#[test]
fn hosts_get_the_messages_of_a_program_unchanged() {
    let directory = scratch();
    let served = Served::wrap(directory.path(), &[], &odd_server(directory.path()));
    check_messages(&served.target());
    let log = log(directory.path());
    // The server got the host's own greeting, not one from Scrubjay.
    assert!(log.contains(r#""clientInfo":{"name":"test","version":"1"}"#), "{log}");
    assert!(!log.contains("scrubjay"), "{log}");
}

#[test]
fn hosts_get_the_messages_of_a_remote_server_unchanged() {
    let directory = scratch();
    // A server on HTTP: the same server, behind another `wrap --listen`.
    let behind = Served::wrap(&directory.path().join("behind"), &[], &odd_server(directory.path()));
    let url = format!("http://{}/mcp", behind.address);
    let served = Served::wrap(&directory.path().join("front"), &["--url", &url], &[]);
    check_messages(&served.target());
    let (one, two) = (open_session(&served.target()), open_session(&served.target()));
    assert_ne!(
        answer_text(&call(&one, 2, "pid")),
        answer_text(&call(&two, 2, "pid")),
        "sessions are passed on"
    );
}

#[test]
fn each_session_has_a_server_and_modern_requests_share_one() {
    let directory = scratch();
    let served = Served::wrap(directory.path(), &[], &odd_server(directory.path()));
    let target = served.target();
    let (one, two) = (open_session(&target), open_session(&target));
    let (first, second) = (call(&one, 2, "pid"), call(&two, 2, "pid"));
    assert_ne!(answer_text(&first), answer_text(&second));
    assert_eq!(answer_text(&first), answer_text(&call(&one, 3, "pid")));
    let modern_pid = |name: &str| {
        let mut asked = modern(2, "tools/call", &json!({ "name": "pid" }));
        asked["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]["name"] = json!(name);
        answer_text(&post_modern(&target, &asked).json()).to_owned()
    };
    assert_eq!(modern_pid("a"), modern_pid("b"));
    assert!(![answer_text(&first), answer_text(&second)].contains(&modern_pid("a").as_str()));

    // If a session ends, its server ends, and the other way round.
    let gone = |pid: &str| !Path::new("/proc").join(pid).exists();
    assert_eq!(one.delete().status, 200);
    until("its server is gone", || gone(answer_text(&first)));
    let died = call(&two, 4, "die");
    assert!(died["error"]["message"].as_str().is_some_and(|m| m.contains("exit status: 7")), "{died}");
    until("its session is over", || two.post(&request(5, "ping", &json!({}))).status == 404);
    let again = open_session(&target);
    assert!(!gone(answer_text(&call(&again, 2, "pid"))));
    drop(served);
    until("no server is left", || {
        let log = log(directory.path());
        log.lines().filter_map(|line| line.split(' ').next()).all(gone)
    });
}

#[test]
fn questions_progress_and_notifications_reach_their_host() {
    let directory = scratch();
    let served = Served::wrap(directory.path(), &[], &odd_server(directory.path()));
    let host = open_session(&served.target());
    let other = open_session(&served.target());
    let (mut standing, mut elsewhere) = (host.get(), other.get());

    let mut asking = host.post(&request(2, "tools/call", &json!({ "name": "ask" })));
    let question = asking.event().expect("a question").message;
    assert_eq!((&question["method"], &question["params"]), (&json!("roots/list"), &json!({ "odd": 1.0 })));
    let roots = json!({ "roots": [{ "uri": "file:///x" }] });
    let given = json!({ "jsonrpc": "2.0", "id": question["id"], "result": roots });
    assert_eq!(host.post(&given.to_string()).status, 202);
    let answer = asking.event().expect("an answer").message;
    assert_eq!(serde_json::from_str::<Value>(answer_text(&answer)).expect("JSON"), roots);

    let params = json!({ "name": "count", "_meta": { "progressToken": "mine" } });
    let messages = host.post(&request(3, "tools/call", &params)).messages();
    assert_eq!(messages[0]["params"], json!({ "progressToken": "mine", "progress": 1 }));
    assert_eq!(answer_text(&messages[1]), "counted");

    for target in [&host, &other] {
        let notification = json!({ "jsonrpc": "2.0", "method": "notifications/odd" });
        assert_eq!(target.post(&notification.to_string()).status, 202);
    }
    for stream in [&mut standing, &mut elsewhere] {
        let received = stream.event().expect("an announcement").message;
        assert_eq!(received["method"], "notifications/tools/list_changed");
        assert_eq!(received["params"], json!({ "_meta": { "odd": 1 } }));
    }

    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let mut listening = post_modern(&served.target(), &modern(77, "subscriptions/listen", &filter));
    for method in ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"] {
        let received = listening.event().expect("a notification").message;
        assert_eq!(received["method"], method);
        assert_eq!(received["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 77, "{received}");
    }
}

#[test]
fn disconnecting_and_cancelling_reach_the_server() {
    let directory = scratch();
    let served = Served::wrap(directory.path(), &[], &odd_server(directory.path()));
    let waits = |count: usize| log(directory.path()).matches(r#""name":"wait""#).count() == count;
    let cancelled = |count: usize| log(directory.path()).matches("notifications/cancelled").count() == count;

    let host = open_session(&served.target());
    let waiting = host.begin("POST", &request(2, "tools/call", &json!({ "name": "wait" })));
    until("the server has it", || waits(1));
    let notification =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 2 } });
    assert_eq!(host.post(&notification.to_string()).status, 202);
    until("the server gets the cancellation", || cancelled(1));
    drop(waiting);

    let asked = modern(2, "tools/call", &json!({ "name": "wait" }));
    let target = served.target().with("MCP-Protocol-Version", "2026-07-28").with("Mcp-Method", "tools/call");
    let waiting = target.with("Mcp-Name", "wait").begin("POST", &asked.to_string());
    until("the server has it", || waits(2));
    drop(waiting);
    until("the server gets the cancellation", || cancelled(2));
}

#[test]
fn the_server_checks_versions_and_scrubjay_checks_headers() {
    let directory = scratch();
    let served = Served::wrap(directory.path(), &[], &odd_server(directory.path()));
    let target = served.target();
    let odd = open_session(&target).with("MCP-Protocol-Version", "1999-01-01");
    assert_eq!(odd.post(&request(2, "tools/list", &json!({}))).raw_answer(), result(2, LIST));
    let call = modern(3, "tools/call", &json!({ "name": "nobody" }));
    let with_version = |version: &str| {
        let target = target.clone().with("MCP-Protocol-Version", version);
        target.with("Mcp-Method", "tools/call").with("Mcp-Name", "nobody")
    };
    assert_eq!(with_version("2026-07-28").post(&call.to_string()).text(), error(3, "nobody"));
    // A program sees no headers, so Scrubjay must check that they agree with the body.
    for (name, value) in [("Mcp-Name", "other"), ("Mcp-Method", "other"), ("Mcp-Param-X", "=?base64?!?=")] {
        let refused = with_version("2026-07-28").with(name, value).post(&call.to_string());
        assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!(-32020)), "{name}");
    }
    // The server may know a protocol version that Scrubjay does not.
    let mut unknown = call.clone();
    unknown["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2099-01-01");
    assert_eq!(with_version("2099-01-01").post(&unknown.to_string()).text(), error(3, "nobody"));
}

#[test]
fn messages_that_are_too_long_are_refused() {
    let directory = scratch();
    let options = ["--max-message-size", "4KiB", "--durability", "power"];
    let served = Served::wrap(directory.path(), &options, &odd_server(directory.path()));
    let host = open_session(&served.target());
    let long = request(2, "tools/call", &json!({ "name": "x".repeat(5000) }));
    assert_eq!(host.post(&long).status, 413);
    assert!(!answer_text(&call(&host, 3, "pid")).is_empty());
    drop(served);
    let entries = entries(directory.path(), "odd");
    assert!(entries.iter().any(|e| e["method"] == "initialize"), "{entries:?}");
    // The refusal is on the tape of the session that the request named.
    let refused = entries.iter().find(|e| e["kind"] == "note" && e.to_string().contains("too long"));
    assert!(refused.is_some_and(|e| e.to_string().contains(&long.len().to_string())), "{entries:?}");
}

#[test]
fn hosts_are_served_without_recording_only_if_configured() {
    for (options, is_served) in [(&["--on-record-failure", "forward"][..], true), (&[][..], false)] {
        let directory = scratch();
        // Tapes cannot be made because a file has the name of their directory.
        let data = directory.path().join("data");
        std::fs::create_dir(&data).expect("the directory is ours");
        std::fs::write(data.join("tapes"), "in the way").expect("the directory is ours");
        let served = Served::wrap(&data, options, &odd_server(directory.path()));
        let answer = served.target().post(&initialize(1).to_string()).json();
        assert_eq!(answer["result"].is_object(), is_served, "{answer}");
        assert_eq!(log(directory.path()).contains("initialize"), is_served);
    }
}
