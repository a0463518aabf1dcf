//! Checks arguments against a tool's schema.

use serde_json::Value;

/// How many problems are returned, and how long each may be: a model gets them all in one message.
const PROBLEMS_MAX: usize = 5;
const PROBLEM_CHARS_MAX: usize = 200;

/// Returns what is wrong with arguments, with the path of each problem.
///
/// A schema that cannot be used allows everything: the server, which wrote it, checks its arguments itself.
/// Schemas are untrusted, so references out of them are not fetched.
pub(crate) fn problems(schema: &Value, arguments: &Value) -> Vec<String> {
    if !schema.is_object() {
        return Vec::new();
    }
    // An invalid schema fails here, as does one with a reference out of it.
    let Ok(validator) = jsonschema::validator_for(schema) else { return Vec::new() };
    let problem = |error: jsonschema::ValidationError<'_>| {
        let path = error.instance_path().to_string();
        let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
        format!("{path}{error}").chars().take(PROBLEM_CHARS_MAX).collect()
    };
    validator.iter_errors(arguments).take(PROBLEMS_MAX).map(problem).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_checked() {
        let schema = json!({"type": "object", "required": ["path"],
            "properties": {"path": {"type": "string"}, "mode": {"enum": ["r", "w"]}}});
        assert!(problems(&schema, &json!({"path": "/a", "mode": "r"})).is_empty());
        let found = problems(&schema, &json!({"mode": "x"}));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found.iter().any(|p| p.contains("path")) && found.iter().any(|p| p.starts_with("/mode: ")),
            "{found:?}"
        );
    }

    #[test]
    fn arguments_are_not_checked_against_an_unusable_schema() {
        for schema in [json!(null), json!({"type": 7}), json!({"$ref": "https://nowhere.example/schema"})] {
            assert!(problems(&schema, &json!({"a": 1})).is_empty(), "{schema}");
        }
    }

    #[test]
    fn a_problem_of_arguments_is_described_briefly() {
        let schema = json!({"additionalProperties": {"type": "string"}});
        let many: Value = (0..100).map(|i| (i.to_string(), json!(["x".repeat(500)]))).collect();
        let found = problems(&schema, &many);
        assert!(found.len() == PROBLEMS_MAX && found.iter().all(|p| p.chars().count() <= PROBLEM_CHARS_MAX));
    }
}
