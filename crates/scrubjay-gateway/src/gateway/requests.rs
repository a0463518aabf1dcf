//! A client's message as it comes in: recorded, sorted, and made a request that can be answered.
//!
//! This is the first half of a request's way: `accept` records the line and checks it, `accept_request` makes a [`Call`]
//! of it and lists that as under way. The second half is `answers.rs`.

use std::sync::Arc;

use scrubjay_core::envelope::{Era, JsonId};
use scrubjay_core::message::{self, Parts};
use scrubjay_core::protocol::{code, meta, method};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::Gateway;
use super::unreadable::unreadable_answer;
use crate::backend::Answer;
use crate::backend::connection::Connection;
use crate::budget::{Charge, Full, Use};
use crate::record_first::RecordedEntry;
use crate::session::{Call, CallGuard, LEAST_LOG_LEVEL, Outbox, Session, log_level};

/// How many demands of one call may wait.
const DEMANDS_MAX: usize = 16;
/// A request that is under way is in memory up to so many times: as it came, and as it goes to a backend.
const CALL_COPIES: usize = 2;
/// What a request takes besides its text.
const CALL_BYTES: usize = 1024;
/// The longest method. It is kept with its call, like the id, which may have as much.
const METHOD_BYTES_MAX: usize = message::ID_BYTES_MAX;

/// A message from a client, recorded and sorted.
pub enum Accepted {
    /// A request: answer it.
    Request(Box<Request>),
    /// Something that needs no answer.
    NoReply,
    /// Not acceptable; the line to answer with.
    Refused(String),
    /// There is no room for it now; the line to answer with.
    Full(String),
}

/// A client's request, ready to be answered.
pub struct Request {
    /// Its id.
    pub id: JsonId,
    /// Its method.
    pub method: String,
    /// Its parameters.
    pub params: Option<String>,
    /// Its context.
    pub call: Arc<Call>,
    pub(super) demands: mpsc::Receiver<crate::session::Demand>,
    _guard: CallGuard,
}

impl Request {
    /// Returns a member of the parameters as text.
    #[must_use]
    pub fn text_param(&self, key: &str) -> Option<String> {
        message::string(message::member(self.raw_params(), key))
    }

    /// Tells whether the members of the parameters, and of what is said beside them, can be told apart: then what is not
    /// found among them is not there for a server either.
    pub(super) fn has_readable_params(&self) -> bool {
        let params = self.raw_params();
        let beside = message::members_named(params, "_meta");
        params.into_iter().chain(beside).all(message::is_readable)
    }

    /// Returns the parameters as raw JSON.
    #[must_use]
    pub fn raw_params(&self) -> Option<&RawValue> {
        self.params.as_deref().and_then(|p| serde_json::from_str(p).ok())
    }
}

