//! Which of Scrubjay's own tools a client gets, and the schemas that describe them.

use serde_json::{Value, json};

use super::rig::{Piped, initialize, logged, scratch};

const LISTS: [(&str, &str); 4] = [
    ("tools/list", "tools"),
    ("prompts/list", "prompts"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
];

/// The keywords that model APIs accept in a schema; the others are only for validators.
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

fn ask(piped: &mut Piped, id: u64, method: &str, params: &Value) -> Value {
    let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    piped.ask(&request).pop().expect("an answer")
}

/// Opens a conversation and returns the greeting and what is listed.
fn look(settings: &Value, args: &[&str]) -> (Value, Vec<Value>, Piped) {
    let scratch = scratch();
    let mut command = logged(scratch.path(), settings);
    command.arg("serve").args(args);
    let mut piped = Piped::started(command);
    let greeting = piped.ask(&initialize(1)).pop().expect("a greeting");
    let lists = LISTS.iter().zip(2..);
    let listed =
        lists.map(|((method, member), id)| ask(&mut piped, id, method, &json!({}))["result"][member].clone());
    let listed = listed.collect();
    (greeting["result"].clone(), listed, piped)
}

#[test]
fn without_toolsets_no_tools_are_added() {
    for (settings, args) in
        [(json!({}), &["--toolsets", "none"][..]), (json!({ "serve": { "toolsets": [] } }), &[])]
    {
        let (greeting, listed, mut piped) = look(&settings, args);
        assert_eq!(listed, vec![json!([]); 4], "{args:?}");
        assert_eq!(greeting.get("instructions"), None);
        let call = json!({ "name": "find_tools", "arguments": { "query": "x" } });
        assert_eq!(ask(&mut piped, 8, "tools/call", &call)["error"]["code"], -32602);
        // The method is not a tool: it answers although no tool fits the task.
        let task = ask(&mut piped, 9, "agentify/orchestrateTask", &json!({ "query": "count to three" }));
        assert_eq!(task["error"]["code"], -32000, "{task}");
    }
}

#[test]
fn only_the_listed_toolsets_are_served() {
    let names = |args: &[&str]| {
        let (_, listed, _piped) = look(&json!({}), args);
        let tools = listed[0].as_array().expect("tools").clone();
        tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&["--toolsets", "router"]), ["orchestrate_task", "find_tools"]);
    assert_eq!(names(&["--toolsets", "tapes"]), ["analyze_tape", "search_tapes"]);
}

#[test]
fn every_schema_has_only_keywords_that_every_model_api_accepts() {
    fn words(schema: &Value, found: &mut Vec<String>) {
        for (key, value) in schema.as_object().expect("a schema is an object") {
            match (key.as_str(), value) {
                ("properties", Value::Object(all)) => all.values().for_each(|schema| words(schema, found)),
                ("items", schema) => words(schema, found),
                ("anyOf", Value::Array(all)) => all.iter().for_each(|schema| words(schema, found)),
                ("type", Value::String(name)) if name != "null" => {}
                (key, _) if key != "type" && KEYWORDS.contains(&key) => {}
                (key, value) => found.push(format!("{key}: {value}")),
            }
        }
    }
    let (_, listed, _piped) = look(&json!({}), &[]);
    let (mut found, tools) = (Vec::new(), listed[0].as_array().expect("tools"));
    for schema in tools.iter().flat_map(|tool| [tool.get("inputSchema"), tool.get("outputSchema")]).flatten()
    {
        words(schema, &mut found);
    }
    assert!(
        tools.iter().any(|tool| tool["name"] == "orchestrate_task") && tools.len() > 30,
        "{}",
        tools.len()
    );
    assert_eq!(found, Vec::<String>::new());
}
