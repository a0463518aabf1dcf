//! A wrong clock (libfaketime): no tape is removed for its age, and time that ran backwards is reported.

use std::collections::BTreeSet;
use std::process::Command;

use crate::harness::{BACKGROUND_VARIABLE, Lab, Running, SCRUBJAY, Wrap};
use crate::needs::faketime;

/// A command's standard output, its standard error, and whether it succeeded.
struct Ran {
    code: i32,
    stdout: Vec<u8>,
    stderr: String,
}

/// Runs a command whose wall clock is wrong by this much; the monotonic clock is right, as after a change of the time.
fn run_at(lab: &Lab, offset: &str, arguments: &[&str]) -> Ran {
    let mut command = Command::new(SCRUBJAY);
    command.arg("--data").arg(lab.data()).args(arguments).env_remove("SCRUBJAY_DATA");
    command.env("LD_PRELOAD", faketime()).env("FAKETIME", offset).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    command.env(BACKGROUND_VARIABLE, "false");
    let mut running = Running::start(&mut command);
    running.close_stdin();
    let code = running.exit_code();
    Ran { code, stdout: running.rest(), stderr: running.stderr_text() }
}

/// Records a line under a wrong clock, in a session of its own; returns its standard error.
fn record_at(lab: &Lab, offset: &str, config: &str) -> String {
    let set = format!(
        "export LD_PRELOAD={} FAKETIME={offset} FAKETIME_DONT_FAKE_MONOTONIC=1 CLAUDE_CODE_SESSION_ID=a{offset}",
        faketime()
    );
    record(&lab.wrap(&["cat"]).with(&["--config", config]).after(&set))
}

fn record(wrap: &Wrap) -> String {
    let mut wrapped = wrap.start();
    wrapped.send_line("{\"jsonrpc\":\"2.0\",\"method\":\"m\"}");
    wrapped.line();
    wrapped.close_stdin();
    assert_eq!(wrapped.exit_code(), 0);
    wrapped.stderr_text()
}

fn config(lab: &Lab, retention: &str) -> String {
    let config = lab.file("c.yaml");
    std::fs::write(&config, format!("recorder: {{ storage: {{ retention: {retention} }} }}")).unwrap();
    config
}

fn record_five(lab: &Lab) {
    for number in 0..5 {
        lab.record(&format!("n{number}"), b"{\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n");
    }
}

#[test]
#[ignore = "needs faketime"]
fn a_clock_ten_years_ahead_removes_nothing() {
    let lab = Lab::new();
    record_five(&lab);
    let (before, config) = (lab.tape_ids(), config(&lab, "30d"));
    for _ in 0..2 {
        let output = record_at(&lab, "+3650d", &config);
        assert!(output.contains("no old tapes were removed") && output.contains("--trust-clock"), "{output}");
    }
    assert!(lab.tape_ids().is_superset(&before), "{before:?}, {:?}", lab.tape_ids());
    let rm = ["tape", "rm", "--older-than", "30d", "--yes"];
    let output = run_at(&lab, "+3650d", &rm);
    assert_eq!((output.code, output.stdout.as_slice()), (1, &b""[..]));
    assert!(
        output.stderr.contains("nothing was removed") && output.stderr.contains("--trust-clock"),
        "{}",
        output.stderr
    );
    assert!(lab.tape_ids().is_superset(&before));
    // With the right clock nothing is in doubt.
    let output = String::from_utf8(lab.run_ok(&rm)).unwrap();
    assert!(output.contains("nothing to remove"), "{output}");
    // The user confirms that the clock is right.
    let output = run_at(&lab, "+3650d", &[&rm[..], &["--trust-clock"]].concat());
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(lab.tape_ids().is_disjoint(&before));
}

#[test]
fn old_tapes_are_removed_with_a_correct_clock() {
    let lab = Lab::new();
    let config = config(&lab, "1s");
    record_five(&lab);
    let old = lab.tape_ids();
    // The clock is right: a later start removes them.
    let is_gone = (0..1000).any(|_| {
        let another =
            lab.wrap(&["cat"]).with(&["--config", &config]).after("export CLAUDE_CODE_SESSION_ID=b");
        assert_eq!(record(&another), "");
        lab.tape_ids().is_disjoint(&old)
    });
    assert!(is_gone, "{old:?}");
}

