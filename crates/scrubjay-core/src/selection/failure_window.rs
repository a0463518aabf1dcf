//! What is around a failure: the last messages before one, and a count of those behind.
//!
//! Only the operations of messages are known here, not the messages.

use std::collections::VecDeque;

/// The messages around failures.
#[derive(Debug)]
pub(super) struct FailureWindow {
    before: usize,
    after: usize,
    /// The operations of the last messages, oldest first.
    ring: VecDeque<u64>,
    /// So many of the next messages are still behind a failure.
    after_left: usize,
}

impl FailureWindow {
    pub(super) fn new(before: usize, after: usize) -> Self {
        Self { before, after, ring: VecDeque::new(), after_left: 0 }
    }

    /// Notes a failure; returns the operations of the messages before it, which are looked at once.
    pub(super) fn failure(&mut self) -> Vec<u64> {
        self.after_left = self.after;
        self.ring.drain(..).collect()
    }

    /// Tells whether the next message is behind a failure, and counts it.
    pub(super) fn is_behind(&mut self) -> bool {
        let behind = self.after_left > 0;
        self.after_left = self.after_left.saturating_sub(1);
        behind
    }

    /// Puts a message's operation into the ring.
    pub(super) fn push(&mut self, operation: u64) {
        self.ring.push_back(operation);
    }

    /// Returns the operation of a message that is too far back.
    pub(super) fn fallen(&mut self) -> Option<u64> {
        if self.ring.len() > self.before { self.ring.pop_front() } else { None }
    }

    /// Gives up the oldest message.
    pub(super) fn give_up(&mut self) -> Option<u64> {
        self.ring.pop_front()
    }
}
