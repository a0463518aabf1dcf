//! Schemas that every model API takes, and calls that fit them.
//!
//! `schemars` writes full JSON Schema, but model APIs take less: Gemini reads a part of OpenAPI 3.0, and hosts warn of
//! unknown formats. [`portable`] rewrites the schemas of all tools when a toolset is created: references are inlined, a
//! type is a single word, and only known keywords stay. The schemas then do not mention `null` any more, so members
//! that are `null` are removed from arguments before a tool sees them, and from its answer. Calls with wrong arguments
//! are answered with a list of the problems (`arguments.rs`).

use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::handler::server::router::tool::{ToolRoute, ToolRouter};
use rmcp::handler::server::tool::IntoCallToolResult;
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, ErrorCode, JsonObject};
use scrubjay_core::redact::Redactor;
use scrubjay_store::ledger::redacted::noting;
use serde_json::{Value, json};

use crate::arguments::{self, ArgumentCheck, ArgumentProblem};
use crate::redacted;

/// The keywords of JSON Schema that a portable schema has, besides those that [`narrowed`] converts: the part that every
/// model API takes. A `description` is the doc comment of a type or member, so those comments are read by models.
const KEYWORDS: [&str; 9] = [
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
/// How deep references are followed. None of our types is recursive; one that was would be cut off here instead of
/// overflowing the stack.
const DEPTH_MAX: usize = 32;

/// Who checks the arguments of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentChecks {
    /// [`arguments::check`], against the schema.
    Schema,
    /// Only rmcp: the sample server stands for servers of others, which have no such checks.
    Rmcp,
    /// The tool itself, in the words of its specification. Only unknown arguments are removed before.
    Tool,
}

/// Rewrites the schemas of every tool, and checks the arguments of calls against them.
pub(crate) fn portable<S: Send + Sync + 'static>(
    mut router: ToolRouter<S>,
    checks: ArgumentChecks,
    redactor: Option<&Arc<Redactor>>,
) -> ToolRouter<S> {
    router.map.values_mut().for_each(|route| rewrite(route, checks, redactor));
    router
}

fn rewrite<S: Send + Sync + 'static>(
    route: &mut ToolRoute<S>,
    checks: ArgumentChecks,
    redactor: Option<&Arc<Redactor>>,
) {
    let is_read_only = route.attr.annotations.as_ref().and_then(|a| a.read_only_hint) == Some(true);
    // A tool that only reads stores none of its arguments, so there is nothing to report.
    let redactor = redactor.filter(|_| !is_read_only).cloned();
    // Models see the narrowed schema; arguments are checked against the full one, which still has formats and null.
    let input = inlined(&route.attr.input_schema);
    route.attr.input_schema = Arc::new(narrowed(&input));
    let output = route.attr.output_schema.take().map(|schema| {
        let mut schema = narrowed(&inlined(&schema));
        if redactor.is_some() {
            redacted::add_to_schema(&mut schema);
        }
        Arc::new(schema)
    });
    route.attr.output_schema.clone_from(&output);
    let output = output.map(|schema| Value::Object(JsonObject::clone(&schema)));
    let (input, output) = (Arc::new(Value::Object(input)), Arc::new(output));
    // Wrapped here and not in each tool, so that no tool can be added without these checks.
    let inner = route.call.clone();
    route.call = Arc::new(move |mut context| {
        let mut arguments = Value::Object(context.arguments.take().unwrap_or_default());
        drop_nulls(&mut arguments, &input);
        let checked = match checks {
            ArgumentChecks::Schema => arguments::check(&mut arguments, &input),
            ArgumentChecks::Tool => arguments::check_names(&mut arguments, &input),
            ArgumentChecks::Rmcp => ArgumentCheck::default(),
        };
        if !checked.problems.is_empty() {
            return Box::pin(std::future::ready(refused(&checked.problems, checks)));
        }
        // A tool that writes may store a redacted form of its arguments, and the answer then says which they are.
        let (redactor, arguments_before) = (redactor.clone(), redactor.is_some().then(|| arguments.clone()));
        context.arguments = match arguments {
            Value::Object(arguments) => Some(arguments),
            _ => None,
        };
        let (answer, schema) = (inner(context), output.clone());
        Box::pin(async move {
            // The ledger notes the texts that it redacts while this call runs.
            let (answer, stored) = noting(answer).await;
            let mut answer = match answer {
                // The schema cannot say all that a type requires. What only serde notices is answered in the same form.
                Err(e) if checks == ArgumentChecks::Schema && e.message.starts_with(UNREADABLE) => {
                    let words = e.message[UNREADABLE.len()..].to_owned();
                    return refused(&[ArgumentProblem::new("", words)], checks);
                }
                answer => answer?,
            };
            if let CallToolResponse::Complete(result) = &mut answer {
                // First the nulls go, then members are added that the schema allows, so both fit it.
                if let (Some(schema), Some(data)) = (&*schema, &mut result.structured_content) {
                    drop_nulls(data, schema);
                }
                if let (Some(arguments_before), Some(redactor)) = (&arguments_before, &redactor)
                    && result.is_error != Some(true)
                {
                    let changed = redacted::changed_arguments(arguments_before, &stored, redactor);
                    redacted::add_changed(result, &changed);
                }
                name_ignored(result, &checked.ignored);
            }
            Ok(answer)
        })
    });
}

