//! Schemas of tools: they have only keywords that every model API takes, and all answers fit them.
//!
//! The clients of all tests check each answer against the schema of its tool, with [`Answers`].

use std::collections::HashMap;
use std::sync::Arc;

use scrubjay_core::redact::Redactor;
use scrubjay_store::ledger::Storage;
use scrubjay_tape::home::Home;
use scrubjay_tools::{
    Setup, Shared, serve_progress, serve_recorder, serve_records, serve_sample, serve_tapes,
};
use serde_json::{Value, json};

use crate::client::{Client, Era};

/// What Gemini, the narrowest of the model APIs, takes in a schema.
const KEYWORDS: [&str; 14] = [
    "anyOf",
    "default",
    "description",
    "enum",
    "items",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "properties",
    "required",
    "type",
];

/// The schemas of the answers of a server's tools.
#[derive(Default)]
pub(crate) struct Answers(HashMap<String, jsonschema::Validator>);

impl Answers {
    /// Takes the answer to `tools/list`.
    pub(crate) fn of(list: &Value) -> Self {
        let tools = list["result"]["tools"].as_array().into_iter().flatten();
        let schemas = tools.filter_map(|tool| {
            let schema = tool.get("outputSchema")?;
            Some((tool["name"].as_str()?.to_owned(), jsonschema::validator_for(schema).unwrap()))
        });
        Self(schemas.collect())
    }

    /// Checks the answer to `tools/call`.
    pub(crate) fn check(&self, params: &Value, answer: &Value) {
        let schema = params["name"].as_str().and_then(|name| self.0.get(name));
        if let (Some(schema), Some(data)) = (schema, answer["result"].get("structuredContent"))
            && let Err(problem) = schema.validate(data)
        {
            panic!("{params}: {data} does not fit the schema: {problem}");
        }
    }
}

fn shared(root: &std::path::Path) -> Arc<Shared> {
    Arc::new(Shared::new(Setup {
        llm: None,
        redactor: Arc::new(Redactor::standard()),
        storage: Storage::File(root.join("data/ledger.db")),
        project: "birds".to_owned(),
        workspace: root.to_owned(),
        allow_vcs: false,
        file_bytes_max: 1024,
        home: Home::new(root.join("data")),
        locks: root.join("locks"),
        stale_after_ticks: 5,
    }))
}

/// Connects to every toolset.
fn toolsets(root: &std::path::Path) -> [Client; 5] {
    let shared = shared(root);
    let [a, b, c, d] = [(); 4].map(|()| shared.clone());
    [
        Client::connect_to(Era::Legacy, |reader, writer| serve_recorder(a, reader, writer)),
        Client::connect_to(Era::Legacy, |reader, writer| serve_progress(b, reader, writer)),
        Client::connect_to(Era::Legacy, |reader, writer| serve_records(c, reader, writer)),
        Client::connect_to(Era::Legacy, |reader, writer| serve_tapes(d, reader, writer)),
        Client::connect_to(Era::Legacy, serve_sample),
    ]
}

/// Finds what a model API would not take in a schema; arguments must have a type each.
fn problems(schema: &Value, place: &str, typed: bool, found: &mut Vec<String>) {
    let Some(object) = schema.as_object() else { return found.push(format!("{place} is {schema}")) };
    for (key, value) in object {
        match key.as_str() {
            "properties" => {
                for (name, schema) in value.as_object().unwrap() {
                    problems(schema, &format!("{place}.{name}"), typed, found);
                }
            }
            "items" => problems(value, &format!("{place}[]"), typed, found),
            "anyOf" => {
                for choice in value.as_array().unwrap() {
                    problems(choice, &format!("{place}|"), typed, found);
                }
            }
            "type" if !value.is_string() || value == "null" => {
                found.push(format!("{place} has type {value}"))
            }
            "default" if value.is_null() => found.push(format!("{place} has default null")),
            key if !KEYWORDS.contains(&key) => found.push(format!("{place} has {key}: {value}")),
            _ => {}
        }
    }
    if typed && !object.contains_key("type") && !object.contains_key("anyOf") {
        found.push(format!("{place} has no type"));
    }
}

#[tokio::test]
async fn every_schema_has_only_keywords_that_every_model_api_takes() {
    let scratch = tempfile::tempdir().unwrap();
    let (mut found, mut tools) = (Vec::new(), 0);
    for mut client in toolsets(scratch.path()) {
        client.greet().await;
        let list = client.ask("tools/list", json!({})).await;
        for tool in list["result"]["tools"].as_array().unwrap() {
            let name = tool["name"].as_str().unwrap();
            assert_eq!(tool["inputSchema"]["type"], "object", "{name}");
            problems(&tool["inputSchema"], name, true, &mut found);
            if let Some(schema) = tool.get("outputSchema") {
                assert_eq!(schema["type"], "object", "{name}");
                problems(schema, &format!("{name}()"), false, &mut found);
            }
            tools += 1;
        }
    }
    assert!(tools > 35, "{tools}");
    assert_eq!(found, Vec::<String>::new());
}

/// Returns a value that fits the type of a schema.
fn example_of(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    match schema["type"].as_str().unwrap_or_default() {
        "integer" | "number" => json!(1),
        "boolean" => json!(false),
        "array" => json!([]),
        "object" => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            required.map(|name| (name.to_owned(), example_of(&schema["properties"][name]))).collect()
        }
        _ => json!("x"),
    }
}

#[tokio::test]
async fn null_is_accepted_for_every_optional_argument() {
    let scratch = tempfile::tempdir().unwrap();
    for mut client in toolsets(scratch.path()) {
        client.greet().await;
        let list = client.ask("tools/list", json!({})).await;
        for tool in list["result"]["tools"].as_array().unwrap() {
            let schema = &tool["inputSchema"];
            let plain = example_of(schema);
            let mut nulls = plain.clone();
            for name in schema["properties"].as_object().into_iter().flat_map(|all| all.keys()) {
                if plain.get(name).is_none() {
                    nulls[name] = Value::Null;
                }
            }
            let answer = client.ask("tools/call", json!({ "name": tool["name"], "arguments": nulls })).await;
            // The tool may refuse the values, but not because of their types.
            let text = answer.to_string();
            assert!(!text.contains("invalid type"), "{}: {nulls}: {text}", tool["name"]);
        }
    }
}
