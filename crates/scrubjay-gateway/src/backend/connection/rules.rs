//! Applies rules to the lines between the gateway and a backend. Every line passes here.
//!
//! One connection may serve several clients, so a message that a rule delays holds up no other.

use std::sync::Arc;
use std::time::Duration;

use scrubjay_core::entry::WhyUndelivered::ServerLeft;
use scrubjay_core::entry::{Direction, Terminator};
use scrubjay_core::message::{self, Parts};
use scrubjay_core::protocol::code;
use scrubjay_tape::recording::{Item, RecordError};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::channel::{PendingCall, RpcChannel};
use crate::backend::{Answer, CallError};
use crate::budget::{Charge, MemoryUse, OverBudget, Queued};
use crate::delivery::{Outgoing, Receipt};
use crate::record_first::record_first_marking;
use crate::ruled_line::{self, RuledLine};
use crate::session::{Call, HELD_MAX, lock};

/// How long a line may wait for memory because its backend does not read. Calls have deadlines of their own.
const QUEUE_WAIT_MAX: Duration = Duration::from_secs(300);
/// The name of the limit on delayed messages of one client, on tapes.
const HELD_KEY: &str = "messages that delay rules hold back";

/// Why a message that rules delay cannot wait.
pub(super) struct HoldRefused {
    key: &'static str,
    why: String,
}

impl From<OverBudget> for HoldRefused {
    fn from(full: OverBudget) -> Self {
        Self { key: full.key, why: full.to_string() }
    }
}

impl RpcChannel {
    pub(super) fn judge(&self, direction: Direction, line: String) -> RuledLine {
        let judgement = self.judge.line(direction, line.as_bytes());
        RuledLine { original: line, judgement }
    }

    /// Judges a line from a backend by its bytes as they came, without a byte order mark, which is not passed on.
    pub(super) fn judge_inbound(&self, bytes: &[u8], line: String) -> RuledLine {
        // The bytes, not the text: where they are no UTF-8, other readers may read something else in them.
        let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        RuledLine { judgement: self.judge.line(Direction::ServerToClient, bytes), original: line }
    }

