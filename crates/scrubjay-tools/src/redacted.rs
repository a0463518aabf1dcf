//! Reports which arguments of a call were redacted before they were stored.

use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use scrubjay_core::redact::Redactor;
use serde_json::{Value, json};

/// The member of an answer that names the arguments.
const MEMBER: &str = "redacted";
/// How many arguments are named: a call that stores a long list of secrets must not make a long answer.
const NAMED_MAX: usize = 20;

/// Returns the paths of arguments that were redacted before they were stored.
#[must_use]
pub fn changed_arguments(arguments: &Value, stored: &[String], redactor: &Redactor) -> Vec<String> {
    let mut changed = Vec::new();
    if !stored.is_empty() {
        collect_changed(arguments, "", stored, redactor, &mut changed);
        changed.truncate(NAMED_MAX);
    }
    changed
}

/// Writes the sentence that names such arguments.
#[must_use]
pub fn describe_changed(changed: &[String]) -> String {
    format!("Secrets were taken out before it was stored: {}.", changed.join(", "))
}

fn collect_changed(
    value: &Value,
    path: &str,
    stored: &[String],
    redactor: &Redactor,
    changed: &mut Vec<String>,
) {
    match value {
        Value::String(text) => {
            // The stored texts hold the arguments as they were before redaction, some of them within longer texts.
            // Trimmed, because some tools trim a text before they store it.
            let is_secret = || matches!(redactor.redact_text(text), std::borrow::Cow::Owned(_));
            if stored.iter().any(|stored| stored.contains(text.trim())) && is_secret() {
                changed.push(path.to_owned());
            }
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                collect_changed(item, &format!("{path}[{n}]"), stored, redactor, changed);
            }
        }
        Value::Object(members) => {
            let (before, text) = (changed.len(), value.to_string());
            for (name, value) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                collect_changed(value, &path, stored, redactor, changed);
            }
            // The whole object, if a member is a secret only because of its name.
            if changed.len() == before && !path.is_empty() && stored.contains(&text) {
                changed.push(path.to_owned());
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Adds the names of redacted arguments to an answer, as data and as text.
pub(crate) fn add_changed(result: &mut CallToolResult, changed: &[String]) {
    if changed.is_empty() {
        return;
    }
    if let Some(Value::Object(data)) = &mut result.structured_content {
        data.insert(MEMBER.to_owned(), json!(changed));
    }
    result.content.push(ContentBlock::text(describe_changed(changed)));
}

/// Adds the member to the schema of an answer.
pub(crate) fn add_to_schema(schema: &mut JsonObject) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        let about = "Arguments from which secrets were taken out before they were stored; absent if none.";
        let member = json!({ "type": "array", "items": { "type": "string" }, "description": about });
        properties.insert(MEMBER.to_owned(), member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_redacted_arguments_that_were_stored_are_named() {
        const TOKEN: &str = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
        let arguments = json!({
            "title": format!(" use {TOKEN} "), "query": TOKEN, "steps": ["a", format!("send {TOKEN}")],
            "metadata": { "password": "hunter2" }, "plain": "use",
        });
        let stored =
            [format!("use {TOKEN}"), format!("send {TOKEN}"), json!({"password": "hunter2"}).to_string()];
        let changed = changed_arguments(&arguments, &stored, &Redactor::standard());
        // The query is part of a stored text, so it cannot be distinguished from the arguments that were stored.
        assert_eq!(changed, ["metadata", "query", "steps[1]", "title"]);
        assert_eq!(changed_arguments(&arguments, &[], &Redactor::standard()), [""; 0]);
        let only =
            changed_arguments(&json!({ "a": format!("keep {TOKEN}") }), &stored, &Redactor::standard());
        assert_eq!(only, [""; 0]);
    }
}
