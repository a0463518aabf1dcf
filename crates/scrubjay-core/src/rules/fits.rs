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
}

/// The requests that await their answer, by who asked and a hash of the id: ids may be of any length.
#[derive(Debug)]
pub(super) struct Open {
    requests: Bounded<(Direction, [u8; 16]), VecDeque<Fits>>,
}

impl Default for Open {
    fn default() -> Self {
        Self { requests: Bounded::new(OPEN_MAX) }
    }
}

impl Open {
    /// Notes a request; the oldest is forgotten where there are too many.
    pub(super) fn note(&mut self, direction: Direction, id: &[u8], fits: Fits) {
        let key = (direction, hash(id));
        match self.requests.get_mut(&key) {
            Some(queue) => {
                if queue.len() == SAME_ID_MAX {
                    queue.pop_front();
                }
                queue.push_back(fits);
            }
            None => {
                self.requests.insert(key, VecDeque::from([fits]));
            }
        }
    }

    /// Takes the oldest request of this id that went this way.
    pub(super) fn take(&mut self, direction: Direction, id: &[u8]) -> Option<Fits> {
        let key = (direction, hash(id));
        let queue = self.requests.get_mut(&key)?;
        let fits = queue.pop_front();
        if queue.is_empty() {
            self.requests.remove(&key);
        }
        fits
    }
}

fn hash(id: &[u8]) -> [u8; 16] {
    *blake3::hash(id).as_bytes().first_chunk().expect("a hash is longer")
}
