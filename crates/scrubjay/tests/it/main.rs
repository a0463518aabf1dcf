//! Tests of the real binary between real processes, and of the files that it leaves on disk.
//!
//! Every test has a data directory of its own, every wait a deadline, and every process a mark in its environment
//! by which it is found again; dropping a [`harness::Wrapped`] ends all processes that still have its mark.

#![expect(clippy::unwrap_used, reason = "clippy excuses unwraps in test functions but not in what they call")]

mod harness;
#[path = "../../../../tests/needs.rs"]
mod needs;
#[path = "../../../../tests/random.rs"]
mod random;

mod background_index;
mod clock;
mod config;
mod damaged;
mod delivered;
mod demo;
mod doctor;
mod examples;
mod faults;
mod house;
mod injected;
mod killed;
mod ledger;
mod many_recorders;
mod peers;
mod private;
mod probes;
mod progress;
mod progress_peers;
mod reading;
mod records;
mod records_peers;
mod redaction;
mod route;
mod rules;
mod search;
mod selection;
mod serve;
mod session;
mod sessions;
mod stderr;
mod storage;
mod streams;
mod strict;
mod strict_peers;
mod tampered;
mod tape;
mod terminal;
mod too_long;
mod tree;
mod verbatim;
