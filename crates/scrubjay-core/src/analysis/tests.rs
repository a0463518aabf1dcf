//! Tapes with planted anomalies, and ordinary tapes without any.

use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// A deterministic variation of a few per cent.
fn wobble(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58
}

struct Script {
    calls: Vec<Call>,
    at_ns: u64,
}

impl Script {
    fn call(&mut self, subject: &str, took_ms: u64, bytes: u64, failure: Option<&str>) {
        let entry = self.calls.len() as u64 * 2;
        self.calls.push(Call {
            entry,
            answer: Some(entry + 1),
            since_start_ns: self.at_ns,
            what: ExchangeKind::Request,
            by_client: true,
            by_gateway: false,
            subject: subject.into(),
            took_ns: Some(took_ms * MS + wobble(entry) * MS / 100),
            failed: failure.is_some(),
            code: failure.map(|_| -32000),
            shape: failure.map(Into::into),
            asked_bytes: 100,
            answered_bytes: bytes + wobble(entry),
            answered_tokens: bytes / 4,
            asks: None,
            says: None,
        });
        self.at_ns += took_ms * MS + 10 * MS;
    }
}

fn definition(tool: &str, hash: u8) -> Definition {
    Definition { tool: tool.to_owned(), via: None, hash: [hash; 16], entry: 3 }
}

/// An ordinary tape: three tools in turn, a timeout now and then.
fn ordinary(name: &str, rounds: usize) -> TapeCalls {
    let mut script = Script { calls: Vec::new(), at_ns: 0 };
    for round in 0..rounds {
        script.call("tools/call read", 20, 4000, None);
        script.call("tools/call search", 40, 900, (round % 25 == 7).then_some("timed out"));
        script.call("tools/call write", 15, 60, None);
    }
    TapeCalls {
        tape: name.to_owned(),
        server: "s".to_owned(),
        calls: script.calls,
        definitions: vec![definition("read", 1), definition("search", 2), definition("write", 3)],
        tool_lists: ToolLists::default(),
    }
}

fn reported(analysis: &Analysis) -> Vec<(AnomalyKind, &str)> {
    analysis.anomalies.iter().map(|a| (a.kind, a.subject.as_str())).collect()
}

#[test]
fn only_planted_anomalies_are_reported() {
    let past = [ordinary("b", 60), ordinary("a", 60)];
    assert_eq!(reported(&analyse(&ordinary("c", 60), &past)), []);
    let mut now = ordinary("c", 60);
    for call in &mut now.calls {
        // Calls take longer now, so they start further apart and still do not overlap.
        call.since_start_ns *= 6;
        if &*call.subject == "tools/call search" {
            call.took_ns = call.took_ns.map(|ns| ns + 300 * MS);
        }
        if &*call.subject == "tools/call write" && (60..90).contains(&call.entry) {
            (call.failed, call.code, call.shape) = (true, Some(-32001), Some("connection refused".into()));
        }
    }
    now.definitions[0].hash = [9; 16];
    let analysis = analyse(&now, &past);
    assert_eq!(
        reported(&analysis),
        [
            (AnomalyKind::ChangedTool, "read"),
            (AnomalyKind::NewError, "tools/call write"),
            (AnomalyKind::Slower, "tools/call search"),
        ]
    );
    let [changed, failing, slow] = analysis.anomalies.as_slice() else { panic!() };
    assert_eq!(changed.entries, [3]);
    assert!(failing.summary.contains("connection refused"), "{failing:?}");
    assert!(
        failing.entries.iter().all(|e| (61..91).contains(e)) && failing.entries.len() == 5,
        "{failing:?}"
    );
    assert!(slow.now > 300 * MS && slow.before < 50 * MS, "{slow:?}");
    assert_eq!(analysis.bottlenecks[0].subject, "tools/call search");
    assert_eq!(analysis.performance_profile[0].subject, "tools/call search");
    assert_eq!(analysis.common_errors[0].shape, "connection refused");
}

#[test]
fn larger_answers_more_errors_and_new_orders_are_named() {
    let past = [ordinary("b", 60), ordinary("a", 60)];
    let mut now = ordinary("c", 60);
    for call in &mut now.calls {
        if &*call.subject == "tools/call read" {
            call.answered_bytes *= 5;
        }
        if &*call.subject == "tools/call search" && call.entry % 4 == 2 {
            (call.failed, call.code, call.shape) = (true, Some(-32000), Some("timed out".into()));
        }
    }
    let mut script = Script { calls: now.calls, at_ns: 1 << 40 };
    for _ in 0..20 {
        script.call("tools/call write", 15, 60, None);
        script.call("tools/call search", 40, 900, None);
    }
    now.calls = script.calls;
    now.definitions.push(definition("exec", 7));
    assert_eq!(
        reported(&analyse(&now, &past)),
        [
            (AnomalyKind::NewTool, "exec"),
            (AnomalyKind::MoreErrors, "tools/call search"),
            (AnomalyKind::Larger, "tools/call read"),
            (AnomalyKind::NewSequence, "tools/call write → tools/call search"),
        ]
    );
}

