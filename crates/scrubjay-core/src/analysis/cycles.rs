//! Finds sequences of two or more letters that are repeated in a row, each once.
//!
//! Makes one pass over the letters for each period up to [`PERIOD_MAX`], so the time is linear in any input. A word is
//! reported in the rotation that came first; its multiples and other rotations are the same word.

use std::collections::HashMap;

/// The longest word that is searched. Each period costs a pass.
pub(super) const PERIOD_MAX: usize = 32;
/// The fewest repetitions in a row that make a cycle.
pub(super) const COUNT_MIN: usize = 3;
/// The most different words that are kept.
const DIFFERENT_MAX: usize = 10_000;

/// A word, and everywhere it is repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cycle {
    /// How many letters it has.
    pub(super) period: usize,
    /// Where it is repeated: from the first letter to the end of the last whole word.
    pub(super) places: Vec<(usize, usize)>,
}

impl Cycle {
    /// Returns how often it occurs in all places.
    pub(super) fn count(&self) -> usize {
        self.places.iter().map(|(begin, end)| (end - begin) / self.period).sum()
    }

    /// Returns where it first occurs.
    pub(super) fn begin(&self) -> usize {
        self.places.first().map_or(0, |(begin, _)| *begin)
    }
}

/// Finds all cycles, in the order in which they first occur.
pub(super) fn cycles(letters: &[u32]) -> Vec<Cycle> {
    let mut found: HashMap<Vec<u32>, Cycle> = HashMap::new();
    for period in 2..=PERIOD_MAX {
        for (begin, end) in repeated(letters, period) {
            let word = &letters[begin..begin + period];
            if !is_primitive(word) {
                continue;
            }
            let key = least_rotation(word);
            if found.len() >= DIFFERENT_MAX && !found.contains_key(&key) {
                continue;
            }
            found.entry(key).or_insert(Cycle { period, places: Vec::new() }).places.push((begin, end));
        }
    }
    let mut found: Vec<Cycle> = found.into_values().collect();
    found.sort_by_key(|cycle| (cycle.begin(), cycle.period));
    found
}

/// Returns the ranges in which every letter equals the one a period before, cut to whole words.
fn repeated(letters: &[u32], period: usize) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut begin = 0;
    for at in period..=letters.len() {
        if at < letters.len() && letters[at] == letters[at - period] {
            continue;
        }
        let count = (at - begin) / period;
        if count >= COUNT_MIN {
            found.push((begin, begin + count * period));
        }
        // The next range begins after the letter that is one period before the one that differs.
        begin = at + 1 - period;
    }
    found
}

/// Returns whether a word is not itself a repetition of a shorter one.
fn is_primitive(word: &[u32]) -> bool {
    let is_power_of =
        |part: usize| word.len().is_multiple_of(part) && word[part..] == word[..word.len() - part];
    !(1..=word.len() / 2).any(is_power_of)
}

/// Returns the rotation that comes first in order: the same for all rotations of a word.
fn least_rotation(word: &[u32]) -> Vec<u32> {
    let rotation = |by: usize| word[by..].iter().chain(&word[..by]).copied();
    let least = (0..word.len()).min_by(|a, b| rotation(*a).cmp(rotation(*b))).unwrap_or(0);
    rotation(least).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: &[(&str, usize)]) {
        let letters: Vec<u32> = text.chars().map(u32::from).collect();
        let found = cycles(&letters);
        let found: Vec<(String, usize)> =
            found.iter().map(|c| (text[c.begin()..c.begin() + c.period].to_owned(), c.count())).collect();
        let expected: Vec<(String, usize)> = expected.iter().map(|(w, n)| ((*w).to_owned(), *n)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn a_cycle_is_reported_once() {
        check("xABCABCABCABCy", &[("ABC", 4)]);
        check("ABABABABABAB", &[("AB", 6)]);
        check("AAAAAAAAAAAA", &[]);
        check("ABAB", &[]);
        check("ABCABCAB", &[]);
        // Repeated later in another rotation, after another letter.
        check("ABCABCABC-BCABCABCA", &[("ABC", 6)]);
        check("AABAABAAB", &[("AAB", 3)]);
        check("qABABABCABCABC", &[("AB", 3), ("ABC", 3)]);
        check("", &[]);
    }

    #[test]
    fn long_tapes_are_searched_in_linear_time() {
        let hostile: Vec<u32> = (0..1_000_000u32).map(|n| n.trailing_zeros() % 3).collect();
        let found = cycles(&hostile);
        assert!(found.len() < 10_000);
        assert_eq!(cycles(&vec![7; 500_000]), []);
    }

    proptest! {
        #[test]
        fn only_repetitions_are_found(
            word in prop::collection::vec(0u32..5, 2..10), count in 3usize..8, before in 0usize..5,
        ) {
            prop_assume!(is_primitive(&word));
            // Surrounded by letters that the word does not have.
            let mut letters: Vec<u32> = (0..before).map(|n| 100 + n as u32).collect();
            for _ in 0..count {
                letters.extend(&word);
            }
            letters.push(99);
            let whole: Vec<Cycle> = cycles(&letters).into_iter().filter(|c| c.period == word.len()).collect();
            prop_assert_eq!(&whole, &[Cycle { period: word.len(), places: vec![(before, before + count * word.len())] }]);
            // A word may contain repetitions of others, but none as long as two words.
            for other in cycles(&letters).iter().filter(|c| c.period != word.len()) {
                prop_assert!(other.places.iter().all(|(b, e)| e - b < 2 * word.len() + other.period), "{:?}", other);
            }
        }

        #[test]
        fn every_reported_cycle_is_a_repetition(letters in prop::collection::vec(0u32..3, 0..200)) {
            for cycle in cycles(&letters) {
                prop_assert!(cycle.period >= 2 && cycle.count() >= COUNT_MIN);
                for (begin, end) in cycle.places {
                    prop_assert!((begin + cycle.period..end).all(|at| letters[at] == letters[at - cycle.period]));
                }
            }
        }
    }
}
