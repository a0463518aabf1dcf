//! Which requests of a POST are not answered yet, and which line answers one. Pure.

use std::borrow::Cow;

use scrubjay_core::envelope::{Envelope, JsonId, MessageKind};
use scrubjay_core::message::{self, Splice};
use serde_json::Value;
use serde_json::value::RawValue;

/// The requests that still wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    ids: Vec<JsonId>,
}

impl Waiting {
    /// Waits for the requests among these messages.
    pub(super) fn for_requests(message: &Envelope) -> Self {
        let all = if message.kind == MessageKind::Batch {
            message.batch.as_slice()
        } else {
            std::slice::from_ref(message)
        };
        let requests = all.iter().filter(|m| m.kind == MessageKind::Request);
        Self { ids: requests.filter_map(|m| m.id.clone()).collect() }
    }

    pub(super) fn is_over(&self) -> bool {
        self.ids.is_empty()
    }

    /// Gives up: returns those that nobody will answer.
    pub(super) fn give_up(&mut self) -> Vec<JsonId> {
        std::mem::take(&mut self.ids)
    }

    /// Takes a line from the server and returns it as the client must see it.
    ///
    /// An error without an id answers the one request that waits; a `verdict`, the whole answer to a request
    /// that was refused, does so whatever id it bears.
    pub(super) fn take<'l>(&mut self, line: &'l [u8], verdict: bool) -> Cow<'l, [u8]> {
        if self.is_over() {
            return line.into();
        }
        let envelope = Envelope::parse(line);
        match envelope.kind {
            MessageKind::Response => self.settle(envelope.id.as_ref()),
            MessageKind::Batch => envelope.batch.iter().for_each(|m| {
                if matches!(m.kind, MessageKind::Response | MessageKind::Error) {
                    self.settle(m.id.as_ref());
                }
            }),
            MessageKind::Error => {
                let before = self.ids.len();
                self.settle(envelope.id.as_ref());
                if self.ids.len() == before
                    && (verdict || envelope.id.is_none())
                    && let [own] = self.ids.as_slice()
                    && let Some(adopted) = with_id(line, own)
                {
                    self.ids.clear();
                    return adopted.into();
                }
            }
            MessageKind::Request | MessageKind::Notification | MessageKind::Opaque => {}
        }
        line.into()
    }

    fn settle(&mut self, id: Option<&JsonId>) {
        if let Some(id) = id {
            self.ids.retain(|own| !same(own, id));
        }
    }
}

/// Compares ids by value: servers may spell them anew.
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

    fn check(request: &str, line: &str, verdict: bool, expected: &str, left: usize) {
        let mut waiting = Waiting::for_requests(&Envelope::parse(request.as_bytes()));
        let taken = waiting.take(line.as_bytes(), verdict).into_owned();
        assert_eq!(String::from_utf8(taken).unwrap(), expected);
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
        check(
            request,
            r#"{"error":{"code":1,"message":"x"}}"#,
            false,
            r#"{"id":"a\"b","error":{"code":1,"message":"x"}}"#,
            0,
        );
        let foreign = r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":1,"message":"x"}}"#;
        check(request, foreign, false, foreign, 1);
        check(request, foreign, true, r#"{"jsonrpc":"2.0","id":"a\"b","error":{"code":1,"message":"x"}}"#, 0);
    }
}
