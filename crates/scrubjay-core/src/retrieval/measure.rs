//! Measures rankings: recall, MRR, NDCG. Pure; the command reads cases and catalogs.

use serde::{Deserialize, Serialize};

use super::{Shortlist, ToolHit};

/// The depths at which recall is measured.
pub const DEPTHS: [usize; 4] = [1, 3, 5, 10];

/// A task and the tools that serve it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GradedCase {
    /// The task.
    pub query: String,
    /// `backend/tool` of each tool that serves it; empty if none does.
    pub expected: Vec<String>,
}

/// The graded answer to one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GradedAnswer {
    /// The places (from 0) of those expected tools that are in the ranking.
    pub places: Vec<usize>,
    /// How many tools were expected.
    pub expected: usize,
    /// Whether the shortlist was good enough to act on.
    pub acted: bool,
}

impl GradedAnswer {
    /// Compares a shortlist with what was expected; `name` gives the full name of a tool.
    #[must_use]
    pub fn new<'n>(shortlist: &Shortlist, case: &GradedCase, name: impl Fn(usize) -> &'n str) -> Self {
        let expected = |(place, hit): (usize, &ToolHit)| {
            case.expected.iter().any(|expected| expected == name(hit.tool)).then_some(place)
        };
        Self {
            places: shortlist.hits.iter().enumerate().filter_map(expected).collect(),
            expected: case.expected.len(),
            acted: shortlist.acts(),
        }
    }
}

/// The measures of many cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RetrievalMeasures {
    /// How many cases a tool serves.
    pub served: usize,
    /// How many cases no tool serves.
    pub unserved: usize,
    /// The share of the expected tools among the first 1, 3, 5 and 10, averaged over the served cases.
    pub recall: [f64; 4],
    /// The mean reciprocal rank of the first expected tool.
    pub mrr: f64,
    /// The normalised discounted cumulative gain of the first ten: 1 if the expected tools come first.
    pub ndcg10: f64,
    /// The share of served cases whose shortlist is good enough to act on.
    pub acts: f64,
    /// The share of unserved cases whose shortlist is not.
    pub abstains: f64,
}

/// Measures answers.
#[must_use]
pub fn measure(answers: &[GradedAnswer]) -> RetrievalMeasures {
    let (served, unserved): (Vec<&GradedAnswer>, Vec<&GradedAnswer>) =
        answers.iter().partition(|a| a.expected > 0);
    let recall = |depth: usize| {
        mean(&served, |answer| {
            let found = answer.places.iter().filter(|place| **place < depth).count();
            found as f64 / answer.expected.min(depth) as f64
        })
    };
    RetrievalMeasures {
        served: served.len(),
        unserved: unserved.len(),
        recall: DEPTHS.map(recall),
        mrr: mean(&served, |answer| {
            answer.places.iter().min().map_or(0.0, |place| 1.0 / (*place as f64 + 1.0))
        }),
        ndcg10: mean(&served, |answer| {
            let gain = |places: &mut dyn Iterator<Item = usize>| -> f64 {
                places.filter(|place| *place < 10).map(|place| 1.0 / (place as f64 + 2.0).log2()).sum()
            };
            gain(&mut answer.places.iter().copied()) / gain(&mut (0..answer.expected))
        }),
        acts: mean(&served, |answer| f64::from(u8::from(answer.acted))),
        abstains: mean(&unserved, |answer| f64::from(u8::from(!answer.acted))),
    }
}

fn mean(answers: &[&GradedAnswer], of: impl Fn(&GradedAnswer) -> f64) -> f64 {
    let sum: f64 = answers.iter().map(|answer| of(answer)).sum();
    if answers.is_empty() { 0.0 } else { sum / answers.len() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(places: &[usize], expected: usize, acted: bool) -> GradedAnswer {
        GradedAnswer { places: places.to_vec(), expected, acted }
    }

    fn check(measured: f64, expected: f64) {
        assert!((measured - expected).abs() < 1e-9, "{measured} is not {expected}");
    }

    #[test]
    fn known_rankings_are_measured() {
        let all = [
            answer(&[0], 1, true),
            answer(&[3, 1], 2, false),
            answer(&[], 1, true),
            answer(&[], 0, false),
            answer(&[], 0, true),
        ];
        let m = measure(&all);
        assert_eq!((m.served, m.unserved), (3, 2));
        check(m.recall[0], 1.0 / 3.0);
        check(m.recall[1], (1.0 + 0.5) / 3.0);
        check(m.recall[2], 2.0 / 3.0);
        check(m.mrr, (1.0 + 0.5) / 3.0);
        let second = (1.0 / 3.0_f64.log2() + 1.0 / 5.0_f64.log2()) / (1.0 + 1.0 / 3.0_f64.log2());
        check(m.ndcg10, (1.0 + second) / 3.0);
        check(m.acts, 2.0 / 3.0);
        check(m.abstains, 0.5);
    }

    #[test]
    fn no_answers_measure_zero() {
        assert_eq!(measure(&[]), RetrievalMeasures::default());
    }
}
