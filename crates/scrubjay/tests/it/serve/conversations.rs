//! Modern clients over HTTP name no session, but each conversation still has a tape of its own.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::http::Connection;
use super::rig::{
    Served, answer_text, fixture, modern, modern_as, open_session, post_modern, repository, scratch,
    scrubjay, text, write_private,
};

/// Returns, for each tape of a client, the methods of its requests in order, and how its session was identified.
fn tapes(data: &Path) -> Vec<(Vec<String>, String)> {
    let listed: Value =
        serde_json::from_str(&scrubjay(data, &["--json", "tape", "ls", "--all"])).expect("JSON");
    let clients = listed.as_array().expect("a list").iter().filter(|tape| tape["name"] == "http");
    let mut found: Vec<(Vec<String>, String)> = clients
        .map(|tape| {
            let id = tape["id"].as_str().expect("an id");
            let exported = scrubjay(data, &["--json", "tape", "export", id, "--format", "jsonl"]);
            let entries: Vec<Value> =
                exported.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
            let asked = entries.iter().filter(|e| e["direction"] == "client_to_server" && e["via"].is_null());
            let methods = asked.filter_map(|e| e["method"].as_str().map(str::to_owned)).collect();
            let how = entries.iter().filter_map(|e| serde_json::from_str::<Value>(e["raw"].as_str()?).ok());
            let how = how.filter(|note| note["event"] == "session_inferred");
            (methods, how.filter_map(|note| note["how"].as_str().map(str::to_owned)).collect())
        })
        .collect();
    found.sort();
    found
}

fn start(directory: &Path) -> Served {
    Served::start(&directory.join("data"), &[], &fixture(&[]))
}

fn ask(connection: &mut Connection, id: u64, method: &str) {
    let headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
    let answer = connection.post(&headers, &modern(id, method, &json!({})).to_string());
    assert_eq!(answer["id"], id, "{answer}");
}

#[test]
fn conversations_of_one_program_are_distinguished_by_connection() {
    let directory = scratch();
    let served = start(directory.path());
    let (mut one, mut two) = (served.target().connect(), served.target().connect());
    ask(&mut one, 1, "server/discover");
    ask(&mut two, 1, "server/discover");
    ask(&mut one, 2, "tools/list");
    ask(&mut two, 2, "prompts/list");
    // Another connection of the same program continues the newest conversation.
    let mut three = served.target().connect();
    ask(&mut three, 3, "resources/list");
    ask(&mut one, 3, "tools/list");
    // On a connection that has a conversation, it begins no new one.
    ask(&mut two, 4, "server/discover");
    drop(served);
    let how = "by its connection, which began with server/discover".to_owned();
    let expected =
        |methods: &[&str]| (methods.iter().map(ToString::to_string).collect::<Vec<_>>(), how.clone());
    assert_eq!(
        tapes(&directory.path().join("data")),
        [
            expected(&["server/discover", "prompts/list", "resources/list", "server/discover"]),
            expected(&["server/discover", "tools/list", "tools/list"]),
        ]
    );
}

#[test]
fn conversations_are_distinguished_by_trace_and_process() {
    let directory = scratch();
    let served = start(directory.path());
    let traced = |id: u64, trace: &str| {
        let params = json!({ "_meta": { "traceparent": format!("00-{trace}-00f067aa0ba902b7-01") } });
        assert_eq!(post_modern(&served.target(), &modern(id, "tools/list", &params)).status, 200);
    };
    traced(1, "aaaa");
    traced(2, "bbbb");
    traced(3, "aaaa");
    // Without a trace: identified by its program, on any connection.
    let plain = modern(4, "prompts/list", &json!({}));
    assert_eq!(post_modern(&served.target(), &plain).status, 200);
    // Another program with the same name is another client.
    let sent = Command::new("curl")
        .args(["--silent", "--fail", "--header", "Content-Type: application/json"])
        .args([
            "--header",
            "Accept: application/json, text/event-stream",
            "--header",
            "Mcp-Method: prompts/list",
        ])
        .args(["--header", "MCP-Protocol-Version: 2026-07-28", "--data", &plain.to_string()])
        .arg(format!("http://{}/mcp", served.address))
        .output()
        .expect("curl is installed");
    assert!(sent.status.success(), "{sent:?}");
    drop(served);
    let found = tapes(&directory.path().join("data"));
    let expected = |methods: &[&str], how: &str| {
        (methods.iter().map(ToString::to_string).collect::<Vec<_>>(), how.to_owned())
    };
    assert_eq!(
        found,
        [
            expected(&["prompts/list"], "by its name and process"),
            expected(&["tools/list"], "by its trace"),
            expected(&["tools/list", "tools/list", "prompts/list"], "by its trace"),
        ]
    );
}

