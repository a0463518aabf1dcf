//! Rules: blocked calls are never forwarded in any spelling, and what is forwarded of valid JSON is valid JSON.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use scrubjay_core::entry::{Direction, RuleEffects};
use scrubjay_core::glob::Glob;
use scrubjay_core::rules::{
    Condition, DELAY_MAX, Forwarded, JsonPath, Judge, Judgement, Rule, RuleAction, RuleChange, RuleMatch,
    Rules, ValueCheck,
};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::json;

/// The most bytes that rules may make a message.
const BYTES_MAX: usize = 4096;

static NONE: LazyLock<Arc<Rules>> = LazyLock::new(|| Arc::new(Rules::new(Vec::new())));
static SOME: LazyLock<Arc<Rules>> = LazyLock::new(|| Arc::new(Rules::new(rules())));

fn rules() -> Vec<Rule> {
    let globs = |names: &[&str]| names.iter().map(|name| Glob::new(name)).collect::<Vec<_>>();
    let path = |text| JsonPath::parse(text).expect("it is a path");
    let tool = |names: &[&str]| RuleMatch {
        methods: globs(&["tools/call"]),
        tools: globs(names),
        ..RuleMatch::default()
    };
    let rule = |name: &str, when, action| Rule { name: name.to_owned(), when, action };
    let big = Condition { path: path("$.arguments.n"), check: ValueCheck::greater(10.0) };
    vec![
        rule("seen", RuleMatch::default(), RuleAction::Tag(vec!["seen".to_owned()])),
        rule("no-deletes", tool(&["delete_*"]), RuleAction::Block { code: -7, message: "no".to_owned() }),
        rule(
            "no-prompts",
            RuleMatch { methods: globs(&["prompts/*"]), ..RuleMatch::default() },
            RuleAction::Block { code: -8, message: "no".to_owned() },
        ),
        rule(
            "small",
            RuleMatch { conditions: vec![big], ..tool(&["count"]) },
            RuleAction::Modify(vec![RuleChange::set(path("$.arguments.n"), "10".to_owned())]),
        ),
        rule(
            "clean",
            tool(&["*"]),
            RuleAction::Modify(vec![
                RuleChange::remove(path("$..secret")),
                RuleChange::replace(path("$.arguments.*"), "pass[a-z]*", "[gone]".to_owned())
                    .expect("it is an expression"),
                RuleChange::set(path("$._meta.seen"), json!({ "by": ["us"] }).to_string()),
            ]),
        ),
        rule("slow", tool(&["slow"]), RuleAction::Delay(Duration::from_secs(40))),
        rule("slower", tool(&["slow"]), RuleAction::Delay(Duration::from_secs(40))),
        rule("made", tool(&["now"]), RuleAction::Mock { result: json!({ "content": [] }).to_string() }),
    ]
}

/// Checks a conversation of one message a line; a line that begins with `<` comes from the server.
pub fn check(data: &[u8]) {
    let mut judge = Judge::new(SOME.clone(), "files", BYTES_MAX);
    let mut same = Judge::new(SOME.clone(), "files", BYTES_MAX);
    let mut idle = Judge::new(NONE.clone(), "files", BYTES_MAX);
    for line in data.split(|byte| *byte == b'\n').take(8) {
        let (direction, line) = match line.strip_prefix(b"<") {
            Some(line) => (Direction::ServerToClient, line),
            None => (Direction::ClientToServer, line),
        };
        assert_eq!(idle.line(direction, line), Judgement::default(), "without rules a line is a line");
        let judgement = judge.line(direction, line);
        assert_eq!(judgement, same.line(direction, line), "the same judge says the same");
        judged(line, &judgement);
    }
}

fn judged(line: &[u8], judgement: &Judgement) {
    let shown = || String::from_utf8_lossy(line).into_owned();
    let onward = match &judgement.forwarded {
        Forwarded::Unchanged => Some(line),
        Forwarded::Changed(other) => Some(other.as_slice()),
        Forwarded::Nothing => None,
    };
    let effects = judgement.marks.as_marks().effects;
    if let Forwarded::Changed(other) = &judgement.forwarded {
        assert_ne!(effects, RuleEffects::default(), "a change is reported: {}", shown());
        assert!(
            !is_json(line) || is_json(other),
            "JSON stays JSON: {} {}",
            shown(),
            String::from_utf8_lossy(other)
        );
    }
    if judgement.forwarded == Forwarded::Nothing {
        let reported = [RuleEffects::BLOCKED, RuleEffects::MOCKED, RuleEffects::REFUSED]
            .into_iter()
            .any(|act| effects.has(act));
        assert!(reported || line.trim_ascii().is_empty(), "what goes nowhere is reported: {}", shown());
    }
    assert!(judgement.delay <= DELAY_MAX);
    assert_eq!(judgement.delay > Duration::ZERO, effects.has(RuleEffects::DELAYED));
    if let Some(onward) = onward {
        let messages = messages(onward);
        let forbidden = |(method, tool): &(String, String)| {
            method == "tools/call" && tool.starts_with("delete_") || method.starts_with("prompts/")
        };
        assert!(!messages.iter().any(forbidden), "{messages:?} went on: {}", shown());
        assert!(onward.trim_ascii().is_empty() || is_json(onward), "only JSON goes on: {}", shown());
        assert!(!onward.contains(&b'\r'), "a line is one line: {}", shown());
    }
    if let Some(back) = &judgement.back {
        let reported = String::from_utf8_lossy(back);
        assert!(is_json(back), "an answer is JSON: {} {reported}", shown());
    }
}

fn is_json(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    serde_json::from_slice::<IgnoredAny>(text).is_ok()
}

/// Lists every method with every name that some reader could find in a line, because keys may be repeated.
fn messages(line: &[u8]) -> Vec<(String, String)> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let Ok(tree) = serde_json::from_slice::<Tree>(line) else { return Vec::new() };
    let all = match tree {
        Tree::List(items) => items,
        one => vec![one],
    };
    let mut found = Vec::new();
    for message in &all {
        // An `inputRequests` member of a result is a request like any other.
        let demands =
            message.all("result").flat_map(|result| result.all("inputRequests")).flat_map(Tree::values);
        for message in std::iter::once(message).chain(demands) {
            methods(message, &mut found);
        }
    }
    found
}

fn methods(message: &Tree, found: &mut Vec<(String, String)>) {
    for method in message.all("method").filter_map(Tree::text) {
        found.push((method.to_owned(), String::new()));
        for name in message.all("params").flat_map(|params| params.all("name")).filter_map(Tree::text) {
            found.push((method.to_owned(), name.to_owned()));
        }
    }
}

/// JSON that keeps repeated members.
enum Tree {
    Other,
    Text(String),
    List(Vec<Self>),
    Map(Vec<(String, Self)>),
}

impl Tree {
    fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Self> {
        let members = match self {
            Self::Map(members) => members.as_slice(),
            _ => &[],
        };
        members.iter().filter(move |(known, _)| known == key).map(|(_, value)| value)
    }

    fn values(&self) -> impl Iterator<Item = &Self> {
        let members = match self {
            Self::Map(members) => members.as_slice(),
            _ => &[],
        };
        members.iter().map(|(_, value)| value)
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyTree)
    }
}

struct AnyTree;

impl<'de> Visitor<'de> for AnyTree {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Tree, A::Error> {
        let mut map = Vec::new();
        while let Some(member) = members.next_entry()? {
            map.push(member);
        }
        Ok(Tree::Map(map))
    }
}
