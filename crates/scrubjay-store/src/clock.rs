//! The one place that reads the time.
//!
//! Wall time says when, monotonic time says how long; an entry keeps both, because the wall clock jumps.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// An instant by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Nanoseconds since the Unix epoch.
    pub wall_ns: u64,
    /// The monotonic instant.
    pub instant: Instant,
}

/// Reads both clocks.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub fn now() -> Moment {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Moment { wall_ns: saturate(wall), instant: Instant::now() }
}

/// Returns the nanoseconds of a duration; 584 years are enough.
#[must_use]
pub fn saturate(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
