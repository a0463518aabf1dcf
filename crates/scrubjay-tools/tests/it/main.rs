//! The toolsets as a client uses them: raw JSON lines over an in-memory duplex, in both eras.

#![expect(clippy::unwrap_used, reason = "clippy excuses unwraps in test functions but not in what they call")]

mod arguments;
mod client;
mod eras;
mod progress;
mod recorder;
mod records;
mod revisions;
mod sample;
mod schemas;
mod story;
mod tapes;
