//! A client's request under way: where its answer, progress and questions go, and the table that lists it.
//!
//! The table is the client's own: an id or a progress token that is under way there is not given to a second request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use scrubjay_core::envelope::JsonId;
use scrubjay_core::message;
use tokio::sync::{mpsc, oneshot};

use super::delivery::{PATIENCE, why_not};
use super::log_level::LOG_LEVELS;
use super::{CALLS_MAX, ClientFacts, Outbox, Session, lock};
use crate::backend::Answer;
use crate::budget::{Charge, Full, Use};
use crate::gateway::ANSWER_WAIT_MAX;
use crate::record_first::RecordedEntry;

/// How long a client that does not read may delay messages for itself alone: a shorter pause loses nothing.
const PATIENCE_ALONE: std::time::Duration = std::time::Duration::from_secs(5);

/// The key of a request under way: its id, and a number where several clients may use the same ids.
pub(super) type Ticket = (JsonId, u64);

/// A request of the client that is under way.
#[derive(Debug)]
pub struct Call {
    /// The session of its client.
    pub session: Arc<Session>,
    /// The id its client gave it, as JSON.
    pub id: JsonId,
    /// Its entry on the tape, where it is recorded.
    pub recorded: Option<RecordedEntry>,
    /// Where its progress, logs and questions go; changes when its client comes back with a new request.
    outbox: Mutex<Outbox>,
    /// What this request states about its client.
    pub facts: Arc<ClientFacts>,
    /// The least level of log messages its client wants; none where it wants none.
    pub log_level: Option<&'static str>,
    /// Where a backend's demands go, for a client that cannot be sent requests.
    pub demands: Option<mpsc::Sender<Demand>>,
    /// Notified when the client cancels it.
    pub cancelled: tokio::sync::Notify,
    /// Whether its client has stopped reading what belongs to it.
    is_deaf: AtomicBool,
    /// The memory that it and its answers take, held until the call is dropped.
    rooms: Mutex<Vec<Charge>>,
    /// The memory for its answer, where that was reserved in advance.
    answer_room: Mutex<Option<Charge>>,
    /// Its client's progress token, as JSON.
    progress_token: Option<String>,
}

impl Call {
    /// Makes a call of a request.
    #[must_use]
    pub fn new(
        session: Arc<Session>,
        id: JsonId,
        recorded: Option<RecordedEntry>,
        outbox: Outbox,
        facts: Arc<ClientFacts>,
        log_level: Option<&'static str>,
        demands: Option<mpsc::Sender<Demand>>,
    ) -> Self {
        let (outbox, cancelled) = (Mutex::new(outbox), tokio::sync::Notify::new());
        Self {
            session,
            id,
            recorded,
            outbox,
            facts,
            log_level,
            demands,
            cancelled,
            is_deaf: AtomicBool::new(false),
            rooms: Mutex::default(),
            answer_room: Mutex::default(),
            progress_token: None,
        }
    }

    /// Holds a charge until the call is dropped.
    pub(crate) fn hold(&self, room: Charge) {
        lock(&self.rooms).push(room);
    }

    /// Takes room for an answer of this size before it is made, waiting for some.
    ///
    /// # Errors
    /// There was none for long, which is on the tape.
    pub(crate) async fn take_answer_room(&self, bytes: usize) -> Result<(), Full> {
        let taken = self.session.account.charge_within(Use::Delivery, bytes, ANSWER_WAIT_MAX).await;
        let room = taken.inspect_err(|full| self.session.note_dropped(1, bytes, full.key))?;
        *lock(&self.answer_room) = Some(room);
        Ok(())
    }

    /// Returns the room that was taken for its answer: none, unless it was taken before the answer was made.
    pub(crate) fn answer_room(&self) -> Charge {
        let taken = lock(&self.answer_room).take();
        taken.unwrap_or_else(|| self.session.account.nothing(Use::Delivery))
    }

    /// Sets its client's progress token.
    #[must_use]
    pub(crate) fn with_progress_token(self, progress_token: Option<String>) -> Self {
        Self { progress_token, ..self }
    }

    /// Returns whether another call is of the same client: of its session or, where sessions are inferred, of one with
    /// the same token, name and process. A trace may change from one request to the next; those do not.
    #[must_use]
    pub fn is_of_client_of(&self, other: &Self) -> bool {
        let (one, two) = (&self.session, &other.session);
        Arc::ptr_eq(one, two) || (one.is_inferred && two.is_inferred && one.client == two.client)
    }

