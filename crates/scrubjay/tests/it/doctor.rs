//! `scrubjay doctor` reports what is wrong, and how to fix it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Lab, text};

/// Runs `scrubjay doctor`; returns the exit code and the findings.
fn ask(lab: &Lab, more: &[&str]) -> (i32, Vec<Value>) {
    let output = lab.run(&[&["doctor", "--json"], more].concat());
    let found: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output.stderr));
    assert_eq!(found["well"] == true, output.code == 0);
    (output.code, found["findings"].as_array().unwrap().clone())
}

/// Checks that exactly one finding is wrong, and that it says what to do.
fn check_wrong(lab: &Lab, more: &[&str], check: &str, what: &str) {
    let (code, found) = ask(lab, more);
    let wrong: Vec<&Value> = found.iter().filter(|one| one["level"] == "wrong").collect();
    let named = wrong.iter().find(|one| one["check"] == check && text(&one["what"]).contains(what));
    assert!(code == 1 && named.is_some(), "{check}, {what}: {found:?}");
    assert!(wrong.iter().all(|one| !text(&one["fix"]).is_empty()), "{wrong:?}");
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_sound_installation_has_no_finding() {
    let lab = Lab::new();
    let (code, found) = ask(&lab, &[]);
    assert_eq!(code, 0, "{found:?}");
    assert!(!lab.data().exists(), "doctor creates no data directory");
    lab.record("n", b"{\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n");
    lab.run_ok(&["tape", "search", "m"]);
    lab.run_ok(&["session", "ls"]);
    let (code, found) = ask(&lab, &[]);
    assert_eq!(code, 0, "{found:?}");
    let checks: Vec<&str> = found.iter().map(|one| text(&one["check"])).collect();
    for check in ["configuration", "data directory", "disk space", "ledger", "index", "tapes", "clock"] {
        assert!(checks.contains(&check), "{check}: {checks:?}");
    }
    let shown = String::from_utf8(lab.run_ok(&["doctor"])).unwrap();
    assert!(shown.contains("ok     tapes: 1 tape, 0 of them being recorded"), "{shown}");
}

#[test]
fn each_problem_is_reported_with_a_fix() {
    let lab = Lab::new();
    lab.record("n", b"{\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n");
    let tapes = lab.data().join("tapes");
    let tape = std::fs::read_dir(&tapes).unwrap().next().unwrap().unwrap().path();
    set_mode(&tape, 0o644);
    check_wrong(&lab, &[], "data directory", "others may read or change");
    set_mode(&tape, 0o600);
    assert_eq!(ask(&lab, &[]).0, 0);

    let config = lab.file("c.yaml");
    std::fs::write(&config, "recorder: { nonsense: 1 }").unwrap();
    check_wrong(&lab, &["--config", &config], "configuration", "nonsense");

    std::fs::write(lab.data().join("ledger.db"), "text of somebody else").unwrap();
    set_mode(&lab.data().join("ledger.db"), 0o600);
    check_wrong(&lab, &[], "ledger", "ledger.db");
    std::fs::remove_file(lab.data().join("ledger.db")).unwrap();

    let whole = std::fs::read(&tape).unwrap();
    std::fs::write(&tape, &whole[..whole.len() / 2]).unwrap();
    check_wrong(&lab, &[], "tapes", "1 tape damaged");
    std::fs::write(&tape, &whole).unwrap();

    let debug = lab.data().join("debug");
    std::fs::create_dir(&debug).unwrap();
    set_mode(&debug, 0o700);
    std::fs::write(debug.join("7.token"), "t").unwrap();
    set_mode(&debug.join("7.token"), 0o644);
    check_wrong(&lab, &[], "tokens and keys", "7.token");
}
