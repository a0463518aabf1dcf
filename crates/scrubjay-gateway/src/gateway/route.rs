//! Answers a task in plain words: the router chooses one call, which is then made like a client's own.
//!
//! Offered as the method `agentify/orchestrateTask` and as tools of the gateway itself. Whatever comes of the
//! model, nothing is called below the threshold, nor what destroys without a yes. How a model is reached is
//! not known here.

mod asking;
mod book;
mod catalog;
mod lessons;
mod outcome;
mod steps;
mod task;
mod tools;

use std::sync::{Arc, Mutex};

use scrubjay_core::envelope::Era;
use scrubjay_core::message;
use scrubjay_core::protocol::{code, method};
use scrubjay_router::{AnswerError, Catalog, Lessons, NoCall, PlannedCall, RouteResult, RouteTask, Router};
use serde_json::{Value, json};

use super::{Gateway, Request};
use crate::backend::Answer;
use crate::session::{Call, lock};
pub use asking::Consent;
pub use book::{PlanBook, Planned, StepMark, Writing};
use outcome::Refusal;
pub(super) use tools::{definitions, is_own};

/// The method that takes a task.
pub(super) const METHOD: &str = scrubjay_core::tasks_on_tape::TASK_METHOD;

/// The router at work: what it chooses from, and what needs a yes.
pub(super) struct Routing {
    router: Arc<Router>,
    consent: Consent,
    catalogs: catalog::Catalogs,
    /// What was learned, where anything is to be.
    lessons: Option<Arc<Mutex<Lessons>>>,
    book: Option<Arc<dyn PlanBook>>,
    offers_tools: bool,
}

/// What tasks are routed with.
pub struct RouteWith {
    /// Chooses calls.
    pub router: Arc<Router>,
    /// Says which need a yes.
    pub consent: Consent,
    /// Whether calls that succeed teach how their tools are asked for.
    pub learns: bool,
    /// Where the steps of a task are written down.
    pub book: Option<Arc<dyn PlanBook>>,
    /// Whether clients see the router among the tools; its method works either way.
    pub offers_tools: bool,
}

/// Where a task came in, and so what its answer looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Method,
    Tool,
}

impl Gateway {
    /// Routes tasks in this way from now on, or no longer; what was learned is kept.
    pub fn route_with(&self, with: Option<RouteWith>) {
        let mut routing = lock(&self.routing);
        let learned = routing.as_ref().and_then(|before| before.lessons.clone()).unwrap_or_default();
        *routing = with.map(|with| {
            let RouteWith { router, consent, learns, book, offers_tools } = with;
            let lessons = learns.then_some(learned);
            let catalogs = catalog::Catalogs::default();
            Arc::new(Routing { router, consent, catalogs, lessons, book, offers_tools })
        });
    }

    /// Returns what routes tasks, where that is wanted.
    fn routing(&self) -> Option<Arc<Routing>> {
        lock(&self.routing).clone()
    }

    /// Tells whether the router is among the tools.
    pub(super) fn offers_router_tools(&self) -> bool {
        self.routing().is_some_and(|routing| routing.offers_tools)
    }

    /// Tells whether a request is for the router.
    pub(super) fn is_task(&self, request: &Request) -> bool {
        match request.method.as_str() {
            METHOD => self.routing().is_some(),
            method::TOOLS_CALL => {
                self.offers_router_tools() && request.text_param("name").is_some_and(|name| is_own(&name))
            }
            _ => false,
        }
    }

    /// Answers a request for the router.
    pub(super) async fn orchestrate(self: &Arc<Self>, request: &mut Request) -> Answer {
        if let Some(parked) = self.unpark(request) {
            return parked.await;
        }
        let era = request.call.facts.era;
        let form = if request.method == METHOD { Form::Method } else { Form::Tool };
        let params = match form {
            Form::Method => request.raw_params(),
            Form::Tool => message::member(request.raw_params(), "arguments"),
        };
        let task = match task::parse(params) {
            Ok(task) => task,
            Err(problems) => return form.answer(Err(Refusal::params(&problems)), era),
        };
        if era == Era::Legacy && !request.call.session.is_opened() {
            let refusal = Refusal::new(code::NOT_INITIALIZED, "Gateway not fully initialized");
            return form.answer(Err(refusal), era);
        }
        if form == Form::Tool && request.text_param("name").as_deref() == Some(tools::FIND) {
            return self.find_tools(&request.call, &task).await;
        }
        let progress = message::member(message::member(request.raw_params(), "_meta"), "progressToken");
        let progress = progress.map(|token| token.get().to_owned());
        let (gateway, call) = (self.clone(), request.call.clone());
        let job = async move { form.answer(gateway.carry_out(&call, task, progress).await, era) };
        match era {
            Era::Legacy => Box::pin(job).await,
            Era::Modern => self.run_parkable(request, job).await,
        }
    }