#[test]
fn a_short_tape_and_a_first_tape_raise_no_alarm() {
    let mut odd = ordinary("now", 2);
    for call in &mut odd.calls {
        call.took_ns = Some(9_000 * MS);
        call.failed = call.entry == 2;
        call.shape = Some("boom".into());
    }
    assert_eq!(reported(&analyse(&odd, &[ordinary("a", 60), ordinary("b", 60)])), []);
    assert_eq!(reported(&analyse(&ordinary("now", 60), &[])), []);
    assert_eq!(reported(&analyse(&ordinary("now", 60), &[odd])), []);
}

#[test]
fn a_tape_is_described() {
    let mut tape = ordinary("t", 30);
    tape.calls[4].took_ns = Some(2_000 * MS);
    tape.calls[8].took_ns = None;
    tape.calls[8].answer = None;
    let analysis = analyse(&tape, &[]);
    let flow = &analysis.message_flow;
    assert_eq!((flow.client_requests, flow.unanswered), (90, 1));
    assert_eq!(flow.stretches.iter().map(|s| s.requests).sum::<u64>(), 90);
    assert!(flow.in_flight_max > 1);
    let first = &analysis.method_sequences[0];
    assert_eq!(first.subjects, ["tools/call read", "tools/call search", "tools/call write"]);
    assert_eq!(
        (first.count, first.gaps_ns.as_slice(), first.entries.as_slice()),
        (30, &[30 * MS, 50 * MS][..], &[0, 2, 4][..])
    );
    let search = analysis.performance_profile.iter().find(|p| p.subject == "tools/call search").unwrap();
    assert_eq!((search.count, search.slowest_entry), (30, Some(8)));
    assert!(search.p50_ns >= 40 * MS && search.p50_ns < 41 * MS && search.max_ns == 2_000 * MS);
    assert_eq!(search.histogram.iter().map(|bin| bin.count).sum::<u64>(), 30);
    let shares: f64 = analysis.performance_profile.iter().map(|p| p.share).sum();
    assert!((shares - 1.0).abs() < 1e-9);
    let slow = analysis.bottlenecks.iter().find(|b| b.subject == "tools/call search").unwrap();
    assert_eq!((slow.remedy, slow.entries[0]), (Remedy::CutTail, 8));
    let write = analysis.bottlenecks.iter().find(|b| b.subject == "tools/call write").unwrap();
    assert_eq!(write.remedy, Remedy::Halve);
    assert!(write.saves_ns.abs_diff(write.waiting_ns / 2) < MS, "{write:?}");
}

#[test]
fn an_empty_tape_has_an_empty_analysis() {
    let analysis = analyse(&TapeCalls::default(), &[]);
    assert_eq!((analysis.message_flow, analysis.bottlenecks), (Flow::default(), Vec::new()));
}

fn any_call() -> impl Strategy<Value = Call> {
    (
        any::<u64>(),
        prop::option::of(any::<u64>()),
        0i64..11,
        any::<bool>(),
        "[ab]",
        any::<bool>(),
        any::<u64>(),
    )
        .prop_map(|(since_start_ns, took_ns, what, by_client, subject, failed, bytes)| Call {
            entry: since_start_ns % 100,
            answer: took_ns,
            since_start_ns,
            what: ExchangeKind::of_code(what).unwrap(),
            by_client,
            by_gateway: false,
            subject: subject.as_str().into(),
            took_ns,
            failed,
            code: None,
            shape: failed.then(|| subject.as_str().into()),
            asked_bytes: bytes,
            answered_bytes: bytes,
            answered_tokens: bytes,
            asks: Some(bytes % 3),
            says: Some(bytes % 2),
        })
}

proptest! {
    #[test]
    fn any_calls_can_be_analysed(tapes in prop::collection::vec(prop::collection::vec(any_call(), 0..60), 1..4)) {
        let tapes: Vec<TapeCalls> = tapes.into_iter().map(|calls| TapeCalls { calls, ..TapeCalls::default() }).collect();
        let _ = analyse(&tapes[0], &tapes[1..]);
    }
}
