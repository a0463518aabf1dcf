//! What a test needs of the machine it runs on: the real peers, a PostgreSQL, `strace`, the right to mount.
//!
//! Each crate's integration tests include this file. A test that lacks something says so and passes, so that
//! `cargo test` is of use everywhere; under `scripts/test`, which provides all of it, the same test fails.

#![allow(dead_code, reason = "no crate needs all of it")]

use std::path::PathBuf;

/// Returns where `scripts/install-peers` put the real hosts and servers.
pub(crate) fn peers(test: &str) -> Option<PathBuf> {
    let found = std::env::var_os("SCRUBJAY_PEERS").map(PathBuf::from);
    if found.is_none() {
        skip(test, "it needs the real peers: run scripts/install-peers and set SCRUBJAY_PEERS");
    }
    found
}

/// Returns the address of the PostgreSQL that `scripts/with-postgres` started.
pub(crate) fn postgres(test: &str) -> Option<String> {
    let found = std::env::var("SCRUBJAY_TEST_POSTGRES").ok();
    if found.is_none() {
        skip(test, "it needs a PostgreSQL: run scripts/with-postgres cargo test");
    }
    found
}

/// Says that a test, or a part of one, did not run. Where every test must run, that is a failure.
#[expect(clippy::print_stderr, reason = "a test that did not run must not look like one that did")]
pub(crate) fn skip(test: &str, reason: &str) {
    assert!(std::env::var_os("SCRUBJAY_TEST_ALL").is_none(), "{test} was skipped: {reason}");
    eprintln!("skipped: {test}: {reason}");
}
