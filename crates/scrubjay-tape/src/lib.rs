//! Tapes: recordings of connections, as files in one data directory.
//!
//! Holds the tape format, the recording of a connection, the links between tapes, retention, and the only module that
//! reads the clock. Deliberately absent: SQL, tokio (an append is one system call, made by the thread that relays), and
//! any reading of configuration.

pub mod catalog;
pub mod chain;
pub mod checkpoint;
pub mod claim;
pub mod clock;
pub mod clock_trust;
pub mod conversation;
pub mod delivery;
pub mod format;
pub mod home;
pub mod private;
pub mod recording;
pub mod removed;
pub mod retention;
mod session_ends;
pub mod tasks_on_tape;
