//! Many recorders at once on one data directory, and readers among them.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use crate::harness::{Lab, request};

const WRAPS: u32 = 20;
const CALLS: u64 = 300;
/// How many calls each recorder has under way at once.
const WINDOW: u64 = 25;

fn converse(lab: &Lab, number: u32, gate: &Barrier) {
    let wrap = lab.wrap_sample().with(&["--name", &format!("wrap-{number}")]);
    gate.wait();
    let mut wrapped = wrap.start();
    wrapped.initialize();
    for first in (1..=CALLS).step_by(usize::try_from(WINDOW).unwrap()) {
        let ids = first..first + WINDOW;
        let requests: Vec<String> = ids
            .clone()
            .map(|id| {
                let text = format!("{number}/{id}");
                request(id, "tools/call", &json!({ "name": "echo", "arguments": { "text": text } }))
            })
            .collect();
        wrapped.send_line(&requests.join("\n"));
        for _ in ids {
            let answer = wrapped.message();
            let text = format!("{number}/{}", answer["id"]);
            assert_eq!(answer["result"]["content"][0]["text"], text, "{answer}");
        }
    }
    assert_eq!(wrapped.leave(), 0);
}

#[test]
fn twenty_recorders_share_a_data_directory() {
    let lab = Lab::new();
    let gate = Barrier::new(WRAPS as usize);
    let at_work = AtomicU32::new(WRAPS);
    std::thread::scope(|scope| {
        for number in 0..WRAPS {
            let (lab, gate, at_work) = (&lab, &gate, &at_work);
            scope.spawn(move || {
                converse(lab, number, gate);
                at_work.fetch_sub(1, Ordering::Relaxed);
            });
        }
        // Reading a tape while it is written disturbs no recorder, and finds nothing wrong.
        while at_work.load(Ordering::Relaxed) > 0 {
            assert!(lab.verify().len() <= WRAPS as usize);
            lab.tapes();
        }
    });
    let listed = lab.json(&["tape", "ls", "--json"]);
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), WRAPS as usize);
    for tape in listed {
        assert_eq!((&tape["state"], &tape["unanswered"]), (&json!("sealed"), &json!(0)), "{tape}");
        assert_eq!(tape["total_requests"], CALLS + 1, "{tape}");
        assert_eq!(tape["total_responses"], CALLS + 1, "{tape}");
    }
    assert_eq!(lab.verify().len(), WRAPS as usize);
}

#[test]
fn calls_are_answered_and_recorded_with_durability_power() {
    let lab = Lab::new();
    let mut wrapped = lab.wrap_sample().with(&["--durability", "power"]).start();
    wrapped.initialize();
    for id in 1..=20 {
        let answer = wrapped.call(id, "large", &json!({ "bytes": id * 5000 }));
        assert!(answer["error"].is_null(), "{answer}");
    }
    assert_eq!(wrapped.leave(), 0);
    assert_eq!(lab.tapes()[0]["total_responses"], 21);
    lab.verify();
}
