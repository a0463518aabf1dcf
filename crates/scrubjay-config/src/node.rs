//! Values as they were written, each with its origin.
//!
//! The values of every layer (defaults, file, environment, flag, a client's options) are such nodes before anything reads
//! them, so that each problem and each line of `config show` can name its origin. Scalars keep their text: the key
//! decides its type.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Built in.
    Default,
    /// A line of a configuration file.
    File { path: Arc<Path>, line: usize },
    /// What a client sent with `initialize`.
    Options,
    /// A variable of the environment.
    Environment(String),
    /// A line of the file named by `--env-file`.
    EnvFile { path: Arc<Path>, line: usize, name: String },
    /// A flag of the command line.
    Flag(&'static str),
}

impl Origin {
    /// Returns the directory that a relative path from here starts from; `None` is the working directory.
    pub(crate) fn directory(&self) -> Option<&Path> {
        if let Self::File { path, .. } = self { path.parent() } else { None }
    }

    /// Tells whether a list from here is one text with commas, because this source has no other notation.
    pub(crate) fn lists_with_commas(&self) -> bool {
        matches!(self, Self::Default | Self::Environment(_) | Self::EnvFile { .. } | Self::Flag(_))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Options => f.write_str("initializationOptions"),
            Self::Environment(name) => write!(f, "${name}"),
            Self::EnvFile { path, line, name } => write!(f, "{}:{line} ({name})", path.display()),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// The type that a scalar has in YAML or JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Number,
    Boolean,
}

/// A single value. It has no `Debug`, because it may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Scalar {
    /// The value as it is written.
    pub text: String,
    pub(crate) kind: Kind,
    /// Whether part of the text came from a variable. Messages do not repeat such a text.
    pub(crate) expanded: bool,
    /// Whether the name of that variable suggests a secret.
    pub(crate) secret: bool,
}

impl Scalar {
    pub(crate) fn new(text: String, kind: Kind) -> Self {
        Self { text, kind, expanded: false, secret: false }
    }

    /// Quotes the text for a message, unless it came from a variable.
    pub(crate) fn quoted(&self) -> String {
        if self.expanded { "what its variable holds".to_owned() } else { format!("{:?}", self.text) }
    }
}

/// A value of YAML or JSON.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// Null, or nothing behind a key.
    Null,
    /// A single value.
    Scalar(Scalar),
    /// A list.
    List(Vec<Node>),
    /// A map, in the order in which it was written; keys are unique.
    Map(Vec<(String, Node)>),
}

/// A value and its origin.
#[derive(Clone, PartialEq, Eq)]
pub struct Node {
    pub(crate) origin: Origin,
    /// The value.
    pub value: Value,
}

impl Node {
    pub(crate) fn text(text: impl Into<String>, origin: Origin) -> Self {
        Self { origin, value: Value::Scalar(Scalar::new(text.into(), Kind::Text)) }
    }

    pub(crate) fn map(origin: Origin) -> Self {
        Self { origin, value: Value::Map(Vec::new()) }
    }

    pub(crate) fn from_json(json: &Json, origin: &Origin) -> Self {
        let scalar = |text: String, kind| Value::Scalar(Scalar::new(text, kind));
        let value = match json {
            Json::Null => Value::Null,
            Json::Bool(b) => scalar(b.to_string(), Kind::Boolean),
            Json::Number(n) => scalar(n.to_string(), Kind::Number),
            Json::String(s) => scalar(s.clone(), Kind::Text),
            Json::Array(items) => Value::List(items.iter().map(|i| Self::from_json(i, origin)).collect()),
            Json::Object(entries) => {
                Value::Map(entries.iter().map(|(k, v)| (k.clone(), Self::from_json(v, origin))).collect())
            }
        };
        Self { origin: origin.clone(), value }
    }

    /// Returns the value of a key of this map.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|(k, _)| k == key).map(|(_, node)| node)
    }

    /// Returns the text of a key's single value.
    pub(crate) fn text_at(&self, key: &str) -> Option<&str> {
        self.get(key)?.scalar().map(|scalar| scalar.text.as_str())
    }

    /// Returns an item of this list.
    pub(crate) fn item(&self, at: usize) -> Option<&Self> {
        if let Value::List(items) = &self.value { items.get(at) } else { None }
    }

    pub(crate) fn scalar(&self) -> Option<&Scalar> {
        if let Value::Scalar(scalar) = &self.value { Some(scalar) } else { None }
    }
}

/// Returns the path of a key below another; without a name, the path itself.
pub(crate) fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_displayed() {
        let path: Arc<Path> = Path::new("/p/scrubjay.yaml").into();
        let file = Origin::File { path: path.clone(), line: 3 };
        assert_eq!(file.to_string(), "/p/scrubjay.yaml:3");
        assert_eq!(file.directory(), Some(Path::new("/p")));
        assert_eq!(Origin::Environment("LOG_LEVEL".to_owned()).to_string(), "$LOG_LEVEL");
        let env_file = Origin::EnvFile { path, line: 2, name: "K".to_owned() };
        assert_eq!(env_file.to_string(), "/p/scrubjay.yaml:2 (K)");
        assert_eq!(env_file.directory(), None);
    }
}
