//! Handles over HTTP belong to one client: another client that uses a session, stream or token is refused.

use serde_json::{Value, json};

use super::http::Target;
use super::rig::{Served, answer_text, modern, open_session, post_modern, repository, scratch, text};

fn handles(era: &str) -> Vec<String> {
    let script = text(&repository().join("tests/backends/handles_server.py"));
    ["python3", "-B", &script, "--era", era].map(str::to_owned).to_vec()
}

fn call(id: u64, tool: &str, arguments: &Value) -> String {
    let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": id } });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
}

/// The same session, named with other credentials or none.
fn others(target: &Target) -> [Target; 2] {
    [target.clone().with("Authorization", "Bearer other"), target.clone().with("Authorization", "")]
}

#[test]
fn only_its_own_client_can_use_a_session() {
    let fronts: [&dyn Fn(&std::path::Path) -> Served; 2] =
        [&|data| Served::start(data, &[], &handles("legacy")), &|data| {
            Served::wrap(data, &[], &[&["--".to_owned()], handles("legacy").as_slice()].concat())
        }];
    for start in fronts {
        let scratch = scratch();
        let served = start(&scratch.path().join("data"));
        let own = open_session(&served.target().with("Authorization", "Bearer own"));
        // A stream with events that could be resumed.
        let mut counted = own.post(&call(2, "count", &json!({ "steps": 3 })));
        let last = counted.event().and_then(|event| event.id).expect("events have ids");
        drop(counted);
        for other in others(&own) {
            assert_eq!(other.post(&call(3, "echo", &json!({ "nonce": "n" }))).status, 404);
            assert_eq!(other.get().status, 404);
            assert_eq!(other.clone().with("Last-Event-ID", &last).get().status, 404);
            assert_eq!(other.delete().status, 404);
        }
        // The scheme of a token may be in any case.
        let own = own.with("Authorization", "bearer own");
        let again = own.clone().with("Last-Event-ID", &last).get();
        assert_eq!(again.status, 200);
        assert_eq!(answer_text(&own.post(&call(4, "echo", &json!({ "nonce": "n" }))).json()), "n");
        // A client with its own session cannot open another session's streams.
        let stranger = open_session(&served.target());
        assert_eq!(stranger.clone().with("Last-Event-ID", &last).get().status, 404);
        assert_eq!(own.delete().status, 200);
    }
}

#[test]
fn handles_of_one_client_are_refused_for_another() {
    let fronts: [&dyn Fn(&std::path::Path) -> Served; 2] =
        [&|data| Served::start(data, &[], &handles("modern")), &|data| {
            Served::wrap(data, &[], &[&["--".to_owned()], handles("modern").as_slice()].concat())
        }];
    for start in fronts {
        let scratch = scratch();
        let served = start(&scratch.path().join("data"));
        let a = served.target().with("Authorization", "Bearer a");
        let b = served.target().with("Authorization", "Bearer b");
        let ask = |target: &Target, id: u64, method: &str, params: &Value| {
            let mut target = target.clone();
            if let Some(task) = params["taskId"].as_str() {
                target = target.with("Mcp-Name", task);
            }
            post_modern(&target, &modern(id, method, params)).json()
        };
        let begin = json!({ "name": "begin", "arguments": { "secret": "the secret of a" } });
        let task = ask(&a, 1, "tools/call", &begin)["result"]["taskId"].clone();
        for method in ["tasks/get", "tasks/cancel"] {
            let refused = ask(&b, 2, method, &json!({ "taskId": task }));
            // A gateway first reports that the client did not declare the extension (-32021).
            assert!([-32021, -32602].map(Value::from).contains(&refused["error"]["code"]), "{refused}");
        }
        // Servers read these values differently.
        for params in [json!({ "taskId": [task] }), json!({ "TaskId": task }), json!({})] {
            let refused = ask(&b, 2, "tasks/get", &params);
            assert!([-32021, -32602].map(Value::from).contains(&refused["error"]["code"]), "{refused}");
        }
        let got = ask(&a, 3, "tasks/get", &json!({ "taskId": task }));
        assert_eq!(answer_text(&got), "the secret of a");
        let mut params = json!({ "name": "ask", "arguments": { "secret": "the secret of a" } });
        let asked = ask(&a, 4, "tools/call", &params);
        params["requestState"] = asked["result"]["requestState"].clone();
        params["inputResponses"] = json!({ "name": { "action": "decline" } });
        let refused = ask(&b, 5, "tools/call", &params);
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert_eq!(answer_text(&ask(&a, 6, "tools/call", &params)), "the secret of a");
        params["requestState"] = json!("state-1");
        let refused = ask(&b, 7, "tools/call", &params);
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
}
