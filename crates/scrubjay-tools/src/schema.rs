//! Schemas that every model API takes, and calls that fit them.
//!
//! `schemars` writes full JSON Schema; model APIs take less: Gemini reads a part of OpenAPI 3.0, and hosts warn of
//! formats they do not know. [`portable`] rewrites the schemas of all tools of a toolset once, as the toolset is made:
//! references are put in place, a type is one word, and only known keywords stay. What the schemas no longer say
//! about `null` is settled here too, in the arguments before a tool sees them and in its answer afterwards.

use std::sync::Arc;

use rmcp::handler::server::router::tool::{ToolRoute, ToolRouter};
use rmcp::model::{CallToolResponse, JsonObject};
use serde_json::{Value, json};

/// Keywords that stay as they are.
const KEPT: [&str; 9] = [
    "default",
    "description",
    "enum",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
];
/// No type holds itself; one that did would be cut off here.
const DEPTH_MAX: usize = 32;

/// Rewrites the schemas of every tool and makes calls fit them.
pub(crate) fn portable<S: Send + Sync + 'static>(mut router: ToolRouter<S>) -> ToolRouter<S> {
    router.map.values_mut().for_each(rewrite);
    router
}

fn rewrite<S: Send + Sync + 'static>(route: &mut ToolRoute<S>) {
    let taken = inlined(&route.attr.input_schema);
    route.attr.input_schema = Arc::new(narrowed(&taken));
    let answered = route.attr.output_schema.take().map(|schema| Arc::new(narrowed(&inlined(&schema))));
    route.attr.output_schema.clone_from(&answered);
    let answered = answered.map(|schema| Value::Object(JsonObject::clone(&schema)));
    let (taken, answered) = (Arc::new(Value::Object(taken)), Arc::new(answered));
    let inner = route.call.clone();
    route.call = Arc::new(move |mut context| {
        if let Some(arguments) = context.arguments.take() {
            let mut arguments = Value::Object(arguments);
            drop_nulls(&mut arguments, &taken);
            context.arguments = match arguments {
                Value::Object(arguments) => Some(arguments),
                _ => None,
            };
        }
        let (answer, schema) = (inner(context), answered.clone());
        Box::pin(async move {
            let mut answer = answer.await?;
            if let (CallToolResponse::Complete(result), Some(schema)) = (&mut answer, &*schema)
                && let Some(data) = &mut result.structured_content
            {
                drop_nulls(data, schema);
            }
            Ok(answer)
        })
    });
}

/// Returns a schema with its references put in place.
fn inlined(schema: &JsonObject) -> JsonObject {
    let definitions = schema.get("$defs").cloned().unwrap_or_default();
    let mut whole = schema.clone();
    whole.remove("$defs");
    match put_in_place(&Value::Object(whole), &definitions, DEPTH_MAX) {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    }
}

fn put_in_place(value: &Value, definitions: &Value, depth: usize) -> Value {
    match value {
        _ if depth == 0 => json!({}),
        Value::Object(object) => {
            let mut all = JsonObject::new();
            let named = object.get("$ref").and_then(Value::as_str);
            if let Some(definition) = named.and_then(|name| definitions.get(name.strip_prefix("#/$defs/")?))
                && let Value::Object(definition) = put_in_place(definition, definitions, depth - 1)
            {
                all = definition;
            }
            // What stands beside a reference is about this place, and counts more.
            for (key, value) in object.iter().filter(|(key, _)| *key != "$ref") {
                all.insert(key.clone(), put_in_place(value, definitions, depth - 1));
            }
            Value::Object(all)
        }
        Value::Array(items) => items.iter().map(|item| put_in_place(item, definitions, depth - 1)).collect(),
        other => other.clone(),
    }
}

/// Returns a schema, without references, in the keywords that every model API takes.
fn narrowed(schema: &JsonObject) -> JsonObject {
    let mut schema = schema.clone();
    take_single_choice(&mut schema);
    let mut narrow = JsonObject::new();
    for (key, value) in &schema {
        match (key.as_str(), value) {
            ("default", Value::Null) => {}
            ("type", Value::Array(types)) => {
                let only = types.iter().find(|name| *name != "null").cloned();
                narrow.extend(only.map(|name| (key.clone(), name)));
            }
            ("type" | "required", _) => drop(narrow.insert(key.clone(), value.clone())),
            ("const", _) => drop(narrow.insert("enum".to_owned(), json!([value]))),
            ("items", _) => drop(narrow.insert(key.clone(), narrowed_value(value))),
            ("properties", Value::Object(properties)) => {
                let all = properties.iter().map(|(name, value)| (name.clone(), narrowed_value(value)));
                narrow.insert(key.clone(), Value::Object(all.collect()));
            }
            ("anyOf" | "oneOf", Value::Array(choices)) => {
                narrow.insert("anyOf".to_owned(), choices.iter().map(narrowed_value).collect());
            }
            (kept, _) if KEPT.contains(&kept) => drop(narrow.insert(key.clone(), value.clone())),
            _ => {}
        }
    }
    narrow
}

