//! Accepts a client's message: records it, checks it, and turns a request into a [`Call`].
//!
//! The way of a request starts here. `accept_message` records the line before anything else looks at it, and separates
//! requests, notifications and answers. `accept_request` lists a request as under way; `answers.rs` then answers it.

use std::sync::Arc;

use scrubjay_core::envelope::{Era, JsonId};
use scrubjay_core::message;
use scrubjay_core::protocol::{code, meta, method};
use scrubjay_tape::recording::RecordError;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::Gateway;
use super::unreadable::unreadable_answer;
use crate::backend::Answer;
use crate::backend::connection::Connection;
use crate::budget::{Charge, MemoryUse, OverBudget};
use crate::client_message::{ClientMessage, Params, text_in};
use crate::record_first::RecordedEntry;
use crate::session::{Call, CallGuard, Demand, LEAST_LOG_LEVEL, Outbox, Session, log_level};

/// How many demands of one call may wait until its client comes back.
const DEMANDS_MAX: usize = 16;
/// How many copies of a request are in memory while it is under way: as it came, and as it goes to a backend.
const CALL_COPIES: usize = 2;
/// The memory a request takes besides its text: estimated, so that many tiny requests count as well.
const CALL_BYTES: usize = 1024;
/// The longest method, in bytes. It is kept with its call, like the id, which has the same limit.
const METHOD_BYTES_MAX: usize = message::ID_BYTES_MAX;

/// What the front has to do with a message that was accepted.
pub enum Accepted {
    /// A request: answer it.
    Request(Box<Request>),
    /// A notification or an answer: there is nothing to answer.
    NoReply,
    /// Refused, with the line to answer with.
    Refused(String),
    /// Refused for lack of memory, with the line to answer with: the same request may be accepted later.
    Full(String),
}

/// A client's request, ready to be answered.
pub struct Request {
    /// Its id.
    pub(crate) id: JsonId,
    /// Its method.
    pub(crate) method: String,
    /// Its parameters.
    pub(crate) params: Option<Params>,
    /// The session it belongs to, and where its progress, log messages and questions go.
    pub(crate) call: Arc<Call>,
    /// Receives what a backend demands of a modern client in the middle of the call; `None` for a legacy client, which
    /// is sent requests.
    pub(super) demands: Option<mpsc::Receiver<Demand>>,
    _guard: CallGuard,
}

impl Request {
    /// Returns a member of the parameters as text.
    #[must_use]
    pub(crate) fn text_param(&self, key: &str) -> Option<String> {
        text_in(self.params.as_ref()?.get(key))
    }

    /// Returns whether every reader finds the same members in the parameters and their `_meta`. Otherwise a member that
    /// we do not find may still be there for a server.
    pub(super) fn has_readable_params(&self) -> bool {
        self.params.as_ref().is_none_or(Params::is_readable)
    }

    /// Returns the parameters as raw JSON, for readers of members that are not looked up in advance.
    #[must_use]
    pub(crate) fn raw_params(&self) -> Option<&RawValue> {
        self.params.as_ref().and_then(Params::raw)
    }
}

impl Gateway {
    /// Accepts a line from a client: records it, and returns what to do with it.
    pub fn accept(self: &Arc<Self>, session: &Arc<Session>, line: &str, outbox: &Outbox) -> Accepted {
        match ClientMessage::parse(line.into()) {
            Ok(message) => self.accept_message(session, &message, outbox),
            Err(line) => self.accept_unreadable(session, &line),
        }
    }

    /// Accepts a line that is no JSON-RPC message: records it, and refuses it under the id that can be found in it.
    fn accept_unreadable(&self, session: &Arc<Session>, line: &str) -> Accepted {
        if let Some(refused) = self.refuse_unreadable(session, line.as_bytes()) {
            return refused;
        }
        match session.record_inbound(line) {
            Ok(_) => Accepted::Refused(unreadable_answer(line).1),
            Err(e) => refuse_unrecorded(None, &e),
        }
    }

