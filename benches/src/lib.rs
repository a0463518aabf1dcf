//! What a relay between an MCP host and a stdio server costs, measured.
//!
//! Three programs share this library: `bench-server` (a server too fast to be the bottleneck),
//! `raw-relay` (two threads that copy bytes: the physical limit) and `wrap-bench`, which drives
//! both and `scrubjay wrap` through the same calls, interleaved. Nothing here knows how Scrubjay
//! works inside: a target is a command line, and what it costs is read from `/proc`.

pub mod aggregator;
pub mod answers;
pub mod clock;
pub mod http;
pub mod http_load;
pub mod json;
pub mod many;
pub mod payload;
pub mod peers;
pub mod plan;
pub mod procfs;
pub mod prose;
pub mod report;
pub mod series;
pub mod session;
pub mod stdio;
pub mod table;
pub mod target;
pub mod watchdog;
pub mod wire;
pub mod workload;
