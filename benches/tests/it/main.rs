//! The harness with relays that work, change bytes, do not answer or exit: only the first may pass.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use scrubjay_bench::plan::Plan;
use scrubjay_bench::session::Session;
use scrubjay_bench::target::{Relay, Target};

const RAW_RELAY: &str = env!("CARGO_BIN_EXE_raw-relay");
const SERVER: &str = env!("CARGO_BIN_EXE_bench-server");
const LIMIT: Duration = Duration::from_secs(20);

fn target(name: &str, relay: Relay) -> Target {
    Target { name: name.to_owned(), relay, server: fs::canonicalize(SERVER).expect("cargo built it") }
}

fn open(target: &Target, session_limit: Duration) -> std::io::Result<Session> {
    let plan = Plan { session_limit, ..Plan::QUICK };
    Session::open(target, &Path::new(env!("CARGO_TARGET_TMPDIR")).join(&target.name), &plan)
}

/// Writes a program that is started as scrubjay would be: `--data D wrap --name N -- SERVER`.
fn script(name: &str, body: &str) -> Relay {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.sh"));
    // Written by another process: a file that this one has open for writing while another test forks
    // could not be started.
    let mut writing = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("there is a shell");
    let text = format!("#!/bin/sh\nshift 6\n{body}\n");
    writing.stdin.take().expect("it is piped").write_all(text.as_bytes()).expect("the shell reads");
    assert!(writing.wait().expect("the shell ends").success());
    Relay::Scrubjay(path)
}

fn error_of(name: &str, body: &str) -> String {
    let target = target(name, script(name, body));
    open(&target, LIMIT).map(|_| ()).expect_err("this relay is wrong").to_string()
}

#[test]
fn every_call_passes_a_correct_relay() {
    for (name, relay, processes) in
        [("direct", Relay::Direct, 0), ("raw", Relay::Raw(RAW_RELAY.into()), 1), ("tee", Relay::Tee, 2)]
    {
        let mut session = open(&target(name, relay), LIMIT).unwrap();
        let mut samples_us = Vec::new();
        assert_eq!(session.call_in_turn(50, LIMIT, &mut samples_us).unwrap().calls, 50);
        assert_eq!(samples_us.len(), 50);
        assert_eq!(session.call_pipelined(1000, LIMIT).unwrap().calls, 1000);
        session.check_large(300_000).unwrap();
        assert_eq!(session.call_large(300_000, 3, LIMIT).unwrap().calls, 3);
        assert_eq!(session.memory().unwrap().len(), processes, "{name}");
        let (_, recorded_bytes) = session.close().unwrap();
        assert_eq!(recorded_bytes > 0, name == "tee");
    }
}

#[test]
fn a_changed_byte_is_detected() {
    let error = error_of("changes", "\"$@\" | sed -u s/twice/Twice/");
    assert!(error.contains("call 2: a wrong answer"), "{error}");
}

#[test]
fn a_changed_byte_in_a_large_answer_is_detected() {
    let target = target("changes-large", script("changes-large", "\"$@\" | sed -u 's/expired/Expired/9'"));
    let mut session = open(&target, LIMIT).unwrap();
    assert!(session.check_large(300_000).unwrap_err().to_string().contains("a wrong answer"));
}

#[test]
fn a_lost_byte_in_a_large_answer_is_detected() {
    let target = target("loses", script("loses", "\"$@\" | sed -u 's/expired/expire/9'"));
    let mut session = open(&target, LIMIT).unwrap();
    assert!(session.call_large(300_000, 1, LIMIT).unwrap_err().to_string().contains("a wrong answer"));
}

#[test]
fn a_relay_that_exits_fails_with_its_standard_error() {
    let error = error_of("dies", "echo out of luck >&2; exit 3");
    assert!(error.contains("out of luck"), "{error}");
}

#[test]
fn an_exit_code_other_than_zero_fails() {
    let target = target("exits-3", script("exits-3", "\"$@\"; exit 3"));
    let session = open(&target, LIMIT).unwrap();
    assert!(session.close().unwrap_err().to_string().contains("exit status: 3"));
}

#[test]
fn a_silent_relay_is_ended() {
    let target = target("silent", script("silent", "sleep 1000 & wait"));
    let error = open(&target, Duration::from_millis(200)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("its time was up"), "{error}");
}

#[test]
fn the_raw_relay_passes_end_of_input_and_exit_code() {
    let mut child = Command::new(RAW_RELAY)
        .args(["--", "sh", "-c", "cat; exit 7"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"one\ntwo").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"one\ntwo");
    assert_eq!(output.status.code(), Some(7));
}
