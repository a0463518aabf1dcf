//! The relay with rules in force: it passes lines one by one, in the order in which they came.
//!
//! A line and everything the rules make of it are recorded together, before any of it is sent. A delayed line holds up
//! those behind it, until its receiver has left. If a rule applies to the connection, every line is forwarded with a
//! single line feed at its end: some readers take a carriage return for a line end.

use std::cell::RefCell;
use std::time::Duration;

use scrubjay_core::entry::Direction;
use scrubjay_core::framing::LineBatch;
use scrubjay_core::rules::{Forwarded, Judge, Judgement};
use scrubjay_tape::clock::Moment;

use super::pending_write::{Messages, PendingWrite};
use super::{ReceiverGone, Relay};
use crate::ruled_line;

impl Relay {
    /// Judges and records lines that arrived together, and sends what the rules make of them.
    pub(super) async fn pass_judged(
        &self,
        judge: &RefCell<Judge>,
        direction: Direction,
        arrived: Moment,
        batch: LineBatch<'_>,
    ) -> Result<(), ReceiverGone> {
        for line in batch.lines() {
            // The judge is borrowed only here: the other direction uses it while this one waits.
            let (judgement, end) = {
                let mut judge = judge.borrow_mut();
                let end = if judge.is_strict() { b"\n" } else { line.terminator.bytes() };
                (judge.line(direction, line.bytes), end)
            };
            let (recorded, numbers) = {
                let items = ruled_line::items(direction, line.terminator, line.bytes, &judgement);
                let mut recording = self.recording.borrow_mut();
                let recorded = recording.record(arrived, items.iter().copied());
                let number =
                    |index| recorded.as_ref().ok().map(|first| recording.number_of(*first, &items, index));
                let numbers = (
                    number(ruled_line::forwarded_index(&judgement)),
                    number(ruled_line::back_index(&judgement)),
                );
                (recorded, numbers)
            };
            // Made before the wait for the disk: if the relay is dropped there, the messages are marked as undelivered.
            let mut ready = self.prepare(direction, (line.bytes, end), judgement, numbers);
            if let Err(e) = self.await_durability(recorded).await {
                ready.forget_entries();
                // Forwarded without a recording, it still goes as the rules say.
                if !self.note_failure(1, line.bytes.len() as u64, &e) {
                    self.answer_not_recorded(direction, line.bytes, &e).await?;
                    continue;
                }
            }
            self.wait_out_delay(direction, ready.delay).await;
            ready.send().await?;
        }
        Ok(())
    }

    /// Prepares the messages that a line becomes. Dropped unsent, they are marked on the tape as undelivered.
    fn prepare(
        &self,
        direction: Direction,
        (line, end): (&[u8], &[u8]),
        judgement: Judgement,
        (forwarded_number, back_number): (Option<u64>, Option<u64>),
    ) -> RuledMessage<'_> {
        let forwarded = match judgement.forwarded {
            Forwarded::Unchanged => Some([line, end].concat()),
            Forwarded::Changed(other) => Some([&other, end].concat()),
            Forwarded::Nothing => None,
        };
        let back = judgement.back.map(|back| [&back[..], b"\n"].concat());
        let pending_write = |bytes: Vec<u8>, direction, number| {
            (PendingWrite::new(self, direction, number, Messages::One(bytes.len())), bytes)
        };
        RuledMessage {
            delay: judgement.delay,
            forwarded: forwarded.map(|bytes| pending_write(bytes, direction, forwarded_number)),
            back: back.map(|bytes| pending_write(bytes, direction.reversed(), back_number)),
        }
    }

    /// Waits out a delay, or until the receiver, or the client that a server would answer, has left.
    async fn wait_out_delay(&self, direction: Direction, delay: Duration) {
        if delay.is_zero() {
            return;
        }
        let to_client = direction == Direction::ServerToClient;
        let _delayed = to_client.then(|| DelayedCount::new(&self.delayed_to_client));
        // On the way to the client a server that has exited does not matter: its last output is still delivered.
        let server_gone = async {
            match self.to_server.sink() {
                _ if to_client => std::future::pending().await,
                // An end that cannot be polled counts as closed.
                Some(sink) => drop(sink.reader_gone().await),
                None => {}
            }
        };
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = self.client_gone() => {}
            () = server_gone => {}
        }
    }
}

/// The messages that a line becomes, judged and recorded: one that is forwarded, one back to its sender, or both.
struct RuledMessage<'a> {
    delay: Duration,
    forwarded: Option<(PendingWrite<'a>, Vec<u8>)>,
    back: Option<(PendingWrite<'a>, Vec<u8>)>,
}

impl RuledMessage<'_> {
    fn forget_entries(&mut self) {
        for (pending_write, _) in self.forwarded.iter_mut().chain(&mut self.back) {
            pending_write.forget_entries();
        }
    }

    async fn send(self) -> Result<(), ReceiverGone> {
        for (pending_write, bytes) in self.forwarded.into_iter().chain(self.back) {
            pending_write.write(&bytes).await?;
        }
        Ok(())
    }
}

/// Counts a delayed message on its way to the client.
struct DelayedCount<'a>(&'a std::cell::Cell<usize>);

impl<'a> DelayedCount<'a> {
    fn new(count: &'a std::cell::Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for DelayedCount<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
