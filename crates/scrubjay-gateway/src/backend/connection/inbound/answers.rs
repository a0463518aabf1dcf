//! Answers of a backend, each to the call that waits for it.

use scrubjay_core::entry::Direction;
use scrubjay_core::message::{self, Parts};
use scrubjay_core::protocol::code;
use scrubjay_core::redact::cut;
use serde_json::value::RawValue;

use super::LARGE_BYTES;
use crate::backend::Answer;
use crate::backend::connection::channel::{PendingCall, RpcChannel};
use crate::budget::MemoryUse;
use crate::ruled_line::RuledLine;
use crate::session::lock;

impl RpcChannel {
    /// Removes and returns the pending call that a line answers, if it answers one.
    pub(super) fn pending_of(&self, line: &RuledLine) -> Option<PendingCall> {
        let parts = Parts::of(&line.original).ok().filter(|parts| parts.method.is_none())?;
        let id = parts.id?.get().parse().ok()?;
        lock(&self.pending).remove(&id)
    }

    pub(super) fn receive_answer(&self, id: &RawValue, parts: &Parts<'_>, line: &RuledLine) {
        let pending = id.get().parse::<u64>().ok().and_then(|id| lock(&self.pending).remove(&id));
        match pending {
            Some(pending) => self.answer(pending, parts, line),
            // Late, repeated or made up: recorded, and passed to no client.
            None => self.record_own(line.original.as_bytes()),
        }
    }

    pub(super) fn answer(&self, pending: PendingCall, parts: &Parts<'_>, line: &RuledLine) {
        if let Err(e) = self.record(Direction::ServerToClient, pending.call.as_ref(), line) {
            let why = format!("the answer was not passed on, because it could not be recorded: {e}");
            // Fails if the caller was dropped.
            let _ = pending.reply.send(Answer::error(code::INTERNAL, &why));
            return;
        }
        // A short answer is charged when it is queued for its client.
        if line.original.len() > LARGE_BYTES
            && let Some(call) = &pending.call
        {
            // Held until the answer is delivered to the client.
            match self.budget.charge(MemoryUse::Backend, line.original.len()) {
                Ok(charge) => call.hold(charge),
                Err(full) => {
                    call.session.note_dropped(1, line.original.len(), full.key);
                    let why = format!(
                        "the answer has {} bytes, and was not passed on: {full}",
                        line.original.len()
                    );
                    let _ = pending.reply.send(Answer::error(code::INTERNAL, &why));
                    return;
                }
            }
        }
        let answer = match (parts.result, parts.error) {
            (_, Some(error)) if !message::is_error(error) => {
                // Clients drop what is no valid error, and go on waiting.
                let beginning = cut(error.get(), 200);
                Answer::error(
                    code::INTERNAL,
                    &format!("the backend's error is no JSON-RPC error: {beginning}"),
                )
            }
            (_, Some(error)) => Answer::Error(error.get().to_owned()),
            (Some(result), None) => Answer::Result(result.get().to_owned()),
            (None, None) => {
                Answer::error(code::INTERNAL, "the backend's answer has neither result nor error")
            }
        };
        // Fails if the caller was dropped.
        let _ = pending.reply.send(answer);
    }
}
