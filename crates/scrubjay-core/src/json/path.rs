//! The part of JSONPath that addresses values: names, numbers, `*` and `..`; no filters or scripts.

use std::borrow::Cow;
use std::collections::HashSet;

use thiserror::Error;

use super::escape::Unescaped;
use super::fold::fold;
use super::tree::{NodeKind, Tree};

/// The nodes that a path leads to, for readers that differ on the case of keys.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PathMatches {
    /// For readers that compare case.
    pub(crate) exact: Vec<usize>,
    /// For readers that ignore case.
    pub(crate) folded: Vec<usize>,
    /// Whether a reader that ignores case has a choice between several keys.
    pub(crate) is_ambiguous: bool,
}

/// Why a text is no path, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} at character {character} of {text:?}")]
pub struct PathError {
    what: &'static str,
    /// Counted from one, as people do.
    character: usize,
    text: String,
}

/// A compiled path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    steps: Vec<PathStep>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PathStep {
    /// At any depth (`..`).
    deep: bool,
    selector: Selector,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Selector {
    Name(String),
    Element(i64),
    All,
}

impl Path {
    /// Parses a path that begins at `$`, or a relative one.
    pub(crate) fn parse(text: &str) -> Result<Self, PathError> {
        let wrong = |rest: &str, what: &'static str| {
            let before = &text[..text.len() - rest.len()];
            Err(PathError { what, character: before.chars().count() + 1, text: text.to_owned() })
        };
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        let relative = rest.len() == text.len();
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let deep = rest.starts_with("..");
            let first = relative && steps.is_empty();
            let (selector, after) = if let Some(inside) = rest.strip_prefix(if deep { "..[" } else { "[" }) {
                let Some(end) = closing(inside) else { return wrong(rest, "a [ without its ]") };
                let Some(selector) = bracketed(&inside[..end]) else {
                    return wrong(inside, "neither a number, a quoted name nor *");
                };
                (selector, &inside[end + 1..])
            } else {
                let dotted = if deep { rest.strip_prefix("..") } else { rest.strip_prefix('.') };
                // A relative path begins with a name without a dot.
                let Some(name) = dotted.or(first.then_some(rest)) else {
                    return wrong(rest, "neither a . nor a [");
                };
                let end = name.find(['.', '[', ' ', '?', '@', '(']).unwrap_or(name.len());
                match &name[..end] {
                    "" => return wrong(name, "no name"),
                    "*" => (Selector::All, &name[end..]),
                    plain => (Selector::Name(plain.to_owned()), &name[end..]),
                }
            };
            steps.push(PathStep { deep, selector });
            rest = after;
        }
        if steps.is_empty() { wrong(rest, "no step") } else { Ok(Self { steps }) }
    }

    /// Returns a name that occurs in every text in which the path leads somewhere, if there is one.
    pub(crate) fn required_name(&self) -> Option<&str> {
        let mut names = self.steps.iter().filter_map(|step| match &step.selector {
            Selector::Name(name) => Some(name.as_str()),
            Selector::Element(_) | Selector::All => None,
        });
        // The last one, because the first names of a path, such as `params`, are in nearly every message.
        names.next_back()
    }

    /// Finds the nodes that the path leads to from a node, for readers of every kind.
    pub(crate) fn find_for_every_reader(&self, text: &[u8], tree: &Tree, from: usize) -> PathMatches {
        let exact = walk(&self.steps, text, tree, from);
        let mut matches = PathMatches { exact, folded: vec![from], is_ambiguous: false };
        for step in &self.steps {
            let mut next = Vec::new();
            for node in std::mem::take(&mut matches.folded) {
                for parent in step.parents(tree, node) {
                    matches.is_ambiguous |= step.selector.select_folded(text, tree, parent, &mut next);
                }
            }
            next.sort_unstable();
            next.dedup();
            matches.folded = next;
        }
        matches
    }

    /// Returns the name at the end of the path, if it ends in one.
    pub(crate) fn last_name(&self) -> Option<&str> {
        match self.steps.last() {
            Some(PathStep { selector: Selector::Name(name), .. }) => Some(name),
            _ => None,
        }
    }

    /// Lists the nodes that the path leads to from a node, for readers that compare case.
    pub(crate) fn find(&self, text: &[u8], tree: &Tree, from: usize) -> Vec<usize> {
        walk(&self.steps, text, tree, from)
    }

    /// Lists the nodes that the path leads to without its last step, and the name in that step; `None` if the last step
    /// is not a plain name.
    pub(crate) fn find_parents(&self, text: &[u8], tree: &Tree, from: usize) -> Option<(Vec<usize>, &str)> {
        match self.steps.split_last()? {
            (PathStep { deep: false, selector: Selector::Name(name) }, before) => {
                Some((walk(before, text, tree, from), name))
            }
            _ => None,
        }
    }
}

fn walk(steps: &[PathStep], text: &[u8], tree: &Tree, from: usize) -> Vec<usize> {
    let mut nodes = vec![from];
    for step in steps {
        // Two steps with `..` may lead to the same node in several ways, hence the `dedup`.
        let mut next = Vec::new();
        for node in nodes {
            for parent in step.parents(tree, node) {
                step.selector.select(text, tree, parent, &mut next);
            }
        }
        next.sort_unstable();
        next.dedup();
        nodes = next;
    }
    nodes
}

impl PathStep {
    /// Lists the nodes among whose children the step selects.
    fn parents(&self, tree: &Tree, node: usize) -> std::ops::Range<usize> {
        if self.deep { node..tree.nodes[node].next } else { node..node + 1 }
    }
}

