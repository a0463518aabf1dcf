//! From a task in plain language to one call of a tool.
//!
//! Retrieval makes a shortlist, a model chooses one function of it, the arguments are checked against the
//! tool's schema and mended once. The call itself is not made here: it knows neither backends nor sessions.

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

/// No more tools are ever put before a model: among more it chooses worse.
pub const SHORTLIST_MAX: usize = 15;
/// So many are where nothing else is said.
const SHORTLIST: usize = 10;

/// An answer is one short call.
const ANSWER_TOKENS_MAX: u32 = 2000;
/// A task may take so many times what one attempt may: an answer, a mended one, and retries of either.
const ATTEMPTS: u32 = 3;

/// A task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteTask {
    /// What is wanted, in plain language.
    pub query: String,
    /// What the client knows besides: the open document, the working directory, the selection.
    pub context: Option<Value>,
    /// What the model asked about it, and what the user answered.
    pub asked: Option<(String, String)>,
}

/// The one call that a task means.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedCall {
    /// Which backend is called.
    pub backend_id: String,
    /// The method.
    pub mcp_method: String,
    /// Its parameters: an object.
    pub mcp_params: Value,
}

impl PlannedCall {
    /// Returns the tool it calls, where it calls one.
    #[must_use]
    pub fn tool(&self) -> Option<&str> {
        if self.mcp_method == method::TOOLS_CALL { self.mcp_params["name"].as_str() } else { None }
    }
}

/// What came of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteResult {
    /// The call that is meant, or why none can be told.
    pub decided: Result<PlannedCall, NoCall>,
    /// The calls that follow it, where several are planned.
    pub then: Vec<PlannedCall>,
    /// How likely the shortlist holds the right tool, 0 to 1.
    pub confidence: f32,
    /// The tools that come nearest, best first.
    pub candidates: Vec<Candidate>,
    /// The model that was asked, where one was.
    pub model: Option<String>,
}

/// Chooses calls: how, how surely, and with which model.
pub struct Router {
    mode: ToolPresentation,
    threshold: f32,
    steps_max: usize,
    shortlist: usize,
    model: Mutex<ModelSource>,
}

/// How the model is reached; its client is made when it is first needed.
#[derive(Default)]
struct ModelSource {
    config: Option<LlmConfig>,
    client: Option<Arc<Client>>,
}

impl Router {
    /// Makes a router that acts on a confidence of at least the threshold, and knows no model yet.
    #[must_use]
    pub fn new(mode: ToolPresentation, threshold: f32) -> Self {
        Self { mode, threshold, steps_max: 1, shortlist: SHORTLIST, model: Mutex::default() }
    }

    /// Puts so many tools before the model and among the candidates: 1 to [`SHORTLIST_MAX`].
    #[must_use]
    pub fn with_shortlist(self, shortlist: usize) -> Self {
        Self { shortlist: shortlist.clamp(1, SHORTLIST_MAX), ..self }
    }

    /// Lets a task become so many calls, one after the other.
    #[must_use]
    pub fn with_steps(self, steps_max: usize) -> Self {
        Self { steps_max: steps_max.max(1), ..self }
    }

    /// Asks this model from now on; one that cannot be called counts as none.
    pub fn use_model(&self, config: LlmConfig) {
        let config = Some(config).filter(LlmConfig::is_usable);
        *self.model.lock().unwrap_or_else(PoisonError::into_inner) = ModelSource { config, client: None };
    }

    /// Returns how tools are put before a model.
    #[must_use]
    pub fn mode(&self) -> ToolPresentation {
        self.mode
    }

    /// Returns the confidence below which nothing is called.
    #[must_use]
    pub fn threshold(&self) -> f32 {
        self.threshold
    }

    /// Returns how many tools come nearest to a task at most.
    #[must_use]
    pub fn shortlist(&self) -> usize {
        // The function that takes several calls has a place among them.
        if self.steps_max > 1 { self.shortlist.min(SHORTLIST_MAX - 1) } else { self.shortlist }
    }

    /// Finds the call that a task means; without a model, or where it is not to be told, the nearest tools.
    pub async fn route(&self, catalog: &Catalog, task: &RouteTask) -> RouteResult {
        let shortlist = catalog.search(task, self.shortlist());
        // A model that sees only backends may know better than the words of their tools.
        let falls_short = |of: f32| self.mode == ToolPresentation::Catalog && shortlist.confidence < of;
        let unsure = falls_short(self.threshold);
        // Of the words of several calls each tool has only its part.
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
                let mut routed = self.routed(catalog, shortlist, task, &client, &functions).await;
                if unsure && routed.decided.is_ok() && routed.then.is_empty() {
                    routed.decided = Err(NoCall::Unsure);
                }
                return routed;
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

    /// Lets the model fill in the arguments of the one tool that somebody chose; none where it is not there.
    pub async fn fill(&self, catalog: &Catalog, task: &RouteTask, tool: &Candidate) -> Option<RouteResult> {
        let client = self.client().ok()?;
        let functions = Functions::of_tools(&[catalog.tool(&tool.backend, &tool.tool)?]);
        Some(self.routed(catalog, catalog.search(task, self.shortlist()), task, &client, &functions).await)
    }

    async fn routed(
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

/// No task waits longer for its model.
const DEADLINE_MAX: Duration = Duration::from_secs(600);

/// Asks the model, and once more where its arguments do not fit.
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
        Err(wrong @ AnswerError::Arguments { .. }) => wrong,
        Err(other) => return Err(other.into()),
    };
    request.messages.extend(mend(reply, &wrong));
    let reply = client.chat(&request, deadline).await?;
    Ok(answer::plans(&reply, functions)?)
}

/// Says what was wrong with a call, in the form of its result.
fn mend(reply: ChatReply, wrong: &AnswerError) -> Vec<Message> {
    let id = reply.tool_calls.first().map(|call| call.id.clone()).unwrap_or_default();
    let text = format!("{wrong}. Call the same function again with arguments that fit its schema.");
    vec![Message::Assistant { text: reply.text, tool_calls: reply.tool_calls }, Message::Tool { id, text }]
}
