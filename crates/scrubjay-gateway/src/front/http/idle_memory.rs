//! Returns free memory of the allocator to the system, after clients took much of it at once.
//!
//! The budget counts memory in use. Freed memory may stay with the allocator, in pieces, as long as the process runs.

use std::sync::Weak;
use std::time::Duration;

use crate::listener::Connections;

/// How often the memory is checked: soon enough that the next burst does not come on top of what the last one left.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// In ordinary use the process has less in memory, and nothing is done.
const RESIDENT_BYTES_MIN: usize = 64 << 20;

/// Checks the memory of this process until the listener is gone.
pub(super) async fn give_back(connections: Weak<Connections>) {
    while connections.strong_count() > 0 {
        tokio::time::sleep(LOOK_EVERY).await;
        if resident_bytes().is_some_and(|bytes| bytes >= RESIDENT_BYTES_MIN) {
            // 13 ms at most for 50 MiB in pieces of 16 KiB: not on the thread that serves.
            if tokio::task::spawn_blocking(scrubjay_allocator::give_back).await.is_err() {
                return;
            }
        }
    }
}

/// Returns how much memory this process has (RSS); `None` if `/proc` does not say.
fn resident_bytes() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size())
}
