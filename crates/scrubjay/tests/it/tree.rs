//! No process outlives its connection, regardless of who ends it and how; exit codes and signals pass through.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::harness::{Lab, SCRUBJAY, Wrapped, kill, wait_for};

/// Starts two processes that do not end by themselves: one in its own session, and one that ignores SIGTERM.
const CHILDREN: &str = r#"
    setsid sh -c 'trap "" TERM HUP INT PIPE; echo ready; while :; do sleep 1000; done' &
    sh -c 'trap "" TERM; echo ready; while :; do sleep 1000; done' &
"#;

/// Starts a server with child processes, and waits until all of them run.
fn start(lab: &Lab, server: &str) -> Wrapped {
    let script = format!("{CHILDREN}\necho ready\n{server}");
    // In a session of its own, as some hosts start their servers, so that one signal reaches all its processes.
    let mut wrapped = lab.wrap(&["sh", "-c", &script]).by(&["setsid"]).start();
    let mut ready = 0;
    while ready < 3 {
        ready += u32::from(wrapped.line().expect("the server lives") == "ready");
    }
    wrapped
}

/// Exits when its input ends.
const ENDS_WITH_INPUT: &str = "exec cat";
/// Ignores the end of its input.
const IGNORES_END_OF_INPUT: &str = "trap '' TERM HUP INT; while :; do sleep 1000; done";
/// Continues to write although nothing reads.
const KEEPS_WRITING: &str = "trap '' TERM HUP INT PIPE; while :; do echo more 2>/dev/null; sleep 0.05; done";

/// Ends connections to servers of each kind in one way; no process may be left.
fn check(servers: &[&str], end: impl Fn(&mut Wrapped) + Sync) {
    std::thread::scope(|scope| {
        for server in servers {
            scope.spawn(|| {
                let lab = Lab::new();
                let mut wrapped = start(&lab, server);
                end(&mut wrapped);
                wrapped.mark().await_gone();
                lab.verify();
            });
        }
    });
}

#[test]
fn no_process_is_left_when_the_host_leaves() {
    check(&[ENDS_WITH_INPUT, IGNORES_END_OF_INPUT, KEEPS_WRITING], |wrapped| {
        wrapped.close_stdin();
        wrapped.close_stdout();
    });
}

#[test]
fn no_process_is_left_when_the_host_closes_one_stream_after_the_other() {
    let lab = Lab::new();
    let server = format!(
        "trap '' PIPE; while echo more; do :; done; touch {0}; {IGNORES_END_OF_INPUT}",
        lab.file("no-reader")
    );
    let mut wrapped = start(&lab, &server);
    wrapped.close_stdout();
    wait_for("the server to notice that nothing reads its output", || {
        std::path::Path::new(&lab.file("no-reader")).exists().then_some(())
    });
    wrapped.close_stdin();
    wrapped.mark().await_gone();
}

#[test]
fn no_process_is_left_when_the_server_exits() {
    check(&["read line; exit 7"], |wrapped| {
        wrapped.send_line("leave");
        assert_eq!(wrapped.exit_code(), 7);
    });
}

#[test]
fn no_process_is_left_when_the_worker_is_killed() {
    check(&[ENDS_WITH_INPUT, IGNORES_END_OF_INPUT, KEEPS_WRITING], |wrapped| {
        kill(wrapped.worker(), Signal::KILL);
        assert_eq!(wrapped.exit_code(), 128 + 9);
    });
}

/// A host may kill the warden before the worker has checked that its parent exists.
#[test]
fn a_worker_whose_warden_is_gone_starts_no_server() {
    let lab = Lab::new();
    let mut gone = Command::new("true").spawn().expect("true starts");
    gone.wait().expect("it ends");
    let sign = lab.file("started");
    let output = Command::new(SCRUBJAY)
        .arg0("scrubjay-worker")
        .args(["--data", &lab.file("data"), "wrap", "--", "touch", &sign])
        .env("SCRUBJAY_WARDEN", gone.id().to_string())
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    assert!(!output.status.success() && !std::path::Path::new(&sign).exists(), "{output:?}");
}

