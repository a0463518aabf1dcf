//! Compares the tape of a run with what the taps saw.

use super::rig::{Run, scrubjay};
use super::transcript::{assert_same_lines, lines};
use serde_json::Value;
use std::process::Command;

/// Asserts that the latest tape has exactly the messages that passed, in order for each direction, byte for byte.
///
/// Nothing in these conversations looks like a secret, so redaction leaves them as they are.
pub(super) fn tape_matches(run: &Run) {
    let entries = export_latest(run);
    for (direction, tap) in [("client_to_server", "a.in"), ("server_to_client", "a.out")] {
        let taped: Vec<String> = entries
            .iter()
            .filter(|entry| entry["kind"] == "message" && entry["direction"] == direction)
            .map(|entry| entry["raw"].as_str().expect("`raw` is the message's text").to_owned())
            .collect();
        assert_same_lines(&format!("{direction} on the wire and on tape"), &lines(&run.tap(tap)), &taped);
    }
}

/// Asserts that rules refused no message of the real peers.
pub(super) fn nothing_was_refused(run: &Run) {
    let entries = export_latest(run);
    let refused: Vec<&Value> =
        entries.iter().filter(|entry| entry["interception"].to_string().contains("refused")).collect();
    assert!(refused.is_empty(), "{refused:?}");
    assert!(entries.iter().filter(|entry| entry["kind"] == "message").count() > 4, "{}", entries.len());
}

fn export_latest(run: &Run) -> Vec<Value> {
    let mut export = Command::new(scrubjay());
    export.arg("--data").arg(run.data()).args(["tape", "export", "latest", "--format", "jsonl", "--json"]);
    let output = export.output().expect("scrubjay starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tape export: {}\n{complaint}", output.status);
    let parse = |line: &String| serde_json::from_str(line).expect("an exported line is JSON");
    lines(&output.stdout).iter().map(parse).collect()
}
