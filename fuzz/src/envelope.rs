//! Envelopes and parts: they agree with a full parse of the message, and a splice changes only the given members.

use scrubjay_core::envelope::{Defect, Envelope, MessageKind};
use scrubjay_core::message::{Parts, Splice};
use scrubjay_core::pretty_json;
use serde_json::Value;

/// Checks one line.
pub fn check(data: &[u8]) {
    let envelope = Envelope::parse(data);
    assert_eq!(envelope, Envelope::parse(data));
    let text = String::from_utf8_lossy(data);
    let line = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let is_utf8 = std::str::from_utf8(data).is_ok();
    assert_eq!(!is_utf8, envelope.defects.contains(&Defect::InvalidUtf8));
    assert_eq!(
        envelope.kind == MessageKind::Batch,
        serde_json::from_str::<Vec<serde::de::IgnoredAny>>(line).is_ok()
    );
    for one in &envelope.batch {
        assert!(one.batch.is_empty() && one.kind != MessageKind::Batch, "a batch holds messages");
    }
    if let Ok(value) = serde_json::from_str::<Value>(line) {
        match &value {
            Value::Object(_) => {
                agrees(&envelope, &value);
                spliced(&envelope, line, &value);
            }
            Value::Array(items) if envelope.batch.len() == items.len() => {
                envelope
                    .batch
                    .iter()
                    .zip(items)
                    .filter(|(_, item)| item.is_object())
                    .for_each(|(one, item)| agrees(one, item));
            }
            Value::Array(_) => assert!(envelope.batch.is_empty()),
            _ => assert_eq!(envelope.kind, MessageKind::Opaque),
        }
    }
    if let Some(laid_out) = pretty_json::pretty(line) {
        let values = [line, &laid_out].map(|json| serde_json::from_str::<Value>(json).ok());
        assert_eq!(values[0], values[1], "formatting does not change the value");
    }
}

fn agrees(envelope: &Envelope, value: &Value) {
    let there = |key: &str| value.get(key).is_some();
    let method = value["method"].as_str();
    let id = value.get("id").filter(|id| !id.is_null());
    let kind = match (method, id) {
        (Some(_), Some(_)) => MessageKind::Request,
        (Some(_), None) => MessageKind::Notification,
        (None, _) if there("error") => MessageKind::Error,
        (None, _) if there("result") => MessageKind::Response,
        _ => MessageKind::Opaque,
    };
    assert_eq!(envelope.kind, kind);
    assert_eq!(envelope.method.as_deref(), method);
    let parsed_id =
        envelope.id.as_ref().map(|id| serde_json::from_str::<Value>(id.as_raw()).expect("an id is JSON"));
    assert_eq!(parsed_id.as_ref(), id);
    if kind == MessageKind::Request && matches!(method, Some("tools/call" | "prompts/get")) {
        assert_eq!(envelope.name.as_deref(), value["params"]["name"].as_str());
    }
    if kind == MessageKind::Response {
        assert_eq!(envelope.is_error, value["result"]["isError"] == true);
        assert!(envelope.body_bytes > 0);
    }
    if kind == MessageKind::Error {
        assert_eq!(envelope.error_message.as_deref(), value["error"]["message"].as_str());
    }
}

fn spliced(envelope: &Envelope, line: &str, value: &Value) {
    let parts = Parts::of(line).expect("it is an object");
    assert_eq!((&parts.method, &parts.json_id()), (&envelope.method, &envelope.id));
    assert_eq!(
        parts.is_version_2,
        value["jsonrpc"] == "2.0" && !envelope.defects.contains(&Defect::WrongVersion)
    );
    let mut expected = value.clone();
    if let Some(id) = parts.id {
        assert_eq!(serde_json::from_str::<Value>(id.get()).expect("it is JSON"), value["id"]);
        expected["id"] = Value::from(42);
    }
    const KEY: &str = "scrubjay/\"fuzz\"";
    let added = parts.params.filter(|_| value["params"].is_object() && value["params"].get(KEY).is_none());
    if added.is_some() {
        expected["params"][KEY] = Value::from("y");
    }
    let changed = Splice::new(line).replace(parts.id, "42").add_member(added, KEY, "\"y\"").finish();
    assert_eq!(serde_json::from_str::<Value>(&changed).expect("it stays JSON"), expected);
}
