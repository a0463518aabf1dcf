//! The changes of a rule with the action `modify`, and values of YAML as JSON.

use scrubjay_core::rules::{JsonPath, RuleChange};
use serde_json::json;

use super::{read_path, required};
use crate::cursor::Cursor;
use crate::node::{Kind, Scalar, Value};

/// Reads `set`, `remove` and `replace`.
pub(super) fn read_changes(at: &Cursor<'_>) -> Option<Vec<RuleChange>> {
    at.if_right(|| {
        let mut changes = Vec::new();
        if let Some(at) = at.member("set") {
            for (path, at) in at.map_of("JSONPaths to values")? {
                let path = at.reported(JsonPath::parse(path));
                changes.extend(path.zip(json_text(&at)).map(|(path, json)| RuleChange::set(path, json)));
            }
        }
        if let Some(at) = at.member("remove") {
            changes.extend(at.list_of(" of JSONPaths")?.iter().filter_map(read_path).map(RuleChange::remove));
        }
        if let Some(at) = at.member("replace") {
            changes.extend(at.list_of(" of { path, pattern, with }")?.iter().filter_map(read_replace));
        }
        Some(changes)
    })
    .filter(|changes| {
        !changes.is_empty() || at.wrong::<()>("must have at least one of set, remove and replace").is_some()
    })
}

fn read_replace(at: &Cursor<'_>) -> Option<RuleChange> {
    at.entries(&["path", "pattern", "with"]);
    let path = required(at, "path").and_then(|at| read_path(&at));
    let with = at.required("with")?.text()?.to_owned();
    let pattern = required(at, "pattern")?;
    let text = pattern.text()?;
    pattern.reported(RuleChange::replace(path?, text, with))
}

/// Writes a value as JSON. A number keeps its spelling if that is valid JSON: parsing it could lose digits.
pub(super) fn json_text(at: &Cursor<'_>) -> Option<String> {
    match &at.node.value {
        Value::Null => Some("null".to_owned()),
        Value::Scalar(scalar) => scalar_json(scalar)
            .or_else(|| at.wrong(format!("holds {}, which is no number in JSON", scalar.quoted()))),
        Value::List(_) => {
            let items: Option<Vec<String>> = at.list_of("")?.iter().map(json_text).collect();
            Some(format!("[{}]", items?.join(",")))
        }
        Value::Map(_) => {
            let member = |(key, at): &(&str, Cursor<'_>)| Some(format!("{}:{}", json!(key), json_text(at)?));
            let members: Option<Vec<String>> = at.map_of("")?.iter().map(member).collect();
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
