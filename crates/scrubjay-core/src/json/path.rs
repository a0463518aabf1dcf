//! JSONPath, the part that says where a value stands: names, numbers, `*` and `..`; no filters or scripts.

use std::borrow::Cow;
use std::collections::HashSet;

use thiserror::Error;

use super::escape::Unescaped;
use super::fold::fold;
use super::tree::{NodeKind, Tree};

/// Where a path leads for readers that differ on the case of keys.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PathMatches {
    /// To a reader for whom case counts.
    pub(crate) exact: Vec<usize>,
    /// To a reader for whom it does not.
    pub(crate) folded: Vec<usize>,
    /// Whether such a reader has a choice of keys on the way.
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
    to: To,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum To {
    Name(String),
    Element(i64),
    All,
}

impl Path {
    /// Reads a path that begins at `$`, or is the rest of one.
    pub(crate) fn parse(text: &str) -> Result<Self, PathError> {
        let wrong = |rest: &str, what: &'static str| {
            Err(PathError { what, character: text.len() - rest.len() + 1, text: text.to_owned() })
        };
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        let relative = rest.len() == text.len();
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let deep = rest.starts_with("..");
            let first = relative && steps.is_empty();
            let (to, after) = if let Some(inside) = rest.strip_prefix(if deep { "..[" } else { "[" }) {
                let Some(end) = closing(inside) else { return wrong(rest, "a [ without its ]") };
                let Some(to) = bracketed(&inside[..end]) else {
                    return wrong(inside, "neither a number, a quoted name nor *");
                };
                (to, &inside[end + 1..])
            } else {
                let dotted = if deep { rest.strip_prefix("..") } else { rest.strip_prefix('.') };
                let Some(name) = dotted.or(first.then_some(rest)) else {
                    return wrong(rest, "neither a . nor a [");
                };
                let end = name.find(['.', '[', ' ', '?', '@', '(']).unwrap_or(name.len());
                match &name[..end] {
                    "" => return wrong(name, "no name"),
                    "*" => (To::All, &name[end..]),
                    plain => (To::Name(plain.to_owned()), &name[end..]),
                }
            };
            steps.push(PathStep { deep, to });
            rest = after;
        }
        if steps.is_empty() { wrong(rest, "no step") } else { Ok(Self { steps }) }
    }

    /// Returns a name that every text with such a value holds, if there is one.
    pub(crate) fn required_name(&self) -> Option<&str> {
        let mut names = self.steps.iter().filter_map(|step| match &step.to {
            To::Name(name) => Some(name.as_str()),
            To::Element(_) | To::All => None,
        });
        names.next_back()
    }

    /// Finds where the path leads from a node, for every reader.
    pub(crate) fn look(&self, text: &[u8], tree: &Tree, from: usize) -> PathMatches {
        let exact = walk(&self.steps, text, tree, from);
        let mut places = PathMatches { exact, folded: vec![from], is_ambiguous: false };
        for step in &self.steps {
            let mut there = Vec::new();
            for node in std::mem::take(&mut places.folded) {
                for parent in step.parents(tree, node) {
                    places.is_ambiguous |= step.to.choose_folded(text, tree, parent, &mut there);
                }
            }
            there.sort_unstable();
            there.dedup();
            places.folded = there;
        }
        places
    }

    /// Returns the name that the path ends in, where it ends in one.
    pub(crate) fn last_name(&self) -> Option<&str> {
        match self.steps.last() {
            Some(PathStep { to: To::Name(name), .. }) => Some(name),
            _ => None,
        }
    }

    /// Lists the nodes that the path leads to from a node.
    pub(crate) fn find(&self, text: &[u8], tree: &Tree, from: usize) -> Vec<usize> {
        walk(&self.steps, text, tree, from)
    }

    /// Lists the nodes below which the path ends in a plain name, and that name; none where it ends otherwise.
    pub(crate) fn find_holders(&self, text: &[u8], tree: &Tree, from: usize) -> Option<(Vec<usize>, &str)> {
        match self.steps.split_last()? {
            (PathStep { deep: false, to: To::Name(name) }, before) => {
                Some((walk(before, text, tree, from), name))
            }
            _ => None,
        }
    }
}

