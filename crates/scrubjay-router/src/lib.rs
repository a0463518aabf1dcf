//! From a task in plain language to one call of a tool.
//!
//! Retrieval makes a shortlist, a model chooses one function of it, and the arguments are checked against the tool's
//! schema; if they do not match, the model may correct them once. The caller makes the call: backends and sessions are
//! not known here.

mod answer;
mod arguments;
mod catalog;
mod functions;
mod lessons;
mod no_call;
mod prompt;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use scrubjay_core::protocol::method;
use scrubjay_core::retrieval::Shortlist;
use scrubjay_llm::{ChatReply, ChatRequest, Client, LlmConfig, LlmError, Message};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

pub use answer::AnswerError;
pub use catalog::{Candidate, Catalog, Tool};
use functions::Functions;
pub use functions::ToolPresentation;
pub use lessons::{Lesson, Lessons};
pub use no_call::NoCall;

/// The most tools that are offered to a model: among more it chooses worse.
pub const SHORTLIST_MAX: usize = 15;
/// How many tools are offered by default.
const SHORTLIST: usize = 10;

/// An answer is one short call.
const ANSWER_TOKENS_MAX: u32 = 2000;
/// How many attempts' time a task may take: an answer, a corrected one, and a retry of either.
const ATTEMPTS: u32 = 3;

/// A task in plain language.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteTask {
    /// The task itself.
    pub query: String,
    /// The client's context: the open document, the working directory, the selection.
    pub context: Option<Value>,
    /// A question that the model had, with the user's answer.
    pub clarification: Option<(String, String)>,
}

/// The one call that a task means.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedCall {
    /// The backend's id.
    pub backend_id: String,
    /// The method.
    pub mcp_method: String,
    /// The parameters: an object.
    pub mcp_params: Value,
}

impl PlannedCall {
    /// Returns the tool's name, if it calls a tool.
    #[must_use]
    pub fn tool(&self) -> Option<&str> {
        if self.mcp_method == method::TOOLS_CALL { self.mcp_params["name"].as_str() } else { None }
    }
}

/// The result of routing a task.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteResult {
    /// The call to make, or why there is none.
    pub decided: Result<PlannedCall, NoCall>,
    /// The calls after it, if several are planned.
    pub then: Vec<PlannedCall>,
    /// How likely the shortlist holds the right tool, 0 to 1.
    pub confidence: f32,
    /// The tools that match best, best first.
    pub candidates: Vec<Candidate>,
    /// The model, if one was asked.
    pub model: Option<String>,
}

/// Chooses calls for tasks.
pub struct Router {
    mode: ToolPresentation,
    threshold: f32,
    steps_max: usize,
    shortlist: usize,
    model: Mutex<ModelSource>,
}

/// How the model is reached. Its client is made at the first task: for HTTPS that reads the system's certificates.
#[derive(Default)]
struct ModelSource {
    config: Option<LlmConfig>,
    client: Option<Arc<Client>>,
}

impl Router {
    /// Makes a router without a model. Below `threshold` it chooses no call.
    #[must_use]
    pub fn new(mode: ToolPresentation, threshold: f32) -> Self {
        Self { mode, threshold, steps_max: 1, shortlist: SHORTLIST, model: Mutex::default() }
    }

    /// Sets how many tools are offered to the model and returned as candidates: 1 to [`SHORTLIST_MAX`].
    #[must_use]
    pub fn with_shortlist(self, shortlist: usize) -> Self {
        Self { shortlist: shortlist.clamp(1, SHORTLIST_MAX), ..self }
    }

    /// Sets how many calls a task may become, one after the other.
    #[must_use]
    pub fn with_steps(self, steps_max: usize) -> Self {
        Self { steps_max: steps_max.max(1), ..self }
    }

    /// Uses this model from now on; one that cannot be called (it lacks a key) counts as none.
    pub fn use_model(&self, config: LlmConfig) {
        let config = Some(config).filter(LlmConfig::is_usable);
        *self.model.lock().unwrap_or_else(PoisonError::into_inner) = ModelSource { config, client: None };
    }

    /// Returns how tools are presented to a model.
    #[must_use]
    pub fn mode(&self) -> ToolPresentation {
        self.mode
    }

    /// Returns the confidence below which nothing is called.
    #[must_use]
    pub fn threshold(&self) -> f32 {
        self.threshold
    }

    /// Returns how many tools a search returns at most.
    #[must_use]
    pub fn shortlist(&self) -> usize {
        // The function for several calls counts among those that a model chooses from.
        if self.steps_max > 1 { self.shortlist.min(SHORTLIST_MAX - 1) } else { self.shortlist }
    }

