//! Puts a message on a tape before it moves on, as safely as the user asked for.
//!
//! The gateway's counterpart of what the relay does for a batch: what is to survive, and what becomes of a
//! message that cannot be recorded, are the same [`Options`].

use std::sync::Mutex;

use scrubjay_core::id::TapeId;
use scrubjay_store::clock;
use scrubjay_store::recording::{Item, RecordError, Recording};

use crate::relay::{Durability, OnRecordFailure, Options};
use crate::session::lock;

/// Where a message is on tape; `None` where it moves on without being on one.
pub type Kept = Option<(u64, TapeId)>;

/// Records what belongs together, and does something before anything else is recorded.
///
/// # Errors
/// It could not be recorded, so none of it must move on, and nothing was done.
pub(crate) fn keep(
    recording: &Mutex<Recording>,
    options: Options,
    items: &[Item<'_>],
    then: impl FnOnce(),
) -> Result<Kept, RecordError> {
    let bytes = items.iter().map(|item| item.payload.len() as u64).sum();
    let mut recording = lock(recording);
    let recorded = recording.record(clock::now(), items.iter().copied());
    let recorded = recorded.and_then(|entry| sync(&recording, options.durability).map(|()| entry));
    match recorded {
        Ok(entry) => {
            then();
            Ok(recording.tape().map(|tape| (entry, tape)))
        }
        Err(e) => {
            let forward = options.on_record_failure == OnRecordFailure::Forward;
            recording.note_gap(1, bytes, forward, &e);
            if !forward {
                return Err(e);
            }
            tracing::error!(error = %e, "a message moves on without being recorded");
            then();
            Ok(None)
        }
    }
}

fn sync(recording: &Recording, durability: Durability) -> Result<(), RecordError> {
    if durability == Durability::Process {
        return Ok(());
    }
    // Whoever asks for this waits for the disk, and so does everyone behind.
    let synced = recording.sync_handle().and_then(|file| file.map_or(Ok(()), |file| file.sync_data()));
    synced.map_err(|source| RecordError { path: "the tape".into(), source })
}
