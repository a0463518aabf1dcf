//! Reads envelopes from the bytes of messages.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{BATCH_MAX, DEPTH_MAX, Defect, Envelope, Era, JsonId, MessageKind, References};
use crate::json::{fields, members, text};
use crate::protocol::{meta, method, result};

impl Envelope {
    /// Reads a message.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let mut defects = Vec::new();
        // Invalid bytes are replaced, so that the rest of the message can still be read.
        let utf8 = String::from_utf8_lossy(bytes);
        if matches!(utf8, Cow::Owned(_)) {
            defects.push(Defect::InvalidUtf8);
        }
        let mut json: &str = &utf8;
        if let Some(rest) = json.strip_prefix('\u{feff}') {
            defects.push(Defect::ByteOrderMark);
            json = rest;
        }
        if deeper_than(json.as_bytes(), DEPTH_MAX) {
            defects.push(Defect::TooDeep);
        }
        // Too deep is only noted here: values are taken as raw slices, which need no stack for their depth.
        let mut envelope = match json.trim_start().bytes().next() {
            None => Self::opaque(Defect::Empty),
            Some(b'[') => Self::parse_batch(json),
            _ => Self::parse_single(json),
        };
        defects.append(&mut envelope.defects);
        envelope.defects = defects;
        envelope
    }

    fn opaque(defect: Defect) -> Self {
        Self { defects: vec![defect], ..Self::default() }
    }

    fn parse_batch(json: &str) -> Self {
        let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(json) else {
            return Self::opaque(Defect::InvalidJson);
        };
        let mut envelope = Self { kind: MessageKind::Batch, ..Self::default() };
        if items.is_empty() {
            envelope.defects.push(Defect::EmptyBatch);
        } else if items.len() > BATCH_MAX {
            envelope.defects.push(Defect::LargeBatch);
        } else {
            envelope.batch = items.iter().map(|item| Self::parse_single(item.get())).collect();
        }
        envelope
    }

    fn parse_single(json: &str) -> Self {
        const KEYS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
        let outer = match fields(json, KEYS) {
            Ok(outer) => outer,
            // Valid JSON that is not an object, such as a number.
            Err(e) if e.is_data() => return Self::opaque(Defect::NotAMessage),
            Err(_) => return Self::opaque(Defect::InvalidJson),
        };
        let [version, raw_id, method, params, result, error] = outer.values;
        let id = raw_id.map(RawValue::get).filter(|raw| *raw != "null").map(JsonId::from_raw);
        let mut envelope = Self { id, method: text(method), ..Self::default() };
        if outer.repeated {
            envelope.defects.push(Defect::RepeatedKey);
        }
        if version.map(RawValue::get) != Some("\"2.0\"") {
            envelope.defects.push(Defect::WrongVersion);
        }
        if envelope.method.is_some() {
            envelope.kind = match (&envelope.id, raw_id) {
                (Some(_), _) => MessageKind::Request,
                (None, Some(_)) => {
                    // An answer could not be matched to the id null, so it is handled like a notification.
                    envelope.defects.push(Defect::NullId);
                    MessageKind::Notification
                }
                (None, None) => MessageKind::Notification,
            };
            envelope.read_params(params);
        } else if error.is_some() || result.is_some() {
            envelope.read_answer(result, error, raw_id.is_some());
        } else {
            envelope.defects.push(Defect::NotAMessage);
        }
        envelope
    }

    fn read_params(&mut self, params: Option<&RawValue>) {
        self.body_bytes = params.map_or(0, |p| p.get().len());
        let method = self.method.as_deref().unwrap_or_default();
        if method == method::INITIALIZE {
            self.era = Some(Era::Legacy);
        }
        let [name, uri, meta, progress_token, request_id, state, inputs, task_id, version, client] = members(
            params,
            [
                "name",
                "uri",
                "_meta",
                meta::PROGRESS_TOKEN,
                "requestId",
                result::REQUEST_STATE,
                result::INPUT_RESPONSES,
                "taskId",
                "protocolVersion",
                "clientInfo",
            ],
        );
        let [meta_version, meta_client, meta_token, meta_task, subscription] = members(
            meta,
            [
                meta::PROTOCOL_VERSION,
                meta::CLIENT_INFO,
                meta::PROGRESS_TOKEN,
                meta::RELATED_TASK,
                meta::SUBSCRIPTION_ID,
            ],
        );
        // Only modern requests state their version in `_meta`.
        if meta_version.is_some() {
            self.era = Some(Era::Modern);
        }
        self.protocol_version = text(meta_version).or_else(|| text(version));
        self.peer_info = meta_client.or(client).map(|c| c.get().to_owned());
        self.name = match method {
            method::TOOLS_CALL | method::PROMPTS_GET => text(name),
            _ if method.starts_with("resources/") || method == method::NOTIFICATIONS_RESOURCES_UPDATED => {
                text(uri)
            }
            _ => None,
        };
        let token = if method == method::NOTIFICATIONS_PROGRESS { progress_token } else { meta_token };
        self.references = References {
            progress_token: token.map(|t| JsonId::from_raw(t.get())),
            // Other messages may have a `requestId` with another meaning.
            cancels: request_id
                .filter(|_| method == method::NOTIFICATIONS_CANCELLED)
                .map(|id| JsonId::from_raw(id.get())),
            request_state: text(state),
            answers_input: inputs.is_some(),
            task: text(task_id).or_else(|| related_task(meta_task)),
            subscription: subscription.map(|id| JsonId::from_raw(id.get())),
        };
    }

    fn read_answer(&mut self, result: Option<&RawValue>, error: Option<&RawValue>, id_is_there: bool) {
        // JSON-RPC has the id null on an error if the request's id could not be read.
        if self.id.is_none() && !(error.is_some() && id_is_there) {
            self.defects.push(Defect::MissingId);
        }
        if let Some(error) = error {
            if result.is_some() {
                self.defects.push(Defect::ResultAndError);
            }
            self.kind = MessageKind::Error;
            self.body_bytes = error.get().len();
            let [code, message] = members(Some(error), ["code", "message"]);
            self.error_code = code.and_then(|c| c.get().parse().ok());
            self.error_message = text(message);
            return;
        }
        self.kind = MessageKind::Response;
        self.body_bytes = result.map_or(0, |r| r.get().len());
        let [is_error, result_type, state, task, task_id, meta, version, server] = members(
            result,
            [
                "isError",
                result::RESULT_TYPE,
                result::REQUEST_STATE,
                "task",
                "taskId",
                "_meta",
                "protocolVersion",
                "serverInfo",
            ],
        );
        let [meta_task, meta_server] = members(meta, [meta::RELATED_TASK, meta::SERVER_INFO]);
        let [created] = members(task, ["taskId"]);
        self.is_error = is_error.is_some_and(|e| e.get() == "true");
        self.input_required = text(result_type).as_deref() == Some(result::INPUT_REQUIRED);
        self.protocol_version = text(version);
        self.peer_info = meta_server.or(server).map(|s| s.get().to_owned());
        self.references.request_state = text(state);
        self.references.task = text(created).or_else(|| text(task_id)).or_else(|| related_task(meta_task));
    }
}

