//! `tape rm` removes only the named tapes, and only after a confirmation.

use serde_json::json;

use crate::harness::{Lab, text};

const LINE: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\n";

#[test]
fn nothing_is_removed_without_confirmation() {
    let lab = Lab::new();
    let id = lab.record("n", LINE);
    let output = lab.run_failing(&["tape", "rm", &id]);
    assert!(output.contains("--yes") && output.contains("nothing was removed"), "{output}");
    let output = lab.json(&["tape", "rm", &id, "--dry-run", "--json"]);
    assert_eq!(output["would_remove"], json!([id]));
    let output = String::from_utf8(lab.run_ok(&["tape", "rm", "latest", "--dry-run"])).unwrap();
    assert!(output.contains(&id[..6]) && output.contains("would remove 1 tape, "), "{output}");
    assert_eq!(lab.tapes().len(), 1);
    lab.run_ok(&["tape", "rm", &id, "--yes"]);
    assert!(lab.tapes().is_empty());
}

#[test]
fn old_tapes_are_removed_by_their_age() {
    let lab = Lab::new();
    let young = lab.record("young", LINE);
    let exported = String::from_utf8(lab.run_ok(&["tape", "export", &young])).unwrap();
    let last = if young.ends_with('0') { "1" } else { "0" };
    let old = format!("{}{last}", &young[..young.len() - 1]);
    let mut lines: Vec<serde_json::Value> =
        exported.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    // Forty days ago.
    let began = lines[0]["tape"]["started_wall_ns"].as_u64().unwrap() - 40 * 86_400_000_000_000;
    lines[0]["tape"]["started_wall_ns"] = json!(began);
    lines[0]["tape"]["id"] = json!(old);
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    std::fs::write(lab.file("old"), lines.join("\n")).unwrap();
    lab.run_ok(&["tape", "import", &lab.file("old")]);
    let removed =
        |age: &str| lab.json(&["tape", "rm", "--older-than", age, "--yes", "--json"])["removed"].clone();
    assert_eq!(removed("50d"), json!([]));
    let output = lab.run_failing(&["tape", "rm", "--older-than", "30d"]);
    assert!(output.contains("1 tape,"), "{output}");
    assert_eq!(removed("30d"), json!([old]));
    assert_eq!(text(&lab.tapes()[0]["id"]), young);
    assert_eq!(lab.run(&["tape", "rm", &young, "--older-than", "30d"]).code, 2);
    assert_eq!(lab.run(&["tape", "rm", "--older-than", "soon", "--yes"]).code, 2);
}

#[test]
fn removing_a_conversation_removes_its_backend_tapes() {
    let lab = Lab::new();
    let kept = lab.record("kept", LINE);
    let mut host = lab.start(&["serve", "--log-level", "error", "--toolsets", "sample"]);
    host.ask(
        0,
        "initialize",
        &json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "h" } }),
    );
    host.ask(1, "tools/call", &json!({ "name": "echo", "arguments": { "text": "x" } }));
    host.close_stdin();
    assert_eq!(host.exit_code(), 0);
    assert!(lab.tapes().len() > 2, "the toolset has a tape of its own: {:?}", lab.tapes());
    lab.run_ok(&["tape", "rm", "latest", "--yes"]);
    let left: Vec<String> = lab.tapes().iter().map(|tape| text(&tape["id"]).to_owned()).collect();
    assert_eq!(left, [kept]);
}