/// Returns a request for the number of the process that serves a client.
fn pid_request(id: u64) -> Value {
    let params = json!({ "name": "pid", "arguments": {} });
    modern_as(id, "tools/call", &params, &json!({}), None)
}

/// Starts a gateway before a server that keeps state for each client, with these tokens.
fn start_with_tokens(directory: &Path, tokens: &str) -> Served {
    let file = directory.join("tokens");
    write_private(&file, tokens);
    let script = text(&repository().join("tests/backends/session_server.py"));
    let server = ["python3", "-B", &script].map(str::to_owned);
    Served::start(&directory.join("data"), &["--auth-token-file", &text(&file)], &server)
}

#[test]
fn clients_with_different_tokens_share_no_conversation() {
    let directory = scratch();
    let served = start_with_tokens(directory.path(), "# tokens\nanna: token-of-anna\n\nbob: token-of-bob\n");
    let pid = |token: &str| {
        // All of them come from this process, with the same name, through the same proxy.
        let target = served.target().with("Authorization", &format!("Bearer {token}"));
        let reply = post_modern(&target.with("X-Forwarded-For", "192.0.2.7"), &pid_request(1));
        answer_text(&reply.json()).to_owned()
    };
    let (anna, bob) = (pid("token-of-anna"), pid("token-of-bob"));
    assert_ne!(anna, bob);
    assert_eq!((anna, bob), (pid("token-of-anna"), pid("token-of-bob")));
    // A session belongs to the token that opened it.
    let anna = served.target().with("Authorization", "Bearer token-of-anna");
    let session = open_session(&anna);
    let list = json!({ "jsonrpc": "2.0", "id": 5, "method": "tools/list" }).to_string();
    assert_eq!(session.post(&list).status, 200);
    assert_eq!(session.clone().with("Authorization", "Bearer token-of-bob").post(&list).status, 404);
    assert_eq!(served.target().with("Authorization", "Bearer token-of-eve").post(&list).status, 401);
    drop(served);
    let data = directory.path().join("data");
    let listed: Value =
        serde_json::from_str(&scrubjay(&data, &["--json", "tape", "ls", "--all"])).expect("JSON");
    let ids = listed.as_array().expect("a list").iter().filter_map(|tape| tape["id"].as_str());
    let exported: String =
        ids.map(|id| scrubjay(&data, &["--json", "tape", "export", id, "--format", "jsonl"])).collect();
    let names = |name: &str| exported.matches(&format!(r#"\"principal\":\"{name}\""#)).count();
    assert_eq!((names("anna"), names("bob")), (2, 1), "the tapes have the names of the tokens");
    assert!(!exported.contains("token-of-"), "the tapes do not contain the tokens");
}

#[test]
fn indistinguishable_clients_share_no_state_of_a_server() {
    let directory = scratch();
    let served = start_with_tokens(directory.path(), "one-token-for-all\n");
    let target = || served.target().with("Authorization", "Bearer one-token-for-all");
    for header in ["X-Forwarded-For", "Forwarded", "Via"] {
        let through = target().with(header, "x");
        let listed = post_modern(&through, &modern(1, "tools/list", &json!({}))).json();
        assert!(listed["result"]["tools"].as_array().is_some_and(|tools| !tools.is_empty()), "{listed}");
        let refused = post_modern(&through, &pid_request(2)).json();
        let why = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(why.contains("serve.auth_token_file") && why.contains("shared: true"), "{refused}");
    }
    // With a session, or if the process is known, each client has its own server.
    let call = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": { "name": "pid", "arguments": {} } });
    let legacy = open_session(&target().with("Via", "x")).post(&call.to_string());
    assert!(answer_text(&legacy.json()).parse::<u32>().is_ok());
    assert!(answer_text(&post_modern(&target(), &pid_request(4)).json()).parse::<u32>().is_ok());
}