    /// Returns the tools that a task may mean.
    async fn find_tools(self: &Arc<Self>, call: &Arc<Call>, task: &RouteTask) -> Answer {
        let Some(routing) = self.routing() else { return super::not_found(METHOD) };
        let catalog = self.catalog(&routing, call).await;
        let answer = tools::found(&catalog, &task.query, &routing.router);
        Answer::Result(outcome::with_type(answer, call.facts.era).to_string())
    }

    /// Chooses the call, asks where it must, makes it.
    async fn carry_out(
        self: &Arc<Self>,
        call: &Arc<Call>,
        task: RouteTask,
        progress: Option<String>,
    ) -> Result<String, Refusal> {
        let routing = self.routing().ok_or_else(|| Refusal::new(code::METHOD_NOT_FOUND, "no router"))?;
        let catalog = self.catalog(&routing, call).await;
        let routed = routing.router.route(&catalog, &task).await;
        let routed = Box::pin(routing.settle(call, &catalog, &task, routed)).await;
        let plan = match &routed.decided {
            Ok(plan) => plan.clone(),
            Err(why) => {
                tracing::info!(
                    reason = why.reason(),
                    confidence = routed.confidence,
                    "a task was not routed"
                );
                return Err(Refusal::undecided(&task, &routed, why));
            }
        };
        if !routed.then.is_empty() {
            return Box::pin(self.carry_out_steps(&routing, call, &catalog, &task, &routed, plan)).await;
        }
        let definition = plan.tool().and_then(|name| catalog.tool(&plan.backend_id, name));
        if routing.consent.is_needed(&plan, definition.map(|tool| &tool.definition)) {
            asking::confirm(call, &plan)
                .await
                .map_err(|why| Refusal::unconfirmed(&task, &routed, &plan, why))?;
        }
        let what = plan.tool().unwrap_or(&plan.mcp_method);
        tracing::info!(backend = plan.backend_id, tool = what, confidence = routed.confidence, "task routed");
        let chosen = outcome::chosen(routing.router.mode(), &plan, &routed);
        call.session.record_note(&json!({ "event": "task_routed", "chosen": chosen }));
        let result = self.call_chosen(call, &plan, progress, chosen).await?;
        if !outcome::is_failure(&result) {
            self.learn_from(call, &task, &plan);
        }
        Ok(result)
    }

    /// Makes the chosen call, on the same way as a client's own.
    async fn call_chosen(
        self: &Arc<Self>,
        call: &Arc<Call>,
        plan: &PlannedCall,
        progress: Option<String>,
        chosen: Value,
    ) -> Result<String, Refusal> {
        let backends = self.backends();
        let Some(backend) = backends.iter().find(|backend| backend.id == plan.backend_id) else {
            return Err(Refusal::backend(plan, &json!({ "message": "it is not there" }), chosen));
        };
        let mut params = plan.mcp_params.clone();
        if let Some(token) = progress.and_then(|token| serde_json::from_str::<Value>(&token).ok()) {
            params["_meta"] = json!({ "progressToken": token });
        }
        match self.call_backend(call, &plan.mcp_method, backend, Some(params.to_string())).await {
            Answer::Result(result) => Ok(outcome::with_choice(&result, &chosen)),
            Answer::Error(error) => {
                let error = serde_json::from_str(&error).unwrap_or_default();
                Err(Refusal::backend(plan, &error, chosen))
            }
        }
    }
}

impl Routing {
    /// Teaches a catalog what was learned.
    fn teach(&self, catalog: &Catalog) {
        if let Some(lessons) = &self.lessons {
            lock(lessons).teach(catalog);
        }
    }

    /// Asks the user where that may lead to a call: which tool is meant, or what the model has to know.
    async fn settle(
        &self,
        call: &Arc<Call>,
        catalog: &Catalog,
        task: &RouteTask,
        routed: RouteResult,
    ) -> RouteResult {
        if !asking::can_ask(call) {
            return routed;
        }
        match &routed.decided {
            // Half-way there a person may know; further off a question only disturbs.
            Err(NoCall::Unsure) if routed.confidence >= self.router.threshold() / 2.0 => {
                let Some(tool) = asking::which(call, &routed.candidates).await else { return routed };
                self.router.fill(catalog, task, &tool).await.unwrap_or(routed)
            }
            Err(NoCall::Answer(AnswerError::NoCall { said })) if !said.is_empty() => {
                let Some(answer) = asking::more(call, said).await else { return routed };
                let asked = Some((said.clone(), answer));
                self.router.route(catalog, &RouteTask { asked, ..task.clone() }).await
            }
            _ => routed,
        }
    }
}

impl Form {
    /// Writes what came of a task.
    fn answer(self, outcome: Result<String, Refusal>, era: Era) -> Answer {
        match (self, outcome) {
            (Self::Method, Ok(result)) => Answer::Result(result),
            (Self::Method, Err(refusal)) => Answer::Error(refusal.error()),
            (Self::Tool, Ok(result)) => Answer::Result(tools::as_tool_result(result)),
            (Self::Tool, Err(refusal)) => {
                Answer::Result(outcome::with_type(refusal.tool_result(), era).to_string())
            }
        }
    }
}
