//! Records a session's messages and notes on its tape, and ends the tape.
//!
//! Messages are recorded here before they move on. A line that cannot be recorded is not passed on, except for a
//! refusal, because its client waits for it.

use std::sync::Mutex;

use scrubjay_core::entry::{
    BackendEnded, Direction, End, EntryKind, SessionMoved, Terminator, WhyUndelivered,
};
use scrubjay_core::oversize::Oversize;
use scrubjay_tape::format::header::{SessionRef, SessionSource};
use scrubjay_tape::recording::{Item, RecordError, Recording};

use super::{Session, lock};
use crate::budget::PROCESS_KEY;
use crate::delivery::{Outgoing, Receipt};
use crate::record_first::{RecordedEntry, record_first, record_first_marking};

impl Session {
    /// Returns the session that its recording belongs to; `None` until something is recorded.
    #[must_use]
    pub(crate) fn recorded_as(&self) -> Option<SessionRef> {
        lock(&self.recording).session()
    }

    /// Returns the host's own id of the conversation, where the host gave one.
    #[must_use]
    pub(crate) fn host_session(&self) -> Option<String> {
        lock(&self.recording).host_session().map(str::to_owned)
    }

    /// Notes on the tape that the connection is in another session from here on.
    pub(crate) fn move_to(&self, session: &str) {
        if self.recorded_as().is_some_and(|now| now.id == session) {
            return;
        }
        let note = SessionMoved { session: session.to_owned() }.note();
        self.record_fact(EntryKind::Note, Direction::ServerToClient, &note);
        let session = SessionRef { id: session.to_owned(), told_by: SessionSource::Agent };
        lock(&self.recording).set_session(session);
    }

    /// Records a line of the client; returns its entry.
    ///
    /// # Errors
    /// It could not be recorded, so it must not move on.
    pub(crate) fn record_inbound(&self, line: &str) -> Result<Option<RecordedEntry>, RecordError> {
        let item = Item::new(EntryKind::Message, Direction::ClientToServer, Terminator::Lf, line.as_bytes());
        self.record_item(item, |_| ())
    }

    /// Records a line between client and gateway.
    ///
    /// # Errors
    /// It could not be recorded, so it must not move on.
    pub(crate) fn record(
        &self,
        direction: Direction,
        line: &str,
    ) -> Result<Option<RecordedEntry>, RecordError> {
        self.record_then(direction, line, |_| ())
    }

    /// Records a line between client and gateway, and does something before anything else is recorded.
    ///
    /// # Errors
    /// It could not be recorded, and nothing was done.
    pub(crate) fn record_then(
        &self,
        direction: Direction,
        line: &str,
        then: impl FnOnce(Option<RecordedEntry>),
    ) -> Result<Option<RecordedEntry>, RecordError> {
        let item = Item::new(EntryKind::Message, direction, Terminator::Lf, line.as_bytes());
        self.record_item(item, then)
    }

