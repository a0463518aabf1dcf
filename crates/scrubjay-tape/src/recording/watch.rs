//! Shows recorded messages to a watcher as they are written: redacted, in order.
//!
//! The debug endpoints watch. A watcher may come later than the recordings, or never; without one the cost is one read
//! of a cell.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use scrubjay_core::entry::Direction;
use scrubjay_core::redact::Payload;

use super::Leg;

/// Receives recorded messages. It is called on the relay path for every message, so it must not block.
pub trait Watcher: Send + Sync {
    /// A message is on tape.
    fn on_recorded(&self, seen: &RecordedMessage<'_>);
}

/// A message as it was recorded.
#[derive(Clone, Copy, Debug)]
pub struct RecordedMessage<'a> {
    /// The number of its recording, unique in this process.
    pub source: u64,
    /// Which way it went.
    pub direction: Direction,
    /// The connection to a backend, if it passed there.
    pub via: Option<Leg<'a>>,
    /// When it arrived, nanoseconds since the Unix epoch.
    pub wall_ns: u64,
    /// The message, redacted.
    pub payload: Payload<'a>,
}

/// The slot for a watcher, shared by all recordings that it watches.
#[derive(Clone, Default)]
pub struct Watch {
    watcher: Arc<OnceLock<Box<dyn Watcher>>>,
    sources: Arc<AtomicU64>,
}

impl Watch {
    /// Sets the watcher; returns false if there is one already.
    pub fn begin(&self, watcher: Box<dyn Watcher>) -> bool {
        self.watcher.set(watcher).is_ok()
    }

    pub(super) fn next_source(&self) -> u64 {
        // Relaxed: the numbers only have to differ.
        self.sources.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn watcher(&self) -> Option<&dyn Watcher> {
        self.watcher.get().map(AsRef::as_ref)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("is_on", &self.watcher.get().is_some()).finish()
    }
}