/// Returns the case-folded key of a node; empty if it has no key.
fn folded_key<'t>(text: &'t [u8], tree: &Tree, node: usize) -> Cow<'t, [u8]> {
    let key = tree.nodes[node].key.clone();
    key.map(|key| fold(&Unescaped::new(&text[key]).text)).unwrap_or_default()
}

impl Selector {
    /// Selects like a reader that ignores case; returns whether that reader has a choice between several keys.
    fn select_folded(&self, text: &[u8], tree: &Tree, parent: usize, out: &mut Vec<usize>) -> bool {
        match self {
            Self::Name(name) if tree.nodes[parent].kind == NodeKind::Object => {
                let name = Cow::Borrowed(name.as_bytes());
                let (wanted, before) = (fold(&name), out.len());
                out.extend(tree.children(parent).filter(|child| folded_key(text, tree, *child) == wanted));
                out.len() > before + 1
            }
            Self::All if tree.nodes[parent].kind == NodeKind::Object => {
                out.extend(tree.children(parent));
                let mut seen = HashSet::new();
                !tree.children(parent).all(|child| seen.insert(folded_key(text, tree, child)))
            }
            _ => {
                self.select(text, tree, parent, out);
                false
            }
        }
    }

    fn select(&self, text: &[u8], tree: &Tree, parent: usize, out: &mut Vec<usize>) {
        match self {
            Self::All => out.extend(tree.children(parent)),
            Self::Name(name) => out.extend(tree.children(parent).filter(|child| {
                let key = tree.nodes[*child].key.clone();
                key.is_some_and(|key| *Unescaped::new(&text[key]).text == *name.as_bytes())
            })),
            Self::Element(number) if tree.nodes[parent].kind == NodeKind::Array => {
                let children: Vec<usize> = tree.children(parent).collect();
                let back = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
                let at = if *number < 0 { children.len().checked_sub(back) } else { Some(back) };
                out.extend(at.and_then(|at| children.get(at)));
            }
            Self::Element(_) => {}
        }
    }
}

/// Returns the position of the closing bracket.
fn closing(inside: &str) -> Option<usize> {
    match inside.chars().next()? {
        quote @ ('\'' | '"') => {
            let end = inside[1..].find(quote)? + 2;
            inside[end..].starts_with(']').then_some(end)
        }
        _ => inside.find(']'),
    }
}

fn bracketed(inside: &str) -> Option<Selector> {
    match inside.chars().next()? {
        '*' if inside.len() == 1 => Some(Selector::All),
        quote @ ('\'' | '"') => {
            Some(Selector::Name(inside[1..].strip_suffix(quote).filter(|name| !name.is_empty())?.to_owned()))
        }
        _ => inside.parse().ok().map(Selector::Element),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(path: &str, text: &str) -> Vec<String> {
        let tree = Tree::parse(text.as_bytes()).unwrap();
        let found = Path::parse(path).unwrap().find(text.as_bytes(), &tree, 0);
        found.into_iter().map(|node| text[tree.nodes[node].range.clone()].to_owned()).collect()
    }

    #[test]
    fn paths_lead_to_values() {
        let text = r#"{"a":{"b":[1,{"b":2},3],"c d":4},"b":5}"#;
        assert_eq!(find("$.b", text), ["5"]);
        assert_eq!(find("$.a.b[0]", text), ["1"]);
        assert_eq!(find("$.a.b[-1]", text), ["3"]);
        assert_eq!(find("$['a']['c d']", text), ["4"]);
        assert_eq!(find("$..b[1].b", text), ["2"]);
        assert_eq!(find("$..b", text), [r#"[1,{"b":2},3]"#, "2", "5"]);
        assert_eq!(find("a.*", text), [r#"[1,{"b":2},3]"#, "4"]);
        assert_eq!(find(r"$.\u0062", text), Vec::<String>::new());
        assert_eq!(find("$.b", r#"{"\u0062":7}"#), ["7"]);
    }

    #[test]
    fn matches_for_readers_that_ignore_case_are_found() {
        let find = |path: &str, text: &str| {
            let tree = Tree::parse(text.as_bytes()).unwrap();
            let matches = Path::parse(path).unwrap().find_for_every_reader(text.as_bytes(), &tree, 0);
            (matches.exact.len(), matches.folded.len(), matches.is_ambiguous)
        };
        assert_eq!(find("$.a.path", r#"{"a":{"path":1,"x":2,"X":3}}"#), (1, 1, false));
        assert_eq!(find("$.a.path", r#"{"A":{"Path":1}}"#), (0, 1, false));
        assert_eq!(find("$.a.path", r#"{"a":{"path":1,"\u0050ath":2}}"#), (1, 2, true));
        assert_eq!(find("$.a.*", r#"{"a":{"path":1,"PATH":2}}"#), (2, 2, true));
        assert_eq!(find("$..k", r#"{"a":[{"k":1},{"\u212a":2}]}"#), (1, 2, false));
        assert_eq!(find("$.a[0]", r#"{"a":[1]}"#), (1, 1, false));
    }

    #[test]
    fn an_invalid_path_names_the_position() {
        for (path, what) in [
            ("$", "no step at character 2"),
            ("$.a[", "a [ without its ] at character 4"),
            ("$.a[?(@.x)]", "neither a number"),
            ("$.a..", "no name at character 6"),
            ("$a", "neither a . nor a [ at character 2"),
            ("$.a b", "neither a . nor a [ at character 4"),
            ("$.é b", "neither a . nor a [ at character 4"),
        ] {
            let message = Path::parse(path).unwrap_err().to_string();
            assert!(message.contains(what), "{path}: {message}");
        }
    }
}
