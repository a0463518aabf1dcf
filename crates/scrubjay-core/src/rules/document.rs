//! One message as places in its text: what it is, what it is about, whom it answers.
//!
//! Read as leniently as any peer might: a member that stands there twice counts each time, and the case of the
//! envelope's names does not count, for readers differ on both.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::json::escape::Unescaped;
use crate::json::path::Path;
use crate::json::tree::{Kind, Tree};

/// A JSONPath below a message's parameters, result or error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath(pub(super) Path);

impl JsonPath {
    /// Reads a path: names, numbers, `*` and `..`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        Path::parse(text).map(Self).map_err(|e| format!("is not a JSONPath: {e}"))
    }
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nature {
    Request,
    Notification,
    Answer,
    /// Not JSON-RPC.
    Other,
}

/// One message.
pub(super) struct Document<'a> {
    pub(super) text: Cow<'a, [u8]>,
    pub(super) tree: Tree,
}

impl<'a> Document<'a> {
    /// Reads a message; none where it is no JSON object, or nested too deeply.
    pub(super) fn new(text: Cow<'a, [u8]>) -> Option<Self> {
        let tree = Tree::parse(&text)?;
        (tree.nodes[0].kind == Kind::Object).then_some(Self { text, tree })
    }

    pub(super) fn nature(&self) -> Nature {
        let id = self.named(0, b"id").into_iter().any(|id| self.raw(id) != b"null");
        if !self.methods().is_empty() {
            if id { Nature::Request } else { Nature::Notification }
        } else if self.bodies_of_answer().is_empty() {
            Nature::Other
        } else {
            Nature::Answer
        }
    }

    /// Lists what its methods are: more than one where it stands there twice.
    pub(super) fn methods(&self) -> Vec<Cow<'_, [u8]>> {
        self.strings(0, b"method")
    }

    /// Lists the names in its parameters.
    pub(super) fn tools(&self) -> Vec<Cow<'_, [u8]>> {
        self.named(0, b"params").into_iter().flat_map(|params| self.strings(params, b"name")).collect()
    }

    /// Lists what paths begin at: the parameters, or the result and the error.
    pub(super) fn bodies(&self) -> Vec<usize> {
        let params = self.named(0, b"params");
        if self.methods().is_empty() { self.bodies_of_answer() } else { params }
    }

    fn bodies_of_answer(&self) -> Vec<usize> {
        [self.named(0, b"result"), self.named(0, b"error")].concat()
    }

    /// Returns the id as it is spelled.
    pub(super) fn id(&self) -> Cow<'_, str> {
        let id = self.named(0, b"id").last().copied();
        id.map_or(Cow::Borrowed("null"), |id| String::from_utf8_lossy(self.raw(id)))
    }

    /// Returns the id so that two spellings of the same are the same.
    pub(super) fn plain_id(&self) -> Vec<u8> {
        let Some(id) = self.named(0, b"id").last().copied() else { return Vec::new() };
        let raw = self.raw(id);
        match self.tree.nodes[id].kind {
            Kind::String => [b"\"", &*self.inside(id).text].concat(),
            Kind::Number => {
                let number = std::str::from_utf8(raw).ok().and_then(|raw| raw.parse::<f64>().ok());
                // Beyond this, neighbouring whole numbers are one.
                let whole = number.filter(|n| n.fract() == 0.0 && n.abs() < 9e15);
                whole.map_or_else(|| raw.to_vec(), |n| format!("{n}").into_bytes())
            }
            _ => raw.to_vec(),
        }
    }

    /// Tells whether readers may differ on what it says: a name stands twice in one of its objects.
    pub(super) fn is_ambiguous(&self) -> bool {
        let envelope: Vec<usize> = std::iter::once(0).chain(self.bodies()).collect();
        (0..self.tree.nodes.len()).filter(|node| self.tree.nodes[*node].kind == Kind::Object).any(|object| {
            let folds = envelope.contains(&object);
            let mut seen = HashSet::new();
            !self.tree.children(object).all(|child| {
                let mut key = self.key(child).map(|key| key.text.into_owned()).unwrap_or_default();
                if folds {
                    key.make_ascii_lowercase();
                }
                seen.insert(key)
            })
        })
    }

    /// Returns the text of a node.
    pub(super) fn raw(&self, node: usize) -> &[u8] {
        &self.text[self.tree.nodes[node].range.clone()]
    }

    /// Returns the inside of a string.
    pub(super) fn inside(&self, node: usize) -> Unescaped<'_> {
        Unescaped::new(&self.text[self.tree.nodes[node].inside()])
    }

    fn key(&self, node: usize) -> Option<Unescaped<'_>> {
        self.tree.nodes[node].key.clone().map(|key| Unescaped::new(&self.text[key]))
    }

    fn named(&self, object: usize, name: &[u8]) -> Vec<usize> {
        let is_it = |child: &usize| self.key(*child).is_some_and(|key| key.text.eq_ignore_ascii_case(name));
        self.tree.children(object).filter(is_it).collect()
    }

    fn strings(&self, object: usize, name: &[u8]) -> Vec<Cow<'_, [u8]>> {
        let strings = self.named(object, name).into_iter();
        let strings = strings.filter(|node| self.tree.nodes[*node].kind == Kind::String);
        strings.map(|node| self.inside(node).text).collect()
    }
}
