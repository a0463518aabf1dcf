//! A tool's definition as a server gave it, by name and hash: a changed one is a different tool.

use serde_json::Value;

/// So many tools of one list are looked at.
const TOOLS_MAX: usize = 2048;

/// A tool's definition as it stood in a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Definition {
    /// The tool.
    pub tool: String,
    /// The backend that was asked, for a list on a backend's leg.
    pub via: Option<String>,
    /// The first half of the BLAKE3 of everything said of it, keys in order.
    pub hash: [u8; 16],
    /// The entry of the list.
    pub entry: u64,
}

impl Definition {
    /// Reads all definitions in the answer to `tools/list`.
    pub(super) fn all_in(payload: &[u8], entry: u64, via: Option<&str>) -> Vec<Self> {
        let answer: Value = serde_json::from_slice(payload).unwrap_or_default();
        let tools = answer["result"]["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
        let one = |tool: &Value| {
            let hash = blake3::hash(tool.to_string().as_bytes());
            Some(Self {
                tool: tool["name"].as_str()?.to_owned(),
                via: via.map(str::to_owned),
                hash: *hash.as_bytes().first_chunk().expect("a hash is longer"),
                entry,
            })
        };
        tools.iter().take(TOOLS_MAX).filter_map(one).collect()
    }
}
