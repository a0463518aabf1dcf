//! Finds what is repeated in a row: words of two letters and more, each once.
//!
//! For each period up to [`PERIOD_MAX`] one pass over the letters, so a million of them take a moment whatever they
//! are. A word is told in the rotation in which it first came; its multiples and its other rotations are the same
//! word, and a word of one letter is none.

use std::collections::HashMap;

/// No longer word is looked for.
pub(super) const PERIOD_MAX: usize = 32;
/// A word that came less often in a row is no cycle.
pub(super) const COUNT_MIN: usize = 3;
/// So many different ones are told apart.
const DIFFERENT_MAX: usize = 10_000;

/// A word, and everywhere it is repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cycle {
    /// How many letters it has.
    pub(super) period: usize,
    /// Where it is repeated: from the first letter up to behind the last whole word.
    pub(super) places: Vec<(usize, usize)>,
}

impl Cycle {
    /// Returns how often it came in all.
    pub(super) fn count(&self) -> usize {
        self.places.iter().map(|(begin, end)| (end - begin) / self.period).sum()
    }

    /// Returns where it came first.
    pub(super) fn begin(&self) -> usize {
        self.places.first().map_or(0, |(begin, _)| *begin)
    }
}

/// Finds all cycles, in the order in which they first came.
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

/// Returns the stretches in which every letter is the one a period before, cut to whole words.
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
        // The next stretch begins behind the letter a period before the one that differs.
        begin = at + 1 - period;
    }
    found
}

/// Tells whether a word is no shorter word several times.
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
        let told: Vec<(String, usize)> =
            found.iter().map(|c| (text[c.begin()..c.begin() + c.period].to_owned(), c.count())).collect();
        let expected: Vec<(String, usize)> = expected.iter().map(|(w, n)| ((*w).to_owned(), *n)).collect();
        assert_eq!(told, expected, "{text}");
    }

    #[test]
    fn a_cycle_is_told_once() {
        check("xABCABCABCABCy", &[("ABC", 4)]);
        check("ABABABABABAB", &[("AB", 6)]);
        check("AAAAAAAAAAAA", &[]);
        check("ABAB", &[]);
        check("ABCABCAB", &[]);
        // In another rotation later, and with something before.
        check("ABCABCABC-BCABCABCA", &[("ABC", 6)]);
        check("AABAABAAB", &[("AAB", 3)]);
        check("qABABABCABCABC", &[("AB", 3), ("ABC", 3)]);
        check("", &[]);
    }

    #[test]
    fn long_tapes_take_a_moment() {
        let hostile: Vec<u32> = (0..1_000_000u32).map(|n| n.trailing_zeros() % 3).collect();
        let found = cycles(&hostile);
        assert!(found.len() < 10_000);
        assert_eq!(cycles(&vec![7; 500_000]), []);
    }

    proptest! {
        #[test]
        fn what_is_repeated_is_found_and_nothing_else(
            word in prop::collection::vec(0u32..5, 2..10), count in 3usize..8, before in 0usize..5,
        ) {
            prop_assume!(is_primitive(&word));
            // Letters around it that the word does not have.
            let mut letters: Vec<u32> = (0..before).map(|n| 100 + n as u32).collect();
            for _ in 0..count {
                letters.extend(&word);
            }
            letters.push(99);
            let whole: Vec<Cycle> = cycles(&letters).into_iter().filter(|c| c.period == word.len()).collect();
            prop_assert_eq!(&whole, &[Cycle { period: word.len(), places: vec![(before, before + count * word.len())] }]);
            // Within a word others may be repeated, never across as much as two of it.
            for other in cycles(&letters).iter().filter(|c| c.period != word.len()) {
                prop_assert!(other.places.iter().all(|(b, e)| e - b < 2 * word.len() + other.period), "{:?}", other);
            }
        }

        #[test]
        fn every_cycle_is_one(letters in prop::collection::vec(0u32..3, 0..200)) {
            for cycle in cycles(&letters) {
                prop_assert!(cycle.period >= 2 && cycle.count() >= COUNT_MIN);
                for (begin, end) in cycle.places {
                    prop_assert!((begin + cycle.period..end).all(|at| letters[at] == letters[at - cycle.period]));
                }
            }
        }
    }
}
