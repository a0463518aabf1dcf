//! Finds sequences of calls that the client makes more than once.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::Call;
use super::cycles::{Cycle, cycles};
use super::numbers::median;

/// The fewest occurrences of a sequence.
const COUNT_MIN: usize = 2;
const SEQUENCES_MAX: usize = 20;
/// The most different sequences that are counted.
const DIFFERENT_MAX: usize = 100_000;

/// Calls that followed each other more than once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sequence {
    /// The methods or tools, in order.
    pub subjects: Vec<String>,
    /// How often it occurred.
    pub count: u64,
    /// Whether it is a loop: after the last call the first came again. Its other rotations are not listed.
    pub is_round: bool,
    /// The median time from each call to the next.
    pub gaps_ns: Vec<u64>,
    /// The entries of the first occurrence.
    pub entries: Vec<u64>,
}

pub(super) fn sequences(calls: &[Call]) -> Vec<Sequence> {
    let requests: Vec<&Call> = calls.iter().filter(|call| call.is_client_request()).collect();
    let mut numbers: HashMap<&Arc<str>, u32> = HashMap::new();
    let letters: Vec<u32> = requests
        .iter()
        .map(|call| {
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            *numbers.entry(&call.subject).or_insert(next)
        })
        .collect();
    let cycles = cycles(&letters);
    let mut found: Vec<Sequence> = cycles.iter().map(|cycle| round(&requests, cycle)).collect();
    // Rounds are reported as a whole, so their parts are left out of the shorter sequences.
    let rounds = covered(requests.len(), &cycles);
    found.extend([2, 3].into_iter().flat_map(|length| of_length(&requests, &rounds, length)));
    // Of two equally frequent ones the longer comes first, because it contains the other.
    found.sort_by(|a, b| {
        b.count
            .cmp(&a.count)
            .then(b.subjects.len().cmp(&a.subjects.len()))
            .then_with(|| a.entries.cmp(&b.entries))
    });
    found.truncate(SEQUENCES_MAX);
    found
}

/// Returns for each call the end of the loop that it is in, or zero outside of loops.
fn covered(length: usize, cycles: &[Cycle]) -> Vec<usize> {
    let mut ends = vec![0; length];
    for (begin, end) in cycles.iter().flat_map(|cycle| &cycle.places) {
        for place in &mut ends[*begin..*end] {
            *place = (*place).max(*end);
        }
    }
    ends
}

fn round(requests: &[&Call], cycle: &Cycle) -> Sequence {
    let places: Vec<usize> =
        cycle.places.iter().flat_map(|(begin, end)| (*begin..*end).step_by(cycle.period)).collect();
    sequence(requests, &places, cycle.period, true)
}

fn of_length(requests: &[&Call], rounds: &[usize], length: usize) -> Vec<Sequence> {
    let mut places: HashMap<Vec<&Arc<str>>, Vec<usize>> = HashMap::new();
    for (at, window) in requests.windows(length).enumerate() {
        let key: Vec<&Arc<str>> = window.iter().map(|call| &call.subject).collect();
        // Left out: a part of a loop, and the same call three times, which the same call twice covers.
        if rounds[at] >= at + length || length > 2 && key.iter().all(|subject| *subject == key[0]) {
            continue;
        }
        if places.len() < DIFFERENT_MAX || places.contains_key(&key) {
            places.entry(key).or_default().push(at);
        }
    }
    let often = places.into_values().filter(|places| places.len() >= COUNT_MIN);
    often.map(|places| sequence(requests, &places, length, false)).collect()
}

fn sequence(requests: &[&Call], places: &[usize], length: usize, is_round: bool) -> Sequence {
    let gap = |step: usize| {
        let begin = |at: usize| requests[at + step].since_start_ns;
        let mut gaps: Vec<u64> = places.iter().map(|at| begin(at + 1).saturating_sub(begin(*at))).collect();
        median(&mut gaps)
    };
    let first = &requests[places[0]..places[0] + length];
    Sequence {
        subjects: first.iter().map(|call| call.subject.to_string()).collect(),
        count: places.len() as u64,
        is_round,
        gaps_ns: (0..length - 1).map(gap).collect(),
        entries: first.iter().map(|call| call.entry).collect(),
    }
}
