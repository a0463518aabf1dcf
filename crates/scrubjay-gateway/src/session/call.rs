//! A client's request under way: where its progress, log messages and questions go, and the session's table of such
//! requests.
//!
//! Each session has a table of its own, in which no two requests have the same id or progress token.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use scrubjay_core::envelope::JsonId;
use scrubjay_core::message;
use tokio::sync::{mpsc, oneshot};

use super::delivery::{READ_WAIT_MAX, why_not};
use super::log_level::LOG_LEVELS;
use super::{CALLS_MAX, ClientFacts, Outbox, Session, lock};
use crate::backend::Answer;
use crate::budget::{Charge, MemoryUse, OverBudget};
use crate::gateway::ANSWER_WAIT_MAX;
use crate::record_first::RecordedEntry;

/// The key of a request under way: its id, and a number to tell requests apart in a session that several clients may
/// share.
pub(super) type CallKey = (JsonId, u64);

/// A request of the client that is under way.
#[derive(Debug)]
pub struct Call {
    /// The session of its client.
    pub session: Arc<Session>,
    /// The id its client gave it, as JSON.
    pub id: JsonId,
    /// Its entry on the tape; `None` if it is not recorded.
    pub recorded: Option<RecordedEntry>,
    /// Where its progress, logs and questions go; changes when its client comes back with a new request.
    outbox: Mutex<Outbox>,
    /// What this request states about its client.
    pub facts: Arc<ClientFacts>,
    /// The least level of log messages that its client wants; `None` if it wants none.
    pub log_level: Option<&'static str>,
    /// Where a backend's demands go; `None` for a legacy client, which is sent requests.
    pub demands: Option<mpsc::Sender<Demand>>,
    /// Notified when the client cancels it.
    pub cancelled: tokio::sync::Notify,
    /// Whether its client has let one message wait too long. It is not waited for again until it reads.
    has_stopped_reading: AtomicBool,
    /// The memory that it and its answers take, held until the call is dropped.
    charges: Mutex<Vec<Charge>>,
    /// The memory for its answer, if that was reserved before the answer was made.
    reserved_for_answer: Mutex<Option<Charge>>,
    /// Its client's progress token, as JSON.
    progress_token: Option<String>,
}

