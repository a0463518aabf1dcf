//! The core against the world: what it says of bytes, and what real programs make of the same bytes.

#![expect(clippy::unwrap_used, reason = "clippy excuses unwraps in test functions but not in what they call")]

mod differential_peers;
#[path = "../../../../tests/needs.rs"]
mod needs;
