//! Text of a configuration file (YAML 1.2, and so JSON) to a tree with line numbers.
//!
//! Reads the parser's events itself rather than through serde: serde stops at the first problem, forgets the
//! lines, and has turned `0123` into a number before anyone could say that it is a token. The file may be a
//! stranger's: nesting, aliases and size have limits.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use granit_parser::{Event, Options, Parser, ScalarStyle};

use super::node::{Kind, Node, Origin, Scalar, Value, below};
use super::problem::Problem;

/// 1 MiB: a thousand times a usual file.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;
/// The deepest nesting of lists and maps: our own keys nest to 7, and values in rules may add some.
const DEPTH_MAX: usize = 32;
/// The most values of a file, counting those that aliases repeat: a limit for files that expand exponentially.
const NODES_MAX: usize = 20_000;

/// Parses a file's text; what cannot be read at all is `None` and a problem.
pub(crate) fn parse(text: &str, path: &Path, problems: &mut Vec<Problem>) -> Option<Node> {
    let mut builder = Builder::new(path, problems);
    let mut options = Options::default();
    options.disallow_directives = true;
    options.flow_nesting_limit = DEPTH_MAX;
    options.block_nesting_limit = DEPTH_MAX;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for event in Parser::new_from_str_with_options(text, options) {
        let outcome = match event {
            Ok((event, span)) => builder.take(event, span.start.line()),
            Err(error) => Err((error.marker().line(), error.info())),
        };
        if let Err((line, message)) = outcome {
            let origin = builder.origin(line);
            builder.problems.push(Problem::new(&origin, "", format!("cannot be read: {message}")));
            return None;
        }
    }
    let empty = Node::map(builder.origin(1));
    Some(builder.root.unwrap_or(empty))
}

/// A line, and what is wrong there: nothing after it makes sense.
type Fatal = (usize, String);

/// A collection that is not complete.
struct Open {
    line: usize,
    anchor: usize,
    value: Value,
    /// In a map, the key whose value comes next.
    key: Option<(String, usize)>,
}

struct Builder<'p> {
    path: Arc<Path>,
    problems: &'p mut Vec<Problem>,
    open: Vec<Open>,
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
    documents: usize,
    root: Option<Node>,
}

impl<'p> Builder<'p> {
    fn new(path: &Path, problems: &'p mut Vec<Problem>) -> Self {
        let anchors = HashMap::new();
        Self { path: path.into(), problems, open: Vec::new(), anchors, nodes: 0, documents: 0, root: None }
    }

