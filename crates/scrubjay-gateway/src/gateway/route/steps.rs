//! A task of several calls: all are shown to the user, and after their approval made one after the other.
//!
//! The first failure ends the task; the answer says which steps were done.

use std::sync::Arc;

use scrubjay_router::{Catalog, PlannedCall, RouteResult, RouteTask};
use serde_json::{Value, json};

use super::super::Gateway;
use super::outcome::{self, Refusal};
use super::plan_steps::PlanProgress;
use super::{Routing, elicitation};
use crate::session::Call;

impl Gateway {
    /// Asks the user to approve all steps, and makes them.
    pub(super) async fn carry_out_steps(
        self: &Arc<Self>,
        routing: &Routing,
        call: &Arc<Call>,
        catalog: &Catalog,
        task: &RouteTask,
        route: &RouteResult,
        first: PlannedCall,
    ) -> Result<String, Refusal> {
        let steps: Vec<PlannedCall> = std::iter::once(first).chain(route.then.iter().cloned()).collect();
        let destroys = |plan: &PlannedCall| {
            let tool = plan.tool().and_then(|name| catalog.tool(&plan.backend_id, name));
            routing.consent.is_needed(plan, tool.map(|tool| &tool.definition))
        };
        let marked: Vec<(&PlannedCall, bool)> = steps.iter().map(|plan| (plan, destroys(plan))).collect();
        // All steps at once, before the first: in the middle, a refusal would leave half of the task done.
        elicitation::approve(call, &marked)
            .await
            .map_err(|why| Refusal::unapproved(task, route, &steps, why))?;
        tracing::info!(steps = steps.len(), confidence = route.confidence, "task routed");
        let mut progress = PlanProgress::begin(&routing.plan_recorder, call, &steps).await;
        let mut done: Vec<Value> = Vec::new();
        for plan in &steps {
            progress.begin_step().await;
            let chosen = outcome::chosen(routing.router.mode(), plan, route);
            // Recorded before the call is made: a crash in between leaves the choice on tape.
            call.session
                .record_note(&json!({ "event": "task_routed", "step": done.len() + 1, "chosen": chosen }));
            let made = self.call_chosen(call, plan, None, chosen).await;
            let result = match made.and_then(|result| succeeded(plan, &result)) {
                Ok(result) => result,
                Err(refusal) => {
                    progress.fail_step().await;
                    return Err(refusal.after(&done));
                }
            };
            progress.finish_step().await;
            done.push(json!({ "plan": plan, "result": result }));
        }
        Ok(outcome::of_steps(&done).to_string())
    }
}

/// Returns the result of a call, or a refusal if the tool reports an error.
fn succeeded(plan: &PlannedCall, result: &str) -> Result<Value, Refusal> {
    let result: Value = serde_json::from_str(result).unwrap_or_default();
    if result["isError"] == true {
        let message = result["content"][0]["text"].as_str().unwrap_or("it failed");
        let error = json!({ "message": message, "result": result });
        return Err(Refusal::backend(plan, &error, json!(plan)));
    }
    Ok(result)
}
