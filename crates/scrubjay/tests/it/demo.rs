//! `scrubjay demo`: the first command that a new user runs.

use crate::harness::{Lab, text};

#[test]
fn the_demo_shows_every_conversation() {
    let lab = Lab::new();
    let output = String::from_utf8(lab.run_ok(&["demo"])).unwrap();
    for wanted in [
        "2025-11-25",
        "2026-07-28",
        "initialize",
        "tools/call count",
        "server/discover",
        "scrubjay__slow",
        "blocked by not-the-diary",
        "changed by three-at-most",
        "refused by strict/line-end",
        "18 tapes, ",
        "check later with: scrubjay tape verify --checkpoint",
        "tape verify",
        "Count the jays",
        "refused: outside_workspace",
        "created feeder/monday.txt (+3 -1) in 2 edits",
        "## Closing summary\n\nFive jays came to the feeder on Monday.",
        "at its first revision:\n\n08:10 two jays\n09:30 a sparrow\n",
        "session rewind demo",
        "search_tapes",
        "analyze_tape",
        "recorded in part: strategy error_focused",
        "left out: 13 by strategy",
        "tools/call find_tools",
        "FOUND  SCORE  WHY",
        "demo-two is served by process",
        "failed: the disk is on fire",
        r#"{"text":"what, where and when"}"#,
        "12 conversations, ",
        "not listed: 6 of backends (--all)",
    ] {
        assert!(output.contains(wanted), "no {wanted} in {output}");
    }
    assert_eq!(output.matches("recorded as tape").count(), 9, "{output}");
}

#[test]
fn the_tapes_of_the_demo_can_be_read() {
    let lab = Lab::new();
    let output = lab.json(&["demo", "--json"]);
    // Four wrapped servers; a client of the gateway and the leg to a toolset, then another client; the agent's
    // client and the legs to four toolsets; the client that searches and the leg to one toolset; two agents of one
    // gateway, once as `wrap` recorded them and once as the gateway did.
    assert_eq!(output["tapes"].as_array().map(Vec::len), Some(18), "{output}");
    let lab = lab.with_data(text(&output["data"]).into());
    assert_eq!(lab.verify().len(), 18);
    let listed = lab.json(&["tape", "ls", "--json"]);
    let listed = listed.as_array().expect("a list");
    assert_eq!(listed.len(), 12, "{listed:?}");
    assert!(listed.iter().all(|tape| tape["total_messages"].as_u64() > Some(0)), "{listed:?}");
    let folded: u64 = listed.iter().filter_map(|tape| tape["folded"]["tapes"].as_u64()).sum();
    assert_eq!(folded, 6, "{listed:?}");
    let tapes = lab.tapes();
    assert!(tapes.iter().all(|tape| tape["state"] == "sealed" && tape["unanswered"] == 0), "{tapes:?}");
    // The results of the search are on tape, too.
    let query = ["tape", "search", "tool:search_tapes", "result.structuredContent.total>0", "--json"];
    assert_eq!(lab.json(&query)["total"], 1);
    // The workspace is beside the data directory, or doctor would report the modes of its files.
    let doctor = lab.run(&["doctor"]);
    let found = String::from_utf8_lossy(&doctor.stdout);
    assert!(found.contains("ok     data directory: "), "{found}");
}
