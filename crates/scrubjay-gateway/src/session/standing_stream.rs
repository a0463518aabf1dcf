//! Messages that belong to no request, on their way to a client: on its standing stream, or queued until that has room.
//!
//! The order is kept: while a message is queued here, later ones go behind it. Senders never wait for a standing
//! stream; the queue is limited, and drops the oldest message first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use scrubjay_core::entry::WhyUndelivered::DroppedByLimit;
use tokio::sync::mpsc::error::TrySendError;

use super::{OUTBOX_MAX, Outbox, lock};
use crate::delivery::Outgoing;

/// The standing stream of a client, if it has one, and the messages that wait for it.
#[derive(Debug, Default)]
pub(super) struct StandingStream(Arc<Mutex<StandingState>>);

#[derive(Debug, Default)]
struct StandingState {
    outbox: Option<Outbox>,
    queued: VecDeque<Outgoing>,
    /// Whether a task is sending what is queued.
    is_passing: bool,
}

impl StandingStream {
    /// Sends a line, or queues it.
    pub(super) fn send(&self, line: Outgoing) {
        let mut state = lock(&self.0);
        let line = match &state.outbox {
            Some(outbox) if state.queued.is_empty() => match outbox.try_send(line) {
                Ok(()) => return,
                Err(TrySendError::Full(line) | TrySendError::Closed(line)) => line,
            },
            _ => line,
        };
        let oldest = if state.queued.len() == OUTBOX_MAX { state.queued.pop_front() } else { None };
        state.queued.push_back(line);
        if !state.is_passing
            && let Some(outbox) = state.outbox.clone().filter(|outbox| !outbox.is_closed())
        {
            state.is_passing = true;
            tokio::spawn(pass_on(self.0.clone(), outbox));
        }
        drop(state);
        if let Some(oldest) = oldest {
            oldest.drop_because(DroppedByLimit);
        }
    }

    /// Takes a standing stream, and returns what is to go out on it first.
    pub(super) fn attach(&self, outbox: Outbox) -> VecDeque<Outgoing> {
        let new = StandingState { outbox: Some(outbox), ..StandingState::default() };
        // Dropped without the lock: lines that the old stream still holds are marked on the tape.
        let old = std::mem::replace(&mut *lock(&self.0), new);
        old.queued
    }

    /// Ends the standing stream, and returns what was queued for it.
    pub(super) fn detach(&self) -> VecDeque<Outgoing> {
        let old = std::mem::take(&mut *lock(&self.0));
        old.queued
    }

    /// Drops what is queued, because memory is short.
    pub(super) fn drop_queued(&self) {
        let queued = std::mem::take(&mut lock(&self.0).queued);
        for line in queued {
            line.drop_because(DroppedByLimit);
        }
    }

    /// Returns the standing stream, if there is one whose client has not left.
    pub(super) fn outbox(&self) -> Option<Outbox> {
        lock(&self.0).outbox.clone().filter(|outbox| !outbox.is_closed())
    }
}

/// Sends what is queued as the stream has room, until nothing is left or another stream has taken its place.
async fn pass_on(state: Arc<Mutex<StandingState>>, outbox: Outbox) {
    loop {
        let place = outbox.reserve().await;
        let mut state = lock(&state);
        if !state.outbox.as_ref().is_some_and(|now| now.same_channel(&outbox)) {
            return;
        }
        let line = if place.is_ok() { state.queued.pop_front() } else { None };
        match (place, line) {
            (Ok(place), Some(line)) => place.send(line),
            // Nothing is left, or the client is gone: the rest waits for its next stream.
            _ => {
                state.is_passing = false;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    fn say(standing: &StandingStream, numbers: std::ops::Range<usize>) {
        numbers.for_each(|number| standing.send(Outgoing::unrecorded(number.to_string())));
    }

    async fn hear(lines: &mut mpsc::Receiver<Outgoing>, numbers: std::ops::Range<usize>) {
        for number in numbers {
            assert_eq!(lines.recv().await.map(Outgoing::deliver), Some(number.to_string()));
        }
    }

    #[tokio::test]
    async fn what_is_kept_follows_as_the_stream_has_room_and_nothing_overtakes_it() {
        let (outbox, mut lines) = mpsc::channel(4);
        let standing = StandingStream::default();
        say(&standing, 0..3);
        assert_eq!(standing.attach(outbox).len(), 3);
        say(&standing, 3..20);
        hear(&mut lines, 3..6).await;
        say(&standing, 20..30);
        hear(&mut lines, 6..30).await;
        // It moves again, and a second time it does not.
        say(&standing, 30..50);
        hear(&mut lines, 30..50).await;
    }

    #[tokio::test]
    async fn the_next_stream_begins_with_what_the_last_one_had_no_room_for() {
        let (first, mut lines) = mpsc::channel(4);
        let standing = StandingStream::default();
        standing.attach(first);
        say(&standing, 0..10);
        let (second, mut more) = mpsc::channel(4);
        let kept = standing.attach(second).into_iter().map(Outgoing::deliver).collect::<Vec<_>>();
        assert_eq!(kept, (4..10).map(|number| number.to_string()).collect::<Vec<_>>());
        say(&standing, 10..12);
        hear(&mut lines, 0..4).await;
        assert!(lines.recv().await.is_none(), "nothing goes to a stream that was replaced");
        hear(&mut more, 10..12).await;
    }

    #[tokio::test]
    async fn only_so_much_is_kept_and_the_oldest_goes_first() {
        let standing = StandingStream::default();
        say(&standing, 0..OUTBOX_MAX + 5);
        let kept = standing.detach();
        assert_eq!((kept.len(), kept.front().map(Outgoing::text)), (OUTBOX_MAX, Some("5")));
    }
}
