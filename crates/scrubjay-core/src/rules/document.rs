//! One message with the structure of its text: its kind, its method, its tool, its body.
//!
//! The functions rely on the checks of [`super::strict`]: every key of the envelope occurs once, spelled as in the
//! protocol.

use std::borrow::Cow;
use std::cell::OnceCell;

use thiserror::Error;

use super::json_in_text::unpack;
use crate::json::escape::Unescaped;
use crate::json::path::{Path, PathError};
use crate::json::strict::JsonProblem;
use crate::json::tree::{NodeKind, Tree};
use crate::protocol::method;

/// A JSONPath below a message's parameters, result or error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath(pub(super) Path);

/// Why a text is no JSONPath. The text follows the name of its setting.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("is not a JSONPath: {0}")]
pub struct JsonPathError(PathError);

impl JsonPath {
    /// Parses a path: names, numbers, `*` and `..`.
    ///
    /// # Errors
    /// It is not a path.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        Path::parse(text).map(Self).map_err(JsonPathError)
    }
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageNature {
    Request,
    Notification,
    Answer,
}

/// One message.
pub(super) struct Document<'a> {
    pub(super) text: Cow<'a, [u8]>,
    pub(super) tree: Tree,
    /// The message with JSON in its string arguments unpacked, computed when first needed.
    unpacked: OnceCell<Result<Option<Box<Document<'static>>>, JsonProblem>>,
}

impl<'a> Document<'a> {
    /// Parses a message; `None` if it is not a JSON object, or nested too deeply.
    pub(super) fn new(text: Cow<'a, [u8]>) -> Option<Self> {
        let tree = Tree::parse(&text)?;
        (tree.nodes[0].kind == NodeKind::Object).then(|| Self::of_tree(text, tree))
    }

    pub(super) fn of_tree(text: Cow<'a, [u8]>, tree: Tree) -> Self {
        Self { text, tree, unpacked: OnceCell::new() }
    }

    /// Returns the message with JSON in its string arguments unpacked, as some servers read it; `None` if there is
    /// none.
    pub(super) fn unpacked(&self) -> Result<Option<&Document<'static>>, JsonProblem> {
        let unpacked = self.unpacked.get_or_init(|| unpack(self).map(|unpacked| unpacked.map(Box::new)));
        unpacked.as_ref().map(Option::as_deref).map_err(|flaw| *flaw)
    }

    pub(super) fn nature(&self) -> MessageNature {
        match (self.method(), self.member(0, b"id")) {
            (Some(_), Some(_)) => MessageNature::Request,
            (Some(_), None) => MessageNature::Notification,
            // `strict` has refused a message that has neither a method nor a result or error.
            (None, _) => MessageNature::Answer,
        }
    }

    pub(super) fn method(&self) -> Option<Cow<'_, [u8]>> {
        self.string(0, b"method")
    }

    /// Returns the tool that the message calls, if it calls one.
    pub(super) fn tool(&self) -> Option<Cow<'_, [u8]>> {
        self.method().filter(|method| **method == *method::TOOLS_CALL.as_bytes())?;
        self.string(self.member(0, b"params")?, b"name")
    }

    /// Returns the node at which paths begin: the parameters, the result or the error.
    pub(super) fn body(&self) -> Option<usize> {
        let answer = || self.member(0, b"result").or_else(|| self.member(0, b"error"));
        if self.method().is_some() { self.member(0, b"params") } else { answer() }
    }

    /// Returns the id as raw JSON.
    pub(super) fn id(&self) -> Cow<'_, str> {
        let id = self.member(0, b"id");
        id.map_or(Cow::Borrowed("null"), |id| String::from_utf8_lossy(self.raw(id)))
    }

    /// Returns the raw JSON of a node.
    pub(super) fn raw(&self, node: usize) -> &[u8] {
        &self.text[self.tree.nodes[node].range.clone()]
    }

    /// Returns the inside of a string.
    pub(super) fn inside(&self, node: usize) -> Unescaped<'_> {
        Unescaped::new(&self.text[self.tree.nodes[node].inside()])
    }

    /// Returns the key of a member, without escapes.
    pub(super) fn key(&self, node: usize) -> Cow<'_, [u8]> {
        let key = self.tree.nodes[node].key.clone();
        key.map(|key| Unescaped::new(&self.text[key]).text).unwrap_or_default()
    }

    /// Returns a member of an object by its exact key.
    pub(super) fn member(&self, object: usize, name: &[u8]) -> Option<usize> {
        self.tree.children(object).find(|child| *self.key(*child) == *name)
    }

    pub(super) fn kind(&self, node: usize) -> NodeKind {
        self.tree.nodes[node].kind
    }

    fn string(&self, object: usize, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        let node = self.member(object, name).filter(|node| self.kind(*node) == NodeKind::String)?;
        Some(self.inside(node).text)
    }
}