impl Call {
    /// Makes a call of a request.
    #[must_use]
    pub(crate) fn new(
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
            has_stopped_reading: AtomicBool::new(false),
            charges: Mutex::default(),
            reserved_for_answer: Mutex::default(),
            progress_token: None,
        }
    }

    /// Holds a charge until the call is dropped.
    pub(crate) fn hold(&self, charge: Charge) {
        lock(&self.charges).push(charge);
    }

    /// Reserves memory for an answer of this size before it is made; waits for it.
    ///
    /// # Errors
    /// None was freed in time. That is noted on the tape.
    pub(crate) async fn reserve_for_answer(&self, bytes: usize) -> Result<(), OverBudget> {
        let taken = self.session.account.charge_within(MemoryUse::Delivery, bytes, ANSWER_WAIT_MAX).await;
        let charge = taken.inspect_err(|full| self.session.note_dropped(1, bytes, full.key))?;
        *lock(&self.reserved_for_answer) = Some(charge);
        Ok(())
    }

    /// Returns the charge for its answer; it is empty unless memory was reserved before the answer was made.
    pub(crate) fn reserved_for_answer(&self) -> Charge {
        let taken = lock(&self.reserved_for_answer).take();
        taken.unwrap_or_else(|| self.session.account.nothing(MemoryUse::Delivery))
    }

    /// Sets its client's progress token.
    #[must_use]
    pub(crate) fn with_progress_token(self, progress_token: Option<String>) -> Self {
        Self { progress_token, ..self }
    }

    /// Returns whether another call is of the same client: of its session, or of an inferred session of the same
    /// identity (token, name and process). A client's trace may change from one request to the next, and its session
    /// with it.
    #[must_use]
    pub(crate) fn is_of_client_of(&self, other: &Self) -> bool {
        let (own, others) = (&self.session, &other.session);
        Arc::ptr_eq(own, others) || (own.is_inferred && others.is_inferred && own.client == others.client)
    }

    /// Returns where its progress, logs and questions go.
    #[must_use]
    pub(crate) fn outbox(&self) -> Outbox {
        lock(&self.outbox).clone()
    }

    /// Records a line that belongs to it and sends it. A client that does not read is waited for once, for
    /// `READ_WAIT_MAX`. After that its messages are noted as undelivered until it reads.
    pub(crate) async fn send(&self, line: String) {
        let outbox = self.outbox();
        let place = if self.has_stopped_reading.load(Ordering::Relaxed) {
            outbox.try_reserve().ok()
        } else {
            // `None` if the time is over, or the stream is closed.
            tokio::time::timeout(READ_WAIT_MAX, outbox.reserve()).await.ok().and_then(Result::ok)
        };
        let has_stopped_reading = self.has_stopped_reading.load(Ordering::Relaxed) || place.is_none();
        let wait = if has_stopped_reading { std::time::Duration::ZERO } else { READ_WAIT_MAX };
        let charge = self.session.account.charge_within(MemoryUse::Delivery, line.len(), wait).await;
        self.has_stopped_reading.store(place.is_none() || charge.is_err(), Ordering::Relaxed);
        if let Err(e) = self.session.queue_charged(place, charge, line, why_not(&outbox)) {
            tracing::error!(error = %e, "a message to the client could not be recorded");
        }
    }

    /// Returns whether its client wants this log message.
    #[must_use]
    pub(crate) fn wants_log(&self, line: &str) -> bool {
        let Some(least) = self.log_level else { return false };
        let level = message::Parts::of(line).ok().and_then(|p| message::string(p.param("level")));
        let rank = |level: &str| LOG_LEVELS.iter().position(|l| *l == level);
        // A message of an unknown level is passed on: one too many does less harm than one lost.
        match (level.as_deref().and_then(rank), rank(least)) {
            (Some(level), Some(least)) => level >= least,
            _ => true,
        }
    }

    /// Cancels it.
    pub(crate) fn cancel(&self) {
        self.cancelled.notify_waiters();
        // `notify_waiters` stores nothing for a call that does not wait yet; this does.
        self.cancelled.notify_one();
    }

    /// Sends its progress, logs and questions to another outbox from now on.
    pub(crate) fn redirect(&self, outbox: Outbox) {
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
    /// Lists a request as under way; `None` if there are too many, or one with its id is listed.
    pub(crate) fn begin_call(self: &Arc<Self>, id: JsonId, call: Arc<Call>) -> Option<CallGuard> {
        let mut calls = lock(&self.calls);
        let number = if self.is_inferred { self.next_call_number.fetch_add(1, Ordering::Relaxed) } else { 0 };
        let key = (id, number);
        if calls.len() >= CALLS_MAX || calls.contains_key(&key) {
            return None;
        }
        calls.insert(key.clone(), call);
        Some(CallGuard { session: self.clone(), key })
    }

    /// Returns whether another request under way has the same progress token: its client could not tell their progress
    /// apart. Not checked if several clients may share the session: each has a stream of its own.
    #[must_use]
    pub(crate) fn has_live_token(&self, call: &Call) -> bool {
        let is_same = |other: &Arc<Call>| other.progress_token == call.progress_token;
        call.progress_token.is_some() && !self.is_inferred && lock(&self.calls).values().any(is_same)
    }

    /// Returns the request with that id, if it is under way; `None` in an inferred session.
    #[must_use]
    pub(crate) fn call(&self, id: &JsonId) -> Option<Arc<Call>> {
        // In an inferred session all numbers are higher: a client must not cancel another's request with the same id.
        lock(&self.calls).get(&(id.clone(), 0)).cloned()
    }
}

/// Keeps a request listed as under way until it is dropped.
#[derive(Debug)]
pub struct CallGuard {
    session: Arc<Session>,
    key: CallKey,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        lock(&self.session.calls).remove(&self.key);
    }
}

#[cfg(test)]
mod tests;
