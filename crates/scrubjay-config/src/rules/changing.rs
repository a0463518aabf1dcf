//! What a rule changes, and the values it puts in: YAML as JSON.

use scrubjay_core::rules::{Change, JsonPath};
use serde_json::json;

use super::super::node::{Kind, Node, Scalar, Value, below};
use super::super::problem::{Problem, entries};
use super::super::setting::text;
use super::{read_path, reported, required};

/// Reads `set`, `remove` and `replace`.
pub(crate) fn read_changes(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Option<Vec<Change>> {
    let (mut changes, before) = (Vec::new(), problems.len());
    if let Some(given) = node.get("set") {
        let path = below(path, "set");
        let Value::Map(values) = &given.value else {
            problems.push(Problem::new(&given.origin, path, "must be a map of JSONPaths to values"));
            return None;
        };
        for (place, value) in values {
            let key = below(&path, place);
            let place = reported(JsonPath::parse(place), value, &key, problems);
            let json = json_text(value, &key, problems);
            changes.extend(place.zip(json).map(|(place, json)| Change::set(place, json)));
        }
    }
    if let Some(given) = node.get("remove") {
        let path = below(path, "remove");
        let Value::List(places) = &given.value else {
            problems.push(Problem::new(&given.origin, path, "must be a list of JSONPaths"));
            return None;
        };
        let places = places.iter().enumerate();
        changes.extend(places.filter_map(|(i, place)| {
            read_path(place, &format!("{path}[{i}]"), problems).map(Change::remove)
        }));
    }
    if let Some(given) = node.get("replace") {
        let path = below(path, "replace");
        let Value::List(items) = &given.value else {
            problems.push(Problem::new(&given.origin, path, "must be a list of { path, pattern, with }"));
            return None;
        };
        for (i, item) in items.iter().enumerate() {
            changes.extend(read_replace(item, &format!("{path}[{i}]"), problems));
        }
    }
    if changes.is_empty() && problems.len() == before {
        problems.push(Problem::new(&node.origin, path, "must have at least one of set, remove and replace"));
    }
    Some(changes)
}

fn read_replace(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Option<Change> {
    entries(node, path, &["path", "pattern", "with"], problems);
    let place = required(node, path, "path", problems)
        .and_then(|given| read_path(given, &below(path, "path"), problems));
    let with = match node.get("with") {
        Some(given) => text(given, &below(path, "with"), problems)?.to_owned(),
        None => {
            problems.push(Problem::new(&node.origin, below(path, "with"), "is required"));
            return None;
        }
    };
    let given = required(node, path, "pattern", problems)?;
    let pattern = text(given, &below(path, "pattern"), problems)?;
    reported(Change::replace(place?, pattern, with), given, &below(path, "pattern"), problems)
}

/// Writes a value as JSON; a number keeps its spelling where JSON knows it.
pub(crate) fn json_text(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Option<String> {
    match &node.value {
        Value::Null => Some("null".to_owned()),
        Value::Scalar(scalar) => {
            let json = scalar_json(scalar);
            if json.is_none() {
                let message = format!("holds {}, which is no number in JSON", scalar.quoted());
                problems.push(Problem::new(&node.origin, path, message));
            }
            json
        }
        Value::List(items) => {
            let items = items.iter().enumerate();
            let items: Option<Vec<String>> =
                items.map(|(i, item)| json_text(item, &format!("{path}[{i}]"), problems)).collect();
            Some(format!("[{}]", items?.join(",")))
        }
        Value::Map(members) => {
            let members = members.iter();
            let members: Option<Vec<String>> = members
                .map(|(key, value)| {
                    let json = json_text(value, &below(path, key), problems)?;
                    Some(format!("{}:{json}", json!(key)))
                })
                .collect();
            Some(format!("{{{}}}", members?.join(",")))
        }
    }
}

fn scalar_json(scalar: &Scalar) -> Option<String> {
    match scalar.kind {
        Kind::Text => Some(json!(scalar.text).to_string()),
        Kind::Boolean => Some(scalar.text.to_lowercase()),
        Kind::Number => {
            let is_json = serde_json::from_str::<&serde_json::value::RawValue>(&scalar.text).is_ok();
            let number = || serde_json::Number::from_f64(scalar.text.parse().ok()?).map(|n| n.to_string());
            if is_json { Some(scalar.text.clone()) } else { number() }
        }
    }
}