    fn origin(&self, line: usize) -> Origin {
        Origin::File { path: Arc::clone(&self.path), line }
    }

    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), Fatal> {
        let tag = match &event {
            Event::Scalar(.., tag) | Event::SequenceStart(.., tag) | Event::MappingStart(.., tag) => tag,
            _ => &None,
        };
        if tag.is_some() {
            return Err((line, "tags (!…) have no meaning here".to_owned()));
        }
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err((line, "a second document (---) begins here".to_owned()));
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, _) => {
                let value = scalar(&text, style);
                self.complete(value, line, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.begin(Value::List(Vec::new()), line, anchor),
            Event::MappingStart(_, anchor, _) => self.begin(Value::Map(Vec::new()), line, anchor),
            Event::SequenceEnd | Event::MappingEnd => {
                let done = self.open.pop().expect("the parser ends only what it began");
                self.complete(done.value, done.line, done.anchor)
            }
            Event::Alias(anchor) => {
                let (node, size) =
                    self.anchors.get(&anchor).ok_or((line, "an alias within itself".to_owned()))?;
                let (value, size) = (node.value.clone(), *size);
                self.nodes += size;
                self.complete(value, line, 0)
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, value: Value, line: usize, anchor: usize) -> Result<(), Fatal> {
        if self.open.last().is_some_and(|o| matches!(o.value, Value::Map(_)) && o.key.is_none()) {
            return Err((line, "a key must be a word".to_owned()));
        }
        self.open.push(Open { line, anchor, value, key: None });
        Ok(())
    }

    /// Puts a complete value where it belongs: it may be a key.
    fn complete(&mut self, value: Value, line: usize, anchor: usize) -> Result<(), Fatal> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err((line, format!("it has more than {NODES_MAX} values")));
        }
        let mut node = Node { origin: self.origin(line), value };
        if anchor != 0 {
            let size = count(&node);
            self.anchors.insert(anchor, (node.clone(), size));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match (&mut open.value, open.key.take()) {
            (Value::List(items), _) => items.push(node),
            (Value::Map(entries), Some((key, key_line))) => {
                // A person looks for the key, not for where a long value begins.
                node.origin = Origin::File { path: Arc::clone(&self.path), line: key_line };
                // Given twice, it has been reported.
                if !entries.iter().any(|(known, _)| *known == key) {
                    entries.push((key, node));
                }
            }
            (_, None) => return self.key(node, line),
            (_, Some(_)) => unreachable!("only maps have keys"),
        }
        Ok(())
    }

    fn key(&mut self, node: Node, line: usize) -> Result<(), Fatal> {
        let Value::Scalar(Scalar { text: key, .. }) = node.value else {
            return Err((line, "a key must be a word".to_owned()));
        };
        let open = self.open.last_mut().expect("a key stands in a map");
        if let Value::Map(entries) = &open.value
            && let Some((_, first)) = entries.iter().find(|(known, _)| *known == key)
        {
            let message = format!("is given twice, first at {}", first.origin);
            let path = below(&self.place(), &key);
            self.problems.push(Problem::new(&node.origin, path, message));
        }
        self.open.last_mut().expect("a key stands in a map").key = Some((key, line));
        Ok(())
    }

    /// Returns the path of the map that is being read.
    fn place(&self) -> String {
        self.open.iter().fold(String::new(), |path, open| match (&open.value, &open.key) {
            (Value::List(items), _) => format!("{path}[{}]", items.len()),
            (_, Some((key, _))) => below(&path, key),
            (_, None) => path,
        })
    }
}

fn count(node: &Node) -> usize {
    1 + match &node.value {
        Value::Null | Value::Scalar(_) => 0,
        Value::List(items) => items.iter().map(count).sum(),
        Value::Map(entries) => entries.iter().map(|(_, node)| count(node)).sum(),
    }
}

