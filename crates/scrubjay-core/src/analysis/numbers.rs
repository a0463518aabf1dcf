//! Statistics that are robust against outliers.

/// Scales a median absolute deviation to a standard deviation of normally distributed values.
pub(super) const MAD_TO_SIGMA: f64 = 1.4826;

/// Returns the nearest-rank percentile of sorted values; zero of none.
pub(super) fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// Returns the median of values in any order; zero of none.
pub(super) fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    percentile(values, 50)
}

/// Returns the median, and the usual deviation from it.
#[expect(clippy::cast_precision_loss, reason = "a spread needs no more than 52 bits")]
pub(super) fn median_and_spread(values: &mut [u64]) -> (u64, f64) {
    let middle = median(values);
    let mut distances: Vec<u64> = values.iter().map(|value| value.abs_diff(middle)).collect();
    (middle, median(&mut distances) as f64 * MAD_TO_SIGMA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outliers_do_not_move_the_median_and_spread() {
        assert_eq!(median(&mut []), 0);
        assert_eq!(median(&mut [3, 1, 2]), 2);
        let (middle, spread) = median_and_spread(&mut [10, 11, 9, 10, 12, 1_000_000]);
        assert_eq!(middle, 10);
        assert!(spread < 2.0, "{spread}");
    }
}
