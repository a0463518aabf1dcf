//! What the tests share: running the binary, talking through it, and reading what it left on disk.

mod lab;
mod processes;
mod running;
mod wrapped;

use std::time::{Duration, Instant};

pub(crate) use lab::{CommandOutput, DOWN, Entry, ExportedTape, Lab, UP, text};
pub(crate) use processes::{Process, kill, tree_of};
pub(crate) use running::{Running, request};
pub(crate) use wrapped::{Wrap, Wrapped, standing_alone};

/// The binary under test.
pub(crate) const SCRUBJAY: &str = env!("CARGO_BIN_EXE_scrubjay");

/// Whether recorders start a process that keeps the index current. Off, because no process may outlive its test.
pub(crate) const BACKGROUND_VARIABLE: &str = "SCRUBJAY_INDEX_BACKGROUND";

/// The root of the repository.
pub(crate) fn repository() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the crate is in its repository")
}

/// The longest wait on a busy machine. Code that works is far below it.
const DEADLINE: Duration = Duration::from_secs(30);

/// How long to pause between two checks of a condition that sends no event.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// The moment at which a wait counts as failed.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn new() -> Self {
        Self::within(DEADLINE)
    }

    pub(crate) fn within(time: Duration) -> Self {
        Self(scrubjay_tape::clock::now().instant + time)
    }

    /// Returns how long is left; zero once it has passed.
    pub(crate) fn left(self) -> Duration {
        self.0.saturating_duration_since(scrubjay_tape::clock::now().instant)
    }

    pub(crate) fn has_passed(self) -> bool {
        self.left().is_zero()
    }
}

/// Repeats a check until it returns a value, or the deadline has passed.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Deadline::new();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(!deadline.has_passed(), "waited in vain for {what}");
        std::thread::sleep(LOOK_AGAIN);
    }
}
