//! Parses the text of a configuration file (YAML 1.2, of which JSON is a part) to a tree with line numbers.
//!
//! Reads the parser's events itself rather than through serde: serde stops at the first problem, forgets the
//! lines, and turns `0123` into a number before its key can say that it is a token. A stranger may have written the
//! file, so nesting, aliases and size have limits.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use granit_parser::{Event, Options, Parser, ScalarStyle, StrInput};

use super::node::{Kind, Node, Origin, Scalar, Value, below};
use super::problem::Problem;

/// The largest file: 1 MiB is a thousand times a usual one, and is read into memory as a whole.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;
/// The deepest nesting of lists and of maps: our own keys nest to 7, and values in rules may add some. The reader recurses,
/// so this also bounds its stack.
const DEPTH_MAX: usize = 32;
/// The most values of a file, counting those that aliases repeat: a file of nested aliases would expand exponentially.
const NODES_MAX: usize = 20_000;

/// Parses a file's text. If it cannot be read at all, returns `None` and adds a problem.
pub(crate) fn parse(text: &str, path: &Path, problems: &mut Vec<Problem>) -> Option<Node> {
    let mut options = Options::default();
    options.disallow_directives = true;
    options.flow_nesting_limit = DEPTH_MAX;
    options.block_nesting_limit = DEPTH_MAX;
    let events = Parser::new_from_str_with_options(text.strip_prefix('\u{feff}').unwrap_or(text), options);
    let mut reader = Reader { events, path: path.into(), problems, anchors: HashMap::new(), nodes: 0 };
    match reader.document() {
        Ok(tree) => Some(tree),
        Err((line, message)) => {
            let origin = reader.origin(line);
            reader.problems.push(Problem::new(&origin, "", format!("cannot be read: {message}")));
            None
        }
    }
}

/// A line, and what is wrong there: nothing after it makes sense.
type Fatal = (usize, String);

struct Reader<'p, 't> {
    events: Parser<'t, StrInput<'t>>,
    path: Arc<Path>,
    problems: &'p mut Vec<Problem>,
    /// The values that aliases may repeat, each with its size.
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
}

impl<'t> Reader<'_, 't> {
    fn origin(&self, line: usize) -> Origin {
        Origin::File { path: Arc::clone(&self.path), line }
    }

    /// Returns the next event and its line.
    fn next(&mut self) -> Result<(Event<'t>, usize), Fatal> {
        match self.events.next() {
            Some(Ok((event, span))) => Ok((event, span.start.line())),
            Some(Err(error)) => Err((error.marker().line(), error.info())),
            None => Ok((Event::StreamEnd, 0)),
        }
    }

    fn document(&mut self) -> Result<Node, Fatal> {
        let mut root = None;
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(root.unwrap_or_else(|| Node::map(self.origin(1)))),
                (Event::DocumentStart(..), line) if root.is_some() => {
                    return Err((line, "a second document (---) begins here".to_owned()));
                }
                (Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd, _) => {}
                (event, line) => root = Some(self.node(event, line, "")?),
            }
        }
    }

    /// Reads the value that begins with an event.
    fn node(&mut self, event: Event<'t>, line: usize, path: &str) -> Result<Node, Fatal> {
        let (value, anchor) = match event {
            Event::Scalar(.., Some(_))
            | Event::SequenceStart(.., Some(_))
            | Event::MappingStart(.., Some(_)) => {
                return Err((line, "tags (!…) have no meaning here".to_owned()));
            }
            Event::Scalar(text, style, anchor, _) => (scalar(&text, style), anchor),
            Event::SequenceStart(_, anchor, _) => (self.list(path)?, anchor),
            Event::MappingStart(_, anchor, _) => (self.map(path)?, anchor),
            Event::Alias(anchor) => {
                // An anchor is known when its value is complete: an alias inside it would never end.
                let (node, size) =
                    self.anchors.get(&anchor).ok_or((line, "an alias within itself".to_owned()))?;
                let value = node.value.clone();
                self.nodes += size;
                (value, 0)
            }
            _ => return Err((line, "a value is missing".to_owned())),
        };
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err((line, format!("it has more than {NODES_MAX} values")));
        }
        let node = Node { origin: self.origin(line), value };
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), count(&node)));
        }
        Ok(node)
    }

    fn list(&mut self, path: &str) -> Result<Value, Fatal> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::List(items)),
                (event, line) => items.push(self.node(event, line, &format!("{path}[{}]", items.len()))?),
            }
        }
    }

    fn map(&mut self, path: &str) -> Result<Value, Fatal> {
        let mut entries: Vec<(String, Node)> = Vec::new();
        loop {
            let (event, key_line) = self.next()?;
            let key = match event {
                Event::MappingEnd => return Ok(Value::Map(entries)),
                // Reported before the collection is read, so that its line is the one of the key.
                Event::SequenceStart(.., None) | Event::MappingStart(.., None) => None,
                event => match self.node(event, key_line, path)?.value {
                    Value::Scalar(scalar) => Some(scalar.text),
                    _ => None,
                },
            };
            let key = key.ok_or((key_line, "a key must be a word".to_owned()))?;
            let (key_path, origin) = (below(path, &key), self.origin(key_line));
            let first = entries.iter().find(|(known, _)| *known == key);
            let is_first = first.is_none();
            if let Some((_, first)) = first {
                let message = format!("is given twice, first at {}", first.origin);
                self.problems.push(Problem::new(&origin, &*key_path, message));
            }
            let (event, line) = self.next()?;
            let Node { value, .. } = self.node(event, line, &key_path)?;
            if is_first {
                // A person looks for the key, not for where a long value begins.
                entries.push((key, Node { origin, value }));
            }
        }
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
#[path = "../../../tests/random.rs"]
mod random;

#[cfg(test)]
mod tests {
    use super::random::Random;
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
    fn an_empty_document_is_an_empty_map() {
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
    fn a_repeated_key_is_reported_with_its_path() {
        let (_, problems) = read("a:\n  - b: 1\n    b: 2\n");
        assert_eq!(problems, ["c.yaml:3: a[0].b is given twice, first at c.yaml:2"]);
    }

    #[test]
    fn invalid_yaml_is_reported_with_its_line() {
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
    fn alias_bombs_and_deep_nesting_are_refused() {
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
    fn no_text_causes_a_panic() {
        let pieces = [
            "{", "}", "[", "]", "---", "...", "- ", " ", "\n", ":", ": ", ",", "a", "b", "\"", "'", "|", ">",
            "!t ", "&a ", "*a", "%", "#", "? ", "\t", "\r", "1", "\\", "é", "~", "<<", "${",
        ];
        let mut random = Random::new(1);
        for _ in 0..20_000 {
            let length = 1 + random.below(24);
            let text: String = (0..length).map(|_| random.pick(&pieces)).collect();
            let (node, problems) = read(&text);
            assert!(node.is_some() || !problems.is_empty(), "{text:?}");
            if let Some(node) = node {
                FileTree::new(node, false).layer(&Environment::of(&[]));
            }
        }
    }
}
