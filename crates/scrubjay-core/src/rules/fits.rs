//! Which rules a request fits: so few bits that those of every open request can be kept for its answer.

use std::collections::VecDeque;

use super::Rule;
use crate::entry::Direction;
use crate::operation::{Bounded, OPEN_MAX};

/// No more rules can be in force.
pub const RULES_MAX: usize = 256;
/// So many open requests may go by the same id.
const SAME_ID_MAX: usize = 16;

/// Some of the rules, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fits([u64; RULES_MAX / 64]);

impl Fits {
    pub(super) fn of(rules: &[Rule], fits: impl Fn(&Rule) -> bool) -> Self {
        let mut found = Self::default();
        for (number, _) in rules.iter().enumerate().filter(|(_, rule)| fits(rule)) {
            found.0[number / 64] |= 1 << (number % 64);
        }
        found
    }

    pub(super) fn has(&self, number: usize) -> bool {
        self.0[number / 64] & 1 << (number % 64) != 0
    }

    /// Adds others.
    pub(super) fn add(&mut self, others: Self) {
        for (mine, other) in self.0.iter_mut().zip(others.0) {
            *mine |= other;
        }
    }

    /// Keeps only those that others have, too.
    fn keep(&mut self, others: Self) {
        for (mine, other) in self.0.iter_mut().zip(others.0) {
            *mine &= other;
        }
    }
}

/// Which rules a message fits, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fitting {
    /// Rules that it may fit.
    pub(super) any: Fits,
    /// Rules that it fits in any case.
    pub(super) all: Fits,
    /// Whether what it answers is known.
    pub(super) is_known: bool,
}

impl Fitting {
    /// These and no others.
    pub(super) fn exactly(fits: Fits) -> Self {
        Self { any: fits, all: fits, is_known: true }
    }

    /// One or the other.
    pub(super) fn or(mut self, other: Self) -> Self {
        self.any.add(other.any);
        self.all.keep(other.all);
        self
    }
}

/// The requests that await their answer, by who asked and a hash of the id: ids may be of any length.
#[derive(Debug)]
pub(super) struct Open {
    requests: Bounded<(Direction, [u8; 16]), VecDeque<Fitting>>,
}

impl Default for Open {
    fn default() -> Self {
        Self { requests: Bounded::new(OPEN_MAX) }
    }
}

impl Open {
    /// Notes a request; the oldest is forgotten where there are too many.
    pub(super) fn note(&mut self, direction: Direction, id: &[u8], mut fitting: Fitting) {
        let key = (direction, hash(id));
        match self.requests.get_mut(&key) {
            Some(queue) => {
                if queue.len() == SAME_ID_MAX
                    && let Some(oldest) = queue.pop_front()
                {
                    fitting = fitting.or(oldest);
                }
                queue.push_back(fitting);
            }
            None => {
                self.requests.insert(key, VecDeque::from([fitting]));
            }
        }
    }

    /// Takes a request of this id that went this way: which of several it is, nobody can tell.
    pub(super) fn take(&mut self, direction: Direction, id: &[u8]) -> Option<Fitting> {
        let key = (direction, hash(id));
        let queue = self.requests.get_mut(&key)?;
        let fitting = queue.iter().copied().reduce(Fitting::or);
        queue.pop_front();
        if queue.is_empty() {
            self.requests.remove(&key);
        }
        fitting
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

fn hash(id: &[u8]) -> [u8; 16] {
    *blake3::hash(id).as_bytes().first_chunk().expect("a hash is longer")
}