impl Gateway {
    /// Takes a line from a client: records it and sorts it.
    pub fn accept(self: &Arc<Self>, session: &Arc<Session>, line: &str, outbox: &Outbox) -> Accepted {
        if let Some(refused) = self.refuse_unreadable(session, line.as_bytes()) {
            return refused;
        }
        let recorded = match session.record_inbound(line) {
            Ok(recorded) => recorded,
            Err(e) => {
                let id = Parts::of(line).ok().and_then(|p| p.json_id());
                let why = format!("the message was not processed, because it could not be recorded: {e}");
                return refuse(id.as_ref(), code::INTERNAL, &why);
            }
        };
        let Ok(parts) = Parts::of(line) else {
            return Accepted::Refused(unreadable_answer(line).1);
        };
        if parts.id.is_some_and(|id| id.get().len() > message::ID_BYTES_MAX)
            || parts.method.as_ref().is_some_and(|method| method.len() > METHOD_BYTES_MAX)
        {
            let why = format!("an id or a method has more than {METHOD_BYTES_MAX} bytes");
            return refuse(parts.json_id().as_ref(), code::INVALID_REQUEST, &why);
        }
        if let Some(method) = &parts.method
            && let Some(settled) = self.settle_ending(method, parts.json_id().as_ref())
        {
            return settled;
        }
        match (&parts.method, parts.json_id()) {
            (Some(method), Some(id)) => self.accept_request(session, method, id, &parts, recorded, outbox),
            (Some(method), None) if !parts.has_id => {
                match session.account.charge(Use::Call, CALL_BYTES + CALL_COPIES * line.len()) {
                    Ok(room) => self.accept_notification(session, method, &parts, room),
                    Err(full) => return refuse_full(None, &full),
                }
                Accepted::NoReply
            }
            (None, Some(id)) if parts.result.is_some() || parts.error.is_some() => {
                let answer = match (parts.error, parts.result) {
                    (Some(error), _) => Answer::Error(error.get().to_owned()),
                    (None, result) => Answer::Result(result.map_or("{}", RawValue::get).to_owned()),
                };
                // An answer to nothing is on tape, and that is all.
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
        parts: &Parts<'_>,
        recorded: Option<RecordedEntry>,
        outbox: &Outbox,
    ) -> Accepted {
        let facts = match self.facts_of(session, method, parts) {
            Ok(facts) => facts,
            Err(error) => return Accepted::Refused(message::raw_error(id.as_raw(), &error)),
        };
        let bytes = CALL_BYTES + facts.bytes() + CALL_COPIES * parts.params.map_or(0, |p| p.get().len());
        let room = match session.account.charge(Use::Call, bytes) {
            Ok(room) => room,
            Err(full) => return refuse_full(Some(&id), &full),
        };
        if facts.era == Era::Modern
            && (session.is_inferred || !session.is_opened())
            // Every modern request says who its client is; what comes between requests needs it too.
            && let Err(full) = session.set_facts(facts.clone())
        {
            return refuse_full(Some(&id), &full);
        }
        let (demand, demands) = mpsc::channel(DEMANDS_MAX);
        let log_level = match facts.era {
            Era::Legacy => Some(LEAST_LOG_LEVEL),
            Era::Modern => message::string(parts.meta(meta::LOG_LEVEL))
                .map(|level| log_level(&level).unwrap_or(LEAST_LOG_LEVEL)),
        };
        let demands_of = (facts.era == Era::Modern).then_some(demand);
        let outbox = outbox.clone();
        let call = Call::new(session.clone(), id.clone(), recorded, outbox, facts, log_level, demands_of);
        let token = parts.meta("progressToken").map(|token| token.get().to_owned());
        let call = Arc::new(call.with_progress_token(token));
        call.hold(room);
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
        let params = parts.params.map(|p| p.get().to_owned());
        let method = method.to_owned();
        Accepted::Request(Box::new(Request { id, method, params, call, demands, _guard: guard }))
    }

    /// Takes a notification from a client.
    fn accept_notification(
        self: &Arc<Self>,
        session: &Arc<Session>,
        method: &str,
        parts: &Parts<'_>,
        room: Charge,
    ) {
        let params = parts.params.map(RawValue::get);
        match method {
            method::NOTIFICATIONS_CANCELLED => {
                let id = parts.param("requestId").map(|id| JsonId::from_raw(id.get()));
                if let Some(call) = id.and_then(|id| session.call(&id)) {
                    call.cancel();
                }
            }
            _ if self.transparent.is_some() => {
                if let Some(transparent) = &self.transparent {
                    self.tell_server(transparent, session, method, params, room);
                }
            }
            method::NOTIFICATIONS_INITIALIZED => {}
            // A server that goes by the method alone would do it, though nobody looked at whether this client may.
            _ if !is_notification(method) => session.record_turned_away(&serde_json::json!({
                "event": "refused", "method": method,
                "reason": "a request without an id: only notifications are passed on without one",
            })),
            // What else a client tells is for the servers that work for it.
            _ => {
                let era = session.facts().era;
                let all = self.backends();
                let serving = all.iter().flat_map(|b| b.connections_of(session, era));
                // What names a request or a task of the server's is not for a connection on which it may be another's.
                let concerns = |c: &Arc<Connection>| c.owner().is_some() || !names_a_handle(method);
                let accept_notification: Arc<(String, Option<String>, Charge)> =
                    Arc::new((method.to_owned(), params.map(str::to_owned), room));
                for connection in serving.filter(concerns) {
                    connection.note_client(session);
                    let accept_notification = accept_notification.clone();
                    tokio::spawn(async move {
                        if let Err(e) = connection
                            .notify(None, &accept_notification.0, accept_notification.1.as_deref())
                            .await
                        {
                            tracing::debug!(error = %e, "a notification did not reach a backend");
                        }
                    });
                }
            }
        }
    }
}

/// Tells whether a method is one of a notification.
pub(super) fn is_notification(method: &str) -> bool {
    method.starts_with("notifications/")
}

/// Tells whether a client's notification names something that a server keeps for one client.
fn names_a_handle(method: &str) -> bool {
    method == method::NOTIFICATIONS_PROGRESS || method.starts_with("notifications/tasks")
}

pub(super) fn refuse(id: Option<&JsonId>, code: i64, why: &str) -> Accepted {
    let id = id.map_or("null", JsonId::as_raw);
    Accepted::Refused(message::raw_error(id, &message::error(code, why, None)))
}

fn refuse_full(id: Option<&JsonId>, full: &Full) -> Accepted {
    let id = id.map_or("null", JsonId::as_raw);
    Accepted::Full(message::raw_error(id, &message::error(code::INTERNAL, &full.to_string(), None)))
}
