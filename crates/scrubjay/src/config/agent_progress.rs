//! `agent-progress.config.json`: the file of the progress tracker's specification, with its own keys.

use super::node::{Node, Origin, Value, below};
use super::problem::{Problem, entries};
use super::setting::text;

/// What it is called.
pub(crate) const FILE_NAME: &str = "agent-progress.config.json";

/// Its keys, and ours that mean the same; those without one have nothing to act on yet.
const KEYS: [(&str, Option<&str>); 5] = [
    ("dbPath", Some("storage")),
    ("openai.apiKey", Some("llm.api_key")),
    ("openai.baseUrl", Some("llm.base_url")),
    ("openai.model", Some("llm.model")),
    ("logging.level", Some("log_level")),
];

/// Translates the file into our keys.
pub(crate) fn translate(tree: &Node, notices: &mut Vec<String>, problems: &mut Vec<Problem>) -> Node {
    let mut ours = Node::map(Origin::Default);
    for (name, node) in entries(tree, "", &["dbPath", "openai", "logging"], problems) {
        let sections: &[&str] = match name.as_str() {
            "openai" => &["apiKey", "baseUrl", "model"],
            "logging" => &["level"],
            _ => {
                take(name, node, &mut ours, notices, problems);
                continue;
            }
        };
        for (key, node) in entries(node, name, sections, problems) {
            take(&below(name, key), node, &mut ours, notices, problems);
        }
    }
    ours
}

fn take(path: &str, node: &Node, ours: &mut Node, notices: &mut Vec<String>, problems: &mut Vec<Problem>) {
    if node.value == Value::Null || text(node, path, problems).is_none() {
        return;
    }
    match KEYS.iter().find(|(key, _)| *key == path) {
        Some((_, Some(our))) => ours.put(our, node.clone()),
        _ => notices.push(format!("{}: {path} has no effect yet", node.origin)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::raw::RawConfig;
    use super::super::yaml;
    use super::*;

    fn read(text: &str) -> (RawConfig, Vec<String>, Vec<String>) {
        let (mut notices, mut problems) = (Vec::new(), Vec::new());
        let tree = yaml::parse(text, Path::new(FILE_NAME), &mut problems).unwrap();
        let raw = RawConfig::read_tree(&translate(&tree, &mut notices, &mut problems), &mut problems);
        (raw, notices, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_example_of_the_seed_is_taken() {
        let (raw, notices, problems) = read(
            r#"{
  "dbPath": "./data/progress.db",
  "openai": { "apiKey": "sk-123456", "baseUrl": "https://api.openai.com/v1", "model": "gpt-4o-mini" },
  "logging": { "level": "warn" }
}"#,
        );
        assert!(problems.is_empty(), "{problems:?}");
        let level = raw.log_level.unwrap();
        assert_eq!(
            (level.value.to_string(), level.origin.to_string()),
            ("warn".to_owned(), format!("{FILE_NAME}:4"))
        );
        assert_eq!(raw.llm.api_key.unwrap().value.0.reveal(), "sk-123456");
        assert_eq!(raw.llm.model.unwrap().value.0, "gpt-4o-mini");
        assert_eq!(raw.llm.base_url.unwrap().origin.to_string(), format!("{FILE_NAME}:3"));
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert_eq!(notices[0], format!("{FILE_NAME}:2: dbPath has no effect yet"));
    }

    #[test]
    fn only_its_own_keys_are_known() {
        let (_, _, problems) = read(r#"{"log_level": "info", "logging": {"levle": "info"}, "backends": []}"#);
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(
            problems.iter().any(|p| p.contains("logging.levle") && p.contains("`level`")),
            "{problems:?}"
        );
        let (_, _, problems) = read(r#"{"logging": {"level": "loud"}}"#);
        assert!(problems[0].contains("not \"loud\""), "{problems:?}");
    }
}
