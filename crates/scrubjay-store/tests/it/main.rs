//! The store behaves the same on both databases, and files change only as recorded.

#![expect(clippy::unwrap_used, reason = "clippy excuses unwraps in test functions but not in what they call")]

mod database;
mod faults;
mod files;
#[expect(dead_code, reason = "shared with the tests of tapes, which use all of it")]
#[path = "../../../scrubjay-tape/tests/it/fixture.rs"]
mod fixture;
mod foreign;
mod forgotten;
mod index;
mod ledger;
#[path = "../../../../tests/needs.rs"]
mod needs;
mod progress;
#[path = "../../../../tests/random.rs"]
mod random;
mod records;
mod sessions;
mod undelivered;
mod views;
mod workspace;
