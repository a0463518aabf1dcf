//! A value as it was written, with the place it was written at.
//!
//! Every layer (file, environment, flag, a client's options) becomes such a tree before anything reads it, so
//! that each problem and each line of `config show` can name its place. Scalars keep their text: what type it
//! has is for the key to say.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
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
    /// Returns the directory that a relative path written there starts from; `None` is the working directory.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::File { path, .. } => path.parent(),
            _ => None,
        }
    }

    /// Tells whether a list is written there with commas, for want of another way.
    pub fn lists_with_commas(&self) -> bool {
        matches!(self, Self::Environment(_) | Self::EnvFile { .. } | Self::Flag(_))
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

/// What a scalar is, as its notation tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Number,
    Boolean,
}

/// A single value. It may be a secret: it has no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Scalar {
    pub text: String,
    pub kind: Kind,
    /// A variable stood in it: messages do not repeat its text.
    pub expanded: bool,
    /// A variable with the name of a secret stood in it.
    pub secret: bool,
}

impl Scalar {
    pub fn new(text: String, kind: Kind) -> Self {
        Self { text, kind, expanded: false, secret: false }
    }

    /// Quotes the text for a message, unless it came out of a variable.
    pub fn quoted(&self) -> String {
        if self.expanded { "what its variable holds".to_owned() } else { format!("{:?}", self.text) }
    }
}

/// What was written.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A single value.
    Scalar(Scalar),
    /// A list.
    List(Vec<Node>),
    /// In the order in which it was written; keys are unique.
    Map(Vec<(String, Node)>),
}

/// A value and its place.
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

    /// Takes a JSON value over as it is.
    pub fn from_json(json: &serde_json::Value, origin: &Origin) -> Self {
        use serde_json::Value as Json;
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

    /// Returns what stands at a key of this map.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|(k, _)| k == key).map(|(_, node)| node)
    }

    /// Returns where an item of a list stands; the list itself, where commas part its items.
    pub fn item_origin(&self, i: usize) -> &Origin {
        match &self.value {
            Value::List(items) => items.get(i).map_or(&self.origin, |item| &item.origin),
            _ => &self.origin,
        }
    }

    /// Puts a value at a dotted path, making the maps on the way.
    pub fn put(&mut self, path: &str, node: Self) {
        let Value::Map(entries) = &mut self.value else { return };
        let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        let at = entries.iter().position(|(k, _)| k == first).unwrap_or_else(|| {
            entries.push((first.to_owned(), Self::map(node.origin.clone())));
            entries.len() - 1
        });
        match rest {
            Some(rest) => entries[at].1.put(rest, node),
            None => entries[at].1 = node,
        }
    }

    /// Takes out what stands at a dotted path.
    pub fn take(&mut self, path: &str) -> Option<Self> {
        let Value::Map(entries) = &mut self.value else { return None };
        match path.split_once('.') {
            Some((first, rest)) => entries.iter_mut().find(|(k, _)| k == first)?.1.take(rest),
            None => {
                let at = entries.iter().position(|(k, _)| k == path)?;
                Some(entries.remove(at).1)
            }
        }
    }
}

/// Returns the path of a key below another.
pub(crate) fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_put_and_taken() {
        let mut tree = Node::map(Origin::Default);
        tree.put("a.b", Node::text("1", Origin::Flag("--b")));
        tree.put("a.c", Node::text("2", Origin::Default));
        assert!(tree.get("a").and_then(|a| a.get("b")).is_some());
        assert!(tree.take("a.b").is_some_and(|n| n.origin == Origin::Flag("--b")));
        assert!(tree.take("a.b").is_none() && tree.take("x.y").is_none());
        assert!(tree.get("a").and_then(|a| a.get("c")).is_some());
    }

    #[test]
    fn places_are_told() {
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
