//! A loss of power must take neither a tape's content nor its name. The tests check the order of system calls.

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Lab, Running, kill};
use crate::needs::strace;

/// Traces the calls with which a relay's worker writes to the disk, and those that forward a message.
fn watch(lab: &Lab, worker: rustix::process::Pid) -> Running {
    let mut command = strace();
    command.args(["-f", "-y", "-s", "40", "-o", &lab.file("trace"), "-p", &worker.to_string(), "-e"]);
    command.arg("trace=fsync,fdatasync,rename,unlink,write,pwrite64");
    let mut tracer = Running::start(&mut command);
    let output = tracer.await_stderr("attach");
    assert!(output.contains("attached"), "strace may not trace: {output}");
    tracer
}

/// Returns the number of the first line from `from` on that contains all of these.
fn find(lines: &[&str], from: usize, texts: &[&str]) -> usize {
    let found = lines.iter().skip(from).position(|line| texts.iter().all(|text| line.contains(text)));
    from + found.unwrap_or_else(|| panic!("no {texts:?} from line {from} on:\n{}", lines.join("\n")))
}

#[test]
#[ignore = "needs strace"]
fn the_directory_of_a_tape_is_synced_before_a_message_is_forwarded() {
    let lab = Lab::new();
    let options = ["--durability", "power", "--max-tape-size", "2KiB"];
    let mut wrapped = lab.wrap_logged_sample("log").with(&options).start();
    wrapped.server();
    let mut tracer = watch(&lab, wrapped.worker());
    for id in 1..=4 {
        let answer = wrapped.call_alone(id, "echo", &json!({ "text": "x".repeat(1500) }));
        assert!(answer["error"].is_null(), "{answer}");
    }
    assert_eq!(wrapped.leave(), 0);
    kill(tracer.pid(), Signal::TERM);
    tracer.wait();
    let trace = String::from_utf8(lab.read("trace")).unwrap();
    let lines: Vec<&str> = trace.lines().collect();
    let tapes = format!("{}>", lab.data().join("tapes").display());
    let home = format!("{}>", lab.data().display());
    // A new tape: its content is synced, then its name, and only then is the message forwarded.
    let made = find(&lines, 0, &["rename(", ".live\""]);
    let content = find(&lines, made, &["fdatasync(", ".live>"]);
    let name = find(&lines, content, &["fsync(", &tapes]);
    let outside = find(&lines, name, &["fsync(", &home]);
    let first = lines.iter().position(|line| line.contains("write(") && line.contains("pipe:")).unwrap();
    assert!(outside < first, "{trace}");
    // The next tape: the full one is on the disk before the recording leaves it.
    let next = find(&lines, first, &["rename(", ".live\""]);
    let content = find(&lines, next, &["fdatasync(", ".live>"]);
    find(&lines, content, &["fsync(", &tapes]);
    // A sealed tape: its name is on the disk before the live file is removed.
    let sealed = find(&lines, 0, &["rename(", ".tape\""]);
    let name = find(&lines, sealed, &["fsync(", &tapes]);
    let gone = find(&lines, sealed, &["unlink(", ".live\""]);
    assert!(name < gone, "{trace}");
}
