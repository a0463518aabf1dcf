//! The pure part of Scrubjay: parsing messages, linking them to operations, redaction, rules, analysis.
//!
//! Bytes and numbers go in, values come out. Deliberately absent: tokio, SQL, the filesystem, the clock, the
//! environment and the terminal, so everything here can be tested without starting anything.

pub mod analysis;
mod bounded_map;
pub mod delivery;
pub mod diff;
pub mod entry;
pub mod envelope;
pub mod exchange;
pub mod export;
mod expression;
pub mod framing;
pub mod glob;
pub mod id;
pub mod inert;
mod json;
pub mod merge;
pub mod message;
pub mod message_limit;
pub mod operation;
pub mod oversize;
pub mod pretty_json;
pub mod preview;
pub mod protocol;
pub mod query;
pub mod reading;
pub mod redact;
pub mod retrieval;
pub mod rules;
pub mod selection;
pub mod shorten;
pub mod spelling;
pub mod stats;
pub mod tasks_on_tape;
pub mod tokens;
pub mod units;