    /// Accepts a message from a client: records it, and returns what to do with it.
    pub(crate) fn accept_message(
        self: &Arc<Self>,
        session: &Arc<Session>,
        message: &ClientMessage,
        outbox: &Outbox,
    ) -> Accepted {
        let line = message.text();
        if let Some(refused) = self.refuse_unreadable(session, line.as_bytes()) {
            return refused;
        }
        // Before any check: a message that is refused is on the tape as well.
        let recorded = match session.record_inbound(line) {
            Ok(recorded) => recorded,
            Err(e) => return refuse_unrecorded(message.json_id().as_ref(), &e),
        };
        let id = message.json_id();
        if message.id().is_some_and(|id| id.len() > message::ID_BYTES_MAX)
            || message.method().is_some_and(|method| method.len() > METHOD_BYTES_MAX)
        {
            let why = format!("an id or a method has more than {METHOD_BYTES_MAX} bytes");
            return refuse(id.as_ref(), code::INVALID_REQUEST, &why);
        }
        if let Some(method) = message.method()
            && let Some(settled) = self.settle_ending(method, id.as_ref())
        {
            return settled;
        }
        match (message.method(), id) {
            (Some(method), Some(id)) => self.accept_request(session, method, id, message, recorded, outbox),
            // An id that is null makes it no notification: such a message is refused below.
            (Some(method), None) if !message.has_id => {
                match session.account.charge(MemoryUse::Call, CALL_BYTES + CALL_COPIES * line.len()) {
                    Ok(charge) => self.accept_notification(session, method, message, charge),
                    Err(full) => return refuse_full(None, &full),
                }
                Accepted::NoReply
            }
            (None, Some(id)) if message.result().is_some() || message.error().is_some() => {
                let answer = match (message.error(), message.result()) {
                    (Some(error), _) => Answer::Error(error.to_owned()),
                    (None, result) => Answer::Result(result.unwrap_or("{}").to_owned()),
                };
                // An answer to no question of ours is recorded and ignored.
                session.take_answer(&id, answer);
                Accepted::NoReply
            }
            (_, id) => {
                refuse(id.as_ref(), code::INVALID_REQUEST, "neither a request, a notification nor an answer")
            }
        }
    }

    fn accept_request(
        self: &Arc<Self>,
        session: &Arc<Session>,
        method: &str,
        id: JsonId,
        message: &ClientMessage,
        recorded: Option<RecordedEntry>,
        outbox: &Outbox,
    ) -> Accepted {
        let facts = match self.facts_of(session, method, message) {
            Ok(facts) => facts,
            Err(e) => return Accepted::Refused(message::raw_error(id.as_raw(), &e.to_json_rpc())),
        };
        let bytes =
            CALL_BYTES + facts.bytes() + CALL_COPIES * message.params().map_or(0, |params| params.len());
        let charge = match session.account.charge(MemoryUse::Call, bytes) {
            Ok(charge) => charge,
            Err(full) => return refuse_full(Some(&id), &full),
        };
        if facts.era == Era::Modern
            && (session.is_inferred || !session.is_opened())
            // Every modern request states its client's facts; notifications between requests need them too.
            && let Err(full) = session.set_facts(facts.clone())
        {
            return refuse_full(Some(&id), &full);
        }
        let log_level = match facts.era {
            Era::Legacy => Some(LEAST_LOG_LEVEL),
            Era::Modern => text_in(message.meta(meta::LOG_LEVEL))
                .map(|level| log_level(&level).unwrap_or(LEAST_LOG_LEVEL)),
        };
        // Only a modern client has a channel for demands: it cannot be sent requests, as a legacy client can.
        let (demand, demands) = match facts.era {
            Era::Modern => {
                let (demand, demands) = mpsc::channel(DEMANDS_MAX);
                (Some(demand), Some(demands))
            }
            Era::Legacy => (None, None),
        };
        let outbox = outbox.clone();
        let call = Call::new(session.clone(), id.clone(), recorded, outbox, facts, log_level, demand);
        let token = message.meta(meta::PROGRESS_TOKEN).map(str::to_owned);
        let call = Arc::new(call.with_progress_token(token));
        // Kept by the call, not by this request: a parked call outlives its request.
        call.hold(charge);
        if session.has_live_token(&call) {
            return refuse(
                Some(&id),
                code::INVALID_PARAMS,
                "this progressToken belongs to a request that is under way: choose another",
            );
        }
        let Some(guard) = session.begin_call(id.clone(), call.clone()) else {
            return refuse(
                Some(&id),
                code::INVALID_REQUEST,
                "a request with this id is under way, or too many are",
            );
        };
        let (params, method) = (message.params().cloned(), method.to_owned());
        Accepted::Request(Box::new(Request { id, method, params, call, demands, _guard: guard }))
    }

