//! `agent-progress.config.json`: the file of the progress tracker's specification, with its own keys.

use crate::node::{Node, Value};
use crate::section::{self, Key};

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

/// Returns its keys, each with the key of ours that it sets.
pub(crate) fn names() -> Vec<(&'static str, &'static Key)> {
    KEYS.iter().filter_map(|(theirs, ours)| Some((*theirs, section::key(ours)?))).collect()
}

/// Recognises a file with these keys under any name: none of its top-level keys is one of ours.
pub(crate) fn is_one(tree: &Node) -> bool {
    let Value::Map(entries) = &tree.value else { return false };
    let is_top_level = |name: &str| KEYS.iter().any(|(key, _)| key.split('.').next() == Some(name));
    !entries.is_empty() && entries.iter().all(|(name, _)| is_top_level(name))
}
