//! Tracks which requests of a POST have no answer yet, and which line answers one. Pure.

use std::borrow::Cow;

use scrubjay_core::envelope::{Defect, Envelope, JsonId, MessageKind};
use scrubjay_core::message::{self, Splice};
use serde_json::Value;
use serde_json::value::RawValue;

/// A line from the server, matched with the requests that wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BridgedLine<'l> {
    /// The line as it goes to the client.
    Line(Cow<'l, [u8]>),
    /// The line is meant to answer this request, but is no valid JSON-RPC answer.
    NoAnswer(JsonId),
}

/// Returns whether a message is JSON-RPC as clients require it: version 2.0, and errors with a numeric code.
pub(super) fn is_message(envelope: &Envelope) -> bool {
    let is_version_2 = !envelope.defects.contains(&Defect::WrongVersion);
    match envelope.kind {
        MessageKind::Request | MessageKind::Notification => is_version_2,
        MessageKind::Response => is_version_2 && envelope.id.is_some(),
        MessageKind::Error => is_version_2 && envelope.error_code.is_some(),
        MessageKind::Batch => !envelope.batch.is_empty() && envelope.batch.iter().all(is_message),
        MessageKind::Opaque => false,
    }
}

/// The requests without an answer.
#[derive(Debug, Default)]
pub(super) struct UnansweredRequests {
    ids: Vec<JsonId>,
}

impl UnansweredRequests {
    /// Collects the requests of a message or batch.
    pub(super) fn for_requests(message: &Envelope) -> Self {
        let all = if message.kind == MessageKind::Batch {
            message.batch.as_slice()
        } else {
            std::slice::from_ref(message)
        };
        let requests = all.iter().filter(|m| m.kind == MessageKind::Request);
        Self { ids: requests.filter_map(|m| m.id.clone()).collect() }
    }

    /// Adds the requests of another.
    pub(super) fn add(&mut self, other: &Self) {
        self.ids.extend(other.ids.iter().cloned());
    }

    /// Removes the requests of another.
    pub(super) fn remove(&mut self, other: &Self) {
        self.ids.retain(|id| !other.ids.contains(id));
    }

    /// Returns whether it has a request of another.
    pub(super) fn shares(&self, other: &Self) -> bool {
        self.ids.iter().any(|id| other.ids.contains(id))
    }

    /// Removes and returns the only request, if there is exactly one.
    pub(super) fn only(&mut self) -> Option<JsonId> {
        if self.ids.len() == 1 { self.ids.pop() } else { None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Removes and returns all requests.
    pub(super) fn give_up(&mut self) -> Vec<JsonId> {
        std::mem::take(&mut self.ids)
    }

    /// Takes a line from the server and returns it as the client must see it.
    ///
    /// An error without an id answers the only request that waits. With `is_refusal`, the line is the whole answer to
    /// an HTTP request that was refused, and an error answers that request even under another id. What is no valid
    /// JSON-RPC answer becomes `NoAnswer`: clients would drop it and go on waiting.
    pub(super) fn take<'l>(&mut self, line: &'l [u8], is_refusal: bool) -> BridgedLine<'l> {
        // Nothing waits, so the line need not be parsed.
        if self.is_empty() {
            return BridgedLine::Line(line.into());
        }
        let envelope = Envelope::parse(line);
        match envelope.kind {
            MessageKind::Response | MessageKind::Error if !is_message(&envelope) => {
                if let Some(id) = self.claimed(&envelope, is_refusal) {
                    self.settle(Some(&id));
                    return BridgedLine::NoAnswer(id);
                }
            }
            MessageKind::Response => self.settle(envelope.id.as_ref()),
            MessageKind::Batch => envelope.batch.iter().for_each(|m| {
                if matches!(m.kind, MessageKind::Response | MessageKind::Error) && is_message(m) {
                    self.settle(m.id.as_ref());
                }
            }),
            MessageKind::Error => {
                let before = self.ids.len();
                self.settle(envelope.id.as_ref());
                if self.ids.len() == before
                    && (is_refusal || envelope.id.is_none())
                    // With several requests it is not known which one it answers.
                    && let [own] = self.ids.as_slice()
                    && let Some(adopted) = with_id(line, own)
                {
                    self.ids.clear();
                    return BridgedLine::Line(adopted.into());
                }
            }
            MessageKind::Request | MessageKind::Notification | MessageKind::Opaque => {}
        }
        BridgedLine::Line(line.into())
    }

