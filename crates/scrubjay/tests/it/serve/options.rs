//! A client's `initializationOptions` over HTTP: they cannot change a gateway, and none is ignored silently.

use serde_json::{Value, json};

use super::rig::{Served, initialize, scratch, tapped};

fn opening(options: &Value) -> String {
    let mut request = initialize(1);
    request["params"]["initializationOptions"] = options.clone();
    request.to_string()
}

#[test]
fn options_that_would_change_a_gateway_are_refused_by_name() {
    let scratch = scratch();
    let backend = json!({ "id": "sample", "type": "stdio", "command": env!("CARGO_BIN_EXE_scrubjay"),
        "args": ["sample-server"] });
    let config = json!({ "backends": [backend], "log_level": "warn" });
    let served = Served::configured(scratch.path(), &config.to_string(), None);
    let marker = scratch.path().join("started");
    let options = json!({
        "logLevel": "trace", "OPENAI_API_KEY": "sk-0123456789", "DEBUG_PORT": 3001, "theirOwn": 1,
        "backends": [{ "id": "evil", "type": "stdio", "command": "touch", "args": [marker] }],
    });
    let refused = served.target().post(&opening(&options));
    assert_eq!(refused.header("mcp-session-id"), None, "no session is left behind");
    let error = refused.json()["error"].clone();
    assert_eq!(error["code"], -32602);
    let names = "logLevel, backends, OPENAI_API_KEY, DEBUG_PORT";
    assert_eq!(error["message"], format!("params.initializationOptions are refused: {names}"));
    let problems = error["data"]["problems"].as_array().unwrap();
    assert!(
        problems.iter().all(|p| p["message"].as_str().unwrap().contains("configure the gateway with")),
        "{problems:?}"
    );
    assert!(!error.to_string().contains("sk-0123456789"));
    assert!(!marker.exists());
    // Options that would change nothing are accepted.
    for options in
        [json!({ "logLevel": "warn", "backends": [backend], "theirOwn": 1 }), json!({}), json!(null)]
    {
        let greeted = served.target().post(&opening(&options));
        assert!(greeted.header("mcp-session-id").is_some(), "{options}");
        assert!(greeted.json()["result"].is_object(), "{options}");
    }
    let wrong = served.target().post(&opening(&json!({ "logLevel": "loud" }))).json();
    assert_eq!(wrong["error"]["code"], -32602);
}

#[test]
fn wrap_passes_the_options_on() {
    let scratch = scratch();
    let server = vec![env!("CARGO_BIN_EXE_scrubjay").to_owned(), "sample-server".to_owned()];
    let mut command = vec!["--".to_owned()];
    command.extend(tapped(scratch.path(), server));
    let wrapped = Served::wrap(&scratch.path().join("data"), &[], &command);
    let options = json!({ "backends": [{ "id": "theirs" }], "logLevel": "trace" });
    assert!(wrapped.target().post(&opening(&options)).json()["result"].is_object());
    let received = std::fs::read_to_string(scratch.path().join("backend.in")).unwrap();
    let received: Value = serde_json::from_str(received.lines().next().unwrap()).unwrap();
    assert_eq!(received["params"]["initializationOptions"], options);
}
