//! One relay through all faults: the tapes have exactly the messages that the server and the client received.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::shim::{Fault, KINDS, Kind, Mode, Shim};
use super::walk;
use crate::harness::{DOWN, ExportedTape, Lab, Running, UP, Wrapped, text};

const TAPES: &str = "/data/tapes";

/// A relay in front of the sample server, and the results of its calls.
struct Relay {
    lab: Lab,
    shim: Shim,
    wrapped: Wrapped,
    next_id: u64,
    answered: BTreeSet<u64>,
    refused: u64,
}

impl Relay {
    fn start(options: &[&str]) -> Self {
        let (lab, shim) = (Lab::new(), Shim::new());
        let (mut command, mark) = lab.wrap_logged_sample("log").with(options).command();
        shim.load_into(&mut command);
        let wrapped = Wrapped::around(Running::start(&mut command), mark);
        wrapped.server();
        Self { lab, shim, wrapped, next_id: 1, answered: BTreeSet::new(), refused: 0 }
    }

    /// Makes a call; returns whether the answer is right.
    fn call(&mut self, length: usize) -> Result<(), Value> {
        let id = self.next_id;
        self.next_id += 1;
        let answer = self.wrapped.call_alone(id, "echo", &json!({ "text": "x".repeat(length) }));
        if answer["error"].is_null() {
            assert_eq!(answer["result"]["content"][0]["text"].as_str().map(str::len), Some(length));
            self.answered.insert(id);
            return Ok(());
        }
        self.refused += 1;
        Err(answer)
    }

    /// Lets one call fail; returns whether that call was reached. Afterwards everything works again.
    fn inject(&mut self, fault: &Fault) -> bool {
        self.shim.arm(fault);
        for length in [10, 20_000, 10] {
            let _ = self.call(length);
        }
        let Some(place) = self.shim.disarm() else { return false };
        if let Err(answer) = self.call(10) {
            panic!("after {fault:?} at {place}: {answer}");
        }
        true
    }

    /// Ends the relay, and compares the tapes with what its peers received.
    fn finish(self) -> Vec<ExportedTape> {
        let Self { lab, wrapped, answered, refused, .. } = self;
        assert_eq!(wrapped.leave(), 0);
        // A tape whose sealing failed is sealed by the next start.
        lab.start_again();
        lab.verify();
        let tapes: Vec<ExportedTape> = lab.tapes().iter().map(|tape| lab.export(text(&tape["id"]))).collect();
        let taped = |direction: &'static str| -> Vec<Value> {
            let messages = tapes.iter().flat_map(|tape| tape.messages(direction));
            messages.map(|entry| serde_json::from_slice(&entry.payload).unwrap()).collect()
        };
        let ids = |messages: Vec<Value>| -> BTreeSet<u64> {
            let count = messages.len();
            let ids: BTreeSet<u64> = messages.iter().map(|message| message["id"].as_u64().unwrap()).collect();
            assert_eq!(ids.len(), count, "no message is on tape twice");
            ids
        };
        let received = String::from_utf8(lab.read("log")).unwrap();
        let received = received.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(ids(taped(UP)), ids(received), "the tapes and the server differ");
        assert_eq!(ids(taped(DOWN)), answered, "the tapes and the client differ");
        let gaps = tapes.iter().flat_map(|tape| tape.of_kind("gap")).map(|entry| entry.facts());
        let missing: u64 =
            gaps.filter(|gap| gap["forwarded"] == false).map(|gap| gap["messages"].as_u64().unwrap()).sum();
        assert_eq!(missing, refused, "a gap entry reports the refused messages");
        tapes
    }
}

/// Lets each kind of call on the tapes of one relay fail, one after the other.
fn walk_through(options: &[&str], at_least: u32) {
    let mut relay = Relay::start(options);
    let mut failed_calls = 0;
    for kind in KINDS {
        failed_calls += walk(kind, TAPES, |fault| relay.inject(fault));
    }
    assert!(failed_calls >= at_least, "only {failed_calls} calls failed");
    relay.finish();
}

#[test]
fn a_relay_resumes_after_every_fault() {
    walk_through(&[], 3);
}

#[test]
fn a_relay_that_rotates_resumes_after_every_fault() {
    walk_through(&["--max-tape-size", "2KiB"], 10);
}

#[test]
fn a_relay_that_syncs_resumes_after_every_fault() {
    walk_through(&["--durability", "power"], 8);
}

#[test]
fn a_relay_that_syncs_and_rotates_resumes_after_every_fault() {
    walk_through(&["--durability", "power", "--max-tape-size", "2KiB"], 15);
}

/// A message that is refused because a sync failed is on no tape. The recording continues in another file.
#[test]
fn messages_that_could_not_be_synced_are_not_on_tape() {
    for (left, tapes) in [(1, 1), (4, 2)] {
        let mut relay = Relay::start(&["--durability", "power"]);
        let fault = Fault { kind: Kind::Sync, mode: Mode::Fails, error: 5, left, texts: ".live" };
        assert!(relay.inject(&fault));
        assert_eq!(relay.refused, 1);
        let recorded = relay.finish();
        assert_eq!(recorded.len(), tapes, "after sync {left}");
    }
}

/// If the unsynced entries cannot be taken off the tape either, nothing is recorded until they are.
#[test]
#[ignore = "needs strace"]
fn nothing_is_recorded_until_unsynced_entries_are_truncated() {
    let mut relay = Relay::start(&["--durability", "power"]);
    for left in 1..=3 {
        relay.call(10).unwrap();
        let failures = ["fdatasync:error=EIO:when=1", &format!("ftruncate:error=EIO:when=1..{left}")];
        let tracer = crate::injected::inject(&relay.wrapped, &failures);
        while relay.call(10).is_err() {}
        drop(tracer);
    }
    assert!(relay.refused >= 3);
    relay.finish();
}
