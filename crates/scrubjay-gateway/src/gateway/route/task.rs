//! Parses a task as a client sends it, and reports all problems at once.

use scrubjay_router::RouteTask;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The longest query; the number is part of the error message.
const QUERY_CHARS_MAX: usize = 32_768;
/// Schemes of URLs that need a host.
const HOSTED: [&str; 5] = ["http", "https", "ws", "wss", "ftp"];

/// Parses a task, or returns its problems: a list of `{path, message}`.
pub(super) fn parse(params: Option<&RawValue>) -> Result<RouteTask, Vec<Value>> {
    // All problems are collected, so that a model can correct its call at once.
    let params: Value = params.and_then(|p| serde_json::from_str(p.get()).ok()).unwrap_or_default();
    let Value::Object(params) = params else { return Err(vec![problem("", "must be an object")]) };
    let mut problems = Vec::new();
    let query = match params.get("query") {
        Some(Value::String(query)) if query.trim().is_empty() => Err("must not be empty"),
        Some(Value::String(query)) if query.chars().nth(QUERY_CHARS_MAX).is_some() => {
            Err("must have at most 32768 characters")
        }
        Some(Value::String(query)) => Ok(query.clone()),
        Some(_) => Err("must be a string"),
        None => Err("is required"),
    };
    let query = query.unwrap_or_else(|wrong| {
        problems.push(problem("query", wrong));
        String::new()
    });
    let context = match params.get("context") {
        None | Some(Value::Null) => None,
        Some(Value::Object(given)) => Some(context(given, &mut problems)),
        Some(_) => {
            problems.push(problem("context", "must be an object or null"));
            None
        }
    };
    if problems.is_empty() { Ok(RouteTask { query, context, clarification: None }) } else { Err(problems) }
}

/// Takes the known keys of a context and ignores the others.
fn context(given: &Map<String, Value>, problems: &mut Vec<Value>) -> Value {
    let mut known = Map::new();
    for key in ["activeDocumentURI", "currentWorkingDirectory", "selectionText"] {
        let wrong = match given.get(key) {
            None => continue,
            Some(Value::String(uri)) if key == "activeDocumentURI" && !is_url(uri) => Some("must be a URL"),
            Some(value @ (Value::String(_) | Value::Null)) => {
                known.insert(key.to_owned(), value.clone());
                None
            }
            Some(_) => Some("must be a string or null"),
        };
        problems.extend(wrong.map(|wrong| problem(&format!("context.{key}"), wrong)));
    }
    known.into()
}

fn is_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    // `http:///x` has no host and is a mistake; `untitled:Untitled-1` needs none.
    let has_host =
        rest.strip_prefix("//").is_some_and(|host| !host.starts_with(['/', '?', '#']) && !host.is_empty());
    is_scheme && !rest.is_empty() && (has_host || !HOSTED.contains(&scheme.to_ascii_lowercase().as_str()))
}

fn problem(path: &str, message: &str) -> Value {
    json!({ "path": path, "message": message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(params: &Value) -> Result<RouteTask, Vec<String>> {
        let text = params.to_string();
        let told = |problem: &Value| {
            format!("{} {}", problem["path"].as_str().unwrap(), problem["message"].as_str().unwrap())
        };
        parse(serde_json::from_str(&text).ok()).map_err(|problems| problems.iter().map(told).collect())
    }

    #[test]
    fn a_task_is_taken() {
        let context =
            json!({"activeDocumentURI": "file:///w/a.rs", "currentWorkingDirectory": null, "other": 3});
        let task = parsed(&json!({"query": "read it", "context": context, "_meta": {}})).unwrap();
        assert_eq!(task.query, "read it");
        let known = json!({"activeDocumentURI": "file:///w/a.rs", "currentWorkingDirectory": null});
        assert_eq!(task.context, Some(known));
        for context in [json!(null), json!({})] {
            assert!(parsed(&json!({"query": "q", "context": context})).is_ok());
        }
    }

    #[test]
    fn every_problem_is_told() {
        let context = json!({"activeDocumentURI": "a.rs", "currentWorkingDirectory": 3, "selectionText": []});
        let expected = [
            "query must not be empty",
            "context.activeDocumentURI must be a URL",
            "context.currentWorkingDirectory must be a string or null",
            "context.selectionText must be a string or null",
        ];
        assert_eq!(
            parsed(&json!({"query": " ", "context": context})),
            Err(expected.map(str::to_owned).to_vec())
        );
        assert_eq!(
            parsed(&json!({"context": 1})).unwrap_err(),
            ["query is required", "context must be an object or null"]
        );
        assert_eq!(parsed(&json!({"query": 1})).unwrap_err(), ["query must be a string"]);
        assert_eq!(parsed(&json!({"query": "x".repeat(40_000)})).unwrap_err().len(), 1);
        assert_eq!(parsed(&json!(["q"])).unwrap_err(), [" must be an object"]);
        assert_eq!(parse(None).unwrap_err().len(), 1);
    }

    #[test]
    fn urls_are_told_from_paths() {
        for url in ["file:///a b", "https://a.example/x", "untitled:Untitled-1", "vscode-remote://ssh/x"] {
            assert!(is_url(url), "{url}");
        }
        for path in ["", "/w/a.rs", "a.rs", "http:", "https://", "http:///x", "1a:b", ":x"] {
            assert!(!is_url(path), "{path}");
        }
    }
}
