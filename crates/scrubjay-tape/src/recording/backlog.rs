//! Counts recorded bytes, and calls back when many have come: the binary then starts the background indexer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the bytes of all recordings that share it.
#[derive(Clone)]
pub struct Backlog {
    counted: Arc<Counted>,
}

struct Counted {
    bytes: AtomicU64,
    every_bytes: u64,
    call: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Backlog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backlog").field("bytes", &self.counted.bytes).finish_non_exhaustive()
    }
}

impl Backlog {
    /// Calls `call` each time another `every_bytes` were recorded. It runs on the relay path and must be quick.
    #[must_use]
    pub fn new(every_bytes: u64, call: impl Fn() + Send + Sync + 'static) -> Self {
        let counted =
            Counted { bytes: AtomicU64::new(0), every_bytes: every_bytes.max(1), call: Box::new(call) };
        Self { counted: Arc::new(counted) }
    }

    pub(super) fn add(&self, bytes: u64) {
        let Counted { bytes: counted, every_bytes, call } = &*self.counted;
        let before = counted.fetch_add(bytes, Ordering::Relaxed);
        if before / every_bytes != (before + bytes) / every_bytes {
            call();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_calls_back_once_for_each_step() {
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        let backlog = Backlog::new(100, move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        for (bytes, expected) in [(99, 0), (1, 1), (50, 1), (49, 1), (1, 2), (1000, 3)] {
            backlog.add(bytes);
            assert_eq!(calls.load(Ordering::Relaxed), expected);
        }
    }
}
