//! From a task in plain language to one call of a tool.
//!
//! Retrieval makes a shortlist, a model chooses one function of it, the arguments are checked against the
//! tool's schema and mended once. The call itself is not made here: it knows neither backends nor sessions.

mod answer;
mod arguments;
mod functions;
mod prompt;

use scrubjay_core::retrieval::{Index, Match, Settings, ToolText};
use scrubjay_llm::{ChatReply, ChatRequest, Client, LlmError, Message};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

pub use answer::BadAnswer;
use functions::Functions;
pub use functions::{Mode, Tool};

/// So many tools are put before a model, and returned as candidates.
const SHORTLIST_MAX: usize = 10;
/// An answer is one short call.
const ANSWER_TOKENS_MAX: u32 = 2000;

/// A task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Task {
    /// What is wanted, in plain language.
    pub query: String,
    /// What the client knows besides: the open document, the working directory, the selection.
    pub context: Option<Value>,
}

/// The one call that a task means.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Which backend is called.
    pub backend_id: String,
    /// The method.
    pub mcp_method: String,
    /// Its parameters: an object.
    pub mcp_params: Value,
}

/// A tool that a task may mean.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The server that has it.
    pub backend: String,
    /// Its name.
    pub tool: String,
    /// How well it fits; comparable within one answer.
    pub score: f32,
    /// Which words fit where.
    pub why: Vec<Match>,
}

/// What came of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Routed {
    /// One call is meant.
    Call(Plan),
    /// No call can be told; these tools come nearest.
    Candidates {
        /// Why there is no call.
        why: Undecided,
        /// The tools, best first.
        candidates: Vec<Candidate>,
    },
}

/// Why there is no call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    /// No tool seems to serve.
    #[error("no tool seems to serve this task")]
    NothingFits,
    /// The model could not be asked.
    #[error(transparent)]
    Model(#[from] LlmError),
    /// The model gave no usable call.
    #[error(transparent)]
    Answer(#[from] BadAnswer),
}

/// A catalog of tools, ready for tasks.
pub struct Router {
    mode: Mode,
    tools: Vec<Tool>,
    index: Index,
}

impl Router {
    /// Reads a catalog.
    #[must_use]
    pub fn new(mode: Mode, tools: Vec<Tool>) -> Self {
        let texts: Vec<ToolText> =
            tools.iter().map(|tool| ToolText::from_definition(&tool.backend, &tool.definition)).collect();
        Self { mode, tools, index: Index::new(&texts, Settings::full()) }
    }

    /// Remembers that a task meant a tool.
    pub fn learn(&mut self, query: &str, backend: &str, tool: &str) {
        let meant = self.tools.iter().position(|t| t.backend == backend && t.name() == tool);
        if let Some(meant) = meant {
            self.index.learn(query, meant);
        }
    }

    /// Finds the call that a task means; without a client, or where it is not to be told, the nearest tools.
    pub async fn route(&self, client: Option<&Client>, task: &Task, deadline: Instant) -> Routed {
        let shortlist = self.index.search(&task.query, SHORTLIST_MAX);
        let chosen: Vec<&Tool> = shortlist.hits.iter().map(|hit| &self.tools[hit.tool]).collect();
        let why = match (client, self.mode) {
            (None, _) => Undecided::Model(LlmError::NoKey),
            // A model that sees only backends may know better than the words of their tools.
            (_, Mode::Catalog) if !shortlist.acts() => Undecided::NothingFits,
            (Some(client), mode) => {
                let functions = match mode {
                    Mode::Catalog => Functions::of_tools(&chosen),
                    Mode::Backends => Functions::of_backends(&self.tools),
                };
                let request = ChatRequest {
                    tools: functions.offered(),
                    max_tokens: Some(ANSWER_TOKENS_MAX),
                    ..ChatRequest::new(prompt::system(mode), prompt::user(task))
                };
                match decide(client, request, &functions, deadline).await {
                    Ok(plan) => return Routed::Call(plan),
                    Err(why) => why,
                }
            }
        };
        let candidate = |(tool, hit): (&&Tool, scrubjay_core::retrieval::Hit)| Candidate {
            backend: tool.backend.clone(),
            tool: tool.name().to_owned(),
            score: hit.score,
            why: hit.why,
        };
        Routed::Candidates { why, candidates: chosen.iter().zip(shortlist.hits).map(candidate).collect() }
    }
}

/// Asks the model, and once more where its arguments do not fit.
async fn decide(
    client: &Client,
    mut request: ChatRequest,
    functions: &Functions<'_>,
    deadline: Instant,
) -> Result<Plan, Undecided> {
    let reply = client.chat(&request, deadline).await?;
    let wrong = match answer::plan(&reply, functions) {
        Ok(plan) => return Ok(plan),
        Err(wrong @ BadAnswer::Arguments { .. }) => wrong,
        Err(other) => return Err(other.into()),
    };
    request.messages.extend(mend(reply, &wrong));
    let reply = client.chat(&request, deadline).await?;
    Ok(answer::plan(&reply, functions)?)
}

/// Says what was wrong with a call, in the form of its result.
fn mend(reply: ChatReply, wrong: &BadAnswer) -> Vec<Message> {
    let id = reply.tool_calls.first().map(|call| call.id.clone()).unwrap_or_default();
    let text = format!("{wrong}. Call the same function again with arguments that fit its schema.");
    vec![Message::Assistant { text: reply.text, tool_calls: reply.tool_calls }, Message::Tool { id, text }]
}