    /// Records what was judged, and queues a line to the backend before anything else is recorded.
    pub(super) fn record_then(
        &self,
        direction: Direction,
        call: Option<&Arc<Call>>,
        line: &RuledLine,
        leaving: Option<(mpsc::Permit<'_, Outgoing>, Queued)>,
    ) -> Result<(), RecordError> {
        let operation = call.and_then(|call| call.recorded).map(|entry| entry.number);
        let items = ruled_line::items(direction, Terminator::Lf, line.original.as_bytes(), &line.judgement);
        let of_backend = |item| Item { via: Some(self.leg()), operation, ..item };
        let items: Vec<Item<'_>> = items.into_iter().map(of_backend).collect();
        // The entry of the line that goes to the backend: the client's message, or the rules' answer to the backend's
        // own.
        let marked = match direction {
            Direction::ClientToServer => ruled_line::forwarded_index(&line.judgement),
            Direction::ServerToClient => ruled_line::back_index(&line.judgement),
        };
        let recording = call.map_or_else(|| self.tape.recording(), |call| call.session.recording());
        record_first_marking(&recording, self.record_options, &items, marked, |recorded| {
            if let Some((permit, leaving)) = leaving {
                let receipt = match call {
                    Some(call) => call.session.receipt(recorded, ServerLeft),
                    None => recorded.map(|entry| Receipt::new(recording.clone(), entry.mark, ServerLeft)),
                };
                permit.send(Outgoing::queued(leaving, receipt));
            }
        })
        .map(|_| ())
    }

    /// Records a message of the backend that the rules stopped, and sends the backend their answer if it is a request.
    pub(super) async fn finish_stopped(&self, line: &RuledLine, stream_of: Option<u64>) {
        let only = self.belongs_to(&self.callers(stream_of), stream_of);
        let recorded = match line.judgement.back.as_deref() {
            Some(back) => {
                let leaving = String::from_utf8_lossy(back).into_owned();
                self.record_and_send(Direction::ServerToClient, only.as_ref(), line, Some(leaving)).await
            }
            None => self
                .record_then(Direction::ServerToClient, only.as_ref(), line, None)
                .map_err(|e| CallError::NotRecorded(e.to_string())),
        };
        if let Err(e) = recorded {
            tracing::error!(backend = self.backend, error = %e, "cannot record or answer a message that rules stopped");
        }
    }

    /// Takes a permit for a message of the backend that rules delay. On a connection of a single client this waits,
    /// and the backend is not read; on one that serves several it fails, so that the reading does not wait for one of
    /// them.
    pub(super) async fn hold_permit(
        &self,
        line: &RuledLine,
        call: Option<&Arc<Call>>,
    ) -> Result<(Option<OwnedSemaphorePermit>, Charge), HoldRefused> {
        let charge = self.budget.charge(MemoryUse::Backend, line.original.len())?;
        if self.has_one_client() {
            // The semaphore is never closed.
            return Ok((self.held.clone().acquire_owned().await.ok(), charge));
        }
        let permits = call.map_or(&self.held, |call| &call.session.held);
        match permits.clone().try_acquire_owned() {
            Ok(permit) => Ok((Some(permit), charge)),
            Err(_) => {
                let why = format!("{HELD_MAX} others for this client wait already, because rules delay them");
                Err(HoldRefused { key: HELD_KEY, why })
            }
        }
    }

    /// Refuses a message that rules delay and that cannot wait: it is recorded and not passed on, and its call or the
    /// backend gets an error.
    pub(super) async fn refuse_held(
        self: &Arc<Self>,
        line: &RuledLine,
        call: Option<Arc<Call>>,
        pending: Option<PendingCall>,
        refused: &HoldRefused,
    ) {
        if let Err(e) = self.record_then(Direction::ServerToClient, call.as_ref(), line, None) {
            tracing::error!(backend = self.backend, error = %e, "cannot record what the backend said");
        }
        let bytes = line.original.len();
        match &call {
            Some(call) => call.session.note_dropped(1, bytes, refused.key),
            None => self.note_dropped(bytes, refused.key),
        }
        let why = format!("this was not passed on: {}", refused.why);
        if let Some(pending) = pending {
            // Fails if the caller was dropped.
            let _ = pending.reply.send(Answer::error(code::INTERNAL, &why));
            return;
        }
        let text = line.text();
        let asked = Parts::of(&text).ok().filter(|parts| parts.method.is_some()).and_then(|parts| parts.id);
        let Some(id) = asked else { return };
        let refusal = message::raw_error(id.get(), &message::error(code::INTERNAL, &why, None));
        // With `SIDE_TASKS_MAX` questions open this waits, and the backend is not read: each question is a task in
        // memory.
        let Ok(permit) = self.side_tasks.clone().acquire_owned().await else { return };
        let channel = self.clone();
        tokio::spawn(async move {
            if let Err(e) = channel.send(call.as_ref(), refusal).await {
                tracing::warn!(backend = channel.backend, error = %e, "an answer did not reach the backend");
            }
            drop(permit);
        });
    }

    /// Waits for room in the queue to the backend, then records and queues in one step, so that lines leave in the
    /// order of the tape.
    pub(super) async fn record_and_send(
        &self,
        direction: Direction,
        call: Option<&Arc<Call>>,
        line: &RuledLine,
        leaving: Option<String>,
    ) -> Result<(), CallError> {
        let gone = || CallError::Unavailable(self.backend.clone(), self.why_closed());
        let lines = lock(&self.lines).clone().ok_or_else(gone)?;
        let leaving = match leaving {
            Some(leaving) => {
                let bytes = leaving.len();
                let charge = self.queue.charge_within(MemoryUse::Backend, bytes, QUEUE_WAIT_MAX).await;
                let full = |full: OverBudget| {
                    CallError::Unavailable(self.backend.clone(), format!("it does not read: {full}"))
                };
                Some(Queued::new(leaving, charge.map_err(full)?))
            }
            None => None,
        };
        // Memory first, then the place in the queue: a place that waits for memory would block lines that have some.
        let permit = lines.reserve().await.map_err(|_| gone())?;
        let leaving = leaving.map(|leaving| (permit, leaving));
        self.record_then(direction, call, line, leaving).map_err(|e| CallError::NotRecorded(e.to_string()))
    }
}
