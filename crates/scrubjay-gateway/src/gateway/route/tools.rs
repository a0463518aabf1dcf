//! The router as tools that any client can call: one carries out a task, the other only finds tools.

use scrubjay_core::{message, tasks_on_tape};
use scrubjay_router::{Catalog, Router};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The tool that carries out a task.
const ORCHESTRATE: &str = tasks_on_tape::TASK_TOOL;
/// The tool that finds tools for a task.
pub(super) const FIND: &str = tasks_on_tape::FIND_TOOL;

/// Tells whether a tool is one of the router's.
pub(in super::super) fn is_own(name: &str) -> bool {
    [ORCHESTRATE, FIND].contains(&name)
}

/// Returns the definitions of both tools.
pub(in super::super) fn definitions() -> [String; 2] {
    let orchestrate = json!({
        "name": ORCHESTRATE,
        "title": "Carry out a task",
        "description": "Carries out a task that is given in plain words: finds the one tool of all connected servers \
            that serves it, fills in the arguments and calls it. In doubt nothing is called, and the tools that match \
            best are returned.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": { "type": "string", "minLength": 1, "description": "What is to be done, in plain words." },
                "context": {
                    "type": "object",
                    "description": "The user's situation.",
                    "properties": {
                        "activeDocumentURI": { "type": "string", "description": "The open document." },
                        "currentWorkingDirectory": { "type": "string", "description": "Where relative paths start." },
                        "selectionText": { "type": "string", "description": "The selected text." },
                    },
                },
            },
            "required": ["query"],
        },
        "annotations": { "readOnlyHint": false, "destructiveHint": true, "openWorldHint": true },
    });
    let find = json!({
        "name": FIND,
        "title": "Find tools",
        "description": "Finds the tools of all connected servers that may serve a task, best first, with their \
            schemas, and says why and how sure it is. Calls nothing.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": { "type": "string", "minLength": 1, "description": "What is to be done, in plain words." },
            },
            "required": ["query"],
        },
        "annotations": { "readOnlyHint": true, "idempotentHint": true, "openWorldHint": false },
    });
    [orchestrate.to_string(), find.to_string()]
}

/// Returns the tools that match a task best, as a tool's result.
pub(super) fn found(catalog: &Catalog, query: &str, router: &Router) -> Value {
    let (candidates, confidence) = catalog.find(query, router.shortlist());
    let tool = |candidate: &scrubjay_router::Candidate| {
        let tool = catalog.tool(&candidate.backend, &candidate.tool)?;
        let mut shown = json!(candidate);
        for key in ["description", "inputSchema", "annotations"] {
            if let Some(value) = tool.definition.get(key) {
                shown[key] = value.clone();
            }
        }
        Some(shown)
    };
    let tools: Vec<Value> = candidates.iter().filter_map(tool).collect();
    let found =
        json!({ "confidence": confidence, "serves": confidence >= router.threshold(), "tools": tools });
    json!({ "content": [{ "type": "text", "text": found.to_string() }], "structuredContent": found })
}

/// Returns a backend's result as a tool's result: that of another method is wrapped as text.
pub(super) fn as_tool_result(result: String) -> String {
    let Ok(object) = serde_json::from_str::<&RawValue>(&result) else { return result };
    let has = |key| message::member(Some(object), key).is_some();
    // It has the form of a tool's result already.
    if has("content") || has("task") {
        return result;
    }
    let value: Value = serde_json::from_str(&result).unwrap_or_default();
    let mut wrapped = json!({ "content": [{ "type": "text", "text": result }] });
    if let Some(meta) = value.get("_meta") {
        wrapped["_meta"] = meta.clone();
    }
    wrapped.to_string()
}
