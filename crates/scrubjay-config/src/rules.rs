//! `recorder.rules`: what is done to messages on their way, checked at start with its place in the file.

mod changing;
mod matching;

use std::sync::Arc;
use std::time::Duration;

use scrubjay_core::entry::{Direction, is_name};
use scrubjay_core::protocol::code;
use scrubjay_core::rules::{Action, DELAY_MAX, JsonPath, Match, RULES_MAX, Rule, Rules, STRICT_PREFIX};
use scrubjay_core::units::parse_duration;
use serde_json::json;

use self::changing::{json_text, read_changes};
use self::matching::read_match;
use super::node::{Node, Origin, Value, below};
use super::problem::{Problem, entries};
use super::setting::{Choice, Setting, Shown, items, parse, text, texts, write_duration};

const NAME: &str = "must be 1 to 64 letters, digits, _ - . : or /";

/// The rules for messages on their way.
#[derive(Clone)]
pub struct Interceptors {
    list: Arc<Rules>,
    /// What each is called and does, for a person.
    told: Vec<String>,
}

impl Interceptors {
    /// Returns the rules, where there is one.
    pub(crate) fn in_force(&self) -> Option<Arc<Rules>> {
        (!self.list.is_empty()).then(|| self.list.clone())
    }
}

impl Setting for Interceptors {
    fn read(node: &Node, key: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let items = items(node, key, problems, "rules")?;
        let before = problems.len();
        if items.len() > RULES_MAX {
            let message = format!("must not have more than {RULES_MAX} rules");
            problems.push(Problem::new(&node.origin, key, message));
            return None;
        }
        let (mut list, mut told) = (Vec::<Rule>::new(), Vec::new());
        for (i, item) in items.iter().enumerate() {
            let path = format!("{key}[{i}]");
            let Some(rule) = read_rule(item, &path, problems) else { continue };
            if list.iter().any(|other| other.name == rule.name) {
                let message = "is the name of an earlier rule, too";
                problems.push(Problem::new(at(item, "name"), below(&path, "name"), message));
            }
            told.push(format!("{}: {}", rule.name, item.get("action").map(written).unwrap_or_default()));
            list.push(rule);
        }
        (problems.len() == before).then(|| Self { list: Arc::new(Rules::new(list)), told })
    }

    fn show(&self, key: &str, origin: &Origin, out: &mut Vec<Shown>) {
        out.push(Shown::new(key, json!(self.told), origin));
    }
}

impl Choice for Direction {
    const NAMES: &'static [(&'static str, Self)] =
        &[("client_to_server", Self::ClientToServer), ("server_to_client", Self::ServerToClient)];
}

/// What a rule does, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Allow,
    Block,
    Modify,
    Delay,
    Mock,
    Tag,
}

impl Choice for Verb {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("allow", Self::Allow),
        ("block", Self::Block),
        ("modify", Self::Modify),
        ("delay", Self::Delay),
        ("mock", Self::Mock),
        ("tag", Self::Tag),
    ];
}

impl Verb {
    /// The keys that say how.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Allow => &[],
            Self::Block => &["code", "message"],
            Self::Modify => &["set", "remove", "replace"],
            Self::Delay => &["delay"],
            Self::Mock => &["result"],
            Self::Tag => &["tags"],
        }
    }
}

/// Reads one rule; reports all that is wrong with it.
fn read_rule(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Option<Rule> {
    let before = problems.len();
    let verb = required(node, path, "action", problems)
        .and_then(|given| Verb::read(given, &below(path, "action"), problems));
    let name = required(node, path, "name", problems)
        .and_then(|given| one_name(given, &below(path, "name"), problems));
    if let Some(verb) = verb {
        let known: Vec<&str> = ["name", "match", "action"].iter().chain(verb.keys()).copied().collect();
        entries(node, path, &known, problems);
    }
    let when = match node.get("match") {
        Some(given) => read_match(given, &below(path, "match"), problems),
        None => Match::default(),
    };
    let action = verb.and_then(|verb| match verb {
        Verb::Allow => Some(Action::Allow),
        Verb::Block => read_block(node, path, name.as_deref().unwrap_or_default(), problems),
        Verb::Modify => read_changes(node, path, problems).map(Action::Modify),
        Verb::Delay => read_delay(node, path, problems).map(Action::Delay),
        Verb::Mock => required(node, path, "result", problems)
            .and_then(|given| json_text(given, &below(path, "result"), problems))
            .map(|result| Action::Mock { result }),
        Verb::Tag => read_tags(node, path, problems).map(Action::Tag),
    });
    let rule = Rule { name: name?, when, action: action? };
    (problems.len() == before).then_some(rule)
}

fn required<'n>(node: &'n Node, path: &str, key: &str, problems: &mut Vec<Problem>) -> Option<&'n Node> {
    let given = node.get(key).filter(|given| given.value != Value::Null);
    if given.is_none() {
        problems.push(Problem::new(at(node, key), below(path, key), "is required"));
    }
    given
}

/// Returns where a key stands, or where it is missing.
fn at<'n>(node: &'n Node, key: &str) -> &'n Origin {
    node.get(key).map_or(&node.origin, |given| &given.origin)
}

fn one_name(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Option<String> {
    let name = text(node, path, problems)?;
    let is_ours = name.starts_with(STRICT_PREFIX);
    if is_ours {
        let what =
            format!("must not begin with {STRICT_PREFIX}: so begin the reasons why messages are refused");
        problems.push(Problem::new(&node.origin, path, what));
    } else if !is_name(name) {
        problems.push(Problem::new(&node.origin, path, NAME));
    }
    (is_name(name) && !is_ours).then(|| name.to_owned())
}

fn read_path(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Option<JsonPath> {
    let written = text(node, path, problems)?;
    reported(JsonPath::parse(written), node, path, problems)
}

fn reported<T>(read: Result<T, String>, node: &Node, path: &str, problems: &mut Vec<Problem>) -> Option<T> {
    read.map_err(|what| problems.push(Problem::new(&node.origin, path, what))).ok()
}

fn read_block(node: &Node, path: &str, name: &str, problems: &mut Vec<Problem>) -> Option<Action> {
    let code = match node.get("code") {
        Some(given) => {
            parse(given, &below(path, "code"), problems, "a whole number", |text| text.parse().ok())?
        }
        None => code::BLOCKED,
    };
    let message = match node.get("message") {
        Some(given) => text(given, &below(path, "message"), problems)?.to_owned(),
        None => format!("blocked by the rule {name}"),
    };
    Some(Action::Block { code, message })
}

fn read_delay(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Option<Duration> {
    let given = required(node, path, "delay", problems)?;
    let must_be = format!("a duration of up to {}, like 200ms", write_duration(DELAY_MAX));
    let fits = |delay: &Duration| !delay.is_zero() && *delay <= DELAY_MAX;
    parse(given, &below(path, "delay"), problems, &must_be, |text| parse_duration(text).ok().filter(fits))
}

fn read_tags(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Option<Vec<String>> {
    let given = required(node, path, "tags", problems)?;
    let path = below(path, "tags");
    let tags = texts(given, &path, problems)?;
    if tags.is_empty() {
        problems.push(Problem::new(&given.origin, &path, "must name at least one"));
    }
    for (i, _) in tags.iter().enumerate().filter(|(_, tag)| !is_name(tag)) {
        problems.push(Problem::new(given.item_origin(i), format!("{path}[{i}]"), NAME));
    }
    Some(tags)
}

/// Returns a single value as it is written.
fn written(node: &Node) -> String {
    match &node.value {
        Value::Scalar(scalar) => scalar.text.clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
