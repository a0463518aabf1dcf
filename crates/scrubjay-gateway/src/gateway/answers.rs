//! Answers a client's request: picks the function for its method, and records the response before it is sent.
//!
//! `requests.rs` has accepted the request. `await_answer` waits for the answer, or until the client cancels the
//! request; `respond` chooses by method; `calls.rs` passes what only a backend can answer to that backend.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use scrubjay_core::entry::WhyUndelivered;
use scrubjay_core::envelope::{Era, JsonId};
use scrubjay_core::message;
use scrubjay_core::protocol::{code, method};

use super::requests::is_notification;
use super::{Gateway, Request, shutdown};
use crate::backend::Answer;
use crate::budget::Charge;
use crate::delivery::Outgoing;
use crate::session::{Call, Outbox};

/// How long an answer waits for memory before its client gets an error instead.
pub(crate) const ANSWER_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(10);

impl Gateway {
    /// Answers a request; the returned line counts as delivered. `None` if the client cancelled the request.
    pub async fn answer(self: &Arc<Self>, request: Box<Request>) -> Option<String> {
        self.answer_outgoing(request).await.map(Outgoing::deliver)
    }

    /// Answers a request; the line returned is recorded and must be sent.
    pub(crate) async fn answer_outgoing(self: &Arc<Self>, request: Box<Request>) -> Option<Outgoing> {
        let call = request.call.clone();
        let line = self.await_answer(request).await?;
        // Memory before the tape: if there is none, the tape gets the error that the client gets.
        let (line, charge) = with_memory(&call, line).await;
        let recorded = call.session.record_outgoing(line);
        let line = recorded.unwrap_or_else(|e| Outgoing::unrecorded(not_recorded(&call.id, &e)));
        Some(match charge {
            Some(charge) => line.with_charge(charge),
            None => line,
        })
    }

    /// Answers a request on a stream that carries other messages too. The response is recorded and queued in one step,
    /// so that lines leave in the order of the tape.
    pub async fn answer_on(self: &Arc<Self>, request: Box<Request>, outbox: &Outbox) {
        let call = request.call.clone();
        let Some(line) = self.await_answer(request).await else { return };
        let (line, charge) = with_memory(&call, line).await;
        // The place in the queue comes first: to wait for it after the recording would let other lines overtake.
        let place = outbox.reserve().await.ok();
        // No charge means that `with_memory` replaced the answer by a short error.
        let charge = charge.map_or_else(|| call.session.charge_for_delivery(""), Ok);
        if let Err(e) = call.session.queue_charged(place, charge, line, WhyUndelivered::ClientLeft) {
            // The client may be gone by now.
            let _ = outbox.send(Outgoing::unrecorded(not_recorded(&call.id, &e))).await;
        }
    }

    /// Waits for the answer to a request; `None` if its client cancels it first.
    async fn await_answer(self: &Arc<Self>, mut request: Box<Request>) -> Option<String> {
        let call = request.call.clone();
        // A panic of ours must not leave the client waiting; the panic hook logs it.
        let answering = AssertUnwindSafe(self.dispatch(&mut request)).catch_unwind();
        let answer = tokio::select! {
            // An answer that is ready is sent even if the session has just ended.
            biased;
            answer = answering => {
                answer.unwrap_or_else(|_| Answer::error(code::INTERNAL, "Scrubjay failed to answer: see its log"))
            }
            // Cancelled: no answer is expected.
            () = call.cancelled.notified() => return None,
        };
        Some(match answer {
            Answer::Result(result) => message::result(request.id.as_raw(), &result),
            Answer::Error(error) => message::raw_error(request.id.as_raw(), &error),
        })
    }

    async fn dispatch(self: &Arc<Self>, request: &mut Request) -> Answer {
        if let Some(transparent) = &self.transparent {
            return self.pass_transparently(transparent, request).await;
        }
        if !request.has_readable_params() {
            return unreadable_params();
        }
        self.answer_ruled(request).await
    }

    /// Chooses by its method who answers a request. Rules have let it pass.
    pub(super) async fn respond(self: &Arc<Self>, request: &mut Request) -> Answer {
        if self.is_task(request) {
            // Boxed, like the completion below: calls are most of the traffic, and every request has a future with room
            // for the largest of these.
            return Box::pin(self.orchestrate(request)).await;
        }
        let modern = request.call.facts.era == Era::Modern;
        match request.method.as_str() {
            method::INITIALIZE if !modern => self.initialize(request).await,
            method::SERVER_DISCOVER => self.discover(request).await,
            shutdown::SHUTDOWN => self.shut_down_for_client().await,
            method::PING if !modern => Answer::Result("{}".to_owned()),
            method::LOGGING_SET_LEVEL if !modern => self.set_log_level(request).await,
            method::TOOLS_LIST
            | method::PROMPTS_LIST
            | method::RESOURCES_LIST
            | method::RESOURCES_TEMPLATES_LIST => self.list(request).await,
            method::TOOLS_CALL | method::PROMPTS_GET => self.call_by_name(request).await,
            method::RESOURCES_READ => self.read_resource(request).await,
            method::RESOURCES_SUBSCRIBE | method::RESOURCES_UNSUBSCRIBE if !modern => {
                self.subscribe(request).await
            }
            method::SUBSCRIPTIONS_LISTEN if modern => self.listen(request).await,
            method::COMPLETION_COMPLETE => Box::pin(self.complete(request)).await,
            // Methods of the other era. They must not fall through to `pass_on`: a backend might take them.
            method::INITIALIZE
            | method::PING
            | method::LOGGING_SET_LEVEL
            | method::RESOURCES_SUBSCRIBE
            | method::RESOURCES_UNSUBSCRIBE
            | method::SUBSCRIPTIONS_LISTEN => not_found(&request.method),
            // A server that looks at the method alone would take it for a notification, perhaps of another client.
            method if is_notification(method) => not_found(method),
            // Extensions and methods of later versions: a backend may know what we do not.
            _ => self.pass_on(request).await,
        }
    }
}

/// Reserves memory for an answer until its client has read it. If there is none, returns an error to send instead,
/// without a charge.
async fn with_memory(call: &Call, line: String) -> (String, Option<Charge>) {
    let (session, bytes) = (&call.session, line.len());
    let mut charge = call.reserved_for_answer();
    let full = match charge.resize_within(bytes, ANSWER_WAIT_MAX).await {
        Ok(()) => return (line, Some(charge)),
        Err(full) => full,
    };
    // Freed before the error is made: others wait for this memory.
    drop((line, charge));
    session.note_dropped(1, bytes, full.key);
    let why = format!("the answer has {bytes} bytes, and was not passed on: {full}");
    (message::raw_error(call.id.as_raw(), &message::error(code::INTERNAL, &why, None)), None)
}

fn not_recorded(id: &JsonId, error: &scrubjay_tape::recording::RecordError) -> String {
    let why = format!("the answer was not passed on, because it could not be recorded: {error}");
    message::raw_error(id.as_raw(), &message::error(code::INTERNAL, &why, None))
}

pub(crate) fn not_found(method: &str) -> Answer {
    Answer::error(code::METHOD_NOT_FOUND, &format!("no such method: {method}"))
}

/// Refuses a request with a key that servers may read differently: a check here would not be about what the server
/// reads.
pub(super) fn unreadable_params() -> Answer {
    Answer::error(
        code::INVALID_PARAMS,
        "params cannot be read: a key in params or params._meta is no valid text",
    )
}

#[cfg(test)]
mod tests;
