//! Reads a catalog file: the tools of several servers, as they list them.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use scrubjay_core::retrieval::ToolText;
use scrubjay_store::views::budget::tokens_of;
use serde::Deserialize;
use serde_json::{Value, json};

/// 64 MiB: the longest file of a catalog or of cases. It is read into memory as a whole.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Tools, in the order of the file.
#[derive(Default)]
pub(super) struct Catalog {
    pub(super) backends: usize,
    pub(super) tools: Vec<ToolText>,
    /// Their names, as cases have them.
    pub(super) names: Vec<String>,
    /// The tokens of each tool in a model's list of functions.
    pub(super) tokens: Vec<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Backend {
    backend: String,
    tools: Vec<Value>,
}

impl Catalog {
    /// Reads `[{"backend": …, "tools": [{name, description, inputSchema}]}]`.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        Self::parse(&read_text(path)?).with_context(|| format!("the catalog {}", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let wanted = "the catalog must be a list of {\"backend\": …, \"tools\": […]}";
        let backends: Vec<Backend> = serde_json::from_str(text).context(wanted)?;
        let mut catalog = Self::default();
        let mut seen = HashSet::new();
        for Backend { backend, tools } in &backends {
            for (i, tool) in tools.iter().enumerate() {
                let name = catalog.add(backend, tool);
                ensure!(name.len() > backend.len() + 1, "tools[{i}] of the backend `{backend}` has no name");
                // Cases name the expected tool, so a name that means two tools could not be graded.
                if !seen.insert(name.clone()) {
                    bail!("`{name}` occurs twice: give each backend a name of its own");
                }
            }
        }
        catalog.backends = backends.len();
        ensure!(!catalog.tools.is_empty(), "it has no tools");
        Ok(catalog)
    }

    /// Makes a catalog of the lists of backends.
    pub(super) fn of_lists(lists: &BTreeMap<(String, String), Value>) -> Self {
        let mut catalog = Self::default();
        lists.iter().for_each(|((backend, _), tool)| {
            catalog.add(backend, tool);
        });
        let backends: HashSet<&String> = lists.keys().map(|(backend, _)| backend).collect();
        catalog.backends = backends.len();
        catalog
    }

    /// Adds a tool, and returns its full name.
    fn add(&mut self, backend: &str, tool: &Value) -> String {
        let text = ToolText::from_definition(backend, tool);
        let name = text.full_name();
        self.tools.push(text);
        self.names.push(name.clone());
        self.tokens.push(tokens(tool));
        name
    }
}

/// Estimates the tokens of a tool as a function of a model.
fn tokens(tool: &Value) -> usize {
    // In the form that endpoints get, because its frame costs tokens for each tool, too.
    let function = json!({"type": "function", "function": {
        "name": tool["name"], "description": tool["description"], "parameters": tool["inputSchema"],
    }});
    tokens_of(&function)
}

/// Reads a file that is not too long.
pub(super) fn read_text(path: &Path) -> anyhow::Result<String> {
    let what = || format!("cannot read {}", path.display());
    // Checked before reading, because all of the file is read into memory.
    let bytes = std::fs::metadata(path).with_context(what)?.len();
    ensure!(bytes <= FILE_BYTES_MAX, "{} is longer than 64 MiB", path.display());
    std::fs::read_to_string(path).with_context(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_their_place() {
        let error = |text: &str| format!("{:#}", Catalog::parse(text).err().unwrap());
        assert!(error("[\n{\"backend\": \"a\",}]").contains("line 2"));
        assert!(error("{}").contains("the catalog must be a list"));
        assert!(error(r#"[{"backend": "a", "tool": []}]"#).contains("unknown field `tool`"));
        assert!(
            error(r#"[{"backend": "a", "tools": [{"name": 3}]}]"#).contains("tools[0] of the backend `a`")
        );
        let twice = r#"[{"backend": "a", "tools": [{"name": "t"}, {"name": "t"}]}]"#;
        assert!(error(twice).contains("`a/t` occurs twice"));
        assert!(error("[]").contains("no tools"));
    }
}
