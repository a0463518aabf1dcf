//! A write of recorded messages; dropped before it is complete, it marks the rest on the tape as undelivered.
//!
//! A write fails when its receiver is gone, and is dropped half-way when the relay ends. In both cases the messages
//! that were not written completely are marked.

use std::cell::Cell;
use std::collections::VecDeque;

use scrubjay_core::entry::Direction::ClientToServer;
use scrubjay_core::entry::{Direction, WhyUndelivered};
use scrubjay_core::framing::LineBatch;

use super::{ReceiverGone, Relay};

/// The messages of one write.
#[derive(Clone, Copy)]
pub(super) enum Messages<'a> {
    /// Lines that arrived, were recorded and are written together.
    Batch(LineBatch<'a>),
    /// One message of this many bytes.
    One(usize),
}

impl Messages<'_> {
    fn count(self) -> u64 {
        match self {
            Self::Batch(batch) => batch.lines().len() as u64,
            Self::One(_) => 1,
        }
    }

    /// Returns how many of them are complete after this many bytes.
    fn whole_in(self, written: usize) -> u64 {
        match self {
            Self::One(bytes) => u64::from(bytes <= written),
            Self::Batch(batch) => {
                let ends = batch.lines().scan(0, |end, line| {
                    *end += line.bytes.len() + line.terminator.bytes().len();
                    Some(*end)
                });
                ends.take_while(|end| *end <= written).count() as u64
            }
        }
    }
}

/// The entries of the newest lines to a bridge, which reports on lines by their number in the stream.
#[derive(Debug, Default)]
pub(super) struct NumberedLines {
    next: u64,
    /// For each write: its first line, the entry of that line, and the number of lines.
    writes: VecDeque<(u64, u64, u64)>,
}

/// How many writes are remembered until the bridge reports on them; the bridge's own queues are shorter.
const WRITES_MAX: usize = 4096;

impl NumberedLines {
    fn push(&mut self, first: Option<u64>, count: u64) {
        if let Some(first) = first {
            self.writes.push_back((self.next, first, count));
        }
        // Lines without an entry count as well: the bridge numbers every line.
        self.next += count;
        if self.writes.len() > WRITES_MAX {
            self.writes.pop_front();
        }
    }

    pub(super) fn entry(&self, line: u64) -> Option<u64> {
        let (began, first, count) = self.writes.iter().rev().find(|(began, ..)| *began <= line)?;
        (line - began < *count).then_some(first + (line - began))
    }
}

/// A write of recorded messages that is not complete.
pub(super) struct PendingWrite<'a> {
    relay: &'a Relay,
    direction: Direction,
    /// The number of the first entry; `None` if they are not on a tape.
    first: Option<u64>,
    messages: Messages<'a>,
    written: Cell<usize>,
    /// Whether everything was written.
    is_done: bool,
    /// Whether the receiver is gone.
    is_gone: bool,
}

impl<'a> PendingWrite<'a> {
    pub(super) fn new(
        relay: &'a Relay,
        direction: Direction,
        first: Option<u64>,
        messages: Messages<'a>,
    ) -> Self {
        let written = Cell::new(0);
        Self { relay, direction, first, messages, written, is_done: false, is_gone: false }
    }

    /// Notes that the messages are not on the tape after all: there is nothing to mark.
    pub(super) fn forget_entries(&mut self) {
        self.first = None;
    }

    /// Writes them. Their lines are numbered first: a bridge may report on a line before the write returns.
    pub(super) async fn write(mut self, bytes: &[u8]) -> Result<(), ReceiverGone> {
        if let Some(lines) = self.relay.numbered.as_ref().filter(|_| self.direction == ClientToServer) {
            lines.borrow_mut().push(self.first, self.messages.count());
        }
        let sent = self.relay.outlet(self.direction).write(bytes, &self.written).await;
        self.is_done = sent.is_ok();
        self.is_gone = sent.is_err();
        sent
    }
}

impl Drop for PendingWrite<'_> {
    fn drop(&mut self) {
        let Some(first) = self.first.filter(|_| !self.is_done) else { return };
        let why = match (self.direction, self.is_gone) {
            (Direction::ClientToServer, _) => WhyUndelivered::ServerLeft,
            (Direction::ServerToClient, true) => WhyUndelivered::ClientLeft,
            (Direction::ServerToClient, false) => WhyUndelivered::Stopped,
        };
        // A message of which a part was written counts as undelivered: its reader cannot parse it.
        let whole = self.messages.whole_in(self.written.get());
        let unwritten = first + whole..first + self.messages.count();
        self.relay.recording.borrow_mut().mark_undelivered(unwritten, why);
    }
}
