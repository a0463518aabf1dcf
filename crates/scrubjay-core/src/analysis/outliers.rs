//! Finds single calls that took far longer than the other calls of the same tool.
//!
//! Compares the logarithms of times, because times spread by factors. A tool that is often slow has no outliers, and a
//! call that waited for a person is none.

use std::collections::BTreeMap;

use super::loops::short;
use super::numbers::MAD_TO_SIGMA;
use super::{Call, Finding, FindingKind, SHOWN_MAX};
use crate::units;

/// The fewest calls from which a usual time is computed.
const CALLS_MIN: usize = 10;
/// The smallest distance from the median that is reported, in usual deviations.
const DEVIATIONS: f64 = 5.0;
/// The lower bound of the usual deviation: times of one tool differ by a quarter for no reason.
const DEVIATION_MIN: f64 = 0.25;
/// The smallest factor and the smallest difference to the median that are reported.
const FACTOR_MIN: f64 = 4.0;
const LONGER_NS_MIN: u64 = 100_000_000;
/// How much slower the first call of a tool may be, because something starts.
const FIRST_NS_MAX: u64 = 3_000_000_000;
/// If more than one call in this many is slow, the tool is slow at times, as with a cache, and none is reported.
const RARE: usize = 10;

pub(super) fn findings(calls: &[Call]) -> Vec<Finding> {
    let questions = questions(calls);
    let mut by_subject: BTreeMap<&str, Vec<(&Call, u64)>> = BTreeMap::new();
    // Failures end early or by a timeout, so their times say nothing about the usual one.
    for call in calls.iter().filter(|call| call.is_work() && !call.failed) {
        if let Some(took_ns) = call.took_ns.filter(|took| !is_interrupted(call, *took, &questions)) {
            by_subject.entry(&call.subject).or_default().push((call, took_ns));
        }
    }
    let mut found: Vec<(u64, Finding)> = by_subject.values().filter_map(|calls| slow(calls)).collect();
    found.sort_by_key(|(lost_ns, _)| std::cmp::Reverse(*lost_ns));
    found.into_iter().map(|(_, finding)| finding).collect()
}

/// Returns the times of the server's requests to the client, in order.
fn questions(calls: &[Call]) -> Vec<u64> {
    let asked = calls.iter().filter(|call| call.is_request() && !call.by_client && !call.by_gateway);
    let mut times: Vec<u64> = asked.map(|call| call.since_start_ns).collect();
    times.sort_unstable();
    times
}

/// Returns whether the server asked the client something during the call: then it waited for a person or a model.
fn is_interrupted(call: &Call, took_ns: u64, questions: &[u64]) -> bool {
    let next = questions.partition_point(|at| *at < call.since_start_ns);
    questions.get(next).is_some_and(|at| *at <= call.since_start_ns.saturating_add(took_ns))
}

#[expect(clippy::cast_precision_loss, reason = "a comparison needs no more than 52 bits")]
fn slow(calls: &[(&Call, u64)]) -> Option<(u64, Finding)> {
    if calls.len() < CALLS_MIN {
        return None;
    }
    let log = |ns: u64| (ns.max(1) as f64).ln();
    let middle = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let usual = middle(&mut calls.iter().map(|(_, ns)| log(*ns)).collect());
    let spread = middle(&mut calls.iter().map(|(_, ns)| (log(*ns) - usual).abs()).collect()) * MAD_TO_SIGMA;
    let bound = usual + (DEVIATIONS * spread.max(DEVIATION_MIN)).max(FACTOR_MIN.ln());
    let usual_ns = usual.exp() as u64;
    let longer = |ns: u64| ns.saturating_sub(usual_ns);
    let mut slow: Vec<&(&Call, u64)> = calls
        .iter()
        .enumerate()
        .filter(|(at, (_, ns))| {
            let least = if *at == 0 { FIRST_NS_MAX } else { LONGER_NS_MIN };
            log(*ns) > bound && longer(*ns) >= least
        })
        .map(|(_, call)| call)
        .collect();
    if slow.is_empty() || slow.len() * RARE > calls.len().max(RARE) {
        return None;
    }
    slow.sort_by_key(|(call, ns)| (std::cmp::Reverse(*ns), call.entry));
    let lost_ns = slow.iter().fold(0u64, |sum, (_, ns)| sum.saturating_add(longer(*ns)));
    let took = match slow.as_slice() {
        [(_, ns)] => format!("1 of {} calls took {}", calls.len(), units::duration(*ns)),
        all => format!("{} of {} calls took up to {}", all.len(), calls.len(), units::duration(all[0].1)),
    };
    let finding = Finding {
        kind: FindingKind::SlowOutlier,
        subject: short(slow[0].0).to_owned(),
        summary: format!("{took}; the median is {}", units::duration(usual_ns)),
        count: slow.len() as u64,
        details: Vec::new(),
        entries: slow.iter().take(SHOWN_MAX).map(|(call, _)| call.entry).collect(),
    };
    Some((lost_ns, finding))
}
