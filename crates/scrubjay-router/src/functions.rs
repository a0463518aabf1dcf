//! Tools as functions for a model: one for each tool, or one for each backend.

use std::collections::HashSet;

use scrubjay_core::retrieval::ToolText;
use serde_json::{Value, json};

use crate::{Catalog, Tool};

/// The longest name of a function that models accept.
const NAME_CHARS_MAX: usize = 64;
/// The longest description: models refuse longer ones.
const DESCRIPTION_CHARS_MAX: usize = 1024;
/// A longer schema is not sent to a model; arguments are still checked against it.
const SCHEMA_BYTES_MAX: usize = 16 * 1024;

/// The function that takes several calls at once.
pub(crate) const PLAN: &str = "plan_steps";

/// The descriptions of the backends that the gateway's contract names; their tools are appended.
const KNOWN_BACKENDS: [(&str, &str); 2] = [
    (
        "filesystem",
        "Handles local filesystem operations like reading/writing files, listing directories, creating/deleting \
         within pre-configured accessible paths. Use context like `currentWorkingDirectory` or `activeDocumentURI` \
         to resolve relative paths if a query implies it. Key methods: 'fs/readFile' (params: {path: string}), \
         'fs/writeFile' (params: {path: string, content: string}), 'fs/readdir' (params: {path: string}), \
         'fs/mkdir' (params: {path: string}), 'fs/rm' (params: {path: string, recursive?: boolean}). Paths should \
         typically be absolute or be resolvable using provided context within the allowed mounted points.",
    ),
    (
        "mcpBrowserbase",
        "Controls a cloud browser (Browserbase) for web interactions. Can load URLs, take screenshots, extract text \
         or HTML, and run JavaScript on pages. Useful for web scraping, fetching live web content, or simple web \
         automation. Context can inform URLs or search queries. Key methods: 'browser/loadUrl' (params: {url: \
         string}), 'browser/screenshot' (params: {sessionId?: string, format?: 'png'|'jpeg'}), \
         'browser/extractText' (params: {sessionId?: string}), 'browser/extractHtml' (params: {sessionId?: \
         string}). A session is typically initiated by 'browser/loadUrl'.",
    ),
];

/// How tools are presented to a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolPresentation {
    /// A function for each tool of the shortlist, with the tool's own schema.
    #[default]
    Catalog,
    /// A function for each backend, which takes a method and its parameters.
    Backends,
}

/// What a function stands for.
pub(crate) enum FunctionTarget<'t> {
    /// A tool.
    Tool(&'t Tool),
    /// A backend, with its tools.
    Backend(&'t str, Vec<&'t Tool>),
}

/// The functions of one question.
pub(crate) struct Functions<'t> {
    list: Vec<(String, FunctionTarget<'t>)>,
    /// How many calls one answer may plan.
    pub(crate) steps_max: usize,
}

impl<'t> Functions<'t> {
    /// Makes a function of each tool.
    pub(crate) fn of_tools(tools: &[&'t Tool]) -> Self {
        // Reserved, so that no tool is called by the name of the function for several calls.
        let mut taken = HashSet::from([PLAN.to_owned()]);
        let name = |tool: &&'t Tool| {
            let name = free_name(&format!("{}__{}", tool.backend, tool.name()), &mut taken);
            (name, FunctionTarget::Tool(tool))
        };
        Self { list: tools.iter().map(name).collect(), steps_max: 1 }
    }

    /// Makes a function of each backend.
    pub(crate) fn of_backends(catalog: &'t Catalog) -> Self {
        let mut taken = HashSet::from([PLAN.to_owned()]);
        let name = |(id, tools): (&'t str, Vec<&'t Tool>)| {
            (free_name(id, &mut taken), FunctionTarget::Backend(id, tools))
        };
        Self { list: catalog.by_backend().map(name).collect(), steps_max: 1 }
    }

    /// Tells whether there is no function to choose from.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns what a function stands for.
    pub(crate) fn target(&self, name: &str) -> Option<&FunctionTarget<'t>> {
        self.list.iter().find(|(known, _)| known == name).map(|(_, target)| target)
    }

    /// Returns the functions in the form that a request has them.
    pub(crate) fn offered(&self) -> Vec<scrubjay_llm::Tool> {
        let offer = |(name, target): &(String, FunctionTarget<'_>)| match target {
            FunctionTarget::Tool(tool) => scrubjay_llm::Tool {
                name: name.clone(),
                description: tool.description().chars().take(DESCRIPTION_CHARS_MAX).collect(),
                parameters: accepted_schema(tool.schema()),
            },
            FunctionTarget::Backend(id, tools) => scrubjay_llm::Tool {
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
        let several = (self.steps_max > 1).then(|| self.several());
        self.list.iter().map(offer).chain(several).collect()
    }

    /// Describes the function that takes several calls.
    fn several(&self) -> scrubjay_llm::Tool {
        let names: Vec<&str> = self.list.iter().map(|(name, _)| name.as_str()).collect();
        let step = json!({
            "type": "object",
            "properties": {
                "function": {"type": "string", "enum": names},
                "arguments": {"type": "object", "description": "As that function takes them."},
            },
            "required": ["function", "arguments"],
        });
        scrubjay_llm::Tool {
            name: PLAN.to_owned(),
            description:
                "For a task that needs several calls, one after the other, each of which can be written down \
                now: calls the other functions in this order."
                    .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {"steps": {"type": "array", "items": step, "maxItems": self.steps_max}},
                "required": ["steps"],
            }),
        }
    }
}