fn narrowed_value(value: &Value) -> Value {
    Value::Object(value.as_object().map(narrowed).unwrap_or_default())
}

/// Puts the one choice there is besides `null` in place of the list of choices.
fn take_single_choice(schema: &mut JsonObject) {
    for key in ["anyOf", "oneOf"] {
        let Some(Value::Array(mut choices)) = schema.remove(key) else { continue };
        choices.retain(|choice| choice["type"] != "null");
        match choices.as_mut_slice() {
            [Value::Object(only)] => {
                for (key, value) in std::mem::take(only) {
                    schema.entry(key).or_insert(value);
                }
            }
            _ => drop(schema.insert(key.to_owned(), Value::Array(choices))),
        }
    }
}

/// Leaves out the members that are `null` where the schema has no place for it.
///
/// Absent and `null` mean the same to tools. Clients send `null` for arguments they leave open, whatever the schema
/// says; an answer with `null` where the schema says a type is refused by hosts that check.
fn drop_nulls(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(members) => {
            let schema_of = |name: &str| schema["properties"].get(name);
            members.retain(|name, value| !value.is_null() || schema_of(name).is_none_or(takes_null));
            for (name, value) in members {
                if let Some(schema) = schema_of(name) {
                    drop_nulls(value, schema);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| drop_nulls(item, &schema["items"])),
        _ => {}
    }
    // Of an optional object, the properties stand in one of the choices.
    for choice in schema["anyOf"].as_array().into_iter().flatten() {
        drop_nulls(value, choice);
    }
}

fn takes_null(schema: &Value) -> bool {
    if let Some(choices) = schema["anyOf"].as_array() {
        return choices.iter().any(takes_null);
    }
    match (&schema["type"], &schema["enum"]) {
        (Value::String(only), _) => only == "null",
        (Value::Array(types), _) => types.iter().any(|name| name == "null"),
        (_, Value::Array(values)) => values.contains(&Value::Null),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: Value, expected: Value) {
        let narrow = narrowed(&inlined(schema.as_object().unwrap()));
        assert_eq!(Value::Object(narrow), expected);
    }

    #[test]
    fn schemas_keep_their_meaning_in_fewer_words() {
        check(
            json!({ "$schema": "s", "title": "T", "type": ["integer", "null"], "format": "uint64", "minimum": 0 }),
            json!({ "type": "integer", "minimum": 0 }),
        );
        check(
            json!({
                "properties": { "a": { "anyOf": [{ "$ref": "#/$defs/A" }, { "type": "null" }], "description": "here" } },
                "$defs": { "A": { "type": "string", "const": "x", "description": "there" } },
            }),
            json!({ "properties": { "a": { "type": "string", "enum": ["x"], "description": "here" } } }),
        );
        check(
            json!({ "type": "array", "items": true, "default": null, "additionalProperties": false }),
            json!({ "type": "array", "items": {} }),
        );
        check(
            json!({ "oneOf": [{ "type": "string" }, { "type": "number", "format": "double" }] }),
            json!({ "anyOf": [{ "type": "string" }, { "type": "number" }] }),
        );
    }

    #[test]
    fn a_type_that_holds_itself_is_cut_off() {
        let schema = json!({ "$ref": "#/$defs/A", "$defs": { "A": { "items": { "$ref": "#/$defs/A" } } } });
        let mut at = Value::Object(narrowed(&inlined(schema.as_object().unwrap())));
        for _ in 0..DEPTH_MAX {
            at = at["items"].take();
        }
        assert_eq!(at, Value::Null);
    }

    #[test]
    fn null_is_dropped_where_it_has_no_place() {
        let schema = json!({ "properties": {
            "text": { "type": "string" }, "any": { "description": "anything" },
            "list": { "type": "array", "items": { "properties": { "flag": { "type": "boolean" } } } },
            "either": { "anyOf": [{ "properties": { "n": { "type": "integer" } } }, { "type": "null" }] },
        } });
        let mut value = json!({ "text": null, "any": null, "list": [{ "flag": null }], "other": null,
            "either": { "n": null } });
        drop_nulls(&mut value, &schema);
        assert_eq!(value, json!({ "any": null, "list": [{}], "other": null, "either": {} }));
    }
}
