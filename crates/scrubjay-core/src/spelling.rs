//! Suggests the known name that a person or a model probably meant.

/// The characters of a name that are compared, because the distance is quadratic in them.
const CHARS_MAX: usize = 64;

/// Returns the known name that is nearest to a name, if it is near enough to be a typo.
#[must_use]
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |text: &str| -> Vec<char> {
        text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).take(CHARS_MAX).collect()
    };
    let name = plain(name);
    let (distance, near) = known.iter().map(|k| (distance(&name, &plain(k)), *k)).min_by_key(|(d, _)| *d)?;
    // Beyond a third of its letters a name is rather another word than a typo.
    (distance <= 1.max(name.len() / 3)).then_some(near)
}

/// Counts the letters to insert, remove, replace or swap to get from one name to the other.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut steps = (row[j] + usize::from(x != y)).min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                steps = steps.min(before[j - 1] + 1);
            }
            next.push(steps);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found() {
        let known = ["log_level", "serve", "backends", "limits"];
        assert_eq!(nearest("logLevel", &known), Some("log_level"));
        assert_eq!(nearest("log-levle", &known), Some("log_level"));
        assert_eq!(nearest("backend", &known), Some("backends"));
        assert_eq!(nearest("sevre", &known), Some("serve"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest("", &known), None);
    }

    #[test]
    fn distances_are_counted() {
        let count =
            |a: &str, b: &str| distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>());
        assert_eq!(count("", "abc"), 3);
        assert_eq!(count("kitten", "sitting"), 3);
        assert_eq!(count("ab", "ba"), 1);
        assert_eq!(count("same", "same"), 0);
    }
}
