//! Gives memory that is free in the allocator back to the system, after clients took much of it at once.
//!
//! The budget counts what is kept; what was freed may stay with the allocator in pieces, for as long as the process runs.

use std::sync::Weak;
use std::time::Duration;

use crate::listener::Connections;

/// How often it is looked: soon enough that the next flood does not come on top of what the last one left.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A process in ordinary use has less in memory, and none of this is done for it.
const RESIDENT_BYTES_MIN: usize = 64 << 20;

/// Looks at the memory of this process again and again, for as long as there are connections to serve.
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

/// Returns how much of this process is in memory; `None` where the system does not tell.
fn resident_bytes() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size())
}
