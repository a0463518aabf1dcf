//! Operations that wait for a decision, and what was decided about the others.
//!
//! Bounded in number and bytes; when it is full, [`super::Selection`] decides about the oldest.

use std::collections::{BTreeMap, BTreeSet};

use super::left_out::LeftOutReason;
use crate::bounded_map::BoundedMap;

/// The most messages that wait in memory at once; beyond that [`Selection`](super::Selection) decides at once about the
/// oldest.
pub(super) const UNDECIDED_MAX: usize = 16_384;
/// The most bytes of such messages.
pub(super) const UNDECIDED_BYTES_MAX: u64 = 8 << 20;
/// The longest time that an operation waits for its outcome: then it is kept. Until then it is only in memory,
/// and lost if the process is killed.
pub(super) const UNDECIDED_NS_MAX: u64 = 60_000_000_000;
/// The most operations whose verdict is remembered; the later messages of a forgotten one are kept.
const REMEMBERED_MAX: usize = 65_536;

/// What was decided about an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationVerdict {
    /// It is kept.
    Keep,
    /// It is kept with all its parts, even those that `capture` leaves out.
    Greeting,
    /// It is left out.
    Drop(LeftOutReason),
}

/// An operation that waits for a decision.
#[derive(Debug)]
pub(super) struct UndecidedOperation {
    pub(super) began_ns: u64,
    /// Its messages: the number and length of each.
    pub(super) messages: Vec<(u64, u64)>,
    pub(super) in_sample: bool,
    /// Whether it is near a failure.
    pub(super) is_near: bool,
    pub(super) failed: bool,
    /// How many of its requests have no answer.
    pub(super) unanswered: usize,
    /// Whether its last answer asked for input or created a task, so that more follows.
    pub(super) goes_on: bool,
    pub(super) took_ns: u64,
    /// How many of its messages are in the ring.
    pub(super) in_ring: usize,
}

impl UndecidedOperation {
    pub(super) fn new(began_ns: u64, in_sample: bool) -> Self {
        Self {
            began_ns,
            messages: Vec::new(),
            in_sample,
            is_near: false,
            failed: false,
            unanswered: 0,
            goes_on: false,
            took_ns: 0,
            in_ring: 0,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.unanswered == 0 && !self.goes_on
    }
}

/// The operations that wait, and the verdicts on others.
#[derive(Debug)]
pub(super) struct UndecidedOperations {
    operations: BTreeMap<u64, UndecidedOperation>,
    /// Those without an outcome, oldest first.
    open: BTreeSet<u64>,
    messages: usize,
    bytes: u64,
    decided: BoundedMap<u64, OperationVerdict>,
}

impl UndecidedOperations {
    pub(super) fn new() -> Self {
        Self {
            operations: BTreeMap::new(),
            open: BTreeSet::new(),
            messages: 0,
            bytes: 0,
            decided: BoundedMap::new(REMEMBERED_MAX),
        }
    }

    pub(super) fn begin(&mut self, id: u64, operation: UndecidedOperation) {
        self.operations.insert(id, operation);
        self.open.insert(id);
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut UndecidedOperation> {
        self.operations.get_mut(&id)
    }

    pub(super) fn add(&mut self, id: u64, message: u64, bytes: u64) {
        if let Some(operation) = self.operations.get_mut(&id) {
            operation.messages.push((message, bytes));
            self.messages += 1;
            self.bytes += bytes;
        }
    }

    /// Notes that an operation has its outcome, or goes on after all.
    pub(super) fn set_done(&mut self, id: u64, is_done: bool) {
        if is_done {
            self.open.remove(&id);
        } else if self.operations.contains_key(&id) {
            self.open.insert(id);
        }
    }

    /// Takes an operation out, with what was decided about it.
    pub(super) fn decide(&mut self, id: u64, verdict: OperationVerdict) -> Option<UndecidedOperation> {
        // Also if it never waited: later messages of the operation follow the verdict.
        self.decided.insert(id, verdict);
        self.open.remove(&id);
        let operation = self.operations.remove(&id)?;
        self.messages -= operation.messages.len();
        self.bytes -= operation.messages.iter().map(|(_, bytes)| bytes).sum::<u64>();
        Some(operation)
    }

    /// Returns the verdict, and remembers it for longer, because more messages may come.
    pub(super) fn recall(&mut self, id: u64) -> OperationVerdict {
        let verdict = self.verdict(id);
        self.decided.insert(id, verdict);
        verdict
    }

    /// Returns the verdict; a forgotten operation is kept.
    pub(super) fn verdict(&self, id: u64) -> OperationVerdict {
        self.decided.get(&id).copied().unwrap_or(OperationVerdict::Keep)
    }

    /// Returns the oldest operation without an outcome, if it began by then.
    pub(super) fn oldest_open(&self, until_ns: u64) -> Option<u64> {
        self.open.first().copied().filter(|id| self.operations[id].began_ns <= until_ns)
    }

    /// Returns all of them.
    pub(super) fn ids(&self) -> Vec<u64> {
        self.operations.keys().copied().collect()
    }

    pub(super) fn is_full(&self) -> bool {
        self.messages > UNDECIDED_MAX
            // An operation waits without messages if `capture` leaves out all of them.
            || self.operations.len() > UNDECIDED_MAX
            || self.bytes > UNDECIDED_BYTES_MAX
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, u64) {
        (self.messages, self.bytes)
    }
}
