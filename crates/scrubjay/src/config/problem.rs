//! What is wrong with a configuration, told all at once.

use std::fmt;

use serde::Serialize;

use super::node::{Node, Origin, Value, below};

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    #[serde(skip)]
    pub(crate) origin: Origin,
    /// The path of the key; empty for a file as a whole.
    #[serde(rename = "path")]
    pub(crate) key: String,
    pub(crate) message: String,
}

impl Problem {
    pub(crate) fn new(origin: &Origin, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { origin: origin.clone(), key: key.into(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key_told =
            matches!(self.origin, Origin::Environment(_) | Origin::EnvFile { .. } | Origin::Flag(_));
        write!(f, "{}: ", self.origin)?;
        if !key_told && !self.key.is_empty() {
            write!(f, "{} ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// A configuration that cannot be used, with everything that is wrong with it.
#[derive(Debug)]
pub(crate) struct ConfigError {
    pub(crate) problems: Vec<Problem>,
}

impl ConfigError {
    /// Returns the error, where there is something to tell.
    pub(crate) fn unless_empty(problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self { problems }) }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration cannot be used")
    }
}

impl std::error::Error for ConfigError {}

/// Returns the entries of a map whose keys are all known; reports the others.
///
/// A null stands for a map with nothing in it.
pub(crate) fn entries<'a>(
    node: &'a Node,
    key: &str,
    known: &[&str],
    problems: &mut Vec<Problem>,
) -> Vec<&'a (String, Node)> {
    let entries = match &node.value {
        Value::Null => return Vec::new(),
        Value::Map(entries) => entries,
        Value::Scalar(_) | Value::List(_) => {
            problems.push(Problem::new(&node.origin, key, "must be a map of keys to values"));
            return Vec::new();
        }
    };
    let (ours, others): (Vec<_>, Vec<_>) =
        entries.iter().partition(|(name, _)| known.contains(&name.as_str()));
    for (name, value) in others {
        problems.push(Problem::new(&value.origin, below(key, name), unknown(name, known)));
    }
    ours
}

/// Says that a key is unknown, and which one may have been meant.
pub(crate) fn unknown(name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(near) => format!("is not a known key: did you mean `{near}`?"),
        None => format!("is not a known key: known are {}", known.join(", ")),
    }
}

/// Returns the known name that is least far from a name, if it is near at all.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |text: &str| -> Vec<char> {
        text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).take(64).collect()
    };
    let name = plain(name);
    let (distance, near) = known.iter().map(|k| (distance(&name, &plain(k)), *k)).min_by_key(|(d, _)| *d)?;
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
    fn the_nearest_key_is_named() {
        let known = ["log_level", "serve", "backends", "limits"];
        assert_eq!(nearest("logLevel", &known), Some("log_level"));
        assert_eq!(nearest("log-levle", &known), Some("log_level"));
        assert_eq!(nearest("backend", &known), Some("backends"));
        assert_eq!(nearest("sevre", &known), Some("serve"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest("", &known), None);
        assert!(unknown("colour", &known).contains("log_level, serve"));
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

    #[test]
    fn a_problem_says_where() {
        let flag = Problem::new(&Origin::Flag("--http"), "serve.http", "must be an address");
        assert_eq!(flag.to_string(), "--http: must be an address");
        let option = Problem::new(&Origin::Options, "backends[0].id", "is required");
        assert_eq!(option.to_string(), "initializationOptions: backends[0].id is required");
        let data = serde_json::json!({ "path": "backends[0].id", "message": "is required" });
        assert_eq!(serde_json::to_value(&option).unwrap(), data);
    }
}
