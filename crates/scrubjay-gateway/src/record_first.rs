//! Records a message of the gateway before it moves on.
//!
//! The counterpart of `Relay::pass`, with the same [`Options`]: what an append must survive, and what happens to a
//! message that cannot be recorded.

use std::sync::{Arc, Mutex};

use scrubjay_core::id::TapeId;
use scrubjay_tape::clock;
use scrubjay_tape::recording::{EntryRef, Item, RecordError, Recording};

use crate::relay::{Durability, OnRecordFailure, Options};
use crate::session::lock;

/// The entry of a message, even if the user's selection leaves it off the tape.
#[derive(Clone, Copy, Debug)]
pub struct RecordedEntry {
    /// Its number, by which messages of the same operation refer to it.
    pub number: u64,
    /// Its position and tape, once it is on one.
    pub entry: Option<(u64, TapeId)>,
    /// Identifies it, to mark it if it is not delivered.
    pub mark: EntryRef,
}

/// Shares a recording, and flushes it at its interval.
pub(crate) fn shared(recording: Recording) -> Arc<Mutex<Recording>> {
    let interval = recording.flush_interval();
    let recording = Arc::new(Mutex::new(recording));
    if let Some(interval) = interval {
        let recording = Arc::downgrade(&recording);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(interval).await;
                let Some(recording) = recording.upgrade() else { return };
                if let Err(e) = lock(&recording).flush(clock::now()) {
                    tracing::error!(error = %e, "what was passed on cannot be recorded yet");
                }
            }
        });
    }
    recording
}

/// Records items together, and calls `then` before anything else is recorded.
///
/// # Errors
/// They could not be recorded, so none of them may move on. `then` was not called.
pub(crate) fn record_first(
    recording: &Mutex<Recording>,
    options: Options,
    items: &[Item<'_>],
    then: impl FnOnce(Option<RecordedEntry>),
) -> Result<Option<RecordedEntry>, RecordError> {
    record_first_marking(recording, options, items, 0, then)
}

/// The same; the entry that `then` gets has the mark of the item at the index `marked`.
///
/// # Errors
/// They could not be recorded, so none of them may move on. `then` was not called.
pub(crate) fn record_first_marking(
    recording: &Mutex<Recording>,
    options: Options,
    items: &[Item<'_>],
    marked: usize,
    then: impl FnOnce(Option<RecordedEntry>),
) -> Result<Option<RecordedEntry>, RecordError> {
    let bytes = items.iter().map(|item| item.payload.len() as u64).sum();
    let mut recording = lock(recording);
    let is_synced = options.durability == Durability::Power;
    if is_synced {
        recording.survive_power();
    }
    let recorded = recording.record(clock::now(), items.iter().copied());
    // This message waits for the disk, and so do the messages behind it.
    let recorded =
        recorded.and_then(|entry| if is_synced { recording.sync().map(|()| entry) } else { Ok(entry) });
    match recorded {
        Ok(entry) => {
            let mark = recording.entry_ref(recording.number_of(entry, items, marked));
            let recorded = Some(RecordedEntry { number: entry, entry: recording.tape_position(entry), mark });
            // Still under the lock: a queue that is filled here has the order of the tape.
            then(recorded);
            Ok(recorded)
        }
        Err(e) => {
            let forward = options.on_record_failure == OnRecordFailure::Forward;
            recording.note_gap(1, bytes, forward, &e);
            if !forward {
                return Err(e);
            }
            tracing::error!(error = %e, "a message moves on without being recorded");
            then(None);
            Ok(None)
        }
    }
}