fn related_task(meta: Option<&RawValue>) -> Option<String> {
    let [task] = members(meta, ["taskId"]);
    text(task)
}

/// Returns whether brackets nest deeper than the limit, in constant memory.
fn deeper_than(json: &[u8], limit: usize) -> bool {
    // Without this many brackets it cannot be too deep: nearly every message takes only this fast scan.
    if memchr::memchr2_iter(b'{', b'[', json).nth(limit).is_none() {
        return false;
    }
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for &byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(line: &str, kind: MessageKind, id: Option<&str>, method: Option<&str>, defects: &[Defect]) {
        let seen = Envelope::parse(line.as_bytes());
        assert_eq!(seen.kind, kind, "{line}");
        assert_eq!(seen.id.as_ref().map(JsonId::as_raw), id, "{line}");
        assert_eq!(seen.method.as_deref(), method, "{line}");
        assert_eq!(seen.defects, defects, "{line}");
    }

    #[test]
    fn kinds_of_messages_are_recognised() {
        use MessageKind as K;
        let long = "123456789012345678901234567890";
        check(
            &format!(r#"{{"jsonrpc":"2.0","id":{long},"method":"ping"}}"#),
            K::Request,
            Some(long),
            Some("ping"),
            &[],
        );
        check(r#"{"jsonrpc":"2.0","method":"x/y"}"#, K::Notification, None, Some("x/y"), &[]);
        check(r#"{"result":1.0,"jsonrpc":"2.0","id":"a"}"#, K::Response, Some("\"a\""), None, &[]);
        check(r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, K::Error, None, None, &[]);
        check(r#"{"jsonrpc":"2.0","id":1}"#, K::Opaque, Some("1"), None, &[Defect::NotAMessage]);
        check(r#"{"\u006dethod":"m","id":1,"jsonrpc":"2.0"}"#, K::Request, Some("1"), Some("m"), &[]);
    }

    #[test]
    fn defects_are_named_and_the_rest_is_still_read() {
        use MessageKind as K;
        check("", K::Opaque, None, None, &[Defect::Empty]);
        check("hello", K::Opaque, None, None, &[Defect::InvalidJson]);
        check("42", K::Opaque, None, None, &[Defect::NotAMessage]);
        check(r#"{"jsonrpc":"2.0","id":1"#, K::Opaque, None, None, &[Defect::InvalidJson]);
        check("[]", K::Batch, None, None, &[Defect::EmptyBatch]);
        check(
            "\u{feff}{\"id\":1,\"method\":\"m\"}",
            K::Request,
            Some("1"),
            Some("m"),
            &[Defect::ByteOrderMark, Defect::WrongVersion],
        );
        check(
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#,
            K::Request,
            Some("2"),
            Some("m"),
            &[Defect::RepeatedKey],
        );
        let broken = Envelope::parse(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}");
        assert_eq!((broken.kind, broken.defects), (K::Request, vec![Defect::InvalidUtf8]));
    }

    #[test]
    fn depth_costs_no_stack() {
        let deep = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{}{}}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        check(&deep, MessageKind::Request, Some("1"), Some("m"), &[Defect::TooDeep]);
        let wide = format!(
            r#"{{"jsonrpc":"2.0","method":"m","params":["{}",{}0]}}"#,
            "[".repeat(300),
            "[],".repeat(300)
        );
        check(&wide, MessageKind::Notification, None, Some("m"), &[]);
    }

    #[test]
    fn details_of_messages_are_read() {
        let call = Envelope::parse(
            br#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo","arguments":{"name":"x"},
            "_meta":{"progressToken":9,"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
        );
        assert_eq!(call.name.as_deref(), Some("echo"));
        assert_eq!(call.era, Some(Era::Modern));
        assert_eq!(call.protocol_version.as_deref(), Some("2026-07-28"));
        assert_eq!(call.references.progress_token, Some(JsonId::from_raw("9")));
        let failed = Envelope::parse(br#"{"jsonrpc":"2.0","id":3,"result":{"isError":true,"content":[]}}"#);
        assert!(failed.is_failure());
        let batch =
            Envelope::parse(br#"[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"},3]"#);
        let kinds: Vec<_> = batch.batch.iter().map(|e| e.kind).collect();
        assert_eq!(kinds, [MessageKind::Request, MessageKind::Notification, MessageKind::Opaque]);
    }

    proptest! {
        #[test]
        fn any_bytes_have_an_envelope(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Envelope::parse(&bytes);
        }

        #[test]
        fn near_json_has_an_envelope(text in r#"[\[\]{}",:a0 \\]{0,80}"#) {
            let _ = Envelope::parse(text.as_bytes());
        }
    }
}
