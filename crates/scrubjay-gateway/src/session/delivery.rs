//! Lines on their way to a client: a place in its queue, room in memory, the tape, then the stream.
//!
//! A client that does not read is waited for a short while only, and what it misses is noted on its tape.

use scrubjay_core::entry::{Direction, WhyUndelivered};
use scrubjay_tape::clock;
use scrubjay_tape::recording::RecordError;
use tokio::sync::mpsc;

use super::{Outbox, Session, lock};
use crate::budget::{Charge, Full, Use};
use crate::delivery::Outgoing;
use crate::record_first::RecordedEntry;

/// How often dropped messages are noted on the tape: a flood must not fill it with notes as well.
const NOTE_AGAIN: std::time::Duration = std::time::Duration::from_secs(1);

/// How long a client that does not read may delay what others wait for.
pub(super) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// Messages dropped for lack of memory since the last note on the tape.
#[derive(Debug, Default)]
pub(super) struct DroppedCount {
    messages: usize,
    bytes: usize,
    noted: Option<std::time::Instant>,
}

impl Session {
    /// Sends a line to the client, recorded first; returns whether it is on its way. What cannot be recorded is not sent.
    pub async fn say(&self, outbox: &Outbox, line: String) -> bool {
        let place = tokio::time::timeout(PATIENCE, outbox.reserve()).await.ok().and_then(Result::ok);
        let has_place = place.is_some();
        let said = self.say_in(place, line, why_not(outbox));
        if let Err(e) = &said {
            tracing::error!(error = %e, "a message to the client could not be recorded");
        }
        has_place && said.is_ok()
    }

    /// Sends a refusal to the client.
    pub async fn refuse(&self, outbox: &Outbox, line: String) {
        let place = tokio::time::timeout(PATIENCE, outbox.reserve()).await;
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
    pub(crate) fn room_for(&self, line: &str) -> Result<Charge, Full> {
        self.account.charge(Use::Delivery, line.len())
    }

    /// Puts a line in its place on the way to the client: on the tape in the same order. Without a place it is not
    /// sent, and `why` is noted on the tape.
    ///
    /// # Errors
    /// It could not be recorded, and was not sent.
    pub fn say_in(
        &self,
        place: Option<mpsc::Permit<'_, Outgoing>>,
        line: String,
        why: WhyUndelivered,
    ) -> Result<Option<RecordedEntry>, RecordError> {
        let room = self.room_for(&line);
        self.say_in_room(place, room, line, why)
    }

    /// Puts a line in its place on the way to the client, in the room that was taken for it.
    ///
    /// # Errors
    /// It could not be recorded, and was not sent.
    pub(crate) fn say_in_room(
        &self,
        place: Option<mpsc::Permit<'_, Outgoing>>,
        room: Result<Charge, Full>,
        line: String,
        why: WhyUndelivered,
    ) -> Result<Option<RecordedEntry>, RecordError> {
        let why = if place.is_some() && room.is_err() { WhyUndelivered::DroppedByLimit } else { why };
        let Some((place, room)) = place.zip(room.ok()) else {
            let kept = self.record(Direction::ServerToClient, &line)?;
            drop(self.receipt(kept, why));
            return Ok(kept);
        };
        let said = line.clone();
        self.record_then(Direction::ServerToClient, &line, |kept| {
            let receipt = self.receipt(kept, WhyUndelivered::ClientLeft);
            place.send(Outgoing::recorded(said, receipt).in_room(room));
        })
    }

    /// Sends what belongs to no request: on the client's standing stream, or kept until there is one.
    pub fn say_on_standing_stream(&self, line: String) {
        let room = self.room_for(&line);
        let line = match self.record_outgoing(line) {
            Ok(line) => line,
            Err(e) => {
                tracing::error!(error = %e, "a message to the client could not be recorded");
                return;
            }
        };
        let line = match room {
            Ok(room) => line.in_room(room),
            Err(_) => return line.drop_because(WhyUndelivered::DroppedByLimit),
        };
        self.standing.say(line);
    }

    /// Records that something for the client was dropped that is not on its own side of the tape, for want of room.
    ///
    /// Each second once: a flood must not fill the tape with notes as well.
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