    /// Accepts a notification from a client, and passes it to the servers that it may concern.
    fn accept_notification(
        self: &Arc<Self>,
        session: &Arc<Session>,
        method: &str,
        message: &ClientMessage,
        charge: Charge,
    ) {
        let params = message.params().map(|params| &**params);
        match method {
            method::NOTIFICATIONS_CANCELLED => {
                let id = message.param("requestId").map(JsonId::from_raw);
                if let Some(call) = id.and_then(|id| session.call(&id)) {
                    call.cancel();
                }
            }
            _ if self.transparent.is_some() => {
                if let Some(transparent) = &self.transparent {
                    self.pass_notification(transparent, session, method, params, charge);
                }
            }
            // The gateway has greeted each backend itself, and sent this at its own time.
            method::NOTIFICATIONS_INITIALIZED => {}
            // A server that looks at the method alone would perform it, and no check for requests was made here.
            _ if !is_notification(method) => session.record_refused(&serde_json::json!({
                "event": "refused", "method": method,
                "reason": "a request without an id: only notifications are passed on without one",
            })),
            // Other notifications go to the servers that this client uses.
            _ => {
                let era = session.facts().era;
                let all = self.backends();
                let serving = all.iter().flat_map(|b| b.connections_of(session, era));
                // On a shared connection, a request or task that it names may be another client's.
                let concerns = |c: &Arc<Connection>| c.owner().is_some() || !names_a_handle(method);
                // One copy and one charge for all backends; freed when the last of them has it.
                let notification: Arc<(String, Option<String>, Charge)> =
                    Arc::new((method.to_owned(), params.map(str::to_owned), charge));
                for connection in serving.filter(concerns) {
                    connection.note_client(session);
                    let notification = notification.clone();
                    // In a task: a backend that does not read must not hold up the client's next message.
                    tokio::spawn(async move {
                        let (method, params, _charge) = &*notification;
                        if let Err(e) = connection.notify(None, method, params.as_deref()).await {
                            tracing::debug!(error = %e, "a notification did not reach a backend");
                        }
                    });
                }
            }
        }
    }
}

/// Returns whether a method is one of a notification.
pub(super) fn is_notification(method: &str) -> bool {
    method.starts_with(method::NOTIFICATIONS_PREFIX)
}

/// Returns whether a client's notification names something that a server keeps for one client.
fn names_a_handle(method: &str) -> bool {
    method == method::NOTIFICATIONS_PROGRESS || method.starts_with(method::NOTIFICATIONS_TASKS_PREFIX)
}

pub(super) fn refuse(id: Option<&JsonId>, code: i64, why: &str) -> Accepted {
    let id = id.map_or("null", JsonId::as_raw);
    Accepted::Refused(message::raw_error(id, &message::error(code, why, None)))
}

fn refuse_full(id: Option<&JsonId>, full: &OverBudget) -> Accepted {
    let id = id.map_or("null", JsonId::as_raw);
    Accepted::Full(message::raw_error(id, &message::error(code::INTERNAL, &full.to_string(), None)))
}

fn refuse_unrecorded(id: Option<&JsonId>, error: &RecordError) -> Accepted {
    let why = format!("the message was not processed, because it could not be recorded: {error}");
    refuse(id, code::INTERNAL, &why)
}

#[cfg(test)]
mod tests;