#[test]
fn no_process_is_left_when_the_warden_is_killed() {
    check(&[ENDS_WITH_INPUT, IGNORES_END_OF_INPUT, KEEPS_WRITING], |wrapped| {
        kill(wrapped.pid(), Signal::KILL)
    });
}

#[test]
fn no_process_is_left_when_the_process_group_is_killed() {
    check(&[ENDS_WITH_INPUT, IGNORES_END_OF_INPUT, KEEPS_WRITING], |wrapped| {
        rustix::process::kill_process_group(wrapped.pid(), Signal::KILL).unwrap();
    });
}

#[test]
fn no_process_is_left_after_sigterm() {
    check(&[ENDS_WITH_INPUT], |wrapped| {
        kill(wrapped.pid(), Signal::TERM);
        assert_eq!(wrapped.exit_code(), 128 + 15);
    });
}

#[test]
fn exit_codes_pass_through() {
    let lab = Lab::new();
    for (script, code) in
        [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -KILL $$", 137), ("kill -HUP $$", 129)]
    {
        assert_eq!(lab.wrap(&["sh", "-c", script]).start().leave(), code, "{script}");
    }
}

#[test]
fn a_command_that_does_not_start_is_reported() {
    let lab = Lab::new();
    std::fs::write(lab.file("text"), "not a program").unwrap();
    for (command, why) in [("/no/such/server", "No such file"), (&lab.file("text"), "Permission denied")] {
        let mut wrapped = lab.wrap(&[command]).start();
        assert_eq!(wrapped.exit_code(), 1);
        let output = wrapped.stderr_text();
        assert!(output.contains(command) && output.contains(why), "{output}");
        assert_eq!(output.matches(why).count(), 1, "it is reported once: {output}");
    }
    let output = lab.run(&["wrap"]);
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("COMMAND"), "{}", output.stderr);
    assert!(lab.tapes().is_empty());
}

/// Prints which signals reach it.
const PRINTS_SIGNALS: &str = "for s in INT TERM HUP QUIT USR1 USR2; do trap \"echo $s\" $s; done; echo ready
    while :; do sleep 1000 & wait; done";

#[test]
fn signals_arrive_once_each() {
    let lab = Lab::new();
    let mut wrapped = lab.wrap(&["sh", "-c", PRINTS_SIGNALS]).start();
    assert_eq!(wrapped.line().as_deref(), Some("ready"));
    let signals = [
        (Signal::INT, "INT"),
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ];
    for (signal, name) in signals.into_iter().chain(signals) {
        kill(wrapped.pid(), signal);
        assert_eq!(wrapped.line().as_deref(), Some(name));
    }
    kill(wrapped.server(), Signal::KILL);
    assert_eq!(wrapped.rest(), b"", "a signal arrived twice");
    assert_eq!(wrapped.exit_code(), 128 + 9);
}

#[test]
fn a_signal_to_the_group_arrives_once() {
    let lab = Lab::new();
    let mut wrapped = lab.wrap(&["sh", "-c", PRINTS_SIGNALS]).by(&["setsid"]).start();
    assert_eq!(wrapped.line().as_deref(), Some("ready"));
    for _ in 0..20 {
        for (signal, name) in [(Signal::INT, "INT"), (Signal::TERM, "TERM")] {
            rustix::process::kill_process_group(wrapped.pid(), signal).unwrap();
            assert_eq!(wrapped.line().as_deref(), Some(name));
        }
    }
    kill(wrapped.server(), Signal::KILL);
    assert_eq!(wrapped.rest(), b"", "a signal arrived twice");
}

#[test]
fn adopted_processes_leave_no_zombies() {
    let lab = Lab::new();
    let script = "for n in 1 2 3 4 5 6 7 8; do sh -c 'sleep 0 & echo $!'; done; exec cat";
    let mut wrapped = lab.wrap(&["sh", "-c", script]).start();
    let orphans: Vec<String> = (0..8).map(|_| wrapped.line().expect("the orphan's number")).collect();
    wait_for("the orphans to be reaped", || {
        orphans.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
    assert_eq!(wrapped.leave(), 0);
}
