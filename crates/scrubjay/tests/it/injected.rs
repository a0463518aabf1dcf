//! Kills and errors at chosen system calls, by `strace`, so that each instant is tested on purpose and not by chance.

use rustix::process::Pid;
use serde_json::json;

use crate::harness::{DOWN, Entry, ExportedTape, Lab, Running, UP, Wrapped};
use crate::needs::strace;

/// All system calls with which a worker changes the disk or forwards a message.
const CHANGES: [&str; 12] = [
    "mkdir",
    "fchmod",
    "flock",
    "pwrite64",
    "pwritev",
    "write",
    "writev",
    "rename",
    "ftruncate",
    "fsync",
    "fdatasync",
    "unlink",
];

/// The least number of such calls in a conversation.
const CALLS_MIN: u32 = 25;
/// More calls of one kind than a conversation makes.
const CALLS_MAX: u32 = 100;

/// Injects faults into the worker of a wrap from now on.
pub(crate) fn inject(wrapped: &Wrapped, what: &[&str]) -> Running {
    inject_into(wrapped.worker(), &CHANGES, what)
}

/// Injects faults into a process from now on; only these calls are traced.
pub(crate) fn inject_into(process: Pid, calls: &[&str], what: &[&str]) -> Running {
    let mut command = strace();
    command.args(["-f", "-o", "/dev/null", "-p", &process.to_string(), "-e"]);
    command.arg(format!("trace={}", calls.join(",")));
    for injection in what {
        command.args(["-e", &format!("inject={injection}")]);
    }
    let mut tracer = Running::start(&mut command);
    let output = tracer.await_stderr("attach");
    assert!(output.contains("attached"), "strace may not trace: {output}");
    tracer
}

/// Sends a few lines to `tee`, small ones, large ones and two at once; returns what came back.
fn converse(wrapped: &mut Wrapped) -> Vec<u8> {
    let large = "L".repeat(70_000);
    let mut received = Vec::new();
    for sent in ["one", "two\ntwo and a half", &large, "four"] {
        wrapped.send_line(sent);
        for _ in sent.lines() {
            let Some(line) = wrapped.line() else { break };
            received.extend(line.bytes().chain([b'\n']));
        }
    }
    wrapped.close_stdin();
    received.extend(wrapped.rest());
    received
}

/// Kills the worker as it enters its `number`th call of one kind; returns whether it made that many calls.
fn kill_at(call: &str, number: u32) -> bool {
    let lab = Lab::new();
    let mut wrapped = lab.wrap(&["tee", &lab.file("log")]).start();
    // The server has started and no message was sent, so the next change of the disk is the first of the recording.
    wrapped.server();
    let _tracer = inject(&wrapped, &[&format!("{call}:signal=KILL:when={number}")]);
    let client_received = converse(&mut wrapped);
    let killed = match wrapped.exit_code() {
        0 => false,
        137 => true,
        other => panic!("{call} {number}: exit code {other}"),
    };
    wrapped.mark().await_gone();
    let read = || {
        let ids = lab.tape_ids();
        assert!(ids.len() <= 1, "{call} {number}: {ids:?}");
        ids.iter().next().map(|id| lab.export(id))
    };
    let tape = read();
    let wire = |direction| tape.as_ref().map(|tape| tape.wire(direction)).unwrap_or_default();
    assert!(
        wire(UP).starts_with(&lab.read("log")),
        "{call} {number}: the server received more than is on tape"
    );
    assert!(
        wire(DOWN).starts_with(&client_received),
        "{call} {number}: the client received more than is on tape"
    );
    lab.verify();
    lab.start_again();
    lab.verify();
    assert!(lab.tapes().iter().all(|tape| tape["state"] == "sealed"), "{call} {number}: {:?}", lab.tapes());
    assert!(read() == tape, "{call} {number}: the tape reads otherwise once it is sealed");
    killed
}

