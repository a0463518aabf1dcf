//! The sources of `serve`'s configuration: a file, a client's options, a project that is not trusted yet.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Lab, Running, SCRUBJAY};

/// Starts a command of a lab in a directory of its own, without a user's configuration.
fn start_in(lab: &Lab, directory: &Path, arguments: &[&str]) -> Running {
    let mut command = Command::new(SCRUBJAY);
    command.env(crate::harness::BACKGROUND_VARIABLE, "false");
    command.arg("--data").arg(lab.data()).args(arguments).current_dir(directory);
    command.env("XDG_CONFIG_HOME", directory.join("no-config")).env_remove("SCRUBJAY_DATA");
    Running::start(&mut command)
}

fn greeting(options: &Value) -> Value {
    json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
        "initializationOptions": options,
    })
}

fn sample(id: &str) -> Value {
    json!({ "id": id, "type": "stdio", "command": SCRUBJAY, "args": ["sample-server"] })
}

fn tool_names(serving: &mut Running, id: u64) -> Vec<String> {
    let listed = serving.ask(id, "tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().expect("a list").clone();
    tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_backend_that_cannot_start_does_not_affect_the_others() {
    let lab = Lab::new();
    let bad = json!({ "id": "bad", "type": "stdio", "command": "/nonexistent" });
    std::fs::write(lab.file("c.yaml"), json!({ "backends": [sample("a"), sample("b"), bad] }).to_string())
        .unwrap();
    let mut serving = lab.start(&["--config", &lab.file("c.yaml"), "serve"]);
    serving.ask(0, "initialize", &greeting(&Value::Null));
    let names = tool_names(&mut serving, 1);
    assert!(names.contains(&"a__echo".to_owned()) && names.contains(&"b__echo".to_owned()), "{names:?}");
    for (number, backend) in (2..).zip(["a", "b"]) {
        let params = json!({ "name": format!("{backend}__echo"), "arguments": { "text": backend } });
        let answer = serving.ask(number, "tools/call", &params);
        assert_eq!(answer["result"]["content"][0]["text"], backend);
    }
    let answer = serving.ask(9, "tools/call", &json!({ "name": "bad__echo", "arguments": {} }));
    assert!(answer["error"]["message"].as_str().unwrap().contains("bad"), "{answer}");
    serving.close_stdin();
    assert_eq!(serving.exit_code(), 0);
    lab.verify();
}

#[test]
fn a_client_can_bring_backends_and_gets_every_mistake_reported() {
    let lab = Lab::new();
    let mut serving = lab.start(&["serve"]);
    let wrong = json!({ "logLevel": "loud", "backends": [{ "id": "b b", "type": "stdio" }] });
    let refused = serving.ask(0, "initialize", &greeting(&wrong));
    assert_eq!(refused["error"]["code"], -32602);
    let problems = refused["error"]["data"]["problems"].as_array().expect("problems").clone();
    let paths: Vec<&str> = problems.iter().map(|p| p["path"].as_str().expect("a path")).collect();
    assert_eq!(paths, ["logLevel", "backends[0].id", "backends[0].command"]);
    serving.ask(1, "initialize", &greeting(&json!({ "backends": [sample("mine")] })));
    assert!(tool_names(&mut serving, 2).contains(&"echo".to_owned()));
    serving.close_stdin();
    assert_eq!(serving.exit_code(), 0);
}

#[test]
fn a_project_file_starts_nothing_until_it_is_trusted() {
    let lab = Lab::new();
    let project = tempfile::tempdir().unwrap();
    let mark = lab.file("started");
    let backend = json!({ "id": "evil", "type": "stdio", "command": "touch", "args": [&mark] });
    let file = project.path().join("scrubjay.yaml");
    std::fs::write(&file, json!({ "backends": [backend] }).to_string()).unwrap();
    let started = |lab: &Lab| {
        // The file would exist only if a command of the project had run.
        let _ = std::fs::remove_file(&mark);
        let mut serving = start_in(lab, project.path(), &["serve"]);
        serving.ask(0, "initialize", &greeting(&Value::Null));
        tool_names(&mut serving, 1);
        serving.close_stdin();
        serving.exit_code();
        Path::new(&mark).exists()
    };
    assert!(!started(&lab), "an untrusted project started a program");
    let mut trusting = start_in(&lab, project.path(), &["trust", "--yes"]);
    trusting.close_stdin();
    assert_eq!(trusting.exit_code(), 0);
    assert!(started(&lab), "a trusted project starts its backend");
    let mut content = std::fs::read(&file).unwrap();
    content.push(b' ');
    std::fs::write(&file, content).unwrap();
    assert!(!started(&lab), "a changed file is not trusted");
}

#[test]
fn connections_of_one_conversation_are_one_session() {
    let lab = Lab::new();
    for (conversation, name) in [("one", "a"), ("one", "b"), ("two", "c")] {
        let mut command = Command::new(SCRUBJAY);
        command.env(crate::harness::BACKGROUND_VARIABLE, "false");
        command.arg("--data").arg(lab.data()).args(["wrap", "--name", name, "--", "cat"]);
        command.env("CLAUDE_CODE_SESSION_ID", conversation).env_remove("SCRUBJAY_DATA");
        let mut wrapped = Running::start(&mut command);
        wrapped.send_line(r#"{"jsonrpc":"2.0","method":"notifications/hello"}"#);
        wrapped.close_stdin();
        assert_eq!(wrapped.exit_code(), 0);
    }
    let tapes = lab.tapes();
    let session = |name: &str| tapes.iter().find(|t| t["name"] == name).expect("recorded")["session"].clone();
    assert_eq!(session("a"), session("b"));
    assert_ne!(session("a")["id"], session("c")["id"]);
    assert_eq!(session("a")["told_by"], "host_session");
}
