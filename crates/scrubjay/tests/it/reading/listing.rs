//! `tape ls`, `latest` and `tape follow`: the conversations of clients, and the tapes that belong to them.

use serde_json::{Value, json};

use crate::harness::{Lab, Running, SCRUBJAY, text};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"Sparrow Host","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Starts a gateway in front of a program and a toolset.
fn gateway(lab: &Lab) -> Running {
    let serve = ["serve", "--log-level", "error", "--toolsets", "sample", "--", SCRUBJAY, "sample-server"];
    lab.start(&serve)
}

/// Sends the greeting, and calls a tool of the toolset and one of the program.
fn converse(host: &mut Running) {
    host.send_line(INITIALIZE);
    host.message();
    host.send_line(INITIALIZED);
    host.ask(1, "tools/list", &json!({}));
    for (id, tool) in [(2, "echo"), (3, "scrubjay__echo")] {
        let answer = host.ask(id, "tools/call", &json!({ "name": tool, "arguments": { "text": "hello" } }));
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
}

fn rows(lab: &Lab, options: &[&str]) -> Vec<Value> {
    let arguments = [&["tape", "ls", "--json"], options].concat();
    lab.json(&arguments).as_array().expect("a list").clone()
}

#[test]
fn tapes_of_backends_are_counted_with_their_conversation() {
    let lab = Lab::new();
    let mut host = gateway(&lab);
    converse(&mut host);
    // While it runs, the newest tape is not the client's: the connection to the toolset was opened after the client's.
    let mut follower = lab.start(&["tape", "follow", "--json"]);
    let first = follower.message();
    assert_eq!((&first["method"], &first["via"]), (&json!("initialize"), &Value::Null), "{first}");
    let live = rows(&lab, &[]);
    assert_eq!((live.len(), &live[0]["state"]), (1, &json!("live")), "{live:?}");
    assert_eq!(lab.export("latest").id(), text(&live[0]["id"]), "latest is the first row");
    host.close_stdin();
    assert_eq!(host.exit_code(), 0);
    follower.rest();
    assert_eq!(follower.exit_code(), 0);

    let listed = rows(&lab, &[]);
    let all = rows(&lab, &["--all"]);
    let kinds = |kind: &str| all.iter().filter(|row| row["kind"] == kind).count() as u64;
    assert_eq!((listed.len(), kinds("conversation")), (1, 1), "{all:?}");
    assert!(kinds("backend") > 0, "{all:?}");
    let conversation = &listed[0];
    assert_eq!(conversation["folded"]["tapes"], kinds("backend"), "{conversation}");
    let gateway = &conversation["gateway"];
    assert!(gateway.is_string() && all.iter().all(|row| row["gateway"] == *gateway), "{all:?}");
    assert!(conversation["total_messages"].as_u64() > Some(8), "{conversation}");
    // The toolset's greeting is on a tape of its own, which is counted here.
    let printed = String::from_utf8(lab.run_ok(&["tape", "ls"])).unwrap();
    let counted = conversation["backend_messages"].as_u64().unwrap()
        + conversation["folded"]["backend_messages"].as_u64().unwrap();
    assert!(printed.contains(&format!("  {counted}  ")), "{counted} in {printed}");
    assert!(
        printed.contains("1 conversation,") && printed.contains(&format!("{} of backends", kinds("backend")))
    );
    for verb in ["show", "export"] {
        let shown = String::from_utf8(lab.run_ok(&["tape", verb])).unwrap();
        assert!(shown.contains("scrubjay__echo"), "{verb}: {shown}");
    }
    let stats = lab.json(&["tape", "stats", "--json"]);
    assert!(stats.to_string().contains("scrubjay__echo"), "{stats}");
}

#[test]
fn an_answered_greeting_is_only_counted_and_an_unanswered_one_is_listed() {
    let lab = Lab::new();
    let greet = |server: &[&str]| {
        let mut wrapped = lab.wrap(server).start();
        wrapped.send_line(INITIALIZE);
        if server.len() > 1 {
            wrapped.line();
            wrapped.send_line(INITIALIZED);
        }
        wrapped.leave();
    };
    greet(&[SCRUBJAY, "sample-server"]);
    assert_eq!(rows(&lab, &[]), [Value::Null; 0]);
    let output = String::from_utf8(lab.run_ok(&["tape", "ls"])).unwrap();
    assert!(output.contains("1 of greetings and probes (--all)"), "{output}");
    // If there is no conversation, `latest` means this tape.
    assert_eq!(lab.export("latest").header["name"], "scrubjay");
    greet(&["true"]);
    let listed = rows(&lab, &[]);
    assert_eq!((listed.len(), &listed[0]["unanswered"]), (1, &json!(1)), "{listed:?}");
    assert_eq!(lab.export("latest").header["name"], "true");
}

#[test]
fn a_filtered_listing_reports_what_is_left_out() {
    let lab = Lab::new();
    let call = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#;
    let failure = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#;
    lab.record("my files", call);
    lab.record("database", &[&call[..], b"\n", &failure[..]].concat());
    lab.record("greeted", &[INITIALIZE.as_bytes(), b"\n", call].concat());
    let names = |options: &[&str]| -> Vec<String> {
        rows(&lab, options).iter().map(|row| text(&row["name"]).to_owned()).collect()
    };
    assert_eq!(names(&[]), ["greeted", "database", "my files"]);
    assert_eq!(names(&["--name", "FILE"]), ["my files"]);
    assert_eq!(names(&["--name", "d*base"]), ["database"]);
    assert_eq!(names(&["--name", "base*"]), [""; 0]);
    assert_eq!(names(&["--host", "sparrow"]), ["greeted"]);
    assert_eq!(names(&["--errors"]), ["database"]);
    assert_eq!(names(&["--since", "1h"]).len(), 3);
    assert_eq!(names(&["--since", "now"]).len(), 0);
    assert_eq!(lab.run(&["tape", "ls", "--since", "tomorrow"]).code, 2);
    let printed =
        |options: &[&str]| String::from_utf8(lab.run_ok(&[&["tape", "ls"], options].concat())).unwrap();
    let cut = printed(&["--limit", "1"]);
    assert!(cut.contains("1 of 3 shown (--limit); 3 conversations, 10 messages, 2 errors,"), "{cut}");
    assert!(printed(&[]).contains("\n3 conversations, "), "{}", printed(&[]));
    assert!(printed(&["--name", "nothing"]).contains("none of the 3 tapes"));
    let host = rows(&lab, &["--name", "database"])[0]["host"]["program"].clone();
    assert_eq!(names(&["--host", text(&host)]).len(), 3, "the program that started them: {host}");
}

#[test]
fn times_show_their_zone() {
    let lab = Lab::new();
    lab.record("n", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}");
    let began = |zone: &str, options: &[&str]| {
        let mut command = std::process::Command::new(SCRUBJAY);
        command.arg("--data").arg(lab.data()).args(["tape", "ls"]).args(options).env("TZ", zone);
        let output = String::from_utf8(command.output().unwrap().stdout).unwrap();
        output.lines().nth(1).unwrap().split("  ").nth(1).unwrap().to_owned()
    };
    let kathmandu = began("Asia/Kathmandu", &[]);
    assert!(kathmandu.ends_with("+05:45"), "{kathmandu}");
    assert!(began("JST-9", &[]).ends_with("+09:00"));
    assert!(began("JST-9", &["--utc"]).ends_with("+00:00"));
}

#[test]
fn disk_usage_is_reported_by_server_and_session() {
    let lab = Lab::new();
    assert_eq!(lab.json(&["tape", "du", "--json"])["total_bytes"], 0);
    lab.record("files", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}");
    lab.record("files", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}");
    lab.run_ok(&["tape", "search", "m"]);
    let mut live = lab.wrap(&["cat"]).with(&["--name", "busy"]).start();
    live.send_line("x");
    live.line();
    let room = lab.json(&["tape", "du", "--json"]);
    let sizes: u64 = rows(&lab, &["--all"]).iter().map(|row| row["file_bytes"].as_u64().unwrap()).sum();
    assert_eq!(room["tapes_bytes"], sizes, "{room}");
    let files = &room["tapes"]["files"];
    assert_eq!((&files["tapes"], &files["live_bytes"]), (&json!(2), &json!(0)), "{room}");
    assert!(files["sealed_bytes"].as_u64() > Some(0) && room["index_bytes"].as_u64() > Some(0), "{room}");
    assert!(room["tapes"]["busy"]["live_bytes"].as_u64() > Some(0), "{room}");
    let by_session = lab.json(&["tape", "du", "--by", "session", "--json"]);
    let session = rows(&lab, &[])[0]["session"]["id"].clone();
    assert!(by_session["tapes"][text(&session)]["tapes"].as_u64() > Some(0), "{by_session}");
    let output = String::from_utf8(lab.run_ok(&["tape", "du"])).unwrap();
    assert!(output.contains("files") && output.contains("index") && output.contains("\nall "), "{output}");
    assert_eq!(live.leave(), 0);
}