fn walk(steps: &[PathStep], text: &[u8], tree: &Tree, from: usize) -> Vec<usize> {
    let mut here = vec![from];
    for step in steps {
        let mut there = Vec::new();
        for node in here {
            for parent in step.parents(tree, node) {
                step.to.choose(text, tree, parent, &mut there);
            }
        }
        there.sort_unstable();
        there.dedup();
        here = there;
    }
    here
}

impl PathStep {
    /// Lists the nodes whose members or elements are chosen from.
    fn parents(&self, tree: &Tree, node: usize) -> std::ops::Range<usize> {
        if self.deep { node..tree.nodes[node].next } else { node..node + 1 }
    }
}

/// Returns the fold of a node's key; empty where it has none.
fn folded_key<'t>(text: &'t [u8], tree: &Tree, node: usize) -> Cow<'t, [u8]> {
    let key = tree.nodes[node].key.clone();
    key.map(|key| fold(&Unescaped::new(&text[key]).text)).unwrap_or_default()
}

impl To {
    /// Chooses as a reader does for whom case does not count; returns whether it has a choice of keys.
    fn choose_folded(&self, text: &[u8], tree: &Tree, parent: usize, out: &mut Vec<usize>) -> bool {
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
                self.choose(text, tree, parent, out);
                false
            }
        }
    }

    fn choose(&self, text: &[u8], tree: &Tree, parent: usize, out: &mut Vec<usize>) {
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

/// Returns where the bracket that was opened closes.
fn closing(inside: &str) -> Option<usize> {
    match inside.chars().next()? {
        quote @ ('\'' | '"') => {
            let end = inside[1..].find(quote)? + 2;
            inside[end..].starts_with(']').then_some(end)
        }
        _ => inside.find(']'),
    }
}

fn bracketed(inside: &str) -> Option<To> {
    match inside.chars().next()? {
        '*' if inside.len() == 1 => Some(To::All),
        quote @ ('\'' | '"') => {
            Some(To::Name(inside[1..].strip_suffix(quote).filter(|name| !name.is_empty())?.to_owned()))
        }
        _ => inside.parse().ok().map(To::Element),
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
    fn readers_that_do_not_mind_case_are_followed_too() {
        let look = |path: &str, text: &str| {
            let tree = Tree::parse(text.as_bytes()).unwrap();
            let places = Path::parse(path).unwrap().look(text.as_bytes(), &tree, 0);
            (places.exact.len(), places.folded.len(), places.is_ambiguous)
        };
        assert_eq!(look("$.a.path", r#"{"a":{"path":1,"x":2,"X":3}}"#), (1, 1, false));
        assert_eq!(look("$.a.path", r#"{"A":{"Path":1}}"#), (0, 1, false));
        assert_eq!(look("$.a.path", r#"{"a":{"path":1,"\u0050ath":2}}"#), (1, 2, true));
        assert_eq!(look("$.a.*", r#"{"a":{"path":1,"PATH":2}}"#), (2, 2, true));
        assert_eq!(look("$..k", r#"{"a":[{"k":1},{"\u212a":2}]}"#), (1, 2, false));
        assert_eq!(look("$.a[0]", r#"{"a":[1]}"#), (1, 1, false));
    }

    #[test]
    fn a_wrong_path_says_where() {
        for (path, what) in [
            ("$", "no step at character 2"),
            ("$.a[", "a [ without its ] at character 4"),
            ("$.a[?(@.x)]", "neither a number"),
            ("$.a..", "no name at character 6"),
            ("$a", "neither a . nor a [ at character 2"),
            ("$.a b", "neither a . nor a [ at character 4"),
        ] {
            let told = Path::parse(path).unwrap_err().to_string();
            assert!(told.contains(what), "{path}: {told}");
        }
    }
}
