//! The one place of the harness that reads the clock.

use std::time::Instant;

/// Returns the monotonic time now.
#[expect(clippy::disallowed_methods, reason = "the benchmark does not link the store and its clock")]
pub fn now() -> Instant {
    Instant::now()
}
