//! Finds loops: the same calls with the same arguments in the same order, again and again, without effect.
//!
//! If most answers differ from round to round, as in paging, it is work and not a loop.

use std::collections::HashMap;

use super::cycles::{Cycle, cycles};
use super::{Call, Finding, FindingKind, SHOWN_MAX};

pub(super) fn findings(calls: &[Call]) -> Vec<Finding> {
    let work: Vec<&Call> = calls.iter().filter(|call| call.is_work()).collect();
    let mut numbers: HashMap<u64, u32> = HashMap::new();
    let mut next = 0u32;
    let letters: Vec<u32> = work
        .iter()
        .map(|call| {
            next += 1;
            // A call whose arguments cannot be compared gets a letter of its own.
            call.asks.map_or(next, |asks| *numbers.entry(asks).or_insert(next))
        })
        .collect();
    let mut found: Vec<(usize, Finding)> = cycles(&letters)
        .into_iter()
        .filter_map(|mut cycle| {
            cycle.places.retain(|place| is_idle(&work, *place, cycle.period));
            (!cycle.places.is_empty()).then(|| (cycle.count() * cycle.period, finding(&work, &cycle)))
        })
        .collect();
    // The longest first.
    found.sort_by_key(|(calls, _)| std::cmp::Reverse(*calls));
    found.into_iter().map(|(_, finding)| finding).collect()
}

/// Returns whether more than half of the calls ended as in the round before, and none calls a tool that waits.
fn is_idle(work: &[&Call], (begin, end): (usize, usize), period: usize) -> bool {
    let alike = (begin + period..end).filter(|at| work[*at].ended_like(work[at - period])).count();
    alike * 2 > end - begin - period && !work[begin..begin + period].iter().any(|call| call.is_waiting())
}

fn finding(work: &[&Call], cycle: &Cycle) -> Finding {
    let begin = cycle.begin();
    let round = &work[begin..begin + cycle.period];
    let steps: Vec<String> = round.iter().map(|call| short(call).to_owned()).collect();
    let last = cycle.places.last().map_or(begin, |(_, end)| end - 1);
    let places = cycle.places.len();
    let failed = cycle.places.iter().flat_map(|(b, e)| &work[*b..*e]).filter(|call| call.is_lost()).count();
    let mut summary = format!("{} times with the same arguments", cycle.count());
    summary += &format!(", from #{} to #{}", round[0].entry, work[last].entry);
    summary += &if places > 1 { format!(" in {places} places") } else { String::new() };
    summary += &match failed {
        0 => String::new(),
        failed => format!("; {failed} of {} calls failed", cycle.count() * cycle.period),
    };
    Finding {
        kind: FindingKind::Loop,
        subject: shown_steps(&steps),
        summary,
        count: cycle.count() as u64,
        details: steps,
        entries: round.iter().take(SHOWN_MAX.max(cycle.period)).map(|call| call.entry).collect(),
    }
}

/// Returns the tool or, if it calls none, the method.
pub(super) fn short(call: &Call) -> &str {
    call.tool().unwrap_or(&call.subject)
}

/// The most steps of a loop that are named in its subject.
const STEPS_MAX: usize = 8;

fn shown_steps(steps: &[String]) -> String {
    let mut shown: Vec<&str> = steps.iter().take(STEPS_MAX).map(String::as_str).collect();
    let more = format!("({} more)", steps.len().saturating_sub(STEPS_MAX));
    if steps.len() > STEPS_MAX {
        shown.push(&more);
    }
    shown.join(" → ")
}
