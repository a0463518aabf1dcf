//! What agents call: Scrubjay's own tools, each toolset an `rmcp` server.
//!
//! A toolset is served over a pair of byte streams, usually the two halves of an in-memory duplex, so
//! the gateway drives and records it like any other backend. Nothing here knows the gateway, the web
//! UI or where its messages end up.

mod sample;
mod serve;

pub use sample::{SampleServer, serve_sample};
pub use serve::ServeError;
