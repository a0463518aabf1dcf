//! The relay with rules in force: line by line, in the order in which they came.
//!
//! Everything that comes of a line is recorded together, before any of it moves. A line that waits holds up
//! those behind it; it waits no longer than its peers are there. Where a rule is about the connection, every line
//! goes on with one line feed at its end, however it came: a carriage return is a line end to some readers.

use std::cell::RefCell;
use std::time::Duration;

use scrubjay_core::entry::Direction;
use scrubjay_core::framing::Batch;
use scrubjay_core::rules::{Judge, Judgement, Onward};
use scrubjay_store::clock::Moment;

use super::{Gone, Relay};
use crate::judged;

impl Relay {
    /// Judges what arrived together, records it, and passes on what is to go on.
    pub(super) async fn pass_judged(
        &self,
        judge: &RefCell<Judge>,
        direction: Direction,
        arrived: Moment,
        batch: Batch<'_>,
    ) -> Result<(), Gone> {
        for line in batch.lines() {
            let (judgement, end) = {
                let mut judge = judge.borrow_mut();
                let end = if judge.is_strict() { b"\n" } else { line.terminator.bytes() };
                (judge.line(direction, line.bytes), end)
            };
            let recorded = {
                let items = judged::items(direction, line.terminator, line.bytes, &judgement);
                self.recording.borrow_mut().record(arrived, items.iter().copied())
            };
            if let Err(e) = self.settle(recorded).await
                && !self.note_failure(1, line.bytes.len() as u64, &e)
            {
                self.tell_not_recorded(direction, line.bytes, &e).await?;
                continue;
            }
            self.hold(direction, judgement.delay).await;
            self.act(direction, line.bytes, end, judgement).await?;
        }
        Ok(())
    }

    async fn act(
        &self,
        direction: Direction,
        line: &[u8],
        end: &[u8],
        judgement: Judgement,
    ) -> Result<(), Gone> {
        let onward = match judgement.onward {
            Onward::Same => Some([line, end].concat()),
            Onward::Other(other) => Some([&other, end].concat()),
            Onward::Nothing => None,
        };
        if let Some(onward) = onward {
            self.outlet(direction).write(&onward).await?;
        }
        match judgement.back {
            Some(back) => self.outlet(direction.reversed()).write(&[&back[..], b"\n"].concat()).await,
            None => Ok(()),
        }
    }

    /// Waits; not for a peer that has left, and not on the way to one.
    async fn hold(&self, direction: Direction, delay: Duration) {
        if delay.is_zero() {
            return;
        }
        let to_client = direction == Direction::ServerToClient;
        let _held = to_client.then(|| Held::new(&self.held));
        let server_gone = async {
            match self.to_server.sink() {
                _ if to_client => std::future::pending().await,
                // An end that cannot be watched is as good as gone.
                Some(sink) => drop(sink.abandoned().await),
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

/// Counts a message that is held back on its way to the client.
struct Held<'a>(&'a std::cell::Cell<usize>);

impl<'a> Held<'a> {
    fn new(count: &'a std::cell::Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
