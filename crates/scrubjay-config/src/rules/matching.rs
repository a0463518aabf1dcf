//! `match` of a rule: direction, methods, backends, tools, and conditions on what a message holds.

use scrubjay_core::entry::Direction;
use scrubjay_core::glob::Glob;
use scrubjay_core::rules::{Check, Condition, Match};

use super::super::node::{Node, below};
use super::super::problem::{Problem, entries};
use super::super::selection::Globs;
use super::super::setting::{Setting, items, parse, text};
use super::changing::json_text;
use super::{read_path, reported, required};

/// Reads what a rule is about.
pub(crate) fn read_match(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Match {
    let mut when = Match::default();
    for (key, given) in entries(node, path, &["direction", "methods", "backends", "tools", "where"], problems)
    {
        let path = below(path, key);
        match key.as_str() {
            "direction" => when.direction = Direction::read(given, &path, problems),
            "methods" => when.methods = read_globs(given, &path, problems),
            "backends" => when.backends = read_globs(given, &path, problems),
            "tools" => when.tools = read_globs(given, &path, problems),
            _ => when.conditions = read_conditions(given, &path, problems),
        }
    }
    when
}

fn read_globs(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Vec<Glob> {
    let Some(Globs(globs)) = Globs::read(node, path, problems) else { return Vec::new() };
    if globs.is_empty() {
        problems.push(Problem::new(&node.origin, path, "must name at least one: leave it out to match all"));
    }
    globs
}

const CHECKS: [&str; 6] = ["exists", "equals", "contains", "matches", "greater", "less"];

fn read_conditions(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Vec<Condition> {
    let Some(items) = items(node, path, problems, "conditions") else { return Vec::new() };
    let mut conditions = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let path = format!("{path}[{i}]");
        let known: Vec<&str> = ["path"].iter().chain(&CHECKS).copied().collect();
        let given = entries(item, &path, &known, problems);
        let place = required(item, &path, "path", problems)
            .and_then(|given| read_path(given, &below(&path, "path"), problems));
        let checks: Vec<_> = given.into_iter().filter(|(key, _)| key != "path").collect();
        let check = match checks.as_slice() {
            [(key, given)] => read_check(key, given, &below(&path, key), problems),
            _ => {
                let message = format!("must have one of {}", CHECKS.join(", "));
                problems.push(Problem::new(&item.origin, &path, message));
                None
            }
        };
        conditions.extend(place.zip(check).map(|(path, check)| Condition { path, check }));
    }
    conditions
}

fn read_check(key: &str, node: &Node, path: &str, problems: &mut Vec<Problem>) -> Option<Check> {
    let number = |problems: &mut Vec<Problem>| {
        parse(node, path, problems, "a number", |text| text.parse::<f64>().ok().filter(|n| n.is_finite()))
    };
    match key {
        "exists" => bool::read(node, path, problems).map(Check::exists),
        "equals" => {
            let json = json_text(node, path, problems)?;
            let value = serde_json::from_str(&json);
            if value.is_err() {
                problems.push(Problem::new(&node.origin, path, "holds a number too large to be compared"));
            }
            value.ok().map(Check::equals)
        }
        "contains" => text(node, path, problems).map(|part| Check::contains(part.to_owned())),
        "matches" => {
            let expression = text(node, path, problems)?;
            reported(Check::matches(expression), node, path, problems)
        }
        "greater" => number(problems).map(Check::greater),
        _ => number(problems).map(Check::less),
    }
}
