//! `agent-progress.config.json`: the file of the progress tracker's specification, with its own keys.

use super::node::{Node, Origin, Value, below};
use super::problem::{Problem, entries};
use super::setting::text;

/// What it is called.
pub(crate) const FILE_NAME: &str = "agent-progress.config.json";

/// Its keys, and ours that mean the same.
const KEYS: [(&str, &str); 5] = [
    ("dbPath", "storage"),
    ("openai.apiKey", "llm.api_key"),
    ("openai.baseUrl", "llm.base_url"),
    ("openai.model", "llm.model"),
    ("logging.level", "log_level"),
];

/// Its sections; none of them is a key of ours.
const SECTIONS: [&str; 3] = ["dbPath", "openai", "logging"];

/// Tells a file with these keys, whatever it is called.
pub(crate) fn is_one(tree: &Node) -> bool {
    let Value::Map(entries) = &tree.value else { return false };
    !entries.is_empty() && entries.iter().all(|(name, _)| SECTIONS.contains(&name.as_str()))
}

/// Translates the file into our keys.
pub(crate) fn translate(tree: &Node, problems: &mut Vec<Problem>) -> Node {
    let mut ours = Node::map(Origin::Default);
    for (name, node) in entries(tree, "", &SECTIONS, problems) {
        let sections: &[&str] = match name.as_str() {
            "openai" => &["apiKey", "baseUrl", "model"],
            "logging" => &["level"],
            _ => {
                take(name, node, &mut ours, problems);
                continue;
            }
        };
        for (key, node) in entries(node, name, sections, problems) {
            take(&below(name, key), node, &mut ours, problems);
        }
    }
    ours
}

fn take(path: &str, node: &Node, ours: &mut Node, problems: &mut Vec<Problem>) {
    if node.value == Value::Null || text(node, path, problems).is_none() {
        return;
    }
    if let Some((_, our)) = KEYS.iter().find(|(key, _)| *key == path) {
        ours.put(our, node.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::raw::RawConfig;
    use super::super::yaml;
    use super::*;

    fn read(text: &str) -> (RawConfig, Vec<String>) {
        let mut problems = Vec::new();
        let tree = yaml::parse(text, Path::new(FILE_NAME), &mut problems).unwrap();
        let raw = RawConfig::read_tree(&translate(&tree, &mut problems), &mut problems);
        (raw, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_example_of_the_seed_is_taken() {
        let (raw, problems) = read(
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
        assert_eq!(raw.storage.unwrap().value.0, "./data/progress.db");
    }

    #[test]
    fn only_its_own_keys_are_known() {
        let (_, problems) = read(r#"{"log_level": "info", "logging": {"levle": "info"}, "backends": []}"#);
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(
            problems.iter().any(|p| p.contains("logging.levle") && p.contains("`level`")),
            "{problems:?}"
        );
        let (_, problems) = read(r#"{"logging": {"level": "loud"}}"#);
        assert!(problems[0].contains("not \"loud\""), "{problems:?}");
    }
}