/// Returns the type of a scalar by the core schema of YAML 1.2.
fn scalar(text: &str, style: ScalarStyle) -> Value {
    let plain = style == ScalarStyle::Plain;
    let kind = match text {
        "" | "~" | "null" | "Null" | "NULL" if plain => return Value::Null,
        "true" | "True" | "TRUE" | "false" | "False" | "FALSE" if plain => Kind::Boolean,
        _ if plain && is_number(text) => Kind::Number,
        _ => Kind::Text,
    };
    Value::Scalar(Scalar::new(text.to_owned(), kind))
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') && digits.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::layer::FileTree;

    fn read(text: &str) -> (Option<Node>, Vec<String>) {
        let mut problems = Vec::new();
        let node = parse(text, Path::new("c.yaml"), &mut problems);
        (node, problems.iter().map(ToString::to_string).collect())
    }

    fn scalar_at<'n>(node: &'n Node, path: &str) -> (&'n str, Kind, String) {
        let found = path.split('.').fold(node, |node, key| node.get(key).unwrap());
        let Value::Scalar(scalar) = &found.value else { panic!("{path} is no scalar") };
        (&scalar.text, scalar.kind, found.origin.to_string())
    }

    #[test]
    fn values_keep_their_text_and_line() {
        let (node, problems) = read("a: 0123\nb:\n  # a note\n  c: 'true'\n  d: true\ne: 1.5e3\nf: no\n");
        let node = node.unwrap();
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(scalar_at(&node, "a"), ("0123", Kind::Number, "c.yaml:1".to_owned()));
        assert_eq!(scalar_at(&node, "b.c"), ("true", Kind::Text, "c.yaml:4".to_owned()));
        assert_eq!(scalar_at(&node, "b.d"), ("true", Kind::Boolean, "c.yaml:5".to_owned()));
        assert_eq!(scalar_at(&node, "e").1, Kind::Number);
        assert_eq!(scalar_at(&node, "f").1, Kind::Text);
        assert_eq!(node.get("b").unwrap().origin.to_string(), "c.yaml:2");
    }

    #[test]
    fn json_is_yaml() {
        let (node, problems) = read("\u{feff}{\n\t\"a\": {\"b\": \"x\\ty\"},\n\t\"c\": [1, null]}");
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(scalar_at(&node.unwrap(), "a.b").0, "x\ty");
    }

    #[test]
    fn nothing_is_an_empty_map() {
        for text in ["", "# only a note\n", "---\n"] {
            let (node, problems) = read(text);
            assert!(problems.is_empty(), "{text:?}: {problems:?}");
            assert!(matches!(node.unwrap().value, Value::Map(_) | Value::Null), "{text:?}");
        }
    }

    #[test]
    fn aliases_repeat_a_value() {
        let (node, problems) = read("a: &x\n  k: v\nb: *x\n");
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(scalar_at(&node.unwrap(), "b.k").0, "v");
    }

    #[test]
    fn a_key_given_twice_is_told_with_its_path() {
        let (_, problems) = read("a:\n  - b: 1\n    b: 2\n");
        assert_eq!(problems, ["c.yaml:3: a[0].b is given twice, first at c.yaml:2"]);
    }

    #[test]
    fn what_makes_no_sense_is_told_with_its_line() {
        for (text, line, words) in [
            ("a: [1\nb: 2", 2, ""),
            ("a: 1\n---\nb: 2\n", 2, "second document"),
            ("a: 1\nb: !run x\n", 2, "tags"),
            ("? [a, b]\n: c\n", 1, "key"),
            ("a: &a [*a]\n", 1, "within itself"),
            ("%YAML 1.2\n---\na: 1\n", 1, ""),
            ("a: *nobody\n", 1, ""),
        ] {
            let (node, problems) = read(text);
            assert!(node.is_none(), "{text:?}");
            assert_eq!(problems.len(), 1, "{text:?}: {problems:?}");
            assert!(problems[0].starts_with(&format!("c.yaml:{line}: cannot be read: ")), "{problems:?}");
            assert!(problems[0].contains(words), "{text:?}: {problems:?}");
        }
    }

    #[test]
    fn bombs_do_not_go_off() {
        let mut laughs = "a0: &a0 [x]\n".to_owned();
        for i in 1..40 {
            laughs += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 9].join(","));
        }
        assert!(read(&laughs).1[0].contains("more than"), "{:?}", read(&laughs).1);
        assert!(read(&"[".repeat(100_000)).0.is_none());
        assert!(read(&"- ".repeat(100_000)).0.is_none());
        let mut chain = "a0: &a0 [x]\n".to_owned();
        for i in 1..10_000 {
            chain += &format!("a{i}: &a{i} [*a{}]\n", i - 1);
        }
        assert!(read(&chain).0.is_none());
    }

    #[test]
    fn no_text_makes_it_panic() {
        let pieces = [
            "{", "}", "[", "]", "---", "...", "- ", " ", "\n", ":", ": ", ",", "a", "b", "\"", "'", "|", ">",
            "!t ", "&a ", "*a", "%", "#", "? ", "\t", "\r", "1", "\\", "é", "~", "<<", "${",
        ];
        let mut state: u64 = 88_172_645_463_325_252;
        let mut next = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).unwrap()
        };
        for _ in 0..20_000 {
            let length = 1 + next(24);
            let text: String = (0..length).map(|_| pieces[next(pieces.len())]).collect();
            let (node, problems) = read(&text);
            assert!(node.is_some() || !problems.is_empty(), "{text:?}");
            if let Some(node) = node {
                let (mut unset, mut wrong) = (Vec::new(), Vec::new());
                FileTree::new(node, false).layer(&Environment::of(&[]), &mut unset, &mut wrong);
            }
        }
    }
}
