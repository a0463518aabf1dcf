//! Lets somebody see what recordings write, as it is written: redacted, in order.
//!
//! Whoever watches may come later than the recordings, or never; until then it costs a look at a cell.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use scrubjay_core::entry::Direction;
use scrubjay_core::redact::Payload;

use super::Leg;

/// Sees what recordings write. It is called on the way of every message, so it must not wait.
pub trait Watcher: Send + Sync {
    /// A message is on tape.
    fn on_recorded(&self, seen: &RecordedMessage<'_>);
}

/// A message as it was recorded.
#[derive(Clone, Copy, Debug)]
pub struct RecordedMessage<'a> {
    /// Which recording it is on: no two have the same number.
    pub source: u64,
    /// Which way it went.
    pub direction: Direction,
    /// The connection to a backend, for a message between the gateway and one.
    pub via: Option<Leg<'a>>,
    /// When it arrived, nanoseconds since the Unix epoch.
    pub wall_ns: u64,
    /// The message, redacted.
    pub payload: Payload<'a>,
}

/// The place of a watcher, shared by all recordings that it will see.
#[derive(Clone, Default)]
pub struct Watch {
    watcher: Arc<OnceLock<Box<dyn Watcher>>>,
    sources: Arc<AtomicU64>,
}

impl Watch {
    /// Watches from now on; returns whether nobody did before.
    pub fn begin(&self, watcher: Box<dyn Watcher>) -> bool {
        self.watcher.set(watcher).is_ok()
    }

    pub(super) fn next_source(&self) -> u64 {
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
