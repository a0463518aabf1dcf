//! What a client says while rules are in force: only what every reader reads alike is taken apart.
//!
//! The gateway makes of a client's message another one for a backend, and rules judge that one. What could be read in
//! two ways is refused here, before anybody reads it in one of them.

use std::sync::Arc;

use scrubjay_core::entry::{Direction, EntryKind, Terminator};
use scrubjay_core::message::Parts;
use scrubjay_core::rules::{self, Onward};
use scrubjay_store::recording::Item;

use super::{Accepted, Gateway, code, refuse};
use crate::backend::Answer;
use crate::session::Session;

impl Gateway {
    /// Refuses a line that readers may read in different ways, and records it with the reason; none where there are no
    /// such readers, or no rules.
    pub(crate) fn refuse_unreadable(&self, session: &Arc<Session>, line: &[u8]) -> Option<Accepted> {
        if !self.rules.are_any() {
            return None;
        }
        let judgement = rules::refuse_unreadable(Direction::ClientToServer, line)?;
        let came = Item::new(EntryKind::Message, Direction::ClientToServer, Terminator::Lf, line);
        let came = Item { judged: judgement.marks.judged(), ..came };
        if let Err(e) = session.record_backend(&[came], || ()) {
            let why = format!("the message was not processed, because it could not be recorded: {e}");
            return Some(refuse(None, code::INTERNAL, &why));
        }
        if let Onward::Other(error) = &judgement.onward {
            // An answer that could not be read: whoever asked gets an error in its place.
            let text = String::from_utf8_lossy(error);
            if let Ok(parts) = Parts::of(&text)
                && let (Some(id), Some(error)) = (parts.json_id(), parts.error)
            {
                session.take_answer(&id, Answer::Error(error.get().to_owned()));
            }
        }
        let told = judgement.back.map(|back| String::from_utf8_lossy(&back).into_owned());
        Some(told.map_or(Accepted::Told, Accepted::Refused))
    }
}
