//! What a request must say of its client, and what a client is greeted with.

use super::*;
use crate::gateway::stage::{ScriptedBackend, Stage};

fn nothing(_: &str, _: &Value) -> Option<Value> {
    None
}

fn request(method: &str, meta: &Value) -> ClientMessage {
    let line = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": { "_meta": meta } });
    ClientMessage::parse(line.to_string().into()).expect("an object")
}

#[tokio::test]
async fn a_modern_request_states_its_version_and_its_capabilities() {
    let stage = Stage::new(&[]);
    let session = stage.gateway.open_session("alice");
    let error = |method: &str, meta: Value| {
        let refused = facts_of(&session, method, &request(method, &meta)).expect_err("something is missing");
        let error: Value = serde_json::from_str(&refused.to_json_rpc()).expect("an error is JSON");
        (error["code"].clone(), error["data"]["requested"].clone())
    };
    let missing = (json!(code::INVALID_PARAMS), Value::Null);
    assert_eq!(error("server/discover", json!({})), missing);
    assert_eq!(error("tools/list", json!({ meta::PROTOCOL_VERSION: version::MODERN })), missing);
    for (stated, requested) in
        [(json!("2030-01-01"), "2030-01-01"), (json!(7), ""), (json!("2025-11-25"), "2025-11-25")]
    {
        let (code, data) =
            error("tools/list", json!({ meta::PROTOCOL_VERSION: stated, meta::CLIENT_CAPABILITIES: {} }));
        assert_eq!((code, data), (json!(code::UNSUPPORTED_VERSION), json!(requested)));
    }
}

#[tokio::test]
async fn the_facts_of_a_request_are_its_own_and_its_name_is_the_sessions_if_it_states_none() {
    let stage = Stage::new(&[]);
    let session = stage.gateway.open_session("alice");
    let info = r#"{"name":"host","version":"1"}"#;
    let stated = ClientFacts { info: info.to_owned(), ..ClientFacts::default() };
    session.set_facts(stated).expect("there is room");
    let modern =
        json!({ meta::PROTOCOL_VERSION: version::MODERN, meta::CLIENT_CAPABILITIES: { "roots": {} } });
    let facts = facts_of(&session, "tools/list", &request("tools/list", &modern)).expect("all is stated");
    assert_eq!((facts.era, facts.info.as_str(), facts.can("roots")), (Era::Modern, info, true));
    let legacy =
        facts_of(&session, "tools/list", &request("tools/list", &json!({}))).expect("nothing is needed");
    assert_eq!((legacy.era, legacy.can("roots")), (Era::Legacy, false));
    assert_eq!(session.facts().era, Era::Legacy, "the session's own facts stay");
}

#[tokio::test]
async fn a_legacy_client_gets_its_own_version_or_the_newest() {
    let stage = Stage::new(&[]);
    for (asked, expected) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("x", "2025-11-25"),
    ] {
        let session = stage.gateway.open_session("alice");
        let params = json!({ "protocolVersion": asked, "capabilities": { "roots": {} } });
        let answer = stage.answer(stage.legacy(&session, "initialize", &params)).await;
        assert_eq!(answer["result"]["protocolVersion"], expected, "{asked}");
        assert!(session.is_legacy() && session.facts().version == expected && session.facts().can("roots"));
    }
    let session = stage.gateway.open_session("alice");
    let answer = stage.answer(stage.legacy(&session, "initialize", &json!({}))).await;
    assert_eq!(answer["error"]["code"], code::INVALID_PARAMS);
    assert!(stage.gateway.refused_to_open(&session));
}

#[tokio::test]
async fn facts_that_are_too_long_do_not_open_a_session() {
    let stage = Stage::new(&[]);
    let session = stage.gateway.open_session("alice");
    let long = "x".repeat(crate::session::FACTS_BYTES_MAX);
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": { "experimental": long } });
    let answer = stage.answer(stage.legacy(&session, "initialize", &params)).await;
    assert_eq!(answer["error"]["code"], code::INTERNAL);
    assert!(stage.gateway.refused_to_open(&session));
}

#[tokio::test]
async fn instructions_stand_under_the_names_of_their_backends_behind_the_notice() {
    let check = async |backends: &[ScriptedBackend], notice: Option<&str>, expected: Value| {
        let stage = Stage::with(backends);
        stage.gateway.notice(notice.map(str::to_owned));
        let session = stage.gateway.open_session("alice");
        let params = json!({ "protocolVersion": "2025-11-25" });
        let answer = stage.answer(stage.legacy(&session, "initialize", &params)).await;
        assert_eq!(answer["result"]["instructions"], expected);
    };
    let one = ScriptedBackend::new("one", nothing).with_instructions("Be kind.");
    let two = ScriptedBackend::new("two", nothing).with_instructions("Be brief.");
    let silent = ScriptedBackend::new("silent", nothing);
    check(&[silent], None, Value::Null).await;
    check(&[one], None, json!("Be kind.")).await;
    check(&[one], Some("Note."), json!("Note.\n\nBe kind.")).await;
    check(&[one, silent, two], None, json!("## one\nBe kind.\n\n## two\nBe brief.")).await;
}

#[tokio::test]
async fn tasks_are_offered_only_if_a_backend_of_the_clients_era_has_them() {
    let offered = async |backend: ScriptedBackend| {
        let stage = Stage::with(&[backend]);
        let session = stage.gateway.open_session("alice");
        let params = json!({ "protocolVersion": "2025-11-25" });
        let answer = stage.answer(stage.legacy(&session, "initialize", &params)).await;
        answer["result"]["capabilities"]["tasks"].is_object()
    };
    let backend = ScriptedBackend::new("one", nothing);
    assert!(!offered(backend).await);
    assert!(offered(backend.with_capabilities(&["tasks"])).await);
    assert!(!offered(backend.with_capabilities(&["tasks"]).in_eras(&[Era::Modern])).await);
}
