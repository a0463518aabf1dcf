//! Finds identical retries: the same call several times in a row, with the outcome of each.
//!
//! Not reported are a single retry that works, calls whose answers differ, and reading a resource again after the
//! server said that it was updated.

use std::collections::HashMap;

use super::loops::short;
use super::{Call, Finding, FindingKind, SHOWN_MAX};
use crate::protocol::method;

/// The fewest identical calls in a row that are reported if not all of them failed.
const COUNT_MIN: usize = 3;
/// The same if all of them failed.
const FAILED_MIN: usize = 2;

pub(super) fn findings(calls: &[Call]) -> Vec<Finding> {
    let mut places: HashMap<u64, Vec<Vec<&Call>>> = HashMap::new();
    for run in runs(calls) {
        if let Some(asks) = run[0].asks.filter(|_| is_retry(&run)) {
            places.entry(asks).or_default().push(run);
        }
    }
    let mut found: Vec<Finding> = places.into_values().map(|runs| finding(&runs)).collect();
    found.sort_by_key(|finding| (std::cmp::Reverse(finding.count), finding.entries.clone()));
    found
}

/// Returns the runs of two or more identical calls.
fn runs(calls: &[Call]) -> Vec<Vec<&Call>> {
    let (mut runs, mut run): (Vec<Vec<&Call>>, Vec<&Call>) = (Vec::new(), Vec::new());
    for call in calls {
        // An update is a reason to read a resource again, so it ends the run.
        let is_updated = &*call.subject == method::NOTIFICATIONS_RESOURCES_UPDATED;
        let first = run.first().copied();
        let is_over = match first {
            Some(first) if is_updated => &*first.subject == method::RESOURCES_READ,
            Some(first) => call.is_work() && (call.asks.is_none() || first.asks != call.asks),
            None => false,
        };
        if is_over {
            runs.push(std::mem::take(&mut run));
        }
        if call.is_work() {
            run.push(call);
        }
    }
    runs.push(run);
    runs.retain(|run| run.len() > 1);
    runs
}

fn is_retry(run: &[&Call]) -> bool {
    let lost = run.iter().filter(|call| call.is_lost()).count();
    if lost == run.len() {
        return run.len() >= FAILED_MIN;
    }
    if run.len() < COUNT_MIN {
        return false;
    }
    // A client that polls asks until the answer changes, so the same answer each time is only suspicious elsewhere.
    let is_same = || run.windows(2).all(|pair| pair[0].ended_like(pair[1]));
    lost > 0 || !run[0].is_waiting() && is_same()
}

fn finding(runs: &[Vec<&Call>]) -> Finding {
    let first = &runs[0];
    let count: usize = runs.iter().map(Vec::len).sum();
    let places = if runs.len() > 1 { format!(", in {} places", runs.len()) } else { String::new() };
    let details: Vec<String> = runs.iter().take(SHOWN_MAX).map(|run| outcomes(run)).collect();
    Finding {
        kind: FindingKind::Retry,
        subject: short(first[0]).to_owned(),
        summary: format!(
            "called {count} times with the same arguments and nothing between{places}: {}",
            details.join("; ")
        ),
        count: count as u64,
        details,
        entries: first.iter().take(SHOWN_MAX).map(|call| call.entry).collect(),
    }
}

/// Describes how the calls ended, in order: `failed 2 times, ok`.
fn outcomes(run: &[&Call]) -> String {
    let chunks = run.chunk_by(|a, b| a.outcome() == b.outcome());
    let mut parts: Vec<String> = chunks
        .map(|same| match same.len() {
            1 => same[0].outcome().to_owned(),
            times => format!("{} {times} times", same[0].outcome()),
        })
        .collect();
    if parts.len() > 2 * SHOWN_MAX {
        let more = parts.len() - 2 * SHOWN_MAX;
        parts.truncate(2 * SHOWN_MAX);
        parts.push(format!("and {more} more turns"));
    }
    parts.join(", ")
}
