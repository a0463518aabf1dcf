//! Changes to the parameters, result or error of a message; every byte elsewhere stays.

use std::collections::HashSet;
use std::ops::Range;

use regex::bytes::Regex;

use super::document::{Document, JsonPath};
use crate::expression::{self, ExpressionError};
use crate::json::edit;
use crate::json::escape::escape;
use crate::json::tree::NodeKind;

/// One change that a rule makes.
#[derive(Clone, Debug)]
pub struct RuleChange {
    path: JsonPath,
    what: RuleChangeKind,
}

#[derive(Clone, Debug)]
enum RuleChangeKind {
    /// Sets a value, given as JSON.
    Set(String),
    Remove,
    /// Replaces matches in strings.
    Replace(Regex, String),
}

/// The message would exceed the maximum length.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Ranges of a text and their replacements.
pub(super) type Edits = Vec<(Range<usize>, Vec<u8>)>;

impl RuleChange {
    /// Sets the values at a path to a JSON value; a path that ends in a name adds the member to objects without it.
    #[must_use]
    pub fn set(path: JsonPath, json: String) -> Self {
        Self { path, what: RuleChangeKind::Set(json) }
    }

    /// Removes the members and elements at a path.
    #[must_use]
    pub fn remove(path: JsonPath) -> Self {
        Self { path, what: RuleChangeKind::Remove }
    }

    /// Replaces every match of a regular expression in the strings at a path; `$1` stands for a group.
    ///
    /// # Errors
    /// The expression cannot be used.
    pub fn replace(path: JsonPath, expression: &str, with: String) -> Result<Self, ExpressionError> {
        Ok(Self { path, what: RuleChangeKind::Replace(expression::finding(expression)?, with) })
    }

    /// Returns the path of the values it changes.
    pub(super) fn path(&self) -> &JsonPath {
        &self.path
    }

    /// Changes a message; `None` if there is nothing to change.
    pub(super) fn apply(
        &self,
        document: &Document<'_>,
        bytes_max: usize,
    ) -> Result<Option<Vec<u8>>, TooLong> {
        let mut edits = Edits::new();
        if let Some(body) = document.body() {
            match &self.what {
                RuleChangeKind::Set(json) => self.set_below(document, body, json.as_bytes(), &mut edits),
                RuleChangeKind::Remove => self.remove_below(document, body, &mut edits),
                RuleChangeKind::Replace(regex, with) => {
                    self.replace_below(document, body, (regex, with.as_bytes()), &mut edits, bytes_max)?;
                }
            }
        }
        // A path with `..` leads to a value and to values inside it.
        let edits = disjoint(edits);
        if edits.is_empty() {
            return Ok(None);
        }
        // Checked before the text is built, because one change may insert a long value in many places.
        let taken: usize = edits.iter().map(|(range, _)| range.len()).sum();
        let put: usize = edits.iter().map(|(_, with)| with.len()).sum();
        if document.text.len() - taken + put > bytes_max {
            return Err(TooLong);
        }
        Ok(Some(edit::apply(&document.text, edits.iter().map(|(range, with)| (range.clone(), &**with)))))
    }

    /// Lists the values at the path, for readers of every kind.
    fn find(&self, document: &Document<'_>, body: usize) -> Vec<usize> {
        self.path.0.find_for_every_reader(&document.text, &document.tree, body).folded
    }

    fn set_below(&self, document: &Document<'_>, body: usize, json: &[u8], edits: &mut Edits) {
        let (text, tree) = (&document.text, &document.tree);
        let found = self.find(document, body);
        for &node in &found {
            match self.path.0.last_name().filter(|name| *document.key(node) != *name.as_bytes()) {
                // The key differs in case. Spelled as in the rule, the value reaches readers that compare case too.
                Some(name) => {
                    let member = [b"\"", escape(name).as_bytes(), b"\":", json].concat();
                    edits.push((tree.nodes[node].start()..tree.nodes[node].range.end, member));
                }
                None if document.raw(node) != json => {
                    edits.push((tree.nodes[node].range.clone(), json.to_vec()));
                }
                None => {}
            }
        }
        let Some((holders, name)) = self.path.0.find_parents(text, tree, body) else { return };
        let there: HashSet<usize> = found.into_iter().filter_map(|node| tree.nodes[node].parent).collect();
        for holder in holders {
            let node = &tree.nodes[holder];
            if node.kind == NodeKind::Object && !there.contains(&holder) {
                let comma = if tree.children(holder).next().is_some() { "," } else { "" };
                let before = format!("{comma}\"{}\":", escape(name));
                let end = node.range.end - 1;
                edits.push((end..end, [before.as_bytes(), json].concat()));
            }
        }
    }

    fn remove_below(&self, document: &Document<'_>, body: usize, edits: &mut Edits) {
        let tree = &document.tree;
        let goes: HashSet<usize> = self.find(document, body).into_iter().collect();
        let mut holders: Vec<usize> = goes.iter().filter_map(|node| tree.nodes[*node].parent).collect();
        holders.sort_unstable();
        holders.dedup();
        for holder in holders {
            let taken = edit::take_out(tree, holder, |child| goes.contains(&child));
            edits.extend(taken.into_iter().map(|(_, range)| (range, Vec::new())));
        }
    }

    fn replace_below(
        &self,
        document: &Document<'_>,
        body: usize,
        (regex, with): (&Regex, &[u8]),
        edits: &mut Edits,
        bytes_max: usize,
    ) -> Result<(), TooLong> {
        let mut put = 0;
        for node in self.find(document, body) {
            if document.tree.nodes[node].kind != NodeKind::String {
                continue;
            }
            let (inside, start) = (document.inside(node), document.tree.nodes[node].inside().start);
            for found in regex.captures_iter(&inside.text) {
                let whole = found.get_match();
                let mut expanded = Vec::new();
                found.expand(with, &mut expanded);
                // An edit that changes nothing would make the entry report a change.
                if expanded == whole.as_bytes() {
                    continue;
                }
                let range = inside.original(&whole.range());
                let with = escape(&String::from_utf8_lossy(&expanded)).into_bytes();
                put += with.len();
                // Checked inside the loop, because a short pattern may have very many matches.
                if put > bytes_max {
                    return Err(TooLong);
                }
                edits.push((range.start + start..range.end + start, with));
            }
        }
        Ok(())
    }
}

/// Sorts edits, and drops those inside another.
fn disjoint(mut edits: Edits) -> Edits {
    edits.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
    let mut end = 0;
    edits.retain(|(range, _)| {
        let is_free = range.start >= end;
        end = if is_free { range.end } else { end };
        is_free
    });
    edits
}
