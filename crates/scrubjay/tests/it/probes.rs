//! Probes: connections without a conversation, and the modes of the files that they leave.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::harness::Lab;

#[test]
fn a_probe_is_listed_only_with_all() {
    let lab = Lab::new();
    let mut wrapped = lab.wrap_sample().start();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let answer = wrapped.ask(0, "server/discover", &json!({ "_meta": meta }));
    assert!(answer["error"].is_null(), "{answer}");
    assert_eq!(wrapped.leave(), 0);
    assert_eq!(lab.json(&["tape", "ls", "--json"]), json!([]));
    let output = String::from_utf8(lab.run_ok(&["tape", "ls"])).unwrap();
    assert!(output.contains("--all"), "{output}");
    let all = lab.json(&["tape", "ls", "--all", "--json"]);
    assert_eq!((all.as_array().map(Vec::len), &all[0]["probe"]), (Some(1), &json!(true)), "{all}");
    assert!(String::from_utf8(lab.run_ok(&["tape", "ls", "--all"])).unwrap().contains("probe"));
}

#[test]
fn a_probe_followed_by_a_request_is_a_conversation() {
    let lab = Lab::new();
    lab.record(
        "asked",
        b"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"server/discover\"}\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\n",
    );
    assert_eq!(lab.json(&["tape", "ls", "--json"])[0]["name"], "asked");
}

#[test]
fn a_connection_without_messages_leaves_no_files() {
    let lab = Lab::new();
    assert_eq!(lab.wrap(&["cat"]).start().leave(), 0);
    assert!(lab.tapes().is_empty());
    assert!(!lab.data().exists(), "no data directory was created");
}

#[test]
fn only_the_owner_can_read_a_recording() {
    let lab = Lab::new();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let tapes = lab.data().join("tapes");
    let modes = || -> Vec<u32> {
        std::fs::read_dir(&tapes).unwrap().map(|entry| mode(&entry.unwrap().path())).collect()
    };
    let mut wrapped = lab.wrap(&["cat"]).after("umask 000").start();
    wrapped.send_line("live");
    wrapped.line();
    assert_eq!((mode(lab.data()), mode(&tapes), modes()), (0o700, 0o700, vec![0o600]));
    assert_eq!(wrapped.leave(), 0);
    assert_eq!(modes(), [0o600], "sealed");
    for format in ["jsonl", "native"] {
        let out = lab.file(format);
        lab.run_ok(&["tape", "export", "--format", format, "-o", &out]);
        assert_eq!(mode(out.as_ref()), 0o600);
    }
}