    /// Returns where its progress, logs and questions go.
    #[must_use]
    pub fn outbox(&self) -> Outbox {
        lock(&self.outbox).clone()
    }

    /// Sends a line that belongs to it, recorded first. A client that does not read is waited for once, longer where
    /// `others_wait` says that it holds up nobody else; then its messages are noted as undelivered until it reads.
    pub async fn say(&self, line: String, others_wait: impl Fn() -> bool) {
        let outbox = self.outbox();
        let began = tokio::time::Instant::now();
        let place = loop {
            if self.is_deaf.load(Ordering::Relaxed) {
                break outbox.try_reserve().ok();
            }
            match tokio::time::timeout(PATIENCE, outbox.reserve()).await {
                Ok(place) => break place.ok(),
                Err(_) if began.elapsed() >= PATIENCE_ALONE || others_wait() => break None,
                Err(_) => {}
            }
        };
        let is_deaf = self.is_deaf.load(Ordering::Relaxed) || place.is_none();
        let wait = if is_deaf { std::time::Duration::ZERO } else { PATIENCE };
        let room = self.session.account.charge_within(Use::Delivery, line.len(), wait).await;
        self.is_deaf.store(place.is_none() || room.is_err(), Ordering::Relaxed);
        if let Err(e) = self.session.say_in_room(place, room, line, why_not(&outbox)) {
            tracing::error!(error = %e, "a message to the client could not be recorded");
        }
    }

    /// Returns whether its client wants this log message.
    #[must_use]
    pub fn wants_log(&self, line: &str) -> bool {
        let Some(least) = self.log_level else { return false };
        let level = message::Parts::of(line).ok().and_then(|p| message::string(p.param("level")));
        let rank = |level: &str| LOG_LEVELS.iter().position(|l| *l == level);
        // A message of an unknown level is passed on: better one too many than one lost.
        match (level.as_deref().and_then(rank), rank(least)) {
            (Some(level), Some(least)) => level >= least,
            _ => true,
        }
    }

    /// Cancels it.
    pub fn cancel(&self) {
        self.cancelled.notify_waiters();
        // Stored as well, for a call that does not wait yet.
        self.cancelled.notify_one();
    }

    /// Sends its progress, logs and questions to another outbox from now on.
    pub fn redirect(&self, outbox: Outbox) {
        *lock(&self.outbox) = outbox;
    }
}

/// Something a backend wants from the client in the middle of a call.
#[derive(Debug)]
pub struct Demand {
    /// The method that the client is asked to perform.
    pub method: String,
    /// Its parameters, as JSON.
    pub params: Option<String>,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Answer>,
}

impl Session {
    /// Lists a request as under way; `None` where there are too many, or its id is taken.
    pub fn begin_call(self: &Arc<Self>, id: JsonId, call: Arc<Call>) -> Option<CallGuard> {
        let mut calls = lock(&self.calls);
        let number = if self.is_inferred { self.next_ticket.fetch_add(1, Ordering::Relaxed) } else { 0 };
        let ticket = (id, number);
        if calls.len() >= CALLS_MAX || calls.contains_key(&ticket) {
            return None;
        }
        calls.insert(ticket.clone(), call);
        Some(CallGuard { session: self.clone(), ticket })
    }

    /// Returns whether the progress of another request under way goes by the same token: its client could not tell them
    /// apart. Where several clients may share the session each has a stream of its own, and their tokens may be the same.
    #[must_use]
    pub(crate) fn has_live_token(&self, call: &Call) -> bool {
        let is_same = |other: &Arc<Call>| other.progress_token == call.progress_token;
        call.progress_token.is_some() && !self.is_inferred && lock(&self.calls).values().any(is_same)
    }

    /// Returns the request with that id, where it is under way.
    #[must_use]
    pub fn call(&self, id: &JsonId) -> Option<Arc<Call>> {
        lock(&self.calls).get(&(id.clone(), 0)).cloned()
    }
}

/// Keeps a request listed as under way until it is dropped.
#[derive(Debug)]
pub struct CallGuard {
    session: Arc<Session>,
    ticket: Ticket,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        lock(&self.session.calls).remove(&self.ticket);
    }
}

#[cfg(test)]
mod tests;
