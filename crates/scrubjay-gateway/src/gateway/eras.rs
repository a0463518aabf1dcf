//! Translates between the eras: adapts parameters and results, and sends a modern backend's demands for input to a
//! legacy client as requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use scrubjay_core::envelope::Era;
use scrubjay_core::message::{self, Splice, quoted};
use scrubjay_core::protocol::{code, meta, method, result};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::events::capability_of;
use crate::backend::connection::Connection;
use crate::backend::{Answer, Backend, modern_meta};
use crate::session::{Call, Demand, lock};

/// How often one call may demand input: a backend that never has enough would keep a person answering.
const ROUNDS_MAX: usize = 16;

/// Asks a client in the middle of its call: by a request, or by a demand if it is modern and cannot be sent requests.
pub(super) async fn ask_client(call: &Arc<Call>, method: &str, params: Option<&str>) -> Answer {
    let Some(demands) = &call.demands else {
        return call.session.ask(Some(&call.outbox()), method, params).await;
    };
    let (reply, answer) = oneshot::channel();
    let demand = Demand { method: method.to_owned(), params: params.map(str::to_owned), reply };
    if demands.try_send(demand).is_err() {
        return Answer::error(code::INTERNAL, "the client cannot be asked now");
    }
    answer.await.unwrap_or_else(|_| Answer::error(code::INTERNAL, "the client gave no answer"))
}

/// Calls a modern backend. While its result demands input, asks the client and calls again with the responses.
pub(super) async fn ask_for_demands(
    call: &Arc<Call>,
    method: &str,
    backend: &Backend,
    connection: &Connection,
    params: Option<&str>,
) -> Answer {
    let mut current = adapted(call, Era::Modern, params);
    for _ in 0..ROUNDS_MAX {
        let answer = connection.call(Some(call), method, current.as_deref(), backend.call_timeout()).await;
        let result = match answer {
            Ok(Answer::Result(result)) => result,
            Ok(error) => return error,
            Err(e) => return Answer::error(code::INTERNAL, &e.to_string()),
        };
        let raw = serde_json::from_str::<&RawValue>(&result).ok();
        let result_type = message::string(message::member(raw, result::RESULT_TYPE));
        if result_type.as_deref() != Some(result::INPUT_REQUIRED) {
            return Answer::Result(result);
        }
        // Ordered by key, so that the client is always asked in the same order.
        let demanded: BTreeMap<String, Box<RawValue>> = message::member(raw, result::INPUT_REQUESTS)
            .and_then(|r| serde_json::from_str(r.get()).ok())
            .unwrap_or_default();
        let mut responses = Vec::new();
        for (key, demand) in &demanded {
            let demanded_method =
                message::string(message::member(Some(demand), "method")).unwrap_or_default();
            let its_params = message::member(Some(demand), "params").map(RawValue::get);
            // Also refuses methods that are no question to a client: a backend must not send it any request it likes.
            if capability_of(&demanded_method).is_none_or(|capability| !call.facts.can(capability)) {
                let why = format!("the backend demands {demanded_method}, which the client does not support");
                return Answer::error(code::INTERNAL, &why);
            }
            match ask_client(call, &demanded_method, its_params).await {
                Answer::Result(given) => responses.push(format!("{}:{given}", quoted(key))),
                error @ Answer::Error(_) => return error,
            }
        }
        // From the original params: responses and state of an earlier round must not be repeated.
        let base = adapted(call, Era::Modern, params).unwrap_or_else(|| "{}".to_owned());
        let Ok(object) = serde_json::from_str::<&RawValue>(&base) else { break };
        let mut next = Splice::new(object.get()).add_member(
            Some(object),
            result::INPUT_RESPONSES,
            &format!("{{{}}}", responses.join(",")),
        );
        if let Some(state) = message::member(raw, result::REQUEST_STATE) {
            next = next.add_member(Some(object), result::REQUEST_STATE, state.get());
        }
        current = Some(next.finish());
    }
    Answer::error(code::INTERNAL, "the backend demands input again and again")
}

