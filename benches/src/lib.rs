//! Measures what a relay between an MCP host and a server costs.
//!
//! The programs that measure from outside share this library: `bench-server` (a server too fast to be the bottleneck),
//! `raw-relay` and `raw-http` (which copy bytes: the physical limit), `wrap-bench` and `serve-bench`, which drive
//! these and Scrubjay through the same calls, interleaved. Nothing here knows how Scrubjay works inside: a target is a
//! command line, and its costs are read from `/proc`.

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
