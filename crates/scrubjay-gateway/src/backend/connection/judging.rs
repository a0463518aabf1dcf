//! Rules on the way between the gateway and a backend: every line passes here, whoever asked for it.
//!
//! What belongs to several clients goes over one connection, so a message that waits holds up no other.

use std::sync::Arc;

use scrubjay_core::entry::WhyUndelivered::ServerLeft;
use scrubjay_core::entry::{Direction, Terminator};
use scrubjay_store::recording::{Item, RecordError};

use tokio::sync::mpsc;

use super::{CallError, QUEUE_WAIT_MAX, Wire};
use crate::budget::{Full, Queued, Use};
use crate::delivery::{Outgoing, Receipt};
use crate::judged::{self, Judged};
use crate::keeping::keep_marking;
use crate::session::{Call, lock};

/// So many things a backend said may wait at once; whatever comes then is not read before one of them went.
pub(super) const HELD_MAX: usize = 256;

impl Wire {
    pub(super) fn judge(&self, direction: Direction, line: String) -> Judged {
        let judgement = self.judge.line(direction, line.as_bytes());
        Judged { came: line, judgement }
    }

    /// Judges what a backend said, by the bytes it said; a byte order mark before it reaches nobody else.
    pub(super) fn judge_heard(&self, bytes: &[u8], line: String) -> Judged {
        let said = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        Judged { judgement: self.judge.line(Direction::ServerToClient, said), came: line }
    }

    /// Records what was judged, and sends a line to the backend before anything else is recorded.
    pub(super) fn record_then(
        &self,
        direction: Direction,
        call: Option<&Arc<Call>>,
        line: &Judged,
        leaving: Option<(mpsc::Permit<'_, Outgoing>, Queued)>,
    ) -> Result<(), RecordError> {
        let operation = call.and_then(|call| call.recorded).map(|place| place.number);
        let items = judged::items(direction, Terminator::Lf, line.came.as_bytes(), &line.judgement);
        let of_backend = |item| Item { via: Some(self.leg()), operation, ..item };
        let items: Vec<Item<'_>> = items.into_iter().map(of_backend).collect();
        // What goes to the backend is what the client's side said, or what rules answer the backend.
        let marked = match direction {
            Direction::ClientToServer => judged::onward_index(&line.judgement),
            Direction::ServerToClient => judged::back_index(&line.judgement),
        };
        let recording = call.map_or_else(|| self.tape.recording(), |call| call.session.recording());
        keep_marking(&recording, self.keeping, &items, marked, |kept| {
            if let Some((place, leaving)) = leaving {
                let receipt = match call {
                    Some(call) => call.session.receipt(kept, ServerLeft),
                    None => kept.map(|kept| Receipt::new(recording.clone(), kept.mark, ServerLeft)),
                };
                place.send(Outgoing::queued(leaving, receipt));
            }
        })
        .map(|_| ())
    }

    /// Deals with what a backend said and nobody is to hear; a request gets the answer that the rules give.
    pub(super) async fn stop(&self, line: &Judged, on: Option<u64>) {
        let only = self.belongs_to(&self.callers(on), on);
        let recorded = match line.judgement.back.as_deref() {
            Some(back) => {
                let leaving = String::from_utf8_lossy(back).into_owned();
                self.leave(Direction::ServerToClient, only.as_ref(), line, Some(leaving)).await
            }
            None => self
                .record_then(Direction::ServerToClient, only.as_ref(), line, None)
                .map_err(|e| CallError::NotRecorded(e.to_string())),
        };
        if let Err(e) = recorded {
            tracing::error!(backend = self.backend, error = %e, "what rules stopped could not be dealt with");
        }
    }

    /// Records what was judged and sends a line to the backend, in one step: lines leave in the order of the tape.
    pub(super) async fn leave(
        &self,
        direction: Direction,
        call: Option<&Arc<Call>>,
        line: &Judged,
        leaving: Option<String>,
    ) -> Result<(), CallError> {
        let gone = || CallError::Unavailable(self.backend.clone(), self.why_closed());
        let lines = lock(&self.lines).clone().ok_or_else(gone)?;
        let leaving = match leaving {
            Some(leaving) => {
                let bytes = leaving.len();
                let room = self.queue.charge_within(Use::Backend, bytes, QUEUE_WAIT_MAX).await;
                let full = |full: Full| {
                    CallError::Unavailable(self.backend.clone(), format!("it does not read: {full}"))
                };
                Some(Queued::new(leaving, room.map_err(full)?))
            }
            None => None,
        };
        let place = lines.reserve().await.map_err(|_| gone())?;
        let leaving = leaving.map(|leaving| (place, leaving));
        self.record_then(direction, call, line, leaving).map_err(|e| CallError::NotRecorded(e.to_string()))
    }
}
