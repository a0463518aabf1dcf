//! Tools as functions of a model: one for each tool, or one for each backend.

use std::collections::{BTreeMap, HashSet};

use scrubjay_core::retrieval::ToolText;
use serde_json::{Value, json};

/// A function's name has no more characters.
const NAME_CHARS_MAX: usize = 64;
/// A backend's description names no more of its tools.
const NAMED_MAX: usize = 40;

/// How tools are put before a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A function for each tool of the shortlist, with the tool's own schema.
    #[default]
    Catalog,
    /// A function for each backend, which takes a method and its parameters.
    Backends,
}

/// A tool of a backend.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// The server that has it.
    pub backend: String,
    /// Its definition, as the server lists it.
    pub definition: Value,
}

impl Tool {
    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.definition["name"].as_str().unwrap_or_default()
    }

    /// Returns the schema of its arguments.
    pub(crate) fn schema(&self) -> &Value {
        &self.definition["inputSchema"]
    }

    fn description(&self) -> &str {
        self.definition["description"].as_str().unwrap_or_default()
    }
}

/// What a function stands for.
pub(crate) enum Meant<'t> {
    /// A tool.
    Tool(&'t Tool),
    /// A backend, with its tools.
    Backend(&'t str, Vec<&'t Tool>),
}

/// The functions of one question.
pub(crate) struct Functions<'t> {
    list: Vec<(String, Meant<'t>)>,
}

impl<'t> Functions<'t> {
    /// Makes a function of each tool.
    pub(crate) fn of_tools(tools: &[&'t Tool]) -> Self {
        let mut taken = HashSet::new();
        let name = |tool: &&'t Tool| {
            let name = free_name(&format!("{}__{}", tool.backend, tool.name()), &mut taken);
            (name, Meant::Tool(tool))
        };
        Self { list: tools.iter().map(name).collect() }
    }

    /// Makes a function of each backend.
    pub(crate) fn of_backends(tools: &'t [Tool]) -> Self {
        let mut backends: BTreeMap<&str, Vec<&Tool>> = BTreeMap::new();
        for tool in tools {
            backends.entry(&tool.backend).or_default().push(tool);
        }
        let mut taken = HashSet::new();
        let name =
            |(id, tools): (&'t str, Vec<&'t Tool>)| (free_name(id, &mut taken), Meant::Backend(id, tools));
        Self { list: backends.into_iter().map(name).collect() }
    }

    /// Returns what a function stands for.
    pub(crate) fn meant(&self, name: &str) -> Option<&Meant<'t>> {
        self.list.iter().find(|(known, _)| known == name).map(|(_, meant)| meant)
    }

    /// Returns the functions as a model is told of them.
    pub(crate) fn offered(&self) -> Vec<scrubjay_llm::Tool> {
        let offer = |(name, meant): &(String, Meant<'_>)| match meant {
            Meant::Tool(tool) => scrubjay_llm::Tool {
                name: name.clone(),
                description: tool.description().to_owned(),
                parameters: if tool.schema().is_object() {
                    tool.schema().clone()
                } else {
                    json!({"type": "object"})
                },
            },
            Meant::Backend(id, tools) => scrubjay_llm::Tool {
                name: name.clone(),
                description: describe(id, tools),
                parameters: json!({
                    "type": "object",
                    "properties": {
                        "mcp_method": {"type": "string", "description": "The MCP method, usually tools/call."},
                        "mcp_params": {"type": "object", "description": "Its parameters: for tools/call the \
                            tool's name and its arguments."},
                    },
                    "required": ["mcp_method", "mcp_params"],
                }),
            },
        };
        self.list.iter().map(offer).collect()
    }
}

/// Describes a backend by its tools.
fn describe(id: &str, tools: &[&Tool]) -> String {
    let tool = |tool: &&Tool| {
        let parameters = ToolText::from_definition("", &tool.definition).parameters.join(", ");
        format!("{}({parameters})", tool.name())
    };
    let named: Vec<String> = tools.iter().take(NAMED_MAX).map(tool).collect();
    let more = if tools.len() > NAMED_MAX { " and more" } else { "" };
    format!(
        "The server {id}. Call a tool with mcp_method 'tools/call' and mcp_params {{name, arguments}}. Tools: {}{more}.",
        named.join(", ")
    )
}

/// Returns a name that a model accepts and that no other function has.
fn free_name(wanted: &str, taken: &mut HashSet<String>) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = wanted.chars().map(fits).take(NAME_CHARS_MAX).collect();
    let numbered = |n: usize| {
        let end = format!("_{n}");
        format!("{}{end}", &name[..name.len().min(NAME_CHARS_MAX - end.len())])
    };
    let free = std::iter::once(name.clone()).chain((2..).map(numbered)).find(|name| !taken.contains(name));
    let free = free.expect("numbers do not end");
    taken.insert(free.clone());
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(backend: &str, name: &str) -> Tool {
        let definition = json!({"name": name, "description": "d", "inputSchema":
            {"type": "object", "properties": {"path": {"type": "string"}}}});
        Tool { backend: backend.to_owned(), definition }
    }

    #[test]
    fn names_fit_and_differ() {
        let long = "x".repeat(100);
        let tools = [tool("a", "b.c"), tool("a", "b/c"), tool("a", &long), tool("a", &format!("{long}y"))];
        let functions = Functions::of_tools(&tools.iter().collect::<Vec<_>>());
        let names: Vec<String> = functions.offered().into_iter().map(|f| f.name).collect();
        assert_eq!(names[..2], ["a__b_c", "a__b_c_2"]);
        assert!(names[2] != names[3] && names.iter().all(|name| name.len() <= NAME_CHARS_MAX), "{names:?}");
        assert!(matches!(functions.meant("a__b_c_2"), Some(Meant::Tool(tool)) if tool.name() == "b/c"));
        assert!(functions.meant("other").is_none());
    }

    #[test]
    fn a_backend_is_described_by_its_tools() {
        let tools = [tool("files", "read"), tool("files", "write"), tool("web", "load")];
        let offered = Functions::of_backends(&tools).offered();
        assert_eq!(offered.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["files", "web"]);
        assert!(offered[0].description.contains("read(path), write(path)"), "{}", offered[0].description);
        assert_eq!(offered[0].parameters["required"], json!(["mcp_method", "mcp_params"]));
    }
}
