//! What a judged line changes in the state of a connection: requests that are open, answers that came, tasks and
//! requests for input that began.
//!
//! The notes are collected while the line is judged and committed only if the whole line passes: of a refused batch,
//! nothing was forwarded.

use super::super::matching::{MatchingRules, ReferenceKey};
use super::Judge;
use crate::entry::Direction;

#[derive(Debug, Default)]
pub(super) struct Notes {
    /// The ids of requests that were forwarded, with the rules that their answers match.
    opened: Vec<(Vec<u8>, MatchingRules)>,
    /// The ids of requests that were answered.
    answered: Vec<Vec<u8>>,
    /// Tasks and requests for input that later messages may refer to.
    known: Vec<(ReferenceKey, MatchingRules)>,
}

impl Notes {
    pub(super) fn open(&mut self, id: Vec<u8>, matching: MatchingRules) {
        self.opened.push((id, matching));
    }

    pub(super) fn answer(&mut self, id: Vec<u8>) {
        self.answered.push(id);
    }

    pub(super) fn has_answered(&self, id: &[u8]) -> bool {
        self.answered.iter().any(|answered| answered == id)
    }

    pub(super) fn remember(&mut self, known: ReferenceKey, matching: MatchingRules) {
        self.known.push((known, matching));
    }
}

impl Judge {
    /// Commits the notes of a line that went in this direction.
    pub(super) fn commit(&mut self, direction: Direction, notes: Notes) {
        for id in notes.answered {
            self.close(direction.reversed(), &id);
        }
        for (id, matching) in notes.opened {
            self.open_request(direction, &id, matching);
        }
        for (known, matching) in notes.known {
            self.in_force.memory.remember(known, matching);
        }
    }

    /// Adds an open request. If one with the same id was made under other rules, it is unknown which rules apply to an
    /// answer, so all requests with this id become unjudgeable.
    fn open_request(&mut self, direction: Direction, id: &[u8], matching: MatchingRules) {
        for earlier in &mut self.earlier {
            self.unjudgeable.absorb_id(&mut earlier.open, direction, id);
        }
        if self.unjudgeable.find(direction, id).is_some() {
            self.unjudgeable.absorb_id(&mut self.in_force.open, direction, id);
            self.unjudgeable.insert(direction, id, MatchingRules::default());
        } else {
            self.in_force.open.insert(direction, id, matching);
        }
    }

    /// Removes an open request: it was answered, or its answer is no longer awaited.
    pub(super) fn close(&mut self, direction: Direction, id: &[u8]) {
        let earlier = self.earlier.iter_mut().map(|in_force| &mut in_force.open);
        let mut all = [&mut self.in_force.open, &mut self.unjudgeable].into_iter().chain(earlier);
        // Only one: several requests may be open under this id.
        all.any(|open| open.take(direction, id));
    }
}