#[test]
#[ignore = "needs strace"]
fn a_worker_killed_at_any_call_loses_nothing() {
    let mut calls = 0;
    for call in CHANGES {
        for number in 1.. {
            assert!(number < CALLS_MAX, "{call} is called without end");
            if !kill_at(call, number) {
                break;
            }
            calls += 1;
        }
    }
    assert!(calls >= CALLS_MIN, "the worker was killed at {calls} calls only");
}

/// Lets system calls of the worker fail: some requests are answered with an error that says why, all others as
/// without a fault. Returns how many were refused.
fn check_failure(options: &[&str], injections: &[&str], why: &str) -> u64 {
    let lab = Lab::new();
    let mut wrapped = lab.wrap_logged_sample("log").with(options).start();
    wrapped.server();
    let _tracer = inject(&wrapped, injections);
    let mut refused = 0;
    for id in 1..=5 {
        let answer = wrapped.call_alone(id, "echo", &json!({ "text": "x".repeat(50_000) }));
        if answer["error"].is_null() {
            assert_eq!(answer["result"]["content"][0]["text"].as_str().map(str::len), Some(50_000));
        } else {
            let error = &answer["error"];
            assert_eq!(error["code"], -32603, "{injections:?}");
            assert!(error["message"].as_str().unwrap().contains(why), "{injections:?}: {error}");
            refused += 1;
        }
    }
    wrapped.await_stderr("recording works again");
    assert_eq!(wrapped.leave(), 0);
    lab.verify();
    // After a failed sync the recording continues on another tape.
    let recorded: Vec<ExportedTape> = lab.tape_ids().iter().map(|id| lab.export(id)).collect();
    let mut missing = 0;
    for gap in recorded.iter().flat_map(|tape| tape.of_kind("gap")).map(Entry::facts) {
        missing += gap["messages"].as_u64().unwrap();
        assert_eq!(gap["forwarded"], false, "{injections:?}");
        assert!(gap["reason"].as_str().unwrap().contains(why), "{injections:?}: {gap}");
    }
    assert_eq!(missing, refused, "{injections:?}");
    let messages = recorded.iter().flat_map(|tape| tape.messages(UP));
    let taped: Vec<String> =
        messages.map(|entry| String::from_utf8(entry.payload.clone()).unwrap()).collect();
    let received = String::from_utf8(lab.read("log")).unwrap();
    assert!(received.lines().all(|line| taped.iter().any(|taped| taped == line)), "{injections:?}");
    assert_eq!(received.lines().count(), taped.len(), "{injections:?}: what was refused is not on tape");
    refused
}

#[test]
#[ignore = "needs strace"]
fn a_failed_write_refuses_only_its_message() {
    // The first sync is for the tape's header, each later one for a request or an answer.
    assert_eq!(check_failure(&[], &["pwrite64:error=EIO:when=1"], "Input/output error"), 1);
    for number in 1..=6 {
        let failure = format!("pwritev:error=EIO:when={number}");
        assert_eq!(check_failure(&[], &[&failure], "Input/output error"), 1, "{failure}");
    }
    assert_eq!(check_failure(&[], &["pwritev:error=ENOSPC:when=3..5"], "No space left"), 3);
    assert_eq!(check_failure(&[], &["rename:error=EACCES:when=1"], "Permission denied"), 1);
}

#[test]
#[ignore = "needs strace"]
fn a_failed_write_and_a_failed_truncation_refuse_one_message() {
    let failures = ["pwritev:error=EIO:when=3", "ftruncate:error=EIO:when=1"];
    assert_eq!(check_failure(&[], &failures, "Input/output error"), 1);
}

#[test]
#[ignore = "needs strace"]
fn a_failed_sync_refuses_messages_with_its_reason() {
    // The first call of each thread that syncs; there may be more than one such thread.
    let refused =
        check_failure(&["--durability", "power"], &["fdatasync:error=EIO:when=1"], "Input/output error");
    assert!(refused > 0);
}
