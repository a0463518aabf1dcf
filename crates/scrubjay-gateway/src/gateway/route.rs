//! Answers a task in plain words: the router chooses one call, which is then made like a client's own.
//!
//! Offered as the method `agentify/orchestrateTask` and as tools of the gateway itself. Whatever a model answers,
//! nothing is called below the threshold of confidence or destructively without the user's consent. How a model is
//! reached is not known here.

mod catalog;
mod elicitation;
mod lessons;
mod outcome;
mod plan_steps;
mod steps;
mod task;
mod tools;

use std::sync::{Arc, Mutex};

use scrubjay_core::envelope::Era;
use scrubjay_core::message;
use scrubjay_core::protocol::{code, meta, method};
use scrubjay_router::{AnswerError, Catalog, Lessons, NoCall, PlannedCall, RouteResult, RouteTask, Router};
use serde_json::{Value, json};

use super::{Gateway, Request};
use crate::backend::Answer;
use crate::session::{Call, lock};
pub use elicitation::Consent;
use outcome::Refusal;
pub use plan_steps::{PlanRecorder, RecordedPlan, StepProgress};
pub(super) use tools::{definitions, is_own};

/// The method that takes a task.
pub(super) const METHOD: &str = scrubjay_core::tasks_on_tape::TASK_METHOD;

/// The router with its catalogs and its rules for confirmation.
pub(super) struct Routing {
    router: Arc<Router>,
    consent: Consent,
    catalogs: catalog::Catalogs,
    /// What was learned; absent if nothing is to be learned.
    lessons: Option<Arc<Mutex<Lessons>>>,
    plan_recorder: PlanRecorder,
    offers_tools: bool,
}

/// How tasks are routed.
pub struct RouteWith {
    /// Chooses calls.
    pub router: Arc<Router>,
    /// Says which calls need a confirmation.
    pub consent: Consent,
    /// Whether the router learns from calls that succeed which words mean their tools.
    pub learns: bool,
    /// Records the steps of tasks that become several calls.
    pub plan_recorder: PlanRecorder,
    /// Whether clients see the router among the tools; its method works either way.
    pub offers_tools: bool,
}

/// How a task was sent, which decides the form of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Method,
    Tool,
}

impl Gateway {
    /// Sets how tasks are routed from now on, if at all. What was learned is kept.
    pub fn route_with(&self, with: Option<RouteWith>) {
        let mut routing = lock(&self.routing);
        let learned = routing.as_ref().and_then(|before| before.lessons.clone()).unwrap_or_default();
        *routing = with.map(|with| {
            let RouteWith { router, consent, learns, plan_recorder, offers_tools } = with;
            let lessons = learns.then_some(learned);
            let catalogs = catalog::Catalogs::default();
            Arc::new(Routing { router, consent, catalogs, lessons, plan_recorder, offers_tools })
        });
    }

    /// Returns how tasks are routed, if they are.
    fn routing(&self) -> Option<Arc<Routing>> {
        lock(&self.routing).clone()
    }

    /// Tells whether clients see the router among the tools.
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
        let progress = message::member(message::member(request.raw_params(), "_meta"), meta::PROGRESS_TOKEN);
        let progress = progress.map(|token| token.get().to_owned());
        let (gateway, call) = (self.clone(), request.call.clone());
        let job = async move { form.answer(gateway.carry_out(&call, task, progress).await, era) };
        match era {
            Era::Legacy => Box::pin(job).await,
            // A question to a modern client ends the request; the job then waits for the client to return with its answer.
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

    /// Chooses the call, asks the user if needed, and makes the call.
    async fn carry_out(
        self: &Arc<Self>,
        call: &Arc<Call>,
        task: RouteTask,
        progress: Option<String>,
    ) -> Result<String, Refusal> {
        let routing = self.routing().ok_or_else(|| Refusal::new(code::METHOD_NOT_FOUND, "no router"))?;
        let catalog = self.catalog(&routing, call).await;
        let route = routing.router.route(&catalog, &task).await;
        let route = Box::pin(routing.settle(call, &catalog, &task, route)).await;
        let plan = match &route.decided {
            Ok(plan) => plan.clone(),
            Err(why) => {
                tracing::info!(reason = why.reason(), confidence = route.confidence, "a task was not routed");
                return Err(Refusal::no_call(&task, &route, why));
            }
        };
        if !route.then.is_empty() {
            return Box::pin(self.carry_out_steps(&routing, call, &catalog, &task, &route, plan)).await;
        }
        let definition = plan.tool().and_then(|name| catalog.tool(&plan.backend_id, name));
        if routing.consent.is_needed(&plan, definition.map(|tool| &tool.definition)) {
            elicitation::confirm(call, &plan)
                .await
                .map_err(|why| Refusal::unconfirmed(&task, &route, &plan, why))?;
        }
        let what = plan.tool().unwrap_or(&plan.mcp_method);
        tracing::info!(backend = plan.backend_id, tool = what, confidence = route.confidence, "task routed");
        let chosen = outcome::chosen(routing.router.mode(), &plan, &route);
        // Recorded before the call is made: a crash in between leaves the choice on tape.
        call.session.record_note(&json!({ "event": "task_routed", "chosen": chosen }));
        let result = self.call_chosen(call, &plan, progress, chosen).await?;
        // A call that failed may have been of the wrong tool.
        if !outcome::is_failure(&result) {
            self.learn_from(call, &task, &plan);
        }
        Ok(result)
    }

    /// Makes the chosen call in the same way as a client's own.
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
        // The task's own token: progress of the chosen call then reaches the client under it.
        if let Some(token) = progress.and_then(|token| serde_json::from_str::<Value>(&token).ok()) {
            params["_meta"] = json!({ meta::PROGRESS_TOKEN: token });
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
    /// Teaches a catalog all lessons.
    fn teach(&self, catalog: &Catalog) {
        if let Some(lessons) = &self.lessons {
            lock(lessons).teach(catalog);
        }
    }

    /// If there is no call yet, asks the user what may lead to one: which tool is meant, or what the model wants to
    /// know.
    async fn settle(
        &self,
        call: &Arc<Call>,
        catalog: &Catalog,
        task: &RouteTask,
        route: RouteResult,
    ) -> RouteResult {
        if !elicitation::can_ask(call) {
            return route;
        }
        match &route.decided {
            // Below half the threshold the right tool is hardly among the candidates, and the question only disturbs.
            Err(NoCall::Unsure) if route.confidence >= self.router.threshold() / 2.0 => {
                let Some(tool) = elicitation::ask_tool(call, &route.candidates).await else { return route };
                self.router.fill(catalog, task, &tool).await.unwrap_or(route)
            }
            Err(NoCall::Answer(AnswerError::NoCall { text: question })) if !question.is_empty() => {
                let Some(answer) = elicitation::ask_detail(call, question).await else { return route };
                let clarification = Some((question.clone(), answer));
                self.router.route(catalog, &RouteTask { clarification, ..task.clone() }).await
            }
            _ => route,
        }
    }
}

impl Form {
    /// Writes the outcome of a task.
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