/// A machine whose clock lost its battery: recordings made before the clock was set are younger than their times say.
#[test]
#[ignore = "needs faketime"]
fn tapes_recorded_with_a_late_clock_are_kept() {
    let lab = Lab::new();
    let config = config(&lab, "30d");
    let ordinary = || {
        let wrap = lab.wrap(&["cat"]).with(&["--config", &config]).after("export CLAUDE_CODE_SESSION_ID=b");
        assert_eq!(record(&wrap), "");
    };
    ordinary();
    let before = lab.tape_ids();
    record_at(&lab, "-365d", &config);
    let behind: BTreeSet<String> = lab.tape_ids().difference(&before).cloned().collect();
    assert_eq!(behind.len(), 1);
    ordinary();
    assert!(lab.tape_ids().is_superset(&behind), "it was recorded just now");
    let output = String::from_utf8(lab.run_ok(&["doctor"])).unwrap();
    assert!(output.contains("the clock was behind when 1 tape began"), "{output}");
    let output = String::from_utf8(lab.run_ok(&["tape", "verify"])).unwrap();
    assert!(output.contains(" days behind when it began"), "{output}");
    let rm = ["tape", "rm", "--older-than", "30d", "--yes"];
    let output = String::from_utf8(lab.run_ok(&rm)).unwrap();
    assert!(output.contains("left: 1 tape") && output.contains("nothing to remove"), "{output}");
    assert!(lab.tape_ids().is_superset(&behind));
    lab.run_ok(&[&rm[..], &["--trust-clock"]].concat());
    assert!(lab.tape_ids().is_disjoint(&behind), "the user confirmed that its times are right");
    assert!(lab.tape_ids().is_superset(&before));
}

#[test]
#[ignore = "needs faketime"]
fn doctor_reports_a_clock_that_went_back() {
    let lab = Lab::new();
    record_five(&lab);
    let output = run_at(&lab, "-2d", &["doctor", "--json"]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.code, &found["well"]), (1, &serde_json::Value::Bool(false)));
    let output = found.to_string();
    assert!(
        output.contains("time ran backwards") && output.contains("5 tapes with times in the future"),
        "{output}"
    );
}

/// Records three lines, each at the time that is in a file.
fn record_while_set(lab: &Lab, offsets: [&str; 3]) {
    let file = lab.file("clock");
    let set = |offset: &str| std::fs::write(&file, offset).unwrap();
    set(offsets[0]);
    let export = format!(
        "export LD_PRELOAD={} FAKETIME_TIMESTAMP_FILE={file} FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1",
        faketime()
    );
    let mut wrapped = lab.wrap(&["cat"]).after(&export).start();
    for offset in offsets {
        set(offset);
        wrapped.send_line("{\"jsonrpc\":\"2.0\",\"method\":\"m\"}");
        wrapped.line();
    }
    assert!(doctor_output(lab).contains(RAN_BACK), "{offsets:?}, being recorded");
    assert_eq!(wrapped.leave(), 0);
}

const RAN_BACK: &str = "time ran backwards on 1 tape";

fn doctor_output(lab: &Lab) -> String {
    String::from_utf8(lab.run(&["doctor"]).stdout).unwrap()
}

#[test]
#[ignore = "needs faketime"]
fn time_that_ran_backwards_during_a_recording_is_reported() {
    for offsets in [["+0", "-3d", "+0"], ["+0", "+2d", "+0"], ["+0", "-10s", "+0"]] {
        let lab = Lab::new();
        record_while_set(&lab, offsets);
        let output = doctor_output(&lab);
        assert!(output.contains(RAN_BACK), "{offsets:?}: {output}");
        let output = String::from_utf8(lab.run_ok(&["tape", "verify"])).unwrap();
        assert!(output.contains("time ran backwards by"), "{offsets:?}: {output}");
    }
    let lab = Lab::new();
    record_five(&lab);
    assert!(!doctor_output(&lab).contains("backwards"));
}
