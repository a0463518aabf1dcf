//! Problems of a configuration. They are collected and reported all at once.

use std::fmt;

use scrubjay_core::spelling::nearest;
use serde::Serialize;
use thiserror::Error;

use super::node::Origin;

/// Something that is wrong, with its origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    #[serde(skip)]
    pub(crate) origin: Origin,
    /// The path of the key; empty for a file as a whole.
    #[serde(rename = "path")]
    pub key: String,
    pub(crate) message: String,
}

impl Problem {
    pub(crate) fn new(origin: &Origin, key: impl Into<String>, message: impl fmt::Display) -> Self {
        Self { origin: origin.clone(), key: key.into(), message: message.to_string() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A variable or flag already says which key is meant.
        let origin_names_key =
            matches!(self.origin, Origin::Environment(_) | Origin::EnvFile { .. } | Origin::Flag(_));
        write!(f, "{}: ", self.origin)?;
        if !origin_names_key && !self.key.is_empty() {
            write!(f, "{} ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// A configuration that cannot be used, with everything that is wrong with it.
#[derive(Debug, Error)]
#[error("the configuration cannot be used")]
pub struct ConfigError {
    /// Everything that is wrong.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    /// Returns an error if there are problems.
    ///
    /// # Errors
    /// There are problems.
    pub fn unless_empty(problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self { problems }) }
    }
}

/// Words the problem of an unknown key: with the nearest known one, or all known ones if none is near.
pub(crate) fn unknown(name: &str, known: &[&str]) -> String {
    match nearest(name, known) {
        Some(near) => format!("is not a known key: did you mean `{near}`?"),
        None => format!("is not a known key: known are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_reported_with_the_known_ones() {
        let known = ["log_level", "serve"];
        assert!(unknown("logLevel", &known).contains("did you mean `log_level`?"));
        assert!(unknown("colour", &known).contains("log_level, serve"));
    }

    #[test]
    fn a_problem_names_its_origin() {
        let flag = Problem::new(&Origin::Flag("--http"), "serve.http", "must be an address");
        assert_eq!(flag.to_string(), "--http: must be an address");
        let option = Problem::new(&Origin::Options, "backends[0].id", "is required");
        assert_eq!(option.to_string(), "initializationOptions: backends[0].id is required");
        let data = serde_json::json!({ "path": "backends[0].id", "message": "is required" });
        assert_eq!(serde_json::to_value(&option).unwrap(), data);
    }
}
