//! Reads a model's answer: exactly one valid call (or the steps of one plan), or an error.

use scrubjay_llm::ChatReply;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::arguments::problems;
use crate::functions::{FunctionTarget, Functions, PLAN};
use crate::{PlannedCall, Tool};
use scrubjay_core::protocol::method;
use scrubjay_core::shorten::shortened_inert;

/// How many characters of a model's text are passed on.
const TEXT_CHARS_MAX: usize = 1000;
/// Methods that only the gateway may call: they would change a connection that several clients share.
const OWN_METHODS: [&str; 6] = [
    method::INITIALIZE,
    method::SERVER_DISCOVER,
    method::LOGGING_SET_LEVEL,
    method::RESOURCES_SUBSCRIBE,
    method::RESOURCES_UNSUBSCRIBE,
    method::SUBSCRIPTIONS_LISTEN,
];

/// Why an answer is no usable call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// It calls nothing.
    #[error("the model chose no tool")]
    NoCall {
        /// The model's text: often a question. Inert and short.
        text: String,
    },
    /// It calls several functions.
    #[error("the model chose {0} tools where one is wanted")]
    Several(usize),
    /// It calls a function that was not offered.
    #[error("the model chose a tool that does not exist")]
    Unknown,
    /// Its arguments do not match the schema.
    #[error("the arguments do not fit: {}", problems.join("; "))]
    Arguments {
        /// The problems, one text each.
        problems: Vec<String>,
    },
}

#[derive(Deserialize)]
struct Method {
    mcp_method: String,
    mcp_params: serde_json::Map<String, Value>,
}

#[derive(Deserialize)]
struct Steps {
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    function: String,
    arguments: Value,
}

/// Reads an answer: one call, or the steps of a plan if several are allowed.
pub(crate) fn plans(reply: &ChatReply, functions: &Functions<'_>) -> Result<Vec<PlannedCall>, AnswerError> {
    let call = match reply.tool_calls.as_slice() {
        [] => return Err(AnswerError::NoCall { text: short(&reply.text) }),
        [call] => call,
        // None of them is made: the task means one call, and it is unknown which.
        several => return Err(AnswerError::Several(several.len())),
    };
    let arguments: Value = serde_json::from_str(&call.arguments).map_err(|_| wrong("they are not JSON"))?;
    if functions.steps_max == 1 || call.name != PLAN {
        return Ok(vec![plan(&call.name, arguments, functions)?]);
    }
    let Steps { steps } = serde_json::from_value(arguments)
        .map_err(|_| wrong("steps must be a list of {function, arguments}"))?;
    if steps.is_empty() || steps.len() > functions.steps_max {
        return Err(wrong(&format!("steps must be 1 to {}", functions.steps_max)));
    }
    steps.into_iter().map(|step| plan(&step.function, step.arguments, functions)).collect()
}

/// Reads the call of one function.
fn plan(name: &str, arguments: Value, functions: &Functions<'_>) -> Result<PlannedCall, AnswerError> {
    let target = functions.target(name).ok_or(AnswerError::Unknown)?;
    if !arguments.is_object() {
        return Err(wrong("they are not an object"));
    }
    match target {
        FunctionTarget::Tool(tool) => {
            check(tool, &arguments)?;
            Ok(PlannedCall {
                backend_id: tool.backend.clone(),
                mcp_method: method::TOOLS_CALL.to_owned(),
                mcp_params: json!({"name": tool.name(), "arguments": arguments}),
            })
        }
        FunctionTarget::Backend(id, tools) => {
            let Method { mcp_method, mcp_params } = serde_json::from_value(arguments)
                .map_err(|_| wrong("mcp_method must be a string and mcp_params an object"))?;
            if mcp_method.trim().is_empty() {
                return Err(wrong("mcp_method is empty"));
            }
            if OWN_METHODS.contains(&mcp_method.as_str())
                || mcp_method.starts_with(method::NOTIFICATIONS_PREFIX)
            {
                return Err(wrong("mcp_method is not one to be called for a task"));
            }
            // Other methods have no schema here: their server checks the params.
            if mcp_method == method::TOOLS_CALL {
                let name = mcp_params.get("name").and_then(Value::as_str).unwrap_or_default();
                let tool = tools.iter().find(|tool| tool.name() == name);
                let tool = tool.ok_or_else(|| wrong("mcp_params.name is no tool of this server"))?;
                check(tool, mcp_params.get("arguments").unwrap_or(&json!({})))?;
            }
            Ok(PlannedCall { backend_id: (*id).to_owned(), mcp_method, mcp_params: mcp_params.into() })
        }
    }
}

fn check(tool: &Tool, arguments: &Value) -> Result<(), AnswerError> {
    let problems = problems(tool.schema(), arguments);
    if problems.is_empty() { Ok(()) } else { Err(AnswerError::Arguments { problems }) }
}

fn wrong(what: &str) -> AnswerError {
    AnswerError::Arguments { problems: vec![what.to_owned()] }
}

fn short(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    // Inert, because the text may reach a terminal, and a model can be made to write control characters.
    shortened_inert(&text, TEXT_CHARS_MAX)
}
