//! JSONPath, the part that says where a value stands: names, numbers, `*` and `..`; no filters or scripts.

use super::escape::Unescaped;
use super::tree::{Kind, Tree};

/// A compiled path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
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
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |rest: &str, what: &str| {
            Err(format!("{what} at character {} of {text:?}", text.len() - rest.len() + 1))
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
            steps.push(Step { deep, to });
            rest = after;
        }
        if steps.is_empty() { wrong(rest, "no step") } else { Ok(Self { steps }) }
    }

    /// Returns a name that every text with such a value holds, if there is one.
    pub(crate) fn telling_name(&self) -> Option<&str> {
        let mut names = self.steps.iter().filter_map(|step| match &step.to {
            To::Name(name) => Some(name.as_str()),
            To::Element(_) | To::All => None,
        });
        names.next_back()
    }

    /// Lists the nodes that the path leads to from a node.
    pub(crate) fn find(&self, text: &[u8], tree: &Tree, from: usize) -> Vec<usize> {
        walk(&self.steps, text, tree, from)
    }

    /// Lists the nodes below which the path ends in a plain name, and that name; none where it ends otherwise.
    pub(crate) fn find_holders(&self, text: &[u8], tree: &Tree, from: usize) -> Option<(Vec<usize>, &str)> {
        match self.steps.split_last()? {
            (Step { deep: false, to: To::Name(name) }, before) => {
                Some((walk(before, text, tree, from), name))
            }
            _ => None,
        }
    }
}

fn walk(steps: &[Step], text: &[u8], tree: &Tree, from: usize) -> Vec<usize> {
    let mut here = vec![from];
    for step in steps {
        let mut there = Vec::new();
        for node in here {
            let parents = if step.deep { node..tree.nodes[node].next } else { node..node + 1 };
            for parent in parents {
                step.to.choose(text, tree, parent, &mut there);
            }
        }
        there.sort_unstable();
        there.dedup();
        here = there;
    }
    here
}

impl To {
    fn choose(&self, text: &[u8], tree: &Tree, parent: usize, out: &mut Vec<usize>) {
        match self {
            Self::All => out.extend(tree.children(parent)),
            Self::Name(name) => out.extend(tree.children(parent).filter(|child| {
                let key = tree.nodes[*child].key.clone();
                key.is_some_and(|key| *Unescaped::new(&text[key]).text == *name.as_bytes())
            })),
            Self::Element(number) if tree.nodes[parent].kind == Kind::Array => {
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
    fn a_wrong_path_says_where() {
        for (path, what) in [
            ("$", "no step at character 2"),
            ("$.a[", "a [ without its ] at character 4"),
            ("$.a[?(@.x)]", "neither a number"),
            ("$.a..", "no name at character 6"),
            ("$a", "neither a . nor a [ at character 2"),
            ("$.a b", "neither a . nor a [ at character 4"),
        ] {
            let told = Path::parse(path).unwrap_err();
            assert!(told.contains(what), "{path}: {told}");
        }
    }
}
