//! Compares how the core reads bytes with how other programs read the same bytes.

#![expect(clippy::unwrap_used, reason = "clippy excuses unwraps in test functions but not in what they call")]

mod differential_peers;
#[path = "../../../../tests/needs.rs"]
mod needs;
#[path = "../../../../tests/random.rs"]
mod random;
