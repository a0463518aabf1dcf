//! Definitions of tools as servers listed them, by name and hash.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use serde_json::value::RawValue;

use super::costs;
use crate::json::canonical::canonical;
use crate::json::members;

/// The most tools that are read of one list.
const TOOLS_MAX: usize = 2048;
/// The most lists of one tape that are compared, and the most definitions and bytes of definitions that are kept.
const LISTS_MAX: usize = 1000;
const TEXTS_MAX: usize = 8192;
const TEXT_BYTES_MAX: usize = 64 << 20;

/// The first half of the BLAKE3 hash of a tool's whole definition in canonical JSON.
pub type DefinitionHash = [u8; 16];

/// A tool's definition in a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Definition {
    /// The tool.
    pub tool: String,
    /// The backend that was asked, for a list on a backend's leg.
    pub via: Option<String>,
    /// The hash of its definition.
    pub hash: DefinitionHash,
    /// The entry of the list.
    pub entry: u64,
}

impl Definition {
    /// Reads all definitions in the answer to `tools/list`.
    pub(super) fn all_in(payload: &[u8], entry: u64, via: Option<&str>) -> Vec<Self> {
        let one = |(tool, hash, _, _): Read| Self { tool, via: via.map(str::to_owned), hash, entry };
        read(payload).map(one).collect()
    }
}

/// The name of a tool, the hash of its definition, the definition and its tokens.
type Read = (String, DefinitionHash, Value, u64);

fn read(payload: &[u8]) -> impl Iterator<Item = Read> {
    let text = std::str::from_utf8(payload).unwrap_or_default();
    let [result] = serde_json::from_str(text).map_or([None], |message| members(Some(message), ["result"]));
    let [tools] = members(result, ["tools"]);
    let tools: Vec<&RawValue> =
        tools.and_then(|tools| serde_json::from_str(tools.get()).ok()).unwrap_or_default();
    tools.into_iter().take(TOOLS_MAX).filter_map(|raw| {
        let tool: Value = serde_json::from_str(raw.get()).ok()?;
        // Canonical, because a server may list the keys in another order each time.
        let hash = blake3::hash(canonical(&tool).as_bytes());
        let hash = *hash.as_bytes().first_chunk().expect("a hash is longer");
        Some((tool["name"].as_str()?.to_owned(), hash, tool, costs::of_definition(raw)))
    })
}

/// One list of tools as the client, or a backend's leg, saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolList {
    /// The entry of the first page's answer.
    pub entry: u64,
    /// The backend that was asked, on a backend's leg.
    pub via: Option<String>,
    /// Whether all its pages were read.
    pub is_complete: bool,
    /// The tools.
    pub tools: BTreeMap<String, ListedTool>,
}

/// A tool in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTool {
    /// The hash of its definition.
    pub hash: DefinitionHash,
    /// About how many tokens the definition costs a model.
    pub tokens: u64,
}

/// The lists of tools on one tape, and the definitions in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolLists {
    /// In their order; a list that is the same as the one before is left out.
    pub lists: Vec<ToolList>,
    /// The definitions by their hash.
    pub texts: BTreeMap<DefinitionHash, Value>,
    text_bytes: usize,
}

impl ToolLists {
    /// Takes a request for a list and its answer, in the order of a tape.
    pub fn observe(&mut self, request: &[u8], answer: &[u8], entry: u64, via: Option<&str>) {
        if self.lists.len() >= LISTS_MAX {
            return;
        }
        let cursor = |payload: &[u8], outer: &str, key: &str| {
            let message: Option<&RawValue> = serde_json::from_slice(payload).ok();
            let [value] = members(members(message, [outer])[0], [key]);
            value.is_some_and(|value| value.get() != "null")
        };
        let mut tools = BTreeMap::new();
        for (name, hash, text, tokens) in read(answer) {
            self.keep(hash, text);
            tools.insert(name, ListedTool { hash, tokens });
        }
        let is_complete = !cursor(answer, "result", "nextCursor");
        let same_leg = |list: &&mut ToolList| list.via.as_deref() == via;
        if cursor(request, "params", "cursor") {
            // The next page of the last list. Without the first page it is dropped, because it would be unknown which
            // tools are missing.
            if let Some(list) = self.lists.iter_mut().rev().find(same_leg).filter(|list| !list.is_complete) {
                list.tools.extend(tools);
                list.is_complete = is_complete;
            }
            return;
        }
        let before = self.lists.iter().rev().find(|list| list.via.as_deref() == via);
        let list = ToolList { entry, via: via.map(str::to_owned), is_complete, tools };
        if !before.is_some_and(|before| before.is_complete && list.is_complete && before.tools == list.tools)
        {
            self.lists.push(list);
        }
    }

    /// Keeps the wanted definitions of a list on another tape.
    pub fn observe_definitions(&mut self, answer: &[u8], wanted: &BTreeSet<DefinitionHash>) {
        for (_, hash, text, _) in read(answer).filter(|(_, hash, ..)| wanted.contains(hash)) {
            self.keep(hash, text);
        }
    }

    fn keep(&mut self, hash: DefinitionHash, text: Value) {
        if self.texts.contains_key(&hash) || self.texts.len() >= TEXTS_MAX {
            return;
        }
        let bytes = text.to_string().len();
        if self.text_bytes + bytes <= TEXT_BYTES_MAX {
            self.text_bytes += bytes;
            self.texts.insert(hash, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_one_list_and_the_same_list_is_one() {
        let mut lists = ToolLists::default();
        let first = br#"{"id":1,"method":"tools/list"}"#;
        let next = br#"{"id":2,"method":"tools/list","params":{"cursor":"p2"}}"#;
        let one = br#"{"id":1,"result":{"tools":[{"name":"a"}],"nextCursor":"p2"}}"#;
        let two = br#"{"id":2,"result":{"tools":[{"name":"b"}]}}"#;
        lists.observe(first, one, 1, None);
        assert!(!lists.lists[0].is_complete);
        lists.observe(next, two, 3, None);
        lists.observe(first, br#"{"id":1,"result":{"tools":[{"name":"b"},{"name":"a"}]}}"#, 5, None);
        lists.observe(first, br#"{"id":1,"result":{"tools":[{"name":"b","title":"B"}]}}"#, 7, None);
        let seen: Vec<_> = lists
            .lists
            .iter()
            .map(|l| (l.entry, l.is_complete, l.tools.keys().cloned().collect::<String>()))
            .collect();
        assert_eq!(seen, [(1, true, "ab".to_owned()), (7, true, "b".to_owned())]);
        assert_eq!(lists.texts.len(), 3);
        lists.observe(b"", b"no JSON", 9, None);
        assert_eq!(lists.lists[2].tools.len(), 0);
    }
}
