//! Where things rest: tapes in files, the ledger in a database, under one data directory.
//!
//! The only crate that knows the layout of what is on disk, and the only one with SQL. Deliberately absent:
//! tokio on the way to a tape (an append is one system call, made by whoever relays), and any reading of
//! configuration.

pub mod catalog;
pub mod chain;
pub mod checkpoint;
pub mod claim;
pub mod clock;
pub mod conversation;
pub mod database;
pub mod delivery;
mod ends;
pub mod files;
pub mod home;
#[expect(
    clippy::disallowed_methods,
    reason = "the index is filled from tapes, which hold only redacted bytes"
)]
pub mod index;
pub mod ledger;
pub mod private;
pub mod recording;
pub mod removed;
pub mod retention;
pub mod routed;
pub mod tape;
pub mod views;
pub mod witness;
pub mod workspace;