    /// Returns the request that an invalid answer is meant for.
    fn claimed(&self, line: &Envelope, is_refusal: bool) -> Option<JsonId> {
        let named = line.id.as_ref().and_then(|id| self.ids.iter().find(|own| same(own, id)));
        // With several requests it is not known which one it is meant for.
        let only = self.ids.first().filter(|_| self.ids.len() == 1 && (is_refusal || line.id.is_none()));
        named.or(only).cloned()
    }

    fn settle(&mut self, id: Option<&JsonId>) {
        if let Some(id) = id {
            self.ids.retain(|own| !same(own, id));
        }
    }
}

/// Compares ids by value: servers may write them in another spelling.
fn same(one: &JsonId, other: &JsonId) -> bool {
    let value = |id: &JsonId| serde_json::from_str::<Value>(id.as_raw()).ok();
    one == other || value(one).is_some_and(|v| Some(v) == value(other))
}

/// Puts an id into a message, and changes nothing else.
fn with_id(line: &[u8], id: &JsonId) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(line).ok()?;
    let whole: &RawValue = serde_json::from_str(text).ok()?;
    let splice = Splice::new(text);
    let splice = match message::member(Some(whole), "id") {
        Some(old) => splice.replace(Some(old), id.as_raw()),
        None => splice.add_member(Some(whole), "id", id.as_raw()),
    };
    Some(splice.finish().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(request: &str, line: &str, is_refusal: bool, expected: &str, left: usize) {
        let mut waiting = UnansweredRequests::for_requests(&Envelope::parse(request.as_bytes()));
        let taken = match waiting.take(line.as_bytes(), is_refusal) {
            BridgedLine::Line(line) => String::from_utf8(line.into_owned()).unwrap(),
            BridgedLine::NoAnswer(id) => format!("no answer to {id}"),
        };
        assert_eq!(taken, expected);
        assert_eq!(waiting.give_up().len(), left, "{line}");
    }

    #[test]
    fn answers_settle_their_requests() {
        let request = r#"{"jsonrpc":"2.0","id":12345678901234567890123,"method":"m"}"#;
        let own = r#"{"jsonrpc":"2.0","id":12345678901234567890123,"result":{"n":1.0}}"#;
        check(request, own, false, own, 0);
        let other = r#"{"jsonrpc":"2.0","id":2,"result":{}}"#;
        check(request, other, false, other, 1);
        check(request, "rubbish", false, "rubbish", 1);
        let note = r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#;
        check(request, note, false, note, 1);
        let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":"b","method":"b"}]"#;
        let answers = r#"[{"jsonrpc":"2.0","id":"\u0062","result":{}}]"#;
        check(batch, answers, false, answers, 1);
    }

    #[test]
    fn an_error_without_id_gets_the_requests_own() {
        let request = r#"{"jsonrpc":"2.0","id":"a\"b","method":"server/discover"}"#;
        let null = r#"{"jsonrpc": "2.0", "error":{"code":-32000,"message":"No session"},"id":null}"#;
        let own = r#"{"jsonrpc": "2.0", "error":{"code":-32000,"message":"No session"},"id":"a\"b"}"#;
        check(request, null, false, own, 0);
        let foreign = r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":1,"message":"x"}}"#;
        check(request, foreign, false, foreign, 1);
        check(request, foreign, true, r#"{"jsonrpc":"2.0","id":"a\"b","error":{"code":1,"message":"x"}}"#, 0);
    }
    #[test]
    fn what_only_looks_like_an_answer_is_none() {
        let request = r#"{"jsonrpc":"2.0","id":7,"method":"m"}"#;
        for line in [
            r#"{"error":"invalid_token"}"#,
            r#"{"error":"invalid_token","error_description":"expired"}"#,
            r#"{"error":{"code":1,"message":"x"}}"#,
            r#"{"jsonrpc":"2.0","error":"no"}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":"E1","message":"x"}}"#,
            r#"{"jsonrpc":"2.0","id":7,"error":{"message":"x"}}"#,
            r#"{"jsonrpc":"1.0","id":7,"result":{}}"#,
            r#"{"result":{}}"#,
        ] {
            check(request, line, false, "no answer to 7", 0);
            check(request, line, true, "no answer to 7", 0);
        }
        let others = r#"{"jsonrpc":"2.0","id":8,"error":"no"}"#;
        check(request, others, false, others, 1);
        check(request, others, true, "no answer to 7", 0);
    }
}
