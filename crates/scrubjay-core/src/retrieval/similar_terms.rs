//! Finds terms that look like an unknown word: typos and abbreviations.

use std::collections::HashMap;

/// The shortest word that is looked up: shorter ones have too many neighbours.
const CHARS_MIN: usize = 4;
/// The longest word that is looked up, because comparing letters is quadratic.
const CHARS_MAX: usize = 32;
/// The most terms that are compared letter by letter, best candidates first.
const COMPARED_MAX: usize = 200;
const FOUND_MAX: usize = 3;

/// The terms by their pairs of letters.
#[derive(Default)]
pub(super) struct SimilarTerms {
    by_gram: HashMap<[char; 2], Vec<u32>>,
    /// The highest id plus one.
    terms: u32,
}

impl SimilarTerms {
    pub(super) fn add(&mut self, term: &str, id: u32) {
        self.terms = self.terms.max(id + 1);
        if term.chars().count() >= CHARS_MIN - 1 {
            grams(term, |gram| {
                let ids = self.by_gram.entry(gram).or_default();
                if ids.last() != Some(&id) {
                    ids.push(id);
                }
            });
        }
    }

    /// Returns the nearest terms, each with a likeness in 0..1, best first.
    pub(super) fn find(&self, word: &str, term: impl Fn(u32) -> String) -> Vec<(u32, f32)> {
        let length = word.chars().count();
        if !(CHARS_MIN..=CHARS_MAX).contains(&length) {
            return Vec::new();
        }
        // The pairs that two words still share after one letter was added, left out or swapped; at most four, so that
        // long words may differ more.
        let shared_min = u8::try_from((length - 2).clamp(2, 4)).unwrap_or(2);
        let mut shared = vec![0_u8; self.terms as usize];
        let mut candidates = Vec::new();
        grams(word, |gram| {
            for id in self.by_gram.get(&gram).into_iter().flatten() {
                let shared = &mut shared[*id as usize];
                *shared = shared.saturating_add(1);
                if *shared == shared_min {
                    candidates.push(*id);
                }
            }
        });
        let mut candidates: Vec<(u32, u8)> =
            candidates.into_iter().map(|id| (id, shared[id as usize])).collect();
        candidates.sort_unstable_by_key(|(id, shared)| (std::cmp::Reverse(*shared), *id));
        candidates.truncate(COMPARED_MAX);
        let mut found: Vec<(u32, f32)> =
            candidates.into_iter().filter_map(|(id, _)| Some((id, likeness(word, &term(id))?))).collect();
        found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        found.truncate(FOUND_MAX);
        found
    }
}

/// Calls back with each pair of letters, with a space before the first and after the last.
fn grams(word: &str, mut found: impl FnMut([char; 2])) {
    let mut before = ' ';
    for c in word.chars().chain([' ']) {
        found([before, c]);
        before = c;
    }
}

/// Returns the similarity of two words, or none if they are too different.
fn likeness(word: &str, term: &str) -> Option<f32> {
    let (a, b): (Vec<char>, Vec<char>) = (word.chars().collect(), term.chars().collect());
    let (shorter, longer) = (a.len().min(b.len()), a.len().max(b.len()));
    // `config` for `configuration`, `screenshots` for `screenshot`.
    if shorter >= CHARS_MIN && a[..shorter] == b[..shorter] && longer - shorter <= 7 {
        return Some(0.9 - 0.05 * (longer - shorter) as f32);
    }
    let allowed = if shorter < CHARS_MIN { 0 } else { 1 + usize::from(shorter >= 8) };
    if longer - shorter > allowed {
        return None;
    }
    let distance = distance(&a, &b);
    (distance <= allowed).then(|| 1.0 - distance as f32 / longer as f32)
}

/// Counts the letters to add, drop, change, or swap with their neighbour.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows = [vec![0; b.len() + 1], (0..=b.len()).collect::<Vec<usize>>(), vec![0; b.len() + 1]];
    for i in 1..=a.len() {
        rows[2][0] = i;
        for j in 1..=b.len() {
            let change = rows[1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = change.min(rows[1][j] + 1).min(rows[2][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[0][j - 2] + 1);
            }
            rows[2][j] = least;
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distances_are_computed() {
        let check = |a: &str, b: &str, expected: usize| {
            let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
            assert_eq!((distance(&a, &b), distance(&b, &a)), (expected, expected), "{a:?} {b:?}");
        };
        check("search", "search", 0);
        check("serach", "search", 1);
        check("directry", "directory", 1);
        check("brnach", "branches", 3);
        check("", "abc", 3);
    }

    #[test]
    fn typos_and_short_forms_are_found() {
        let terms = ["search", "screenshot", "configuration", "commit", "comment", "file"];
        let mut near = SimilarTerms::default();
        for (id, term) in (0..).zip(terms) {
            near.add(term, id);
        }
        let best = |word: &str| {
            near.find(word, |id| terms[id as usize].to_owned()).first().map(|(id, _)| terms[*id as usize])
        };
        assert_eq!(best("serach"), Some("search"));
        assert_eq!(best("screnshott"), Some("screenshot"));
        assert_eq!(best("config"), Some("configuration"));
        assert_eq!(best("comit"), Some("commit"));
        assert_eq!(best("fil"), None, "too short to tell");
        assert_eq!(best("pizza"), None);
    }
}
