//! Modern clients on HTTP name no session: each conversation has a tape all the same.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::http::Connection;
use super::rig::{Served, fixture, modern, post_modern, scratch, scrubjay};

/// Returns, for each tape of a client, the methods of its requests in order and how it was told.
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
fn conversations_of_one_program_are_told_apart_by_their_connections() {
    let directory = scratch();
    let served = start(directory.path());
    let (mut one, mut two) = (served.target().connect(), served.target().connect());
    ask(&mut one, 1, "server/discover");
    ask(&mut two, 1, "server/discover");
    ask(&mut one, 2, "tools/list");
    ask(&mut two, 2, "prompts/list");
    // Another connection of the same program goes on with the newest.
    let mut three = served.target().connect();
    ask(&mut three, 3, "resources/list");
    ask(&mut one, 3, "tools/list");
    // On a connection that has one, it begins none.
    ask(&mut two, 4, "server/discover");
    drop(served);
    let how = "by its connection, which began with server/discover".to_owned();
    let told = |methods: &[&str]| (methods.iter().map(ToString::to_string).collect::<Vec<_>>(), how.clone());
    assert_eq!(
        tapes(&directory.path().join("data")),
        [
            told(&["server/discover", "prompts/list", "resources/list", "server/discover"]),
            told(&["server/discover", "tools/list", "tools/list"]),
        ]
    );
}

#[test]
fn conversations_are_told_apart_by_traces_and_processes() {
    let directory = scratch();
    let served = start(directory.path());
    let traced = |id: u64, trace: &str| {
        let params = json!({ "_meta": { "traceparent": format!("00-{trace}-00f067aa0ba902b7-01") } });
        assert_eq!(post_modern(&served.target(), &modern(id, "tools/list", &params)).status, 200);
    };
    traced(1, "aaaa");
    traced(2, "bbbb");
    traced(3, "aaaa");
    // Without one: by its program, whatever its connection.
    let plain = modern(4, "prompts/list", &json!({}));
    assert_eq!(post_modern(&served.target(), &plain).status, 200);
    // Another program that shows the same name is another client.
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
    let told = |methods: &[&str], how: &str| {
        (methods.iter().map(ToString::to_string).collect::<Vec<_>>(), how.to_owned())
    };
    assert_eq!(
        found,
        [
            told(&["prompts/list"], "by its name and process"),
            told(&["tools/list"], "by its trace"),
            told(&["tools/list", "tools/list", "prompts/list"], "by its trace"),
        ]
    );
}
