//! Goes through a JSON text: values under telling names, values that paths lead to, and every string.

use std::collections::HashMap;

use super::action::Replacement;
use super::control;
use super::detectors::is_pair;
use super::engine::{Edit, Redactor};
use super::lines::KeyLines;
use super::name::NameEvidence;
use super::placeholder::{ValuePosition, is_standin_alone};
use super::shape::is_random;
use crate::json::edit;
use crate::json::escape::{Unescaped, escape};
use crate::json::tree::{Node, NodeKind, Tree};

/// Words of JSON Schema: what a sensitive property is said to be is no secret.
const SCHEMA_WORDS: &[&[u8]] = &[
    b"type",
    b"description",
    b"title",
    b"format",
    b"pattern",
    b"minLength",
    b"maxLength",
    b"minimum",
    b"maximum",
    b"$ref",
    b"anyOf",
    b"oneOf",
    b"allOf",
    b"items",
    b"properties",
    b"required",
    b"additionalProperties",
    b"writeOnly",
    b"readOnly",
    b"nullable",
    b"deprecated",
    b"minItems",
    b"maxItems",
    b"uniqueItems",
    b"$comment",
];
/// Members that name their siblings, as headers and variables are often written.
const NAMING: &[&[u8]] = &[b"name", b"key", b"header", b"variable", b"field"];

/// One walk through one text.
pub(super) struct Walk<'r, 't> {
    redactor: &'r Redactor,
    text: &'t [u8],
    tree: Tree,
    depth: usize,
    explain: bool,
    /// What paths lead to.
    chosen: HashMap<usize, u16>,
    /// What is to be taken out with its key and comma.
    removed: HashMap<usize, u16>,
    /// A private key that began in an earlier string: one may stand in a list, a line a string.
    keys: KeyLines,
    edits: Vec<Edit>,
}

impl<'r, 't> Walk<'r, 't> {
    /// Begins a walk; none where the text is no JSON.
    pub(super) fn new(redactor: &'r Redactor, text: &'t [u8], depth: usize, explain: bool) -> Option<Self> {
        if !matches!(text.trim_ascii_start().first(), Some(b'{' | b'[' | b'"')) {
            return None;
        }
        let tree = Tree::parse(text)?;
        let (chosen, removed) = (HashMap::new(), HashMap::new());
        let keys = KeyLines::default();
        Some(Self { redactor, text, tree, depth, explain, chosen, removed, keys, edits: Vec::new() })
    }

    pub(super) fn edits(self) -> Vec<Edit> {
        self.edits_behind(KeyLines::default()).0
    }

    /// The same behind a text in which a private key may have begun; returns also what is to be known behind this one.
    pub(super) fn edits_behind(mut self, keys: KeyLines) -> (Vec<Edit>, KeyLines) {
        self.keys = keys;
        self.choose();
        self.value(0, None);
        (self.edits, self.keys)
    }

    /// Follows the user's paths, from the message or from each message of a batch.
    fn choose(&mut self) {
        let roots = match self.tree.nodes[0].kind {
            NodeKind::Array => std::iter::once(0).chain(self.tree.children(0)).collect(),
            _ => vec![0],
        };
        let redactor = self.redactor;
        for root in roots {
            for (param, rule) in &redactor.params {
                let method = self.member(root, b"method").filter(|m| self.node(*m).kind == NodeKind::String);
                let params = self.member(root, b"params");
                if let (Some(method), Some(params)) = (method, params)
                    && param.is_of(&self.inside(method).text)
                {
                    for node in param.path.find(self.text, &self.tree, params) {
                        self.chosen.entry(node).or_insert(*rule);
                    }
                }
            }
            for (path, rule) in &redactor.paths {
                for node in path.find(self.text, &self.tree, root) {
                    self.chosen.entry(node).or_insert(*rule);
                }
            }
        }
    }

    fn node(&self, node: usize) -> &Node {
        &self.tree.nodes[node]
    }

