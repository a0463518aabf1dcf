//! The messages around a failure: a ring of the last messages before it, and a count of the messages after it.
//!
//! Knows only the operations of messages, not the messages.

use std::collections::VecDeque;

/// The messages around failures.
#[derive(Debug)]
pub(super) struct FailureWindow {
    before: usize,
    after: usize,
    /// The operations of the last messages, oldest first.
    ring: VecDeque<u64>,
    /// How many of the next messages still count as being after a failure.
    after_left: usize,
}

impl FailureWindow {
    pub(super) fn new(before: usize, after: usize) -> Self {
        Self { before, after, ring: VecDeque::new(), after_left: 0 }
    }

    /// Notes a failure; returns the operations of the messages before it, and empties the ring: each is kept once.
    pub(super) fn failure(&mut self) -> Vec<u64> {
        self.after_left = self.after;
        self.ring.drain(..).collect()
    }

    /// Returns whether the next message comes soon enough after a failure, and counts it.
    pub(super) fn is_after_failure(&mut self) -> bool {
        let behind = self.after_left > 0;
        self.after_left = self.after_left.saturating_sub(1);
        behind
    }

    /// Puts a message's operation into the ring.
    pub(super) fn push(&mut self, operation: u64) {
        self.ring.push_back(operation);
    }

    /// Takes out the operation of a message that is too far back to be kept for the next failure.
    pub(super) fn pop_excess(&mut self) -> Option<u64> {
        if self.ring.len() > self.before { self.ring.pop_front() } else { None }
    }

    /// Takes out the operation of the oldest message.
    pub(super) fn pop_oldest(&mut self) -> Option<u64> {
        self.ring.pop_front()
    }
}
