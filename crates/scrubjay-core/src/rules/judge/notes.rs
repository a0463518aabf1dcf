//! What is remembered of a line once it has been judged: requests that went on, answers that came, the tasks and the
//! demands for input that were made.
//!
//! Noted on the way and kept only where the whole line passes: of a batch that is refused nothing went on.

use super::super::matching::{MatchingRules, ReferenceKey};
use super::Judge;
use crate::entry::Direction;

#[derive(Debug, Default)]
pub(super) struct Notes {
    /// The ids of requests that went on.
    opened: Vec<(Vec<u8>, MatchingRules)>,
    /// The ids of requests that were answered.
    answered: Vec<Vec<u8>>,
    /// What a later message may refer to.
    known: Vec<(ReferenceKey, MatchingRules)>,
}

impl Notes {
    pub(super) fn open(&mut self, id: Vec<u8>, fitting: MatchingRules) {
        self.opened.push((id, fitting));
    }

    pub(super) fn answer(&mut self, id: Vec<u8>) {
        self.answered.push(id);
    }

    pub(super) fn has_answered(&self, id: &[u8]) -> bool {
        self.answered.iter().any(|answered| answered == id)
    }

    pub(super) fn know(&mut self, known: ReferenceKey, fitting: MatchingRules) {
        self.known.push((known, fitting));
    }
}

impl Judge {
    /// Keeps what was noted of a line that went this way.
    pub(super) fn keep(&mut self, direction: Direction, notes: Notes) {
        for id in notes.answered {
            self.close(direction.reversed(), &id);
        }
        for (id, fitting) in notes.opened {
            self.note(direction, &id, fitting);
        }
        for (known, fitting) in notes.known {
            self.in_force.memory.remember(known, fitting);
        }
    }

    /// Notes a request that went this way. Where one of the same id was made under other rules, nobody can tell by which
    /// rules an answer is to be judged.
    fn note(&mut self, direction: Direction, id: &[u8], fitting: MatchingRules) {
        for earlier in &mut self.earlier {
            self.unjudgeable.absorb_id(&mut earlier.open, direction, id);
        }
        if self.unjudgeable.find(direction, id).is_some() {
            self.unjudgeable.absorb_id(&mut self.in_force.open, direction, id);
            self.unjudgeable.note(direction, id, MatchingRules::default());
        } else {
            self.in_force.open.note(direction, id, fitting);
        }
    }

    /// Forgets a request of this id that went this way: it is answered, or nobody waits for the answer.
    pub(super) fn close(&mut self, direction: Direction, id: &[u8]) {
        let earlier = self.earlier.iter_mut().map(|in_force| &mut in_force.open);
        let mut all = [&mut self.in_force.open, &mut self.unjudgeable].into_iter().chain(earlier);
        all.any(|open| open.take(direction, id));
    }
}
