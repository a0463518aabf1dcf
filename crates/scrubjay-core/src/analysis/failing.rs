//! Finds runs of failures, of one tool or of all calls, and tools that always fail.

use std::collections::BTreeMap;

use super::loops::short;
use super::{Call, Finding, FindingKind, SHOWN_MAX};
use crate::protocol::code;

/// The fewest failures of one tool in a row that are reported.
const OF_ONE_MIN: usize = 3;
/// The fewest failures in a row over all calls: more than of one tool, because unrelated ones meet by chance.
const OF_ALL_MIN: usize = 5;
/// The fewest calls of a tool that always fails: fewer may have failed by chance.
const ALWAYS_MIN: usize = 3;

pub(super) fn findings(calls: &[Call]) -> Vec<Finding> {
    // Clients ask for optional methods to see whether a server has them: that it has not is no failure.
    let is_probe = |call: &&Call| call.code == Some(code::METHOD_NOT_FOUND) && call.tool().is_none();
    let work: Vec<&Call> =
        calls.iter().filter(|call| call.is_work() && call.answer.is_some() && !is_probe(call)).collect();
    let mut by_subject: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in &work {
        by_subject.entry(&call.subject).or_default().push(call);
    }
    let mut found = Vec::new();
    for (_, calls) in by_subject {
        let is_tool = calls[0].tool().is_some();
        if is_tool && calls.len() >= ALWAYS_MIN && calls.iter().all(|call| call.failed) {
            found.push(always(&calls));
        } else {
            found.extend(longest(&calls, OF_ONE_MIN).map(|run| failure_run(short(calls[0]), &calls, run)));
        }
    }
    let of_all = longest(&work, OF_ALL_MIN)
        .filter(|(begin, end)| work[*begin..*end].iter().any(|call| call.subject != work[*begin].subject));
    found.extend(of_all.map(|run| failure_run("all calls", &work, run)));
    found.sort_by_key(|finding| std::cmp::Reverse(finding.count));
    found
}

/// Returns the longest run of failures, the first of equals.
fn longest(calls: &[&Call], count_min: usize) -> Option<(usize, usize)> {
    let (mut best, mut begin) = ((0, 0), 0);
    for (at, call) in calls.iter().enumerate() {
        if !call.failed {
            begin = at + 1;
        } else if at + 1 - begin > best.1 - best.0 {
            best = (begin, at + 1);
        }
    }
    (best.1 - best.0 >= count_min).then_some(best)
}

fn failure_run(subject: &str, calls: &[&Call], (begin, end): (usize, usize)) -> Finding {
    let run = &calls[begin..end];
    let then = match calls.get(end) {
        Some(next) => format!("then it worked again (#{})", next.entry),
        None => "it did not work again".to_owned(),
    };
    Finding {
        kind: FindingKind::FailureRun,
        subject: subject.to_owned(),
        summary: format!(
            "{} failures in a row, from #{} to #{}; {then}",
            run.len(),
            run[0].entry,
            run[run.len() - 1].entry
        ),
        count: run.len() as u64,
        details: Vec::new(),
        entries: answers(run),
    }
}

fn always(calls: &[&Call]) -> Finding {
    let shape = calls[0].shape.as_deref().filter(|_| calls.iter().all(|call| call.shape == calls[0].shape));
    let with = shape.map(|shape| format!(": {shape}")).unwrap_or_default();
    Finding {
        kind: FindingKind::AlwaysFails,
        subject: short(calls[0]).to_owned(),
        summary: format!("all {} calls failed, from #{} on{with}", calls.len(), calls[0].entry),
        count: calls.len() as u64,
        details: Vec::new(),
        entries: answers(calls),
    }
}

fn answers(calls: &[&Call]) -> Vec<u64> {
    calls.iter().take(SHOWN_MAX).map(|call| call.answer.unwrap_or(call.entry)).collect()
}
