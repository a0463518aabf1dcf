//! Scrubjay's own tools, which agents call; each toolset is an `rmcp` server.
//!
//! A toolset is served over a pair of byte streams, usually the two halves of an in-memory duplex, so
//! the gateway drives and records it like any other backend. Nothing here knows the gateway, the web
//! UI or the tapes that its messages are recorded on. All toolsets share one [`Shared`]: the ledger, the project, the workspace.

mod arguments;
pub mod progress;
mod recorder;
mod records;
pub mod redacted;
mod reply;
mod sample;
mod schema;
mod serve;
mod shared;
mod tapes;

pub use arguments::ArgumentProblem;
pub use progress::serve_progress;
pub use recorder::serve_recorder;
pub use records::{STALE_AFTER_TICKS, serve_records};
pub use sample::serve_sample;
pub use serve::ServeError;
pub use shared::{Setup, Shared};
pub use tapes::serve_tapes;
