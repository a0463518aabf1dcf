//! Measured figures: one value for each round, and medians, ratios and differences of them.

use std::collections::BTreeMap;

use crate::json::Json;

/// The figures of one target in one workload.
#[derive(Clone, Debug)]
pub struct Series {
    /// The name of the target.
    pub target: String,
    figures: BTreeMap<String, Vec<f64>>,
}

impl Series {
    /// Starts a series without figures.
    pub fn of(target: &str) -> Self {
        Self { target: target.to_owned(), figures: BTreeMap::new() }
    }

    /// Adds the value of one more round.
    pub fn push(&mut self, figure: &str, value: f64) {
        self.figures.entry(figure.to_owned()).or_default().push(value);
    }

    /// Returns the values of all rounds, none if the figure was not measured.
    pub fn rounds(&self, figure: &str) -> &[f64] {
        self.figures.get(figure).map_or(&[], Vec::as_slice)
    }

    /// Returns the median over the rounds.
    pub fn median(&self, figure: &str) -> Option<f64> {
        median(self.rounds(figure))
    }

    /// Returns the names of the figures measured.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.figures.keys().map(String::as_str)
    }

    /// Returns, round by round, how far this series lies above another.
    pub fn above(&self, other: &Self, figure: &str) -> Vec<f64> {
        self.rounds(figure).iter().zip(other.rounds(figure)).map(|(mine, its)| mine - its).collect()
    }

    /// Returns medians and rounds for the results file.
    pub fn to_json(&self) -> Json {
        let figure = |(name, rounds): (&String, &Vec<f64>)| {
            let median = median(rounds).map_or(Json::Null, Json::Number);
            let rounds = rounds.iter().copied().map(Json::Number).collect();
            (name.clone(), Json::object([("median", median), ("rounds", Json::List(rounds))]))
        };
        Json::Object(self.figures.iter().map(figure).collect())
    }
}

/// Returns the ratios, round by round.
pub fn ratios(above: &[f64], below: &[f64]) -> Vec<f64> {
    above.iter().zip(below).map(|(above, below)| above / below).collect()
}

/// Returns the middle value, the mean of the two middle ones for an even count.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Returns the value that `share` (0 to 1) of the values do not exceed.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let sorted = sorted(values);
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quantiles_are_computed() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(&hundred, 0.99), Some(99.0));
        assert_eq!(quantile(&[7.0], 0.99), Some(7.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn differences_pair_the_rounds() {
        let mut direct = Series::of("direct");
        let mut relay = Series::of("relay");
        for (base, value) in [(40.0, 140.0), (60.0, 150.0)] {
            direct.push("median_us", base);
            relay.push("median_us", value);
        }
        assert_eq!(relay.above(&direct, "median_us"), [100.0, 90.0]);
    }
}
