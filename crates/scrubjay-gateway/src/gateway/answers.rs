//! The answer to a client's request: routed by method, put in room, recorded, handed out.
//!
//! This is the second half of a request's way, which `requests.rs` begins: `conclude` waits for the answer or for its
//! client to call it off, `respond` picks who answers, and what a backend answers is in `calls.rs`.

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

/// How long an answer may wait for room before its client gets an error instead.
pub(crate) const ANSWER_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(10);

impl Gateway {
    /// Answers a request; the returned line counts as delivered.
    pub async fn answer(self: &Arc<Self>, request: Box<Request>) -> Option<String> {
        self.answer_outgoing(request).await.map(Outgoing::deliver)
    }

    /// Answers a request; the line returned is recorded and must be sent.
    pub async fn answer_outgoing(self: &Arc<Self>, request: Box<Request>) -> Option<Outgoing> {
        let call = request.call.clone();
        let line = self.conclude(request).await?;
        let (line, room) = with_room(&call, line).await;
        let recorded = call.session.record_outgoing(line);
        let line = recorded.unwrap_or_else(|e| Outgoing::unrecorded(not_recorded(&call.id, &e)));
        Some(match room {
            Some(room) => line.in_room(room),
            None => line,
        })
    }

    /// Answers a request on a stream that others write to as well: in the order of the tape.
    pub async fn answer_on(self: &Arc<Self>, request: Box<Request>, outbox: &Outbox) {
        let call = request.call.clone();
        let Some(line) = self.conclude(request).await else { return };
        let (line, room) = with_room(&call, line).await;
        let place = outbox.reserve().await.ok();
        // Only a short error has no charge yet.
        let room = room.map_or_else(|| call.session.room_for(""), Ok);
        if let Err(e) = call.session.say_in_room(place, room, line, WhyUndelivered::ClientLeft) {
            // The client may be gone by now.
            let _ = outbox.send(Outgoing::unrecorded(not_recorded(&call.id, &e))).await;
        }
    }

    async fn conclude(self: &Arc<Self>, mut request: Box<Request>) -> Option<String> {
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

    /// Answers a request that rules let pass.
    pub(super) async fn respond(self: &Arc<Self>, request: &mut Request) -> Answer {
        if self.is_task(request) {
            return self.orchestrate(request).await;
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
            method::COMPLETION_COMPLETE => self.complete(request).await,
            method::INITIALIZE
            | method::PING
            | method::LOGGING_SET_LEVEL
            | method::RESOURCES_SUBSCRIBE
            | method::RESOURCES_UNSUBSCRIBE
            | method::SUBSCRIPTIONS_LISTEN => not_found(&request.method),
            // A server that looks at the method alone would take it for a notification, perhaps of another client.
            method if is_notification(method) => not_found(method),
            _ => self.pass_on(request).await,
        }
    }
}

/// Reserves memory for an answer until its client has read it; without any, the answer becomes an error that says so.
async fn with_room(call: &Call, line: String) -> (String, Option<Charge>) {
    let (session, bytes) = (&call.session, line.len());
    let mut room = call.answer_room();
    let full = match room.resize_within(bytes, ANSWER_WAIT_MAX).await {
        Ok(()) => return (line, Some(room)),
        Err(full) => full,
    };
    drop((line, room));
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

/// Answers a request whose params name nothing that every reader would read alike.
pub(super) fn unreadable_params() -> Answer {
    Answer::error(
        code::INVALID_PARAMS,
        "params cannot be read: a key in params or params._meta is no valid text",
    )
}
