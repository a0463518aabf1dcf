//! Where things rest: tapes in files, under one data directory.
//!
//! The only crate that knows the layout of what is on disk. Deliberately absent: tokio (an append is one
//! system call, made by whoever relays), the network, and any reading of configuration.

pub mod clock;
pub mod home;
pub mod recording;
pub mod tape;
pub mod workspace;
