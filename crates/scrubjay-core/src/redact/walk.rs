//! Walks through a JSON text: values of sensitive names, values that the user's paths lead to, and every string.

use std::collections::HashMap;

use super::action::Replacement;
use super::control;
use super::detectors::is_basic_credentials;
use super::engine::{DEPTH_MAX, Edit, Redactor};
use super::lines::KeyLines;
use super::name::NameEvidence;
use super::placeholder::{ValuePosition, is_placeholder_alone};
use super::shape::is_random;
use crate::json::edit;
use crate::json::escape::{Unescaped, escape};
use crate::json::tree::{Node, NodeKind, Tree};

/// Keywords of JSON Schema: below a sensitive name they describe a property and hold no secret.
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
/// Members that name the `value` beside them, as in lists of headers and variables: `{"name": …, "value": …}`.
const NAME_MEMBERS: &[&[u8]] = &[b"name", b"key", b"header", b"variable", b"field"];

/// One walk through one JSON text.
pub(super) struct Walk<'r, 't> {
    redactor: &'r Redactor,
    text: &'t [u8],
    tree: Tree,
    depth: usize,
    explain: bool,
    /// The nodes that the user's paths lead to, with their rules.
    path_rules: HashMap<usize, u16>,
    /// The nodes to remove with their key and comma.
    removed: HashMap<usize, u16>,
    /// A private key that began in an earlier string: a message may hold one as a list with a string for each line.
    keys: KeyLines,
    edits: Vec<Edit>,
}

impl<'r, 't> Walk<'r, 't> {
    /// Begins a walk; `None` if the text is not JSON.
    pub(super) fn new(redactor: &'r Redactor, text: &'t [u8], depth: usize, explain: bool) -> Option<Self> {
        // Other JSON is a single number or word, which the search of running text covers without a parse.
        if !matches!(text.trim_ascii_start().first(), Some(b'{' | b'[' | b'"')) {
            return None;
        }
        let tree = Tree::parse(text)?;
        let (path_rules, removed) = (HashMap::new(), HashMap::new());
        let keys = KeyLines::default();
        Some(Self { redactor, text, tree, depth, explain, path_rules, removed, keys, edits: Vec::new() })
    }

    pub(super) fn edits(self) -> Vec<Edit> {
        self.edits_continuing(KeyLines::default()).0
    }

    /// The same after a text in which a private key may have begun; also returns the state for the next text.
    pub(super) fn edits_continuing(mut self, keys: KeyLines) -> (Vec<Edit>, KeyLines) {
        self.keys = keys;
        self.apply_paths();
        self.value(0, None);
        (self.edits, self.keys)
    }