    /// Chooses the call that a task means. Without a model, or in doubt, only candidates are returned.
    pub async fn route(&self, catalog: &Catalog, task: &RouteTask) -> RouteResult {
        let shortlist = catalog.search(task, self.shortlist());
        // A model that sees only backends may know better than the words of their tools.
        let falls_short = |of: f32| self.mode == ToolPresentation::Catalog && shortlist.confidence < of;
        let unsure = falls_short(self.threshold);
        // If a task means several calls, each tool matches only a part of its words.
        let hopeless = falls_short(self.threshold / self.steps_max as f32);
        let decided = match self.client() {
            Err(why) => Err(why.into()),
            Ok(_) if hopeless => Err(NoCall::of(&shortlist)),
            Ok(client) => {
                let mut functions = match self.mode {
                    ToolPresentation::Catalog => Functions::of_tools(&catalog.chosen(&shortlist)),
                    ToolPresentation::Backends => Functions::of_backends(catalog),
                };
                functions.steps_max = self.steps_max;
                let mut result = self.ask_model(catalog, shortlist, task, &client, &functions).await;
                // Below the threshold only a plan of several calls is acted on: the user is asked to approve it.
                if unsure && result.decided.is_ok() && result.then.is_empty() {
                    result.decided = Err(NoCall::Unsure);
                }
                return result;
            }
        };
        RouteResult {
            decided,
            then: Vec::new(),
            confidence: shortlist.confidence,
            candidates: catalog.candidates(shortlist),
            model: None,
        }
    }

    /// Lets the model fill in the arguments of the one tool that a user chose. Returns nothing if there is no model, or
    /// the catalog no longer has the tool.
    pub async fn fill(&self, catalog: &Catalog, task: &RouteTask, tool: &Candidate) -> Option<RouteResult> {
        let client = self.client().ok()?;
        let functions = Functions::of_tools(&[catalog.tool(&tool.backend, &tool.tool)?]);
        Some(self.ask_model(catalog, catalog.search(task, self.shortlist()), task, &client, &functions).await)
    }

    async fn ask_model(
        &self,
        catalog: &Catalog,
        shortlist: Shortlist,
        task: &RouteTask,
        client: &Client,
        functions: &Functions<'_>,
    ) -> RouteResult {
        let request = ChatRequest {
            tools: functions.offered(),
            max_tokens: Some(ANSWER_TOKENS_MAX),
            ..ChatRequest::new(prompt::system(self.mode), prompt::user(task))
        };
        let deadline = Instant::now() + client.config().timeout.saturating_mul(ATTEMPTS).min(DEADLINE_MAX);
        let (decided, then) = match decide(client, request, functions, deadline).await {
            Ok(mut plans) => (Ok(plans.remove(0)), plans),
            Err(why) => (Err(why), Vec::new()),
        };
        RouteResult {
            decided,
            then,
            confidence: shortlist.confidence,
            candidates: catalog.candidates(shortlist),
            model: Some(client.config().model.clone()),
        }
    }

    fn client(&self) -> Result<Arc<Client>, LlmError> {
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &model.client {
            return Ok(client.clone());
        }
        let config = model.config.clone().ok_or(LlmError::NoKey)?;
        let client = Client::new(config).map_err(|e| LlmError::Unreachable(e.to_string()))?;
        Ok(model.client.insert(Arc::new(client)).clone())
    }
}

/// How long a task may wait for its model, whatever `llm.timeout` is.
const DEADLINE_MAX: Duration = Duration::from_secs(600);

/// Asks the model, and once more if its arguments do not match the schema.
async fn decide(
    client: &Client,
    mut request: ChatRequest,
    functions: &Functions<'_>,
    deadline: Instant,
) -> Result<Vec<PlannedCall>, NoCall> {
    if functions.is_empty() {
        return Err(NoCall::NothingFits);
    }
    let reply = client.chat(&request, deadline).await?;
    let wrong = match answer::plans(&reply, functions) {
        Ok(plans) => return Ok(plans),
        // Only wrong arguments can be corrected: without a call there is nothing to correct.
        Err(wrong @ AnswerError::Arguments { .. }) => wrong,
        Err(other) => return Err(other.into()),
    };
    request.messages.extend(correction(reply, &wrong));
    let reply = client.chat(&request, deadline).await?;
    Ok(answer::plans(&reply, functions)?)
}

/// Returns messages that tell the model what was wrong with its call, in the form of the call's result.
fn correction(reply: ChatReply, wrong: &AnswerError) -> Vec<Message> {
    let id = reply.tool_calls.first().map(|call| call.id.clone()).unwrap_or_default();
    let text = format!("{wrong}. Call the same function again with arguments that fit its schema.");
    vec![Message::Assistant { text: reply.text, tool_calls: reply.tool_calls }, Message::Tool { id, text }]
}