    /// Records what passes between gateway and backend, and does something before anything else is recorded.
    ///
    /// # Errors
    /// It could not be recorded, so it must not move on, and nothing was done.
    pub(crate) fn record_backend(
        &self,
        items: &[Item<'_>],
        marked: usize,
        then: impl FnOnce(Option<RecordedEntry>),
    ) -> Result<Option<RecordedEntry>, RecordError> {
        record_first_marking(&self.recording, self.record_options, items, marked, then)
    }

    /// Returns the receipt of something recorded here; `why` is noted if it is dropped before it is delivered.
    #[must_use]
    pub(crate) fn receipt(&self, recorded: Option<RecordedEntry>, why: WhyUndelivered) -> Option<Receipt> {
        let receipt = |mark| Receipt::new(self.recording.clone(), mark, why).listed_in(&self.in_transit);
        recorded.map(|recorded| receipt(recorded.mark))
    }

    /// Records a line for the client; it counts as undelivered until it is handed over.
    ///
    /// # Errors
    /// It could not be recorded, so it must not be sent.
    pub(crate) fn record_outgoing(&self, line: String) -> Result<Outgoing, RecordError> {
        let recorded = self.record(Direction::ServerToClient, &line)?;
        Ok(Outgoing::recorded(line, self.receipt(recorded, WhyUndelivered::ClientLeft)))
    }

    /// Records a refusal for the client. It is sent even if it cannot be recorded: the client would wait forever
    /// otherwise, and that nothing can be recorded may be the reason for the refusal.
    pub(crate) fn record_refusal(&self, line: String) -> Outgoing {
        self.record_outgoing(line.clone()).unwrap_or_else(|e| {
            tracing::error!(error = %e, "a refusal could not be recorded");
            Outgoing::unrecorded(line)
        })
    }

    /// Records a note, which is not a message.
    pub(crate) fn record_note(&self, facts: &serde_json::Value) {
        let facts = facts.to_string();
        self.record_fact(EntryKind::Note, Direction::ServerToClient, facts.as_bytes());
    }

    /// Records that a message of the client was refused.
    pub(crate) fn record_refused(&self, facts: &serde_json::Value) {
        // In the client's direction: such a client has done more than greet.
        self.record_fact(EntryKind::Note, Direction::ClientToServer, facts.to_string().as_bytes());
    }

    /// Records that a backend ended on which it had calls under way.
    pub(crate) fn record_ended(&self, ended: &BackendEnded) {
        self.record_fact(EntryKind::Note, Direction::ServerToClient, &ended.note());
    }

    /// Records that its client sent a line that is too long.
    pub(crate) fn note_too_long(&self, line: &Oversize) {
        let facts = serde_json::to_vec(line).expect("an oversize is plain data");
        self.record_fact(EntryKind::Oversize, Direction::ClientToServer, &facts);
    }

    /// Notes that there was no memory to remember something of a backend, such as a list.
    pub(crate) fn note_not_kept(&self, what: &serde_json::Value) {
        tracing::warn!(session = self.id, %what, limit = PROCESS_KEY, "there is no room to keep what a backend says");
        self.record_note(&serde_json::json!({ "event": "not_kept", "limit": PROCESS_KEY, "what": what }));
    }

    fn record_fact(&self, kind: EntryKind, direction: Direction, facts: &[u8]) {
        let fact = Item::new(kind, direction, Terminator::Eof, facts);
        if let Err(e) = self.record_item(fact, |_| ()) {
            tracing::error!(error = %e, "a note could not be recorded");
        }
    }

    fn record_item(
        &self,
        item: Item<'_>,
        then: impl FnOnce(Option<RecordedEntry>),
    ) -> Result<Option<RecordedEntry>, RecordError> {
        record_first(&self.recording, self.record_options, &[item], then)
    }
}

/// Whether a tape that ends is sealed now. One that is not is complete, and the next start seals it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sealing {
    Now,
    Later,
}

/// Ends a recording and seals its tape; later entries go to its replacement.
pub(crate) fn seal(recording: &Mutex<Recording>, replacement: Recording, reason: &str) {
    end_recording(recording, replacement, reason, Sealing::Now);
}

pub(super) fn end_recording(
    recording: &Mutex<Recording>,
    replacement: Recording,
    reason: &str,
    sealing: Sealing,
) {
    // Replaced first, so that the lock is free while the old tape is sealed, and later entries have a tape.
    let ended = std::mem::replace(&mut *lock(recording), replacement);
    let end = End { reason: reason.to_owned(), exit_code: None, signal: None, continues_on: None };
    match sealing {
        Sealing::Now => {
            if let Err(e) = ended.finish(&end) {
                tracing::error!(error = %e, "a tape could not be sealed; the next start seals it");
            }
        }
        Sealing::Later => {
            if let Err(e) = ended.finish_unsealed(&end) {
                tracing::error!(error = %e, "the end of a session is not on its tape");
            }
        }
    }
}

#[cfg(test)]
mod tests;