    /// Follows the user's paths, from the message or from each message of a batch. The first rule for a node counts.
    fn apply_paths(&mut self) {
        // The array of a batch is a root as well, for paths such as `$[0].params`.
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
                        self.path_rules.entry(node).or_insert(*rule);
                    }
                }
            }
            for (path, rule) in &redactor.paths {
                for node in path.find(self.text, &self.tree, root) {
                    self.path_rules.entry(node).or_insert(*rule);
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

    /// Redacts a value. `under` is the rule of the sensitive name it is below, if any: then everything in it is
    /// redacted.
    fn value(&mut self, node: usize, under: Option<u16>) {
        if let Some(rule) = self.path_rules.get(&node) {
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
            // `true`, `false` and `null` are no secrets, and numbers only under a listed name.
            (NodeKind::Number | NodeKind::Word, _) => {}
        }
        // After the children, which may have been marked for removal just now.
        self.remove_marked(node);
    }

    fn object(&mut self, object: usize, under: Option<u16>) {
        let children: Vec<usize> = self.tree.children(object).collect();
        let is_schema = under.is_some() && self.is_schema(&children);
        if let Some(rule) = under
            && !is_schema
            && self.redactor.action(rule).replaces_containers()
        {
            return self.replace(object, rule);
        }
        let value_evidence = self.name_member_evidence(&children);
        for child in children {
            let key = self.key(child).expect("a member has a key");
            self.key_text(child, &key);
            // A coloured name still names a secret.
            let evidence = match self.redactor.names.evidence(&control::stripped(&key.text)) {
                None if *key.text == *b"value" => value_evidence,
                evidence => evidence,
            };
            match (under, evidence) {
                _ if self.is_id(&key.text, child) => self.hash_id(child),
                (Some(_), _) if is_schema && SCHEMA_WORDS.contains(&&*key.text) => self.value(child, None),
                (Some(rule), _) => self.value(child, Some(rule)),
                (None, Some(evidence)) => self.named_value(child, evidence),
                (None, None) => self.value(child, None),
            }
        }
    }

    /// Redacts a value whose name is evidence of a secret.
    fn named_value(&mut self, node: usize, evidence: NameEvidence) {
        let is_secret = match evidence {
            _ if self.has_other_meaning(node, evidence) => false,
            NameEvidence::Sensitive(_) => true,
            // Only a listed name makes a number, an object or an array a secret.
            _ if self.node(node).kind != NodeKind::String => false,
            NameEvidence::Strong => {
                let inside = self.inside(node);
                inside.text.len() >= 4 && !is_placeholder_alone(&inside.text, ValuePosition::Setting)
            }
            NameEvidence::Weak => is_random(&self.inside(node).text),
            NameEvidence::BasicCredentials => is_basic_credentials(&self.inside(node).text),
        };
        self.value(node, is_secret.then(|| self.redactor.names.rule_of(evidence)));
    }

    /// Tells whether a value shows that its name has its other meaning, in which it names no secret.
    fn has_other_meaning(&self, node: usize, evidence: NameEvidence) -> bool {
        let key = self.key(node);
        let name = key.as_ref().map_or(&b""[..], |key| &key.text);
        self.node(node).kind == NodeKind::String
            && self.redactor.names.has_other_meaning(evidence, name, &self.inside(node).text)
    }

    fn array(&mut self, array: usize, under: Option<u16>) {
        let children: Vec<usize> = self.tree.children(array).collect();
        if let Some(rule) = under
            && self.redactor.action(rule).replaces_containers()
        {
            return self.replace(array, rule);
        }
        let is_pair = children.len() == 2;
        // What a flag, or the first element of a pair, says about the next element: `["--token", "…"]`.
        let mut before: Option<NameEvidence> = None;
        for child in children {
            let is_string = self.node(child).kind == NodeKind::String;
            match before.take() {
                Some(evidence) if under.is_none() && is_string => self.named_value(child, evidence),
                _ => self.value(child, under),
            }
            if is_string {
                let inside = self.inside(child);
                let flag = inside.text.strip_prefix(b"-").map(|f| f.strip_prefix(b"-").unwrap_or(f));
                // The second element must not be a plain word: `["password", "token"]` is a list of names.
                let is_named = is_pair && self.node(child).next < self.node(array).next && {
                    let value = self.node(self.node(child).next);
                    value.kind == NodeKind::String
                        && self.text[value.inside()].iter().any(|b| !b.is_ascii_alphabetic())
                };
                let name = flag.or(is_named.then_some(&*inside.text));
                before = name.and_then(|name| self.redactor.names.evidence(name));
            }
        }
    }

    /// Returns what a name-and-value object's name says about its value.
    fn name_member_evidence(&self, children: &[usize]) -> Option<NameEvidence> {
        let naming = children.iter().find(|child| {
            self.node(**child).kind == NodeKind::String
                && self
                    .key(**child)
                    .is_some_and(|key| NAME_MEMBERS.iter().any(|n| key.text.eq_ignore_ascii_case(n)))
        })?;
        self.redactor.names.evidence(&self.inside(*naming).text)
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

    /// Redacts a string, which may itself be JSON.
    fn string(&mut self, node: usize) {
        let inside = self.inside(node);
        let start = self.node(node).inside().start;
        self.text_edits(node, start, &inside);
        self.key_edits(node, start, &inside);
    }

    /// Redacts the part of a string that belongs to a private key from an earlier string.
    fn key_edits(&mut self, node: usize, start: usize, inside: &Unescaped<'_>) {
        let member = self.key(node).map(|key| key.text.into_owned());
        for range in self.keys.key_ranges(&inside.text, member.as_deref()) {
            let edit = self.redactor.edit(&inside.text, range, self.redactor.key_rule);
            self.push(node, start, inside, edit);
        }
    }

    /// Redacts the key of a member, which may contain a secret like any string.
    fn key_text(&mut self, node: usize, key: &Unescaped<'_>) {
        let start = self.node(node).key.as_ref().map_or(0, |key| key.start);
        if key.text.len() > 12 {
            self.text_edits(node, start, key);
        }
    }

    fn text_edits(&mut self, node: usize, start: usize, inside: &Unescaped<'_>) {
        // Every anchor and name has at least three bytes, and a secret follows. Users' expressions are skipped here,
        // too.
        if inside.text.len() < 4 {
            return;
        }
        let looks_like_json = matches!(inside.text.trim_ascii_start().first(), Some(b'{' | b'[' | b'"'));
        let edits = if looks_like_json && self.depth < DEPTH_MAX {
            self.redactor.edits(&inside.text, self.depth + 1, self.explain)
        } else {
            self.redactor.plain_edits(&inside.text, self.depth, self.explain)
        };
        for edit in edits {
            self.push(node, start, inside, edit);
        }
    }

    /// Adds an edit of the inside of a string.
    fn push(&mut self, node: usize, start: usize, inside: &Unescaped<'_>, edit: Edit) {
        let mut edit = edit.mapped_back(inside);
        edit.range = edit.range.start + start..edit.range.end + start;
        edit.place = self.json_path(node, &edit.place);
        self.edits.push(edit);
    }

    /// Applies the action of a rule to a whole value.
    fn replace(&mut self, node: usize, rule: u16) {
        let (kind, range) = (self.node(node).kind, self.node(node).range.clone());
        let inside = if kind == NodeKind::String { self.inside(node) } else { Unescaped::new(b"") };
        let raw = &self.text[range.clone()];
        let value: &[u8] = if kind == NodeKind::String { &inside.text } else { raw };
        if kind == NodeKind::String && (value.is_empty() || self.redactor.action(rule).is_redacted(value)) {
            return;
        }
        let with = match self.redactor.replacement(rule, value) {
            Replacement::Nothing if node == 0 => "null".to_owned(),
            Replacement::Nothing => {
                self.removed.insert(node, rule);
                return;
            }
            Replacement::Text(text) => format!("\"{}\"", escape(&text)),
            Replacement::Json(value) => value.to_string(),
        };
        // A user's replacement may equal the value: redacting again must find nothing.
        if with.as_bytes() != raw {
            let place = self.json_path(node, "");
            self.edits.push(Edit { range, with, rule, place });
        }
    }

    /// Removes the members or elements marked for removal, each with one comma.
    fn remove_marked(&mut self, container: usize) {
        // Nearly always: finding the commas of a large container costs another pass over its children.
        if self.removed.is_empty() {
            return;
        }
        for (child, range) in edit::take_out(&self.tree, container, |child| self.removed.contains_key(&child))
        {
            let (rule, place) = (self.removed[&child], self.json_path(child, ""));
            self.edits.push(Edit { range, with: String::new(), rule, place });
        }
    }

    /// Returns the JSONPath of a node, for explanations; empty if none is wanted.
    fn json_path(&self, node: usize, within: &str) -> String {
        if !self.explain {
            return String::new();
        }
        let mut steps = Vec::new();
        let mut at = Some(node);
        while let Some(node) = at {
            let parent = self.node(node).parent;
            match (self.key(node), parent) {
                (Some(key), _) => {
                    // A key may hold a secret like any string, and explanations are shown to people.
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