    fn inside(&self, node: usize) -> Unescaped<'t> {
        Unescaped::new(&self.text[self.node(node).inside()])
    }

    fn key(&self, node: usize) -> Option<Unescaped<'t>> {
        self.node(node).key.clone().map(|key| Unescaped::new(&self.text[key]))
    }

    fn member(&self, object: usize, name: &[u8]) -> Option<usize> {
        self.tree.children(object).find(|child| self.key(*child).is_some_and(|key| *key.text == *name))
    }

    /// Looks at a value; one under a sensitive name goes with all that is in it.
    fn value(&mut self, node: usize, under: Option<u16>) {
        if let Some(rule) = self.chosen.get(&node) {
            return self.replace(node, *rule);
        }
        match (self.node(node).kind, under) {
            (NodeKind::Object, _) => self.object(node, under),
            (NodeKind::Array, _) => self.array(node, under),
            (NodeKind::Number, Some(rule))
                if self
                    .redactor
                    .names
                    .is_count(NameEvidence::Sensitive(rule), &self.text[self.node(node).range.clone()]) => {}
            (NodeKind::String | NodeKind::Number, Some(rule)) => self.replace(node, rule),
            (NodeKind::String, None) => self.string(node),
            (NodeKind::Number | NodeKind::Word, _) => {}
        }
        self.take_out(node);
    }

    fn object(&mut self, object: usize, under: Option<u16>) {
        let children: Vec<usize> = self.tree.children(object).collect();
        let is_schema = under.is_some() && self.is_schema(&children);
        if let Some(rule) = under
            && !is_schema
            && self.redactor.action(rule).is_for_the_whole()
        {
            return self.replace(object, rule);
        }
        let named = self.named(&children);
        for child in children {
            let key = self.key(child).expect("a member has a key");
            self.key_text(child, &key);
            let tells = match self.redactor.names.tell(&control::without(&key.text)) {
                None if *key.text == *b"value" => named,
                tells => tells,
            };
            match (under, tells) {
                _ if self.is_id(&key.text, child) => self.hash_id(child),
                (Some(_), _) if is_schema && SCHEMA_WORDS.contains(&&*key.text) => self.value(child, None),
                (Some(rule), _) => self.value(child, Some(rule)),
                (None, Some(telling)) => self.told(child, telling),
                (None, None) => self.value(child, None),
            }
        }
    }

    /// Looks at a value whose name tells something.
    fn told(&mut self, node: usize, telling: NameEvidence) {
        let is_secret = match telling {
            _ if self.has_other_sense(node, telling) => false,
            NameEvidence::Sensitive(_) => true,
            _ if self.node(node).kind != NodeKind::String => false,
            NameEvidence::Strong => {
                let inside = self.inside(node);
                inside.text.len() >= 4 && !is_standin_alone(&inside.text, ValuePosition::Setting)
            }
            NameEvidence::Weak => is_random(&self.inside(node).text),
            NameEvidence::Pair => is_pair(&self.inside(node).text),
        };
        self.value(node, is_secret.then(|| self.redactor.names.rule_of(telling)));
    }

    /// Tells whether a text is what its name means besides a secret.
    fn has_other_sense(&self, node: usize, telling: NameEvidence) -> bool {
        let key = self.key(node);
        let name = key.as_ref().map_or(&b""[..], |key| &key.text);
        self.node(node).kind == NodeKind::String
            && self.redactor.names.is_other_sense(telling, name, &self.inside(node).text)
    }

    fn array(&mut self, array: usize, under: Option<u16>) {
        let children: Vec<usize> = self.tree.children(array).collect();
        if let Some(rule) = under
            && self.redactor.action(rule).is_for_the_whole()
        {
            return self.replace(array, rule);
        }
        let is_pair = children.len() == 2;
        let mut before: Option<NameEvidence> = None;
        for child in children {
            let is_string = self.node(child).kind == NodeKind::String;
            match before.take() {
                Some(telling) if under.is_none() && is_string => self.told(child, telling),
                _ => self.value(child, under),
            }
            if is_string {
                let inside = self.inside(child);
                let flag = inside.text.strip_prefix(b"-").map(|f| f.strip_prefix(b"-").unwrap_or(f));
                // A pair of words is no name with its value.
                let is_named = is_pair && self.node(child).next < self.node(array).next && {
                    let value = self.node(self.node(child).next);
                    value.kind == NodeKind::String
                        && self.text[value.inside()].iter().any(|b| !b.is_ascii_alphabetic())
                };
                let name = flag.or(is_named.then_some(&*inside.text));
                before = name.and_then(|name| self.redactor.names.tell(name));
            }
        }
    }

    /// Returns what the name of a name-and-value object tells.
    fn named(&self, children: &[usize]) -> Option<NameEvidence> {
        let naming = children.iter().find(|child| {
            self.node(**child).kind == NodeKind::String
                && self
                    .key(**child)
                    .is_some_and(|key| NAMING.iter().any(|n| key.text.eq_ignore_ascii_case(n)))
        })?;
        self.redactor.names.tell(&self.inside(*naming).text)
    }

    fn is_schema(&self, children: &[usize]) -> bool {
        children.iter().any(|child| {
            let key = self.key(*child).expect("a member has a key");
            matches!(&*key.text, b"type" | b"$ref" | b"anyOf" | b"oneOf" | b"allOf" | b"description")
        })
    }

    fn is_id(&self, key: &[u8], node: usize) -> bool {
        let scalar = matches!(self.node(node).kind, NodeKind::String | NodeKind::Number);
        let is_named = || {
            let ends = |tail: &[u8]| key.len() > tail.len() && key.ends_with(tail);
            key.eq_ignore_ascii_case(b"id")
                || ends(b"Id")
                || ends(b"ID")
                || ends(b"_id")
                || ends(b"-id")
                || key == b"progressToken"
        };
        self.redactor.id_rule.is_some() && scalar && is_named()
    }

    fn hash_id(&mut self, node: usize) {
        if let Some(rule) = self.redactor.id_rule {
            self.replace(node, rule);
        }
    }

    /// Looks for secrets in a string, which may itself be JSON.
    fn string(&mut self, node: usize) {
        let inside = self.inside(node);
        let start = self.node(node).inside().start;
        self.text_edits(node, start, &inside);
        self.key_edits(node, start, &inside);
    }

    /// Takes out what belongs to a private key that began in an earlier string.
    fn key_edits(&mut self, node: usize, start: usize, inside: &Unescaped<'_>) {
        let member = self.key(node).map(|key| key.text.into_owned());
        for range in self.keys.taken(&inside.text, member.as_deref()) {
            let edit = self.redactor.edit(&inside.text, range, self.redactor.key_rule);
            self.push(node, start, inside, edit);
        }
    }

    /// A key is a text like any other.
    fn key_text(&mut self, node: usize, key: &Unescaped<'_>) {
        let start = self.node(node).key.as_ref().map_or(0, |key| key.start);
        if key.text.len() > 12 {
            self.text_edits(node, start, key);
        }
    }

    fn text_edits(&mut self, node: usize, start: usize, inside: &Unescaped<'_>) {
        if inside.text.len() < 4 {
            return;
        }
        let looks_like_json = matches!(inside.text.trim_ascii_start().first(), Some(b'{' | b'[' | b'"'));
        let edits = if looks_like_json && self.depth < 6 {
            self.redactor.edits(&inside.text, self.depth + 1, self.explain)
        } else {
            self.redactor.plain_edits(&inside.text, self.depth, self.explain)
        };
        for edit in edits {
            self.push(node, start, inside, edit);
        }
    }

    /// Keeps an edit of the inside of a string.
    fn push(&mut self, node: usize, start: usize, inside: &Unescaped<'_>, edit: Edit) {
        let mut edit = edit.led_back(inside);
        edit.range = edit.range.start + start..edit.range.end + start;
        edit.place = self.place(node, &edit.place);
        self.edits.push(edit);
    }

    /// Does to a whole value what its rule says.
    fn replace(&mut self, node: usize, rule: u16) {
        let (kind, range) = (self.node(node).kind, self.node(node).range.clone());
        let inside = if kind == NodeKind::String { self.inside(node) } else { Unescaped::new(b"") };
        let raw = &self.text[range.clone()];
        let value: &[u8] = if kind == NodeKind::String { &inside.text } else { raw };
        if kind == NodeKind::String && (value.is_empty() || self.redactor.action(rule).is_done(value)) {
            return;
        }
        let with = match self.redactor.left(rule, value) {
            Replacement::Nothing if node == 0 => "null".to_owned(),
            Replacement::Nothing => {
                self.removed.insert(node, rule);
                return;
            }
            Replacement::Text(text) => format!("\"{}\"", escape(&text)),
            Replacement::Json(value) => value.to_string(),
        };
        if with.as_bytes() != raw {
            let place = self.place(node, "");
            self.edits.push(Edit { range, with, rule, place });
        }
    }

    /// Takes out the members or elements that are to go, each with one comma.
    fn take_out(&mut self, container: usize) {
        if self.removed.is_empty() {
            return;
        }
        for (child, range) in edit::take_out(&self.tree, container, |child| self.removed.contains_key(&child))
        {
            let (rule, place) = (self.removed[&child], self.place(child, ""));
            self.edits.push(Edit { range, with: String::new(), rule, place });
        }
    }

    /// Says where a node stands, if anybody asks.
    fn place(&self, node: usize, within: &str) -> String {
        if !self.explain {
            return String::new();
        }
        let mut steps = Vec::new();
        let mut at = Some(node);
        while let Some(node) = at {
            let parent = self.node(node).parent;
            match (self.key(node), parent) {
                (Some(key), _) => {
                    steps.push(format!(".{}", self.redactor.redact_text(&String::from_utf8_lossy(&key.text))))
                }
                (None, Some(parent)) => {
                    let number = self.tree.children(parent).position(|child| child == node);
                    steps.push(format!("[{}]", number.unwrap_or_default()));
                }
                (None, None) => steps.push("$".to_owned()),
            }
            at = parent;
        }
        steps.reverse();
        let within = if within.is_empty() { String::new() } else { format!(" > {within}") };
        format!("{}{within}", steps.concat())
    }
}
