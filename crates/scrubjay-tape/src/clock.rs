//! The one place that reads the time.
//!
//! Wall time says when, monotonic time says how long; an entry keeps both, because the wall clock jumps.

use std::fs::File;
use std::io;
use std::path::Path;
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

/// Returns a duration in nanoseconds; saturates after 584 years.
#[must_use]
pub fn saturate(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns when a file was last written. Asks the kernel directly, because libfaketime also fakes what libc returns.
pub(crate) fn written_wall_ns(file: &File) -> io::Result<u64> {
    let facts = rustix::fs::fstat(file)?;
    Ok(wall_ns(facts.st_mtime, facts.st_mtime_nsec))
}

/// Returns the later of a file's modification and change times: a copy can keep the first, and not the second.
pub(crate) fn touched_wall_ns(path: &Path) -> io::Result<u64> {
    let facts = rustix::fs::stat(path)?;
    let changed = wall_ns(facts.st_ctime, facts.st_ctime_nsec);
    Ok(wall_ns(facts.st_mtime, facts.st_mtime_nsec).max(changed))
}

fn wall_ns(seconds: i64, ns: u64) -> u64 {
    u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(ns)
}

/// Which boot of the system this is, and how long ago it was, including time in which the machine slept.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Boot {
    /// Identifies this boot.
    pub id: String,
    /// Nanoseconds since the boot, by a clock that cannot be set.
    pub ns: u64,
}

/// Reads the clock that counts from the boot; none on systems without it.
#[must_use]
pub fn boot() -> Option<Boot> {
    #[cfg(target_os = "linux")]
    {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(since.tv_sec).ok()?;
        let ns = seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(since.tv_nsec).ok()?);
        Some(Boot { id: id.trim().to_owned(), ns })
    }
    #[cfg(not(target_os = "linux"))]
    None
}
