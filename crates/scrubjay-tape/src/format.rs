//! The tape: the recording of one connection's messages, in one file.
//!
//! `docs/TAPE.md` describes the format. While a connection lives its tape is a *live* file that only grows: a header,
//! then frames, one write for each batch of messages. Sealing rewrites the same frames into compressed, hash-chained
//! blocks with a footer. Readers take both layouts, also if they are damaged.

pub mod digest;
pub mod entries;
pub mod facts;
pub mod frame;
pub mod header;
pub(crate) mod observe;
pub mod reader;
pub mod seal;
pub mod sealed;
mod search;
pub mod totals;
mod undelivered;
pub mod upgrade;
pub mod verify;
pub mod writer;
