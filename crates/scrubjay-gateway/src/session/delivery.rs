//! Sends lines to a client: reserves a place in its queue and memory, records the line, and queues it.
//!
//! A client that does not read is waited for, but not long. What it misses is marked on its tape as undelivered.

use scrubjay_core::entry::{Direction, WhyUndelivered};
use scrubjay_tape::clock;
use scrubjay_tape::recording::RecordError;
use tokio::sync::mpsc;

use super::{Outbox, Session, lock};
use crate::budget::{Charge, MemoryUse, OverBudget};
use crate::delivery::Outgoing;
use crate::record_first::RecordedEntry;

/// How often dropped messages are noted on the tape: a flood must not fill it with notes as well.
const NOTE_AGAIN: std::time::Duration = std::time::Duration::from_secs(1);

/// How long a client that does not read may delay messages for other clients.
pub(super) const READ_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(5);

/// Messages dropped for lack of memory since the last note on the tape.
#[derive(Debug, Default)]
pub(super) struct DroppedCount {
    messages: usize,
    bytes: usize,
    noted: Option<std::time::Instant>,
}

impl Session {
    /// Sends a line to the client, recorded first; returns whether it is on its way. What cannot be recorded is not
    /// sent.
    pub(crate) async fn send(&self, outbox: &Outbox, line: String) -> bool {
        // A place in the queue first: a line that is on tape can then be queued without waiting, in the order of the
        // tape.
        let place = tokio::time::timeout(READ_WAIT_MAX, outbox.reserve()).await.ok().and_then(Result::ok);
        let has_place = place.is_some();
        let queued = self.queue_line(place, line, why_not(outbox));
        if let Err(e) = &queued {
            tracing::error!(error = %e, "a message to the client could not be recorded");
        }
        has_place && queued.is_ok()
    }

    /// Sends a refusal to the client.
    pub async fn refuse(&self, outbox: &Outbox, line: String) {
        let place = tokio::time::timeout(READ_WAIT_MAX, outbox.reserve()).await;
        let refusal = self.record_refusal(line);
        match place {
            Ok(Ok(place)) => place.send(refusal),
            _ => refusal.drop_because(why_not(outbox)),
        }
    }

    /// Reserves memory for a line until the client has read it.
    ///
    /// # Errors
    /// The limit is reached.
    pub(crate) fn charge_for_delivery(&self, line: &str) -> Result<Charge, OverBudget> {
        self.account.charge(MemoryUse::Delivery, line.len())
    }

    /// Records a line and queues it at its place, so that the queue has the order of the tape. Without a place it is
    /// recorded as undelivered for the reason `why`.
    ///
    /// # Errors
    /// It could not be recorded, and was not sent.
    pub(crate) fn queue_line(
        &self,
        place: Option<mpsc::Permit<'_, Outgoing>>,
        line: String,
        why: WhyUndelivered,
    ) -> Result<Option<RecordedEntry>, RecordError> {
        let charge = self.charge_for_delivery(&line);
        self.queue_charged(place, charge, line, why)
    }

    /// The same, with a charge that was made before. If that failed, the line is recorded as dropped by the limit.
    ///
    /// # Errors
    /// It could not be recorded, and was not sent.
    pub(crate) fn queue_charged(
        &self,
        place: Option<mpsc::Permit<'_, Outgoing>>,
        charge: Result<Charge, OverBudget>,
        line: String,
        why: WhyUndelivered,
    ) -> Result<Option<RecordedEntry>, RecordError> {
        let why = if place.is_some() && charge.is_err() { WhyUndelivered::DroppedByLimit } else { why };
        let Some((place, charge)) = place.zip(charge.ok()) else {
            let recorded = self.record(Direction::ServerToClient, &line)?;
            // Dropped undelivered, the receipt marks the entry.
            drop(self.receipt(recorded, why));
            return Ok(recorded);
        };
        let text = line.clone();
        // Queued while the recording is locked: nothing else can be recorded in between and leave first.
        self.record_then(Direction::ServerToClient, &line, |recorded| {
            let receipt = self.receipt(recorded, WhyUndelivered::ClientLeft);
            place.send(Outgoing::recorded(text, receipt).with_charge(charge));
        })
    }

    /// Sends what belongs to no request: on the client's standing stream, or kept until there is one.
    pub(crate) fn send_on_standing_stream(&self, line: String) {
        let charge = self.charge_for_delivery(&line);
        let line = match self.record_outgoing(line) {
            Ok(line) => line,
            Err(e) => {
                tracing::error!(error = %e, "a message to the client could not be recorded");
                return;
            }
        };
        let line = match charge {
            Ok(charge) => line.with_charge(charge),
            Err(_) => return line.drop_because(WhyUndelivered::DroppedByLimit),
        };
        self.standing.send(line);
    }

    /// Records that messages for the client were dropped for lack of memory before they became entries of its own.
    ///
    /// At most once a second: a flood must not fill the tape with notes.
    pub(crate) fn note_dropped(&self, messages: usize, bytes: usize, key: &str) {
        tracing::debug!(session = self.id, messages, bytes, key, "messages to the client were dropped");
        let now = clock::now().instant;
        let due = {
            let mut dropped = lock(&self.dropped);
            dropped.messages += messages;
            dropped.bytes += bytes;
            if dropped.noted.is_some_and(|noted| now.duration_since(noted) < NOTE_AGAIN) {
                return;
            }
            std::mem::replace(&mut *dropped, DroppedCount { noted: Some(now), ..DroppedCount::default() })
        };
        self.record_note(&serde_json::json!({
            "event": "undelivered", "why": "dropped by limit", "limit": key,
            "messages": due.messages, "bytes": due.bytes,
        }));
    }
}

/// Returns why a message could not be queued for a client.
pub(crate) fn why_not(outbox: &Outbox) -> WhyUndelivered {
    if outbox.is_closed() { WhyUndelivered::ClientLeft } else { WhyUndelivered::ClientDidNotRead }
}

#[cfg(test)]
mod tests;
