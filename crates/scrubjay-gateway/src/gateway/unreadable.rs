//! Refuses lines that are no message and, while rules are in force, lines that parsers may read in different ways.
//!
//! The gateway parses a client's message to make another one for a backend, and rules judge that one. A line that could
//! be read in two ways is refused before the gateway settles on one of them.

use std::sync::Arc;

use scrubjay_core::entry::{Direction, EntryKind, Terminator};
use scrubjay_core::message::{self, Parts};
use scrubjay_core::oversize;
use scrubjay_core::protocol::code;
use scrubjay_core::rules::{self, Forwarded};
use scrubjay_tape::recording::Item;
use serde_json::value::RawValue;

use super::{Accepted, Gateway, refuse};
use crate::backend::Answer;
use crate::session::Session;

/// How many requests of a batch get an error of their own that says batches are not supported.
const BATCH_MAX: usize = 1024;

impl Gateway {
    /// Refuses a line that parsers may read in different ways, and records it with the reason. `None` if all read it
    /// alike, or no rules are in force.
    pub(crate) fn refuse_unreadable(&self, session: &Arc<Session>, line: &[u8]) -> Option<Accepted> {
        if !self.rules.are_any() {
            return None;
        }
        let judgement = rules::refuse_unreadable(Direction::ClientToServer, line)?;
        let item = Item::new(EntryKind::Message, Direction::ClientToServer, Terminator::Lf, line);
        let item = Item { rule_marks: judgement.marks.as_marks(), ..item };
        if let Err(e) = session.record_backend(&[item], 0, |_| ()) {
            let why = format!("the message was not processed, because it could not be recorded: {e}");
            return Some(refuse(None, code::INTERNAL, &why));
        }
        if let Forwarded::Changed(error) = &judgement.forwarded {
            // The line was an answer: the backend that waits for it gets an error instead.
            let text = String::from_utf8_lossy(error);
            if let Ok(parts) = Parts::of(&text)
                && let (Some(id), Some(error)) = (parts.json_id(), parts.error)
            {
                session.take_answer(&id, Answer::Error(error.get().to_owned()));
            }
        }
        let refusal = judgement.back.map(|back| String::from_utf8_lossy(&back).into_owned());
        Some(refusal.map_or(Accepted::NoReply, Accepted::Refused))
    }
}

/// Returns a short reason and the answer for a line that is no JSON object. The requests in it are answered under their
/// own ids if those can be found.
pub(crate) fn unreadable_answer(line: &str) -> (&'static str, String) {
    if serde_json::from_str::<&RawValue>(line).is_err() {
        let id = oversize::id_of_request(line.as_bytes());
        let error = message::error(code::PARSE, "not JSON", None);
        return ("not JSON", message::raw_error(id.as_deref().unwrap_or("null"), &error));
    }
    let error = message::error(
        code::INVALID_REQUEST,
        "not a JSON-RPC message: batches are not supported, send each message by itself",
        None,
    );
    let members: Vec<&RawValue> = serde_json::from_str(line).unwrap_or_default();
    let requests = members.iter().take(BATCH_MAX).filter_map(|member| {
        let parts = Parts::of(member.get()).ok()?;
        parts.json_id().filter(|_| parts.method.is_some())
    });
    let answers: Vec<String> = requests.map(|id| message::raw_error(id.as_raw(), &error)).collect();
    let answer = if answers.is_empty() {
        message::raw_error("null", &error)
    } else {
        // A batch is answered by a batch.
        format!("[{}]", answers.join(","))
    };
    ("not a message", answer)
}
