//! Requests that the HTTP front refuses are on a tape: length, hash and reason, without headers.

use std::path::Path;

use serde_json::{Value, json};

use super::http::Target;
use super::rig::{Served, entries, fixture, initialize, modern, open_session, scratch};

const TOKEN: &str = "canary-token-of-good-length";

fn start(directory: &Path) -> (Served, Target) {
    let backend = fixture(&[]);
    let config = json!({
        "limits": { "max_message_size": "8KiB" },
        "serve": { "auth_token": TOKEN },
        "backends": [{ "id": "one", "type": "stdio", "command": backend[0], "args": backend[1..] }],
    });
    let served = Served::configured(directory, &config.to_string(), None);
    let target = served.target().with("Authorization", &format!("Bearer {TOKEN}"));
    (served, target)
}

/// Returns the refusals on a tape, each as the front wrote it.
fn refusals(data: &Path, tape: &str) -> Vec<Value> {
    let notes = entries(data, tape).into_iter().filter(|entry| entry["kind"] == "note");
    let notes = notes.filter_map(|entry| serde_json::from_str::<Value>(entry["raw"].as_str()?).ok());
    notes.filter(|note| note["event"] == "refused").collect()
}

#[test]
fn every_refused_request_is_recorded() {
    let directory = scratch();
    let (served, target) = start(directory.path());
    let hello = initialize(1).to_string();
    let long = "x".repeat(9000);
    let with = |name: &str, value: &str| target.clone().with(name, value);
    let mismatch = modern(1, "tools/list", &json!({})).to_string();
    let check = |reason: &str, status: u16, reply: super::http::Reply| {
        assert_eq!(reply.status, status, "{reason}");
    };
    check("no token", 401, with("Authorization", "").post(&hello));
    check("wrong token", 401, with("Authorization", "Bearer canary-wrong").post(&hello));
    check("foreign host", 403, with("Host", "canary.example").post(&hello));
    check("foreign origin", 403, with("Origin", "https://canary.example").post(&hello));
    check("too long", 413, target.post(&long));
    check("not UTF-8", 400, target.post_bytes(b"\xff\xfe"));
    check("not JSON", 400, target.post("canary{"));
    check("not a message", 400, target.post("[]"));
    check("header mismatch", 400, with("MCP-Protocol-Version", "2026-07-28").post(&mismatch));
    check("no session", 400, target.post(&mismatch.replace("_meta", "_m")));
    check("unknown session", 404, with("Mcp-Session-Id", "made-up").get());
    check("wrong content type", 415, with("Content-Type", "text/plain").post(&hello));
    drop(served);
    let data = directory.path().join("data");
    let refused = refusals(&data, "refused");
    let hash = |text: &[u8]| blake3::hash(text).to_hex().to_string();
    for (reason, status, body) in [
        ("no token", 401, hello.as_bytes()),
        ("wrong token", 401, hello.as_bytes()),
        ("foreign host", 403, hello.as_bytes()),
        ("foreign origin", 403, hello.as_bytes()),
        ("not UTF-8", 400, b"\xff\xfe".as_slice()),
        ("not JSON", 400, b"canary{"),
        ("not a message", 400, b"[]"),
        ("header mismatch", 400, mismatch.as_bytes()),
        ("no session", 400, mismatch.replace("_meta", "_m").as_bytes()),
        ("unknown session", 404, b""),
        ("wrong content type", 415, hello.as_bytes()),
    ] {
        let found: Vec<&Value> = refused.iter().filter(|note| note["reason"] == reason).collect();
        let [note] = found.as_slice() else { panic!("{reason}: {refused:?}") };
        assert_eq!(note["status"], status, "{note}");
        assert_eq!(note["bytes"], body.len(), "{note}");
        assert_eq!(note["blake3"], hash(body), "{note}");
    }
    let note = refused.iter().find(|note| note["reason"] == "too long").expect("an entry");
    assert_eq!((&note["bytes"], &note["hashed_bytes"]), (&json!(9000), &json!(8192)), "{note}");
    assert_eq!(note["blake3"], hash(&long.as_bytes()[..8192]));
    let all = refused.iter().map(ToString::to_string).collect::<String>();
    assert!(!all.contains("canary") && !all.contains("made-up"), "{all}");
}

#[test]
fn a_flood_of_refusals_is_counted() {
    const FLOOD: u64 = 300;
    let directory = scratch();
    let (served, target) = start(directory.path());
    let stranger = target.clone().with("Authorization", "");
    for _ in 0..FLOOD {
        assert_eq!(stranger.post("{}").status, 401);
    }
    // A mistake of a known client is on that client's tape.
    let session = open_session(&target);
    assert_eq!(session.with("MCP-Protocol-Version", "1999-01-01").post("{}").status, 400);
    drop(served);
    let data = directory.path().join("data");
    let refused = refusals(&data, "refused");
    let counted: u64 = refused.iter().map(|note| note["count"].as_u64().unwrap_or(1)).sum();
    assert_eq!(counted, FLOOD, "all refusals are counted: {refused:?}");
    // One note at once, one at the end, and some in between, at growing distances.
    assert!(refused.len() < 20, "{refused:?}");
    let own = refusals(&data, "http");
    assert_eq!(own.iter().map(|note| &note["reason"]).collect::<Vec<_>>(), ["unsupported version"]);
}
