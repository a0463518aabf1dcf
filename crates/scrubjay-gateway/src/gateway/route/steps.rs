//! A task of several calls: shown whole, approved or not, then made one after the other.
//!
//! It stops at the first thing that did not go as planned, and says what was done before.

use std::sync::Arc;

use scrubjay_router::{Catalog, PlannedCall, RouteResult, RouteTask};
use serde_json::{Value, json};

use super::super::Gateway;
use super::book::Booked;
use super::outcome::{self, Refusal};
use super::{Routing, asking};
use crate::session::Call;

impl Gateway {
    /// Asks for a yes to all steps, and makes them.
    pub(super) async fn carry_out_steps(
        self: &Arc<Self>,
        routing: &Routing,
        call: &Arc<Call>,
        catalog: &Catalog,
        task: &RouteTask,
        routed: &RouteResult,
        first: PlannedCall,
    ) -> Result<String, Refusal> {
        let steps: Vec<PlannedCall> = std::iter::once(first).chain(routed.then.iter().cloned()).collect();
        let destroys = |plan: &PlannedCall| {
            let tool = plan.tool().and_then(|name| catalog.tool(&plan.backend_id, name));
            routing.consent.is_needed(plan, tool.map(|tool| &tool.definition))
        };
        let marked: Vec<(&PlannedCall, bool)> = steps.iter().map(|plan| (plan, destroys(plan))).collect();
        asking::approve(call, &marked).await.map_err(|why| Refusal::unapproved(task, routed, &steps, why))?;
        tracing::info!(steps = steps.len(), confidence = routed.confidence, "task routed");
        let mut booked = Booked::begin(routing.book.as_ref(), call, &steps).await;
        let mut done: Vec<Value> = Vec::new();
        for plan in &steps {
            booked.begin_step().await;
            let chosen = outcome::chosen(routing.router.mode(), plan, routed);
            call.session
                .record_note(&json!({ "event": "task_routed", "step": done.len() + 1, "chosen": chosen }));
            let made = self.call_chosen(call, plan, None, chosen).await;
            let result = match made.and_then(|result| succeeded(plan, &result)) {
                Ok(result) => result,
                Err(refusal) => {
                    booked.fail_step().await;
                    return Err(refusal.after(&done));
                }
            };
            booked.finish_step().await;
            done.push(json!({ "plan": plan, "result": result }));
        }
        Ok(outcome::of_steps(&done).to_string())
    }
}

/// Returns the result of a call that did what it should.
fn succeeded(plan: &PlannedCall, result: &str) -> Result<Value, Refusal> {
    let result: Value = serde_json::from_str(result).unwrap_or_default();
    if result["isError"] == true {
        let said = result["content"][0]["text"].as_str().unwrap_or("it failed");
        let error = json!({ "message": said, "result": result });
        return Err(Refusal::backend(plan, &error, json!(plan)));
    }
    Ok(result)
}
