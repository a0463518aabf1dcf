//! What a test needs from its machine: the real peers, a PostgreSQL, `strace`, another clock, root.
//!
//! A test that needs something is marked `#[ignore = "needs …"]`, so that a plain `cargo test` counts it as ignored and
//! prints what it needs. `scripts/test` provides everything and runs these tests too; there a test fails if something
//! is missing. No test may look for what it needs and pass without it. Each crate's integration tests include this file.

#![allow(dead_code, reason = "no crate needs all of it")]

use std::path::PathBuf;
use std::process::Command;

/// Returns where `scripts/install-peers` put the real hosts and servers.
pub(crate) fn peers() -> PathBuf {
    let directory = std::env::var_os("SCRUBJAY_PEERS");
    directory.expect("needs peers: run scripts/install-peers and set SCRUBJAY_PEERS to tests/peers").into()
}

/// Returns the address of the PostgreSQL that `scripts/with-postgres` started.
pub(crate) fn postgres() -> String {
    std::env::var("SCRUBJAY_TEST_POSTGRES")
        .expect("needs postgres: run scripts/with-postgres cargo test … -- --include-ignored")
}

/// Returns the program that watches system calls and lets them fail.
pub(crate) fn strace() -> Command {
    let found = Command::new("strace").arg("-V").output();
    assert!(found.is_ok_and(|output| output.status.success()), "needs strace: install the package strace");
    Command::new("strace")
}

/// Returns the library that gives a program another clock.
pub(crate) fn faketime() -> String {
    let directories = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut libraries = directories.map(|directory| directory.path().join("faketime/libfaketimeMT.so.1"));
    let library = libraries.find(|path| path.exists()).expect("needs faketime: install the package faketime");
    library.into_os_string().into_string().expect("a path of the system's is text")
}

/// Checks that files can be given to other users and file systems mounted.
pub(crate) fn root() {
    let user = Command::new("id").arg("-u").output().expect("coreutils are installed");
    assert!(user.stdout == b"0\n", "needs root: it gives files away, or mounts a small disk");
}
