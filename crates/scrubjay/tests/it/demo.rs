//! `scrubjay demo`: the first thing a person runs.

use crate::harness::{Lab, text};

#[test]
fn it_shows_both_conversations() {
    let lab = Lab::new();
    let told = String::from_utf8(lab.run_well(&["demo"])).unwrap();
    for wanted in
        ["2025-11-25", "2026-07-28", "initialize", "tools/call count", "server/discover", "tape verify"]
    {
        assert!(told.contains(wanted), "no {wanted} in {told}");
    }
    assert_eq!(told.matches("recorded as tape").count(), 2, "{told}");
}

#[test]
fn its_tapes_are_there_to_look_at() {
    let lab = Lab::new();
    let told = lab.json(&["demo", "--json"]);
    assert_eq!(told["tapes"].as_array().map(Vec::len), Some(2), "{told}");
    let lab = lab.with_data(text(&told["data"]).into());
    assert_eq!(lab.verify().len(), 2);
    let tapes = lab.tapes();
    assert!(tapes.iter().all(|tape| tape["state"] == "sealed" && tape["unanswered"] == 0), "{tapes:?}");
}