/// The beginning of rmcp's message about arguments that cannot be deserialized.
const UNREADABLE: &str = "failed to deserialize parameters: ";

/// Answers a call with wrong arguments: with a tool error, which models get to read, or with the JSON-RPC error that the
/// toolset's specification requires.
fn refused(problems: &[ArgumentProblem], checks: ArgumentChecks) -> Result<CallToolResponse, ErrorData> {
    let failure = arguments::refusal(problems);
    match checks {
        ArgumentChecks::Schema => failure.into_call_tool_result(),
        ArgumentChecks::Tool | ArgumentChecks::Rmcp => Err(failure.into_error(ErrorCode::INVALID_PARAMS)),
    }
}

/// Adds to an answer which arguments were ignored.
fn name_ignored(result: &mut CallToolResult, ignored: &[String]) {
    if ignored.is_empty() {
        return;
    }
    let text = format!("Not used: {}; this tool has no such arguments.", ignored.join(", "));
    result.content.push(ContentBlock::text(text));
}

/// Returns a schema with its references inlined.
fn inlined(schema: &JsonObject) -> JsonObject {
    let definitions = schema.get("$defs").cloned().unwrap_or_default();
    let mut whole = schema.clone();
    whole.remove("$defs");
    match resolve(&Value::Object(whole), &definitions, DEPTH_MAX) {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    }
}

fn resolve(value: &Value, definitions: &Value, depth: usize) -> Value {
    match value {
        _ if depth == 0 => json!({}),
        Value::Object(object) => {
            // An unknown reference leaves an empty schema, which allows any value.
            let mut all = JsonObject::new();
            let named = object.get("$ref").and_then(Value::as_str);
            if let Some(definition) = named.and_then(|name| definitions.get(name.strip_prefix("#/$defs/")?))
                && let Value::Object(definition) = resolve(definition, definitions, depth - 1)
            {
                all = definition;
            }
            // Keywords beside a reference are more specific, so they win.
            for (key, value) in object.iter().filter(|(key, _)| *key != "$ref") {
                all.insert(key.clone(), resolve(value, definitions, depth - 1));
            }
            Value::Object(all)
        }
        Value::Array(items) => items.iter().map(|item| resolve(item, definitions, depth - 1)).collect(),
        other => other.clone(),
    }
}

/// Reduces a schema without references to keywords that every model API takes.
fn narrowed(schema: &JsonObject) -> JsonObject {
    let mut schema = schema.clone();
    take_single_choice(&mut schema);
    let mut narrow = JsonObject::new();
    for (key, value) in &schema {
        match (key.as_str(), value) {
            ("default", Value::Null) => {}
            // OpenAPI 3.0 has neither lists of types nor `null` nor `const`.
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
            (kept, _) if KEYWORDS.contains(&kept) => drop(narrow.insert(key.clone(), value.clone())),
            _ => {}
        }
    }
    narrow
}

fn narrowed_value(value: &Value) -> Value {
    Value::Object(value.as_object().map(narrowed).unwrap_or_default())
}

/// Replaces a list of alternatives by the only one that is not `null`.
fn take_single_choice(schema: &mut JsonObject) {
    for key in ["anyOf", "oneOf"] {
        let Some(Value::Array(mut choices)) = schema.remove(key) else { continue };
        // An optional value is written as a choice between its type and null.
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

/// Removes members that are `null` if the schema does not allow it.
///
/// To a tool, an absent argument and `null` mean the same. Clients send `null` for arguments that they leave out, even if
/// the schema does not allow it; hosts that validate refuse an answer with a `null` that the schema does not allow.
fn drop_nulls(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(members) => {
            let schema_of = |name: &str| schema["properties"].get(name);
            members.retain(|name, value| !value.is_null() || schema_of(name).is_none_or(allows_null));
            for (name, value) in members {
                if let Some(schema) = schema_of(name) {
                    drop_nulls(value, schema);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| drop_nulls(item, &schema["items"])),
        _ => {}
    }
    // The properties of an optional object are in one of its alternatives.
    for choice in schema["anyOf"].as_array().into_iter().flatten() {
        drop_nulls(value, choice);
    }
}

fn allows_null(schema: &Value) -> bool {
    if let Some(choices) = schema["anyOf"].as_array() {
        return choices.iter().any(allows_null);
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
    fn a_recursive_type_is_cut_off() {
        let schema = json!({ "$ref": "#/$defs/A", "$defs": { "A": { "items": { "$ref": "#/$defs/A" } } } });
        let mut at = Value::Object(narrowed(&inlined(schema.as_object().unwrap())));
        for _ in 0..DEPTH_MAX {
            at = at["items"].take();
        }
        assert_eq!(at, Value::Null);
    }

    #[test]
    fn null_is_dropped_unless_the_schema_allows_it() {
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
