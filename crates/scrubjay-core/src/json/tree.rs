//! The structure of a JSON text as ranges of it. Nothing is copied, and parsing does not recurse.

use std::ops::Range;

use super::strict::JsonProblem;

/// The depth up to which a text is parsed; a deeper one is treated as if it were not JSON.
pub(crate) const DEPTH_MAX: usize = 200;

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    Object,
    Array,
    String,
    Number,
    /// `true`, `false` or `null`.
    Word,
}

/// A value in a JSON text.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: NodeKind,
    /// Its range, with quotes and brackets.
    pub(crate) range: Range<usize>,
    /// The range of its key, without quotes, if it is a member of an object.
    pub(crate) key: Option<Range<usize>>,
    /// The index after its last descendant, where its next sibling is.
    pub(crate) next: usize,
    pub(crate) parent: Option<usize>,
}

impl Node {
    /// Returns the beginning of the member or element, with the key if there is one.
    pub(crate) fn start(&self) -> usize {
        self.key.as_ref().map_or(self.range.start, |key| key.start - 1)
    }

    /// Returns the range of a string without its quotes.
    pub(crate) fn inside(&self) -> Range<usize> {
        self.range.start + 1..self.range.end - 1
    }
}

/// The nodes of a JSON text, each before its descendants.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) nodes: Vec<Node>,
}

impl Tree {
    /// Parses a text; `None` if it is not exactly one JSON value.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let mut parser = Parser { text, at: 0, nodes: Vec::new(), nodes_max: usize::MAX, is_loose: false };
        parser.whole()?;
        Some(Self { nodes: parser.nodes })
    }

    /// Parses a text like Python, which accepts `NaN` and `Infinity`.
    pub(crate) fn parse_loosely(text: &[u8], nodes_max: usize) -> Result<Self, JsonProblem> {
        let mut parser = Parser { text, at: 0, nodes: Vec::new(), nodes_max, is_loose: true };
        match parser.whole() {
            Some(()) => Ok(Self { nodes: parser.nodes }),
            None if parser.nodes.len() > nodes_max => Err(JsonProblem::TooManyValues),
            None if parser.depth() > DEPTH_MAX => Err(JsonProblem::TooDeep),
            None => Err(JsonProblem::NotJson),
        }
    }

    /// Lists the members or elements of a node.
    pub(crate) fn children(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.nodes[node].next;
        let first = Some(node + 1).filter(|child| *child < end);
        std::iter::successors(first, move |child| Some(self.nodes[*child].next).filter(|next| *next < end))
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    nodes_max: usize,
    is_loose: bool,
}

