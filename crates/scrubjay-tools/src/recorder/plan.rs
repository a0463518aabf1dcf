//! `record_plan` and `record_plan_step`.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use schemars::JsonSchema;
use scrubjay_core::units::counted;
use scrubjay_store::ledger::plan::{self, PlanStep, STEP_CHARS_MAX, StepStatus};
use scrubjay_store::ledger::session::{self, Session};
use scrubjay_store::ledger::{CommitDurability, Write};
use scrubjay_store::views::steps::number;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Recorder, limits};
use crate::reply::{Failure, Reply, reply};

/// The most steps of a plan: every answer contains all of them.
const STEPS_MAX: usize = 200;

#[derive(Deserialize, JsonSchema)]
pub(super) struct PlanArgs {
    /// The session. Left out: this connection's own.
    session_id: Option<String>,
    /// The steps that you intend to do, in order. They replace the pending steps of an earlier plan.
    steps: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct StepArgs {
    /// The session. Left out: this connection's own.
    session_id: Option<String>,
    /// The text of a step in the plan, or of a new one.
    step: Option<String>,
    /// The index of the step in the plan, from 0.
    index: Option<i64>,
    /// The new status: current, done, failed or skipped. Left out: step is added as a new one.
    status: Option<MarkedStatus>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum MarkedStatus {
    Current,
    Done,
    Failed,
    Skipped,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct PlanReply {
    /// The session.
    session_id: String,
    /// The plan as it is now.
    steps: Vec<StepReply>,
    /// The current step: what you do from now on belongs to it.
    current_index: Option<i64>,
}

#[derive(Serialize, JsonSchema)]
struct StepReply {
    /// Its index in the plan, from 0.
    index: i64,
    /// Its number for people: from 1, and 2.1 in a second plan.
    number: String,
    /// What is to be done.
    step: String,
    /// pending, current, done, failed, skipped, left (begun, then left for another step) or replaced.
    status: &'static str,
}

#[tool_router(router = plan_tools, vis = "pub(super)")]
impl Recorder {
    /// Record your plan as ordered steps, before you begin and whenever it changes. What you do afterwards is grouped under
    /// the current step; the first step is current at once. Returns all steps with index and status.
    #[tool(title = "Submit a plan", output_schema = crate::reply::schema::<PlanReply>(), annotations(destructive_hint = false, open_world_hint = false))]
    async fn record_plan(
        &self,
        Parameters(args): Parameters<PlanArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        if args.steps.is_empty()
            || args.steps.len() > STEPS_MAX
            || args.steps.iter().any(|s| s.trim().is_empty())
        {
            return Err(Failure::new(
                "INVALID_PLAN",
                format!("a plan has 1 to {STEPS_MAX} steps, and none of them is empty"),
                "Send the steps as an array of short texts.",
            ));
        }
        for (number, step) in (1..).zip(&args.steps) {
            limits::check(&format!("step {number} of the plan"), Some(step), STEP_CHARS_MAX)?;
        }
        let caller = self.shared.caller(&context);
        let mut write = self.shared.ledger().await?.write(CommitDurability::Power).await?;
        let mut session = session::current(&mut write, &caller, args.session_id.as_deref()).await?;
        plan::set(&mut write, &caller, &mut session, &args.steps).await?;
        // Read in the same transaction, so that the answer is the plan as this call left it.
        let plan = plan_reply(&mut write, &session).await?;
        write.commit().await?;
        self.shared.notify_written();
        let steps = counted(args.steps.len(), "step");
        reply(format!("Plan of {steps} recorded; the first is current."), &plan)
    }

    /// Mark a step of the plan as current, done, failed or skipped, or add one. Without index and step, status applies to
    /// the current step. Returns all steps with index and status.
    #[tool(title = "Add or mark a plan step", output_schema = crate::reply::schema::<PlanReply>(), annotations(destructive_hint = false, open_world_hint = false))]
    async fn record_plan_step(
        &self,
        Parameters(args): Parameters<StepArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let caller = self.shared.caller(&context);
        let mut write = self.shared.ledger().await?.write(CommitDurability::Power).await?;
        let mut session = session::current(&mut write, &caller, args.session_id.as_deref()).await?;
        // Only the latest plan can be worked on; the steps of earlier ones are history.
        let known = latest_plan(plan::steps(&mut write, &session.id).await?);
        let found = known.iter().find(|step| match (args.index, &args.step) {
            (Some(index), _) => step.index == index,
            // Without a status a step is added, even if the plan has one with the same text.
            (None, Some(text)) => args.status.is_some() && step.text == *text,
            (None, None) => args.status.is_some() && Some(step.id) == session.current_step,
        });
        let step = match (found, args.step.as_deref().map(str::trim).filter(|s| !s.is_empty())) {
            (Some(step), _) => step.clone(),
            (None, Some(text)) if args.index.is_none() => {
                limits::check("the step", Some(text), STEP_CHARS_MAX)?;
                plan::append(&mut write, &caller, &mut session, text).await?
            }
            // An unknown index is an error even with a text: to add a step instead would hide the mistake.
            _ => return Err(no_step(&known)),
        };
        let status = match args.status {
            Some(MarkedStatus::Current) => Some(StepStatus::Current),
            Some(MarkedStatus::Done) => Some(StepStatus::Done),
            Some(MarkedStatus::Failed) => Some(StepStatus::Failed),
            Some(MarkedStatus::Skipped) => Some(StepStatus::Skipped),
            // A step that is added while none is current becomes the current one.
            None if session.current_step.is_none() => Some(StepStatus::Current),
            None => None,
        };
        if let Some(status) = status {
            plan::mark(&mut write, &caller, &mut session, &step, status).await?;
        }
        let plan = plan_reply(&mut write, &session).await?;
        write.commit().await?;
        self.shared.notify_written();
        let what = status.map_or("added", StepStatus::name);
        let number = number(step.plan, step.index);
        reply(format!("Step {number} (index {}) is {what}: {}", step.index, step.text), &plan)
    }
}

fn latest_plan(steps: Vec<PlanStep>) -> Vec<PlanStep> {
    let plan = steps.iter().map(|step| step.plan).max().unwrap_or(0);
    steps.into_iter().filter(|step| step.plan == plan).collect()
}

fn no_step(known: &[PlanStep]) -> Failure {
    let steps: Vec<_> = known.iter().map(|s| json!({ "index": s.index, "step": s.text })).collect();
    Failure::new(
        "STEP_NOT_FOUND",
        "the plan has no such step",
        "Give the index of one of `steps`, or the text of a new one in `step`.",
    )
    .with(json!({ "steps": steps }))
}

async fn plan_reply(write: &mut Write, session: &Session) -> Result<PlanReply, Failure> {
    let steps = latest_plan(plan::steps(write, &session.id).await?);
    let current_index = steps.iter().find(|s| Some(s.id) == session.current_step).map(|s| s.index);
    let steps = steps.into_iter().map(|s| StepReply {
        index: s.index,
        number: number(s.plan, s.index),
        step: s.text,
        status: s.status.name(),
    });
    Ok(PlanReply { session_id: session.id.clone(), steps: steps.collect(), current_index })
}
