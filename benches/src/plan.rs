//! How much is measured: counts and time limits of every loop.

use std::time::Duration;

/// The counts and limits of one run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How often each workload visits every target, each time with fresh processes.
    pub rounds: usize,
    /// How many of the rounds a peer takes part in; peers are slow to start.
    pub peer_rounds: usize,
    /// Blocks per round; targets take turns block by block, so that all see the same machine.
    pub blocks: usize,
    /// Sequential calls per block.
    pub seq_calls: u64,
    /// Pipelined calls per block.
    pub flight_calls: u64,
    /// Calls per block for 1 MiB results.
    pub mib_calls: u64,
    /// Calls per block for 10 MiB results.
    pub ten_mib_calls: u64,
    /// How often each target is started.
    pub starts: usize,
    /// How often a peer is started.
    pub peer_starts: usize,
    /// How often memory is read at idle.
    pub idles: usize,
    /// The longest time a block may take, even if its count is not reached.
    pub block_limit: Duration,
    /// The longest life of a target: after it the target is killed, and the run fails.
    pub session_limit: Duration,
}

impl Plan {
    /// A run of 60 to 90 seconds, if `scrubjay wrap` meets its goals.
    pub const FULL: Self = Self {
        rounds: 9,
        peer_rounds: 3,
        blocks: 5,
        seq_calls: 800,
        flight_calls: 50_000,
        mib_calls: 80,
        ten_mib_calls: 8,
        starts: 30,
        peer_starts: 3,
        idles: 3,
        block_limit: Duration::from_secs(2),
        session_limit: Duration::from_secs(90),
    };

    /// A run of about 15 seconds, for use while working; too short for conclusions.
    pub const QUICK: Self = Self {
        rounds: 5,
        peer_rounds: 1,
        blocks: 3,
        seq_calls: 300,
        flight_calls: 20_000,
        mib_calls: 20,
        ten_mib_calls: 4,
        starts: 15,
        peer_starts: 1,
        idles: 1,
        ..Self::FULL
    };
}