impl Parser<'_> {
    fn whole(&mut self) -> Option<()> {
        let mut open: Vec<usize> = Vec::new();
        let mut key = None;
        loop {
            self.space();
            if self.value(key.take(), open.last().copied())? {
                open.push(self.nodes.len() - 1);
                if open.len() > DEPTH_MAX {
                    return None;
                }
            }
            if self.nodes.len() > self.nodes_max {
                return None;
            }
            // After a value, several containers may close; after an opening bracket, the container may be empty.
            loop {
                self.space();
                let Some(&parent) = open.last() else {
                    return (self.at == self.text.len()).then_some(());
                };
                let is_first = self.nodes.len() == parent + 1;
                let is_object = self.nodes[parent].kind == NodeKind::Object;
                let end = if is_object { b'}' } else { b']' };
                match self.peek()? {
                    b if b == end => {
                        self.at += 1;
                        self.nodes[parent].range.end = self.at;
                        self.nodes[parent].next = self.nodes.len();
                        open.pop();
                        continue;
                    }
                    b',' if !is_first => self.at += 1,
                    _ if is_first => {}
                    _ => return None,
                }
                if is_object {
                    self.space();
                    key = Some(self.string()?);
                    self.space();
                    self.take(b':')?;
                }
                break;
            }
        }
    }

    /// Returns the depth of the last node, itself included.
    fn depth(&self) -> usize {
        let last = self.nodes.len().checked_sub(1);
        std::iter::successors(last, |node| self.nodes[*node].parent).count()
    }

    /// Returns the literal that begins here, if one does.
    fn word(&self) -> Option<&'static [u8]> {
        let rest = &self.text[self.at..];
        let words: &[&'static [u8]] = if self.is_loose {
            &[b"true", b"false", b"null", b"NaN", b"Infinity", b"-Infinity"]
        } else {
            &[b"true", b"false", b"null"]
        };
        words.iter().copied().find(|word| rest.starts_with(word))
    }

    /// Reads a scalar, or the opening bracket of a container; returns true for a container.
    fn value(&mut self, key: Option<Range<usize>>, parent: Option<usize>) -> Option<bool> {
        let start = self.at;
        let kind = match self.peek()? {
            b'{' => NodeKind::Object,
            b'[' => NodeKind::Array,
            b'"' => NodeKind::String,
            b'-' if self.is_loose && self.word().is_some() => NodeKind::Word,
            b'-' | b'0'..=b'9' => NodeKind::Number,
            _ => NodeKind::Word,
        };
        match kind {
            NodeKind::Object | NodeKind::Array => self.at += 1,
            NodeKind::String => {
                self.string()?;
            }
            NodeKind::Number => {
                // Malformed numbers pass too. Rules see only texts that passed `strict`; redaction has to read what it
                // can.
                let rest = &self.text[start..];
                let in_number = |b: &u8| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E');
                self.at += rest.iter().position(|b| !in_number(b)).unwrap_or(rest.len());
            }
            NodeKind::Word => self.at += self.word()?.len(),
        }
        let next = self.nodes.len() + 1;
        self.nodes.push(Node { kind, range: start..self.at, key, next, parent });
        Some(matches!(kind, NodeKind::Object | NodeKind::Array))
    }

    fn string(&mut self) -> Option<Range<usize>> {
        self.take(b'"')?;
        let start = self.at;
        loop {
            self.at += memchr::memchr2(b'"', b'\\', self.text.get(self.at..)?)?;
            if self.text[self.at] == b'"' {
                self.at += 1;
                return Some(start..self.at - 1);
            }
            // Skips the backslash and the byte after it, which may be a quote.
            self.at += 2;
        }
    }

    fn space(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_the_ranges_of_their_values() {
        let text = br#" {"a" : [1, "x\"y", {}], "b":null} "#;
        let tree = Tree::parse(text).unwrap();
        let found: Vec<(NodeKind, &[u8])> =
            tree.nodes.iter().map(|n| (n.kind, &text[n.range.clone()])).collect();
        assert_eq!(found[1], (NodeKind::Array, &br#"[1, "x\"y", {}]"#[..]));
        assert_eq!(found[3], (NodeKind::String, &br#""x\"y""#[..]));
        assert_eq!(tree.children(0).collect::<Vec<_>>(), [1, 5]);
        assert_eq!(tree.children(1).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(&text[tree.nodes[5].key.clone().unwrap()], b"b");
    }

    #[test]
    fn loose_parsing_accepts_nan_and_infinity() {
        let read = |text: &str| Tree::parse_loosely(text.as_bytes(), 10).map(|tree| tree.nodes.len());
        for text in ["[NaN]", "[-Infinity]", "[Infinity]", "[-1]"] {
            assert_eq!(read(text), Ok(2), "{text}");
        }
        assert!(Tree::parse(b"[NaN]").is_none() && Tree::parse(b"[-Infinity]").is_none());
        assert_eq!(read("[hello]"), Err(JsonProblem::NotJson));
        assert_eq!(read(&format!("[{}1]", "1,".repeat(9))), Err(JsonProblem::TooManyValues));
        let deep = "[".repeat(DEPTH_MAX + 1);
        assert_eq!(Tree::parse_loosely(deep.as_bytes(), 1000).err(), Some(JsonProblem::TooDeep));
    }

    #[test]
    fn invalid_json_is_not_parsed() {
        for text in ["", "{", "[1,]", "{\"a\":1,}", "{\"a\"}", "1 2", "x", "\"a", "{1:2}", "[1 2]", "\"\\"] {
            assert!(Tree::parse(text.as_bytes()).is_none(), "{text}");
        }
        assert!(Tree::parse("[".repeat(DEPTH_MAX + 1).as_bytes()).is_none());
        for text in ["{}", "[]", "[[],{}]", "-1.5e3", "\"\"", "{\"a\":{\"b\":[]}}"] {
            assert!(Tree::parse(text.as_bytes()).is_some(), "{text}");
        }
    }
}