/// Returns a schema in a form that models accept: of an object, and not too long.
fn accepted_schema(schema: &Value) -> Value {
    let is_object = schema["type"] == "object" && schema["properties"].is_object();
    // Models refuse an object that does not name its properties.
    if is_object && schema.to_string().len() <= SCHEMA_BYTES_MAX {
        schema.clone()
    } else {
        json!({"type": "object", "properties": {}})
    }
}

/// Describes a backend: the contract's description, then its tools, until the description is full.
fn describe(id: &str, tools: &[&Tool]) -> String {
    let known = KNOWN_BACKENDS.iter().find(|(known, _)| *known == id);
    let mut text = known.map_or_else(|| format!("The server {id}."), |(_, text)| (*text).to_owned());
    if tools.is_empty() {
        return text;
    }
    text += " Tools, called with mcp_method 'tools/call' and mcp_params {name, arguments}: ";
    for (i, tool) in tools.iter().enumerate() {
        let parameters = ToolText::from_definition("", &tool.definition).parameters.join(", ");
        let named = format!("{}{}({parameters})", if i == 0 { "" } else { ", " }, tool.name());
        // 12: room for " and more" and the full stop.
        if text.chars().count() + named.chars().count() > DESCRIPTION_CHARS_MAX - 12 {
            text += " and more";
            break;
        }
        text += &named;
    }
    text + "."
}

/// Returns a name that a model accepts and that no other function has.
fn free_name(wanted: &str, taken: &mut HashSet<String>) -> String {
    let replaced = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    // Different names may become the same here, or be cut to the same, so they are numbered if need be.
    let name: String = wanted.chars().map(replaced).take(NAME_CHARS_MAX).collect();
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
        Tool { backend: backend.to_owned(), listed_as: name.to_owned(), definition }
    }

    #[test]
    fn function_names_are_valid_and_unique() {
        let long = "x".repeat(100);
        let tools = [tool("a", "b.c"), tool("a", "b/c"), tool("a", &long), tool("a", &format!("{long}y"))];
        let functions = Functions::of_tools(&tools.iter().collect::<Vec<_>>());
        let names: Vec<String> = functions.offered().into_iter().map(|f| f.name).collect();
        assert_eq!(names[..2], ["a__b_c", "a__b_c_2"]);
        assert!(names[2] != names[3] && names.iter().all(|name| name.len() <= NAME_CHARS_MAX), "{names:?}");
        assert!(
            matches!(functions.target("a__b_c_2"), Some(FunctionTarget::Tool(tool)) if tool.name() == "b/c")
        );
        assert!(functions.target("other").is_none());
    }

    #[test]
    fn a_backend_is_described_by_its_tools() {
        let tools = vec![tool("files", "read"), tool("files", "write"), tool("web", "load")];
        let backends = ["files", "web", "mute"].map(str::to_owned).to_vec();
        let catalog = Catalog::new(backends, tools);
        let offered = Functions::of_backends(&catalog).offered();
        assert_eq!(offered.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["files", "web", "mute"]);
        assert!(offered[0].description.ends_with("read(path), write(path)."), "{}", offered[0].description);
        assert_eq!(offered[2].description, "The server mute.");
        assert_eq!(offered[0].parameters["required"], json!(["mcp_method", "mcp_params"]));
    }

    #[test]
    fn a_known_backend_has_its_agreed_description_within_the_limit() {
        for (id, known) in KNOWN_BACKENDS {
            let tools: Vec<Tool> = (0..100).map(|i| tool(id, &format!("tool_{i}"))).collect();
            let catalog = Catalog::new(vec![id.to_owned()], tools);
            let description = &Functions::of_backends(&catalog).offered()[0].description;
            assert!(description.starts_with(known) && description.contains(": tool_0(path), tool_1(path)"));
            assert!(description.ends_with(" and more."), "{description}");
            assert!(description.chars().count() <= DESCRIPTION_CHARS_MAX, "{}", description.len());
        }
    }

    #[test]
    fn a_model_gets_only_schemas_that_it_accepts() {
        let nothing = json!({"type": "object", "properties": {}});
        let long = json!({"type": "object", "properties": {"a": {"description": "x".repeat(20_000)}}});
        for schema in [json!(null), json!({"anyOf": []}), json!({"type": "object"}), long] {
            assert_eq!(accepted_schema(&schema), nothing);
        }
        let good = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        assert_eq!(accepted_schema(&good), good);
    }
}
