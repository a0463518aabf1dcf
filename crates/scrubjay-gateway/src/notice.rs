//! The messages Scrubjay itself says to a peer, when it cannot forward what was said.

use scrubjay_core::entry::Direction;
use scrubjay_core::envelope::{Envelope, JsonId, MessageKind};
use scrubjay_core::protocol::code;
use serde_json::{Value, json};

/// An error line and the direction in which it must travel to reach who waits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// Which way it goes.
    pub(crate) direction: Direction,
    /// The line, with its ending.
    pub(crate) line: Vec<u8>,
}

/// Returns the errors owed for a message that could not be recorded, and so was not forwarded.
#[must_use]
pub(crate) fn not_recorded(direction: Direction, line: &[u8], why: &str) -> Vec<Notice> {
    let envelope = Envelope::parse(line);
    let single = std::slice::from_ref(&envelope);
    let messages = if envelope.kind == MessageKind::Batch { envelope.batch.as_slice() } else { single };
    let text = format!(
        "Scrubjay did not forward this message, because it could not record it: {why}. \
         Forwarding resumes by itself when recording works again; to forward without a recording, start \
         scrubjay with --on-record-failure forward."
    );
    messages
        .iter()
        .filter_map(|message| {
            let id = message.id.as_ref()?;
            let direction = match message.kind {
                MessageKind::Request => direction.reversed(),
                MessageKind::Response | MessageKind::Error => direction,
                MessageKind::Notification | MessageKind::Batch | MessageKind::Opaque => return None,
            };
            Some(Notice { direction, line: error_line(Some(id), code::INTERNAL, &text, &json!({})) })
        })
        .collect()
}

/// Returns the error owed for a line beyond the limit, which was not forwarded.
#[must_use]
pub(crate) fn too_long(
    direction: Direction,
    line: &scrubjay_core::oversize::Oversize,
    limit: usize,
) -> Notice {
    let text = format!(
        "Scrubjay did not forward a message of {} bytes: the limit is {limit} bytes. \
         Start scrubjay with a larger --max-message-size to allow it.",
        line.bytes
    );
    let id = line.id.as_deref().map(JsonId::from_raw);
    let data = json!({ "bytes": line.bytes, "limit": limit, "blake3": line.hash });
    // A request is answered; an answer is replaced, for its asker waits on the other side.
    let (direction, code) = match (&id, &line.method) {
        (Some(_), None) => (direction, code::INTERNAL),
        _ => (direction.reversed(), code::INVALID_REQUEST),
    };
    Notice { direction, line: error_line(id.as_ref(), code, &text, &data) }
}

fn error_line(id: Option<&JsonId>, code: i64, message: &str, data: &Value) -> Vec<u8> {
    // The id goes back as it was spelled; the rest is ours.
    let mut error = json!({ "code": code, "message": message });
    if data.as_object().is_some_and(|d| !d.is_empty()) {
        error["data"] = data.clone();
    }
    let id = id.map_or("null", JsonId::as_raw);
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{ClientToServer as C, ServerToClient as S};

    #[test]
    fn whoever_waits_is_told() {
        let request = br#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"m"}"#;
        let told = not_recorded(C, request, "disk full");
        assert_eq!(told[0].direction, S);
        let line = String::from_utf8(told[0].line.clone()).unwrap();
        assert!(line.contains("\"id\":123456789012345678901234567890,"), "{line}");
        assert!(line.ends_with("}\n") && line.contains("disk full"), "{line}");
        assert_eq!(not_recorded(S, br#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "x")[0].direction, S);
        assert!(not_recorded(C, br#"{"jsonrpc":"2.0","method":"note"}"#, "x").is_empty());
        assert!(not_recorded(C, b"rubbish", "x").is_empty());
        let batch = br#"[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"b"}]"#;
        assert_eq!(not_recorded(C, batch, "x").len(), 2);
    }
}
