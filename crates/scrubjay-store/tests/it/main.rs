//! What the store promises: laws over whole, torn and damaged tapes, and the same stories on both databases.

#![expect(clippy::unwrap_used, reason = "clippy excuses unwraps in test functions but not in what they call")]

mod crash;
mod damage;
mod database;
mod failure;
mod faults;
mod files;
mod fixture;
mod follow;
mod foreign;
mod forged;
mod forgotten;
mod home;
mod hostile;
mod index;
mod kept;
mod ledger;
mod modes;
#[path = "../../../../tests/needs.rs"]
mod needs;
mod progress;
mod records;
mod redaction;
mod retention;
mod rotation;
mod roundtrip;
mod sessions;
mod tampering;
mod undelivered;
mod versions;
mod views;
mod workspace;
