//! What the client asked after what.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::Call;
use super::numbers::median;

/// What came only once is no pattern.
const COUNT_MIN: usize = 2;
const SEQUENCES_MAX: usize = 20;
/// So many different ones are told apart; a tape that has more shows none.
const DIFFERENT_MAX: usize = 100_000;

/// Things asked one after the other, more than once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sequence {
    /// What, in order.
    pub subjects: Vec<String>,
    /// How often.
    pub count: u64,
    /// The median time from each to the next.
    pub gaps_ns: Vec<u64>,
    /// The entries of the first time.
    pub entries: Vec<u64>,
}

pub(super) fn sequences(calls: &[Call]) -> Vec<Sequence> {
    let asked: Vec<&Call> = calls.iter().filter(|call| call.is_clients()).collect();
    let mut found: Vec<Sequence> = [2, 3].into_iter().flat_map(|length| of_length(&asked, length)).collect();
    // Of two that are as frequent the longer says more.
    found.sort_by(|a, b| {
        b.count
            .cmp(&a.count)
            .then(b.subjects.len().cmp(&a.subjects.len()))
            .then_with(|| a.entries.cmp(&b.entries))
    });
    found.truncate(SEQUENCES_MAX);
    found
}

fn of_length(asked: &[&Call], length: usize) -> Vec<Sequence> {
    let mut places: HashMap<Vec<&Arc<str>>, Vec<usize>> = HashMap::new();
    for (at, window) in asked.windows(length).enumerate() {
        let key: Vec<&Arc<str>> = window.iter().map(|call| &call.subject).collect();
        if places.len() < DIFFERENT_MAX || places.contains_key(&key) {
            places.entry(key).or_default().push(at);
        }
    }
    let sequence = |(subjects, places): (Vec<&Arc<str>>, Vec<usize>)| {
        let gap = |step: usize| {
            let begin = |at: usize| asked[at + step].since_start_ns;
            let mut gaps: Vec<u64> =
                places.iter().map(|at| begin(at + 1).saturating_sub(begin(*at))).collect();
            median(&mut gaps)
        };
        Sequence {
            subjects: subjects.into_iter().map(ToString::to_string).collect(),
            count: places.len() as u64,
            gaps_ns: (0..length - 1).map(gap).collect(),
            entries: asked[places[0]..places[0] + length].iter().map(|call| call.entry).collect(),
        }
    };
    places.into_iter().filter(|(_, places)| places.len() >= COUNT_MIN).map(sequence).collect()
}
