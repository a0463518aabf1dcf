//! Puts a message on a tape before it moves on, as safely as the user asked for.
//!
//! The gateway's counterpart of what the relay does for a batch: what is to survive, and what becomes of a
//! message that cannot be recorded, are the same [`Options`].

use std::sync::{Arc, Mutex};

use scrubjay_core::id::TapeId;
use scrubjay_tape::clock;
use scrubjay_tape::recording::{EntryRef, Item, RecordError, Recording};

use crate::relay::{Durability, OnRecordFailure, Options};
use crate::session::lock;

/// A message that was recorded, or that the user does not want recorded.
#[derive(Clone, Copy, Debug)]
pub struct RecordedEntry {
    /// By what messages of the same operation name it.
    pub number: u64,
    /// Where it is, once it is on a tape.
    pub entry: Option<(u64, TapeId)>,
    /// By what it is marked, should it not be delivered.
    pub mark: EntryRef,
}

/// Shares a recording, and sees to it that nothing waits in it for too long.
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

/// Records what belongs together, and does something before anything else is recorded.
///
/// # Errors
/// It could not be recorded, so none of it must move on, and nothing was done.
pub(crate) fn record_first(
    recording: &Mutex<Recording>,
    options: Options,
    items: &[Item<'_>],
    then: impl FnOnce(Option<RecordedEntry>),
) -> Result<Option<RecordedEntry>, RecordError> {
    record_first_marking(recording, options, items, 0, then)
}

/// Records what belongs together, and does something before anything else is recorded; the place that is told has the
/// mark of the item at `marked`.
///
/// # Errors
/// It could not be recorded, so none of it must move on, and nothing was done.
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
            let kept = Some(RecordedEntry { number: entry, entry: recording.tape_position(entry), mark });
            then(kept);
            Ok(kept)
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
