//! The databases: the ledger of what agents did, the files they changed, and the search index over tapes.
//!
//! The only crate with SQL. Tapes, the data directory and the clock are in `scrubjay-tape`.

pub mod database;
pub mod files;
#[expect(
    clippy::disallowed_methods,
    reason = "the index is filled from tapes, which hold only redacted bytes"
)]
pub mod index;
pub mod ledger;
pub mod views;
pub mod workspace;
