//! A server's standard error: forwarded unchanged, recorded line by line, and never a reason to block.

use serde_json::json;

use crate::harness::{Lab, text};

#[test]
fn stderr_is_forwarded_unchanged_and_recorded_by_line() {
    let lab = Lab::new();
    let script = "printf 'half a ' >&2; read x; printf 'line\\nbytes \\377\\033[31m\\nlast' >&2; echo bye";
    let mut wrapped = lab.wrap(&["sh", "-c", script]).start();
    wrapped.await_stderr("half a ");
    wrapped.send_line("go on");
    assert_eq!(wrapped.line().as_deref(), Some("bye"));
    assert_eq!(wrapped.exit_code(), 0);
    assert!(wrapped.stderr_text().starts_with("half a line\nbytes \u{fffd}\u{1b}[31m\nlast"));
    let recorded = lab.only_tape();
    let lines: Vec<(&[u8], &str)> = recorded
        .of_kind("stderr")
        .map(|entry| (entry.payload.as_slice(), text(&entry.json["terminator"])))
        .collect();
    assert_eq!(lines, [(&b"half a line"[..], "lf"), (b"bytes \xff\x1b[31m", "lf"), (b"last", "eof")]);
}

#[test]
fn a_host_that_never_reads_stderr_still_gets_messages() {
    let lab = Lab::new();
    // With each answer the server writes a little on standard error: 25 kB in all.
    let script = "while read -r line; do echo \"$line\"; echo 'a line of a log, of fifty bytes or nearly so' >&2; done";
    let mut wrapped = lab.wrap(&["sh", "-c", script]).start();
    wrapped.reads_stderr = false;
    for number in 0..500 {
        wrapped.send_line(&number.to_string());
        assert_eq!(wrapped.line().unwrap(), number.to_string());
    }
    assert_eq!(wrapped.leave(), 0);
    assert_eq!(lab.only_tape().of_kind("stderr").count(), 500);
}

#[test]
fn a_full_stderr_does_not_block_the_recorder() {
    let lab = Lab::new();
    // A child of the server fills every pipe up to the host, and then blocks.
    let script = "(while :; do echo 'noise, noise, noise' >&2; done) & exec cat";
    let mut wrapped = lab.wrap(&["sh", "-c", script]).with(&["--max-message-size", "64KiB"]).start();
    wrapped.reads_stderr = false;
    for id in 0..200 {
        // Each of these makes the recorder write a message on standard error.
        wrapped.send_line(&json!({ "jsonrpc": "2.0", "id": id, "method": "x".repeat(65_536) }).to_string());
        assert_eq!(wrapped.message()["id"], id);
        wrapped.send_line("and on");
        assert_eq!(wrapped.line().as_deref(), Some("and on"));
    }
    wrapped.close_stderr();
    assert_eq!(wrapped.leave(), 0);
}

#[test]
fn a_host_that_closed_stderr_still_gets_messages() {
    let lab = Lab::new();
    let script = "while read -r line; do echo received >&2; echo \"$line\"; done";
    let mut wrapped = lab.wrap(&["sh", "-c", script]).start();
    wrapped.close_stderr();
    for number in 0..20 {
        wrapped.send_line(&number.to_string());
        assert_eq!(wrapped.line().unwrap(), number.to_string());
    }
    assert_eq!(wrapped.leave(), 0);
    assert_eq!(lab.only_tape().of_kind("stderr").count(), 20);
}
