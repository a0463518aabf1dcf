//! `agent-progress.config.json`: the file of the progress tracker's specification, with its own keys.

use crate::cursor::{self, Cursor};
use crate::node::{Node, Origin, Value};
use crate::problem::Problem;

/// The name of the file.
pub(crate) const FILE_NAME: &str = "agent-progress.config.json";

/// Its keys, and the same keys of ours.
const KEYS: [(&str, &str); 5] = [
    ("dbPath", "storage"),
    ("openai.apiKey", "llm.api_key"),
    ("openai.baseUrl", "llm.base_url"),
    ("openai.model", "llm.model"),
    ("logging.level", "log_level"),
];

/// Its top-level keys, none of which is one of ours: by them the file is recognised under any name.
const SECTIONS: [&str; 3] = ["dbPath", "openai", "logging"];

/// Recognises a file with these keys, under any name.
pub(crate) fn is_one(tree: &Node) -> bool {
    let Value::Map(entries) = &tree.value else { return false };
    !entries.is_empty() && entries.iter().all(|(name, _)| SECTIONS.contains(&name.as_str()))
}

/// Translates the file into our keys.
pub(crate) fn translate(tree: &Node, problems: &mut Vec<Problem>) -> Node {
    let mut ours = Node::map(Origin::Default);
    cursor::read(tree, "", problems, |at| {
        for (name, at) in at.entries(&SECTIONS) {
            let keys: &[&str] = match name {
                "openai" => &["apiKey", "baseUrl", "model"],
                "logging" => &["level"],
                _ => {
                    take(&at, &mut ours);
                    continue;
                }
            };
            at.entries(keys).iter().for_each(|(_, at)| take(at, &mut ours));
        }
    });
    ours
}

fn take(at: &Cursor<'_>, ours: &mut Node) {
    if !at.is_null()
        && at.text().is_some()
        && let Some((_, our)) = KEYS.iter().find(|(key, _)| *key == at.key)
    {
        ours.put(our, at.node.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::section;
    use crate::yaml;

    fn read(text: &str) -> (Node, Vec<String>) {
        let mut problems = Vec::new();
        let tree = yaml::parse(text, Path::new(FILE_NAME), &mut problems).unwrap();
        let ours = translate(&tree, &mut problems);
        section::check(&ours, &mut problems);
        (ours, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_example_of_the_seed_is_taken() {
        let (tree, problems) = read(
            r#"{
  "dbPath": "./data/progress.db",
  "openai": { "apiKey": "sk-123456", "baseUrl": "https://api.openai.com/v1", "model": "gpt-4o-mini" },
  "logging": { "level": "warn" }
}"#,
        );
        assert!(problems.is_empty(), "{problems:?}");
        let given = |key: &str| {
            let node = tree.find(key).unwrap();
            let Value::Scalar(scalar) = &node.value else { panic!("{key}") };
            (scalar.text.clone(), node.origin.to_string())
        };
        let at = |line: usize| format!("{FILE_NAME}:{line}");
        assert_eq!(given("log_level"), ("warn".to_owned(), at(4)));
        assert_eq!(given("llm.api_key").0, "sk-123456");
        assert_eq!(given("llm.model").0, "gpt-4o-mini");
        assert_eq!(given("llm.base_url").1, at(3));
        assert_eq!(given("storage").0, "./data/progress.db");
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