/// Returns parameters as a backend of this era wants them.
pub(super) fn adapted(call: &Call, era: Era, params: Option<&str>) -> Option<String> {
    if era == Era::Legacy {
        return params.map(without_envelope);
    }
    let base = params.unwrap_or("{}");
    let Ok(object) = serde_json::from_str::<&RawValue>(base) else { return params.map(str::to_owned) };
    let meta = message::member(Some(object), "_meta");
    // A modern client's params have the envelope already.
    if message::member(meta, meta::PROTOCOL_VERSION).is_some() {
        return Some(base.to_owned());
    }
    let facts = &call.facts;
    let mut members = modern_meta(&facts.capabilities, &facts.info);
    if let Some(level) = *lock(&call.session.log_level) {
        members += &format!(r#","{}":{}"#, meta::LOG_LEVEL, quoted(level));
    }
    Some(match meta.filter(|m| m.get().starts_with('{')) {
        Some(meta) => {
            let rest = meta.get()[1..].trim_start();
            let comma = if rest.starts_with('}') { "" } else { "," };
            Splice::new(object.get()).replace(Some(meta), &format!("{{{members}{comma}{rest}")).finish()
        }
        None => {
            Splice::new(object.get()).add_member(Some(object), "_meta", &format!("{{{members}}}")).finish()
        }
    })
}

/// Removes from `_meta` what only modern requests carry: servers on the Python SDK refuse it after a legacy greeting.
fn without_envelope(params: &str) -> String {
    let object = serde_json::from_str::<&RawValue>(params).ok();
    let meta = message::member(object, "_meta");
    if message::member(meta, meta::PROTOCOL_VERSION).is_none() {
        return params.to_owned();
    }
    let mut members: BTreeMap<String, Box<RawValue>> =
        meta.and_then(|meta| serde_json::from_str(meta.get()).ok()).unwrap_or_default();
    members.retain(|key, _| {
        ![meta::PROTOCOL_VERSION, meta::CLIENT_CAPABILITIES, meta::CLIENT_INFO, meta::LOG_LEVEL]
            .contains(&key.as_str())
    });
    let members: Vec<String> =
        members.iter().map(|(key, value)| format!("{}:{}", quoted(key), value.get())).collect();
    Splice::new(params).replace(meta, &format!("{{{}}}", members.join(","))).finish()
}

/// Gives a legacy backend's result what a modern one must have.
pub(super) fn modernised(result: &str, method: &str) -> String {
    let Ok(object) = serde_json::from_str::<&RawValue>(result) else { return result.to_owned() };
    let has = |key| message::member(Some(object), key).is_some();
    let mut splice = Splice::new(object.get());
    if method == method::RESOURCES_READ && !has("ttlMs") {
        splice = splice.add_member(Some(object), "cacheScope", "\"private\"").add_member(
            Some(object),
            "ttlMs",
            "0",
        );
    }
    if !has(result::RESULT_TYPE) {
        splice = splice.add_member(Some(object), result::RESULT_TYPE, &quoted(result::COMPLETE));
    }
    splice.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gateway::stage::Stage;

    const ENVELOPE: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c"},"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"info""#;

    #[test]
    fn a_legacy_backend_is_spared_the_envelope_and_gets_the_rest_as_it_came() {
        let check = |params: &str, expected: &str| assert_eq!(without_envelope(params), expected);
        check(
            &format!(r#"{{"name":"x", "n":1.0,"_meta":{{"progressToken": 7,{ENVELOPE},"own":1e400}}}}"#),
            r#"{"name":"x", "n":1.0,"_meta":{"own":1e400,"progressToken":7}}"#,
        );
        check(&format!(r#"{{"_meta":{{{ENVELOPE}}}}}"#), r#"{"_meta":{}}"#);
        // What is no envelope is the client's own.
        check(
            r#"{"_meta":{"io.modelcontextprotocol/logLevel":"info"}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/logLevel":"info"}}"#,
        );
        check("[1]", "[1]");
    }

    #[tokio::test]
    async fn a_modern_backend_gets_an_envelope_once() {
        let stage = Stage::new(&[]);
        let session = stage.gateway.open_session("legacy");
        let call = stage.legacy(&session, "tools/call", &json!({})).call.clone();
        let adapt = |params| adapted(&call, Era::Modern, params).expect("there are params");
        let read = |params: &str| serde_json::from_str::<serde_json::Value>(params).expect("JSON");
        let version = |params: &str| read(params)["_meta"][meta::PROTOCOL_VERSION].clone();
        assert_eq!(version(&adapt(None)), "2026-07-28");
        assert_eq!(version(&adapt(Some(r#"{"name":"x"}"#))), "2026-07-28");
        let with_token = adapt(Some(r#"{"name":"x","_meta":{"progressToken":7}}"#));
        assert_eq!(
            (version(&with_token), &read(&with_token)["_meta"]["progressToken"]),
            (json!("2026-07-28"), &json!(7))
        );
        let modern = format!(r#"{{"_meta":{{{ENVELOPE}}},"n":1.0}}"#);
        assert_eq!(adapt(Some(&modern)), modern, "a modern client's stays as it is");
        *lock(&session.log_level) = Some("error");
        assert_eq!(
            read(&adapt(None))["_meta"][meta::LOG_LEVEL],
            "error",
            "asked for once, said with each call"
        );
    }

    #[test]
    fn a_legacy_result_gets_what_a_modern_client_needs_and_keeps_the_rest() {
        let check =
            |method: &str, result: &str, expected: &str| assert_eq!(modernised(result, method), expected);
        check("tools/call", r#"{ "n":1.0}"#, r#"{"resultType":"complete", "n":1.0}"#);
        check("tools/call", r#"{"resultType":"task"}"#, r#"{"resultType":"task"}"#);
        check("resources/read", "{}", r#"{"cacheScope":"private","ttlMs":0,"resultType":"complete"}"#);
        check("resources/read", r#"{"ttlMs":5}"#, r#"{"resultType":"complete","ttlMs":5}"#);
        check("tools/call", "null", "null");
    }
}
