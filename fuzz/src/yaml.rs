//! Configuration files: every text gives a tree or a problem with its line, and JSON gives the same tree as a JSON
//! parser.

use std::path::Path;

use serde_json::Value as Json;

use crate::config::node::{Kind, Node, Value};
use crate::config::yaml::parse;

/// The deepest nesting that the reader accepts.
const DEPTH_MAX: usize = 32;

/// Checks one file.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut problems = Vec::new();
    let node = parse(text, Path::new("c.yaml"), &mut problems);
    let lines = text.split(['\n', '\r']).count();
    for problem in &problems {
        let message = problem.to_string();
        let line =
            message.strip_prefix("c.yaml:").and_then(|rest| rest.split(':').next()?.parse::<usize>().ok());
        assert!(line.is_some_and(|line| (1..=lines + 1).contains(&line)), "{message}");
    }
    let mut again = Vec::new();
    let same = parse(text, Path::new("c.yaml"), &mut again);
    assert!(node == same && problems == again);
    match &node {
        None => assert!(!problems.is_empty(), "an unreadable file has a problem"),
        Some(node) => {
            assert!(depth(node) <= DEPTH_MAX + 1, "no tree is deeper than its limit");
            unique(node);
        }
    }
    if let Ok(json) = serde_json::from_str::<Json>(text)
        && json_depth(&json) < DEPTH_MAX
        && !text.contains('\u{feff}')
        && problems.is_empty()
    {
        let node = node.expect("what has no problem was read");
        assert!(is_same(&node, &json), "not the tree of the JSON: {text:?}");
    }
}

fn depth(node: &Node) -> usize {
    match &node.value {
        Value::Null | Value::Scalar(_) => 0,
        Value::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Map(entries) => 1 + entries.iter().map(|(_, node)| depth(node)).max().unwrap_or(0),
    }
}

fn unique(node: &Node) {
    match &node.value {
        Value::Null | Value::Scalar(_) => {}
        Value::List(items) => items.iter().for_each(unique),
        Value::Map(entries) => {
            for (at, (key, node)) in entries.iter().enumerate() {
                assert!(entries[..at].iter().all(|(known, _)| known != key), "{key:?} occurs twice");
                unique(node);
            }
        }
    }
}

fn json_depth(json: &Json) -> usize {
    match json {
        Json::Array(items) => 1 + items.iter().map(json_depth).max().unwrap_or(0),
        Json::Object(members) => 1 + members.values().map(json_depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn is_same(node: &Node, json: &Json) -> bool {
    match (&node.value, json) {
        (Value::Null, Json::Null) => true,
        (Value::Scalar(scalar), Json::Bool(value)) => {
            scalar.kind == Kind::Boolean && scalar.text == value.to_string()
        }
        (Value::Scalar(scalar), Json::Number(value)) => {
            // serde_json reads long numbers a little less exactly.
            let (ours, theirs) =
                (scalar.text.parse::<f64>().unwrap_or(f64::NAN), value.as_f64().unwrap_or(f64::NAN));
            scalar.kind == Kind::Number && (ours - theirs).abs() <= ours.abs() * 1e-12
        }
        (Value::Scalar(scalar), Json::String(value)) => scalar.kind == Kind::Text && scalar.text == *value,
        (Value::List(nodes), Json::Array(items)) => {
            nodes.len() == items.len() && nodes.iter().zip(items).all(|(node, json)| is_same(node, json))
        }
        (Value::Map(entries), Json::Object(members)) => {
            entries.len() == members.len()
                && entries.iter().all(|(key, node)| members.get(key).is_some_and(|json| is_same(node, json)))
        }
        _ => false,
    }
}
