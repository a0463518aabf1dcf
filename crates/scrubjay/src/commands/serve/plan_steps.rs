//! The steps of a routed task in the ledger: plan steps of the session that asked for the task.
//!
//! An agent's own plan stays as it is: steps are appended to it, and its current step stays current.

use std::sync::Arc;

use scrubjay_core::shorten::shortened;
use scrubjay_gateway::gateway::{PlanRecorder, RecordedPlan, StepProgress};
use scrubjay_store::ledger::CommitDurability;
use scrubjay_store::ledger::plan::{self, STEP_CHARS_MAX, StepStatus};
use scrubjay_store::ledger::session;
use scrubjay_tools::Shared;
use serde_json::Value;

/// Returns a recorder of steps that writes to the ledger.
pub(super) fn recorder(shared: Arc<Shared>) -> PlanRecorder {
    let adding = shared.clone();
    PlanRecorder::new(
        move |caller, steps| {
            let shared = adding.clone();
            async move {
                let added = add(&shared, &caller, &steps).await;
                let ids =
                    added.inspect_err(|e| tracing::warn!(error = %e, "a plan is not in the ledger")).ok()?;
                Some(RecordedPlan { caller, steps: ids })
            }
        },
        move |plan, step, progress| {
            let shared = shared.clone();
            async move {
                if let Err(e) = mark(&shared, &plan, step, progress).await {
                    tracing::warn!(error = %e, "the progress of a plan is not in the ledger");
                }
            }
        },
    )
}

async fn add(shared: &Shared, caller: &Value, steps: &[String]) -> anyhow::Result<Vec<i64>> {
    let caller = shared.caller_of_meta(caller);
    // One transaction, so that the ledger never has only a part of a plan.
    let mut write = shared.ledger().await?.write(CommitDurability::Power).await?;
    let mut session = session::current(&mut write, &caller, None).await?;
    let mut ids = Vec::with_capacity(steps.len());
    for step in steps {
        // The router words them from a task, which may be of any length.
        let step = shortened(step, STEP_CHARS_MAX);
        ids.push(plan::append(&mut write, &caller, &mut session, &step).await?.id);
    }
    write.commit().await?;
    shared.notify_written();
    Ok(ids)
}

async fn mark(
    shared: &Shared,
    recorded: &RecordedPlan,
    step: usize,
    progress: StepProgress,
) -> anyhow::Result<()> {
    let caller = shared.caller_of_meta(&recorded.caller);
    let mut write = shared.ledger().await?.write(CommitDurability::Power).await?;
    let mut session = session::current(&mut write, &caller, None).await?;
    let steps = plan::steps(&mut write, &session.id).await?;
    // The agent may have begun another session in between.
    let Some(step) = recorded.steps.get(step).and_then(|id| steps.iter().find(|step| step.id == *id)) else {
        return Ok(());
    };
    let status = match progress {
        // The agent's own step stays current while the task's is called.
        StepProgress::Current if session.current_step.is_some_and(|id| !recorded.steps.contains(&id)) => {
            return Ok(());
        }
        StepProgress::Current => StepStatus::Current,
        StepProgress::Done => StepStatus::Done,
        StepProgress::Failed => StepStatus::Failed,
        StepProgress::Skipped => StepStatus::Skipped,
    };
    plan::mark(&mut write, &caller, &mut session, step, status).await?;
    if status == StepStatus::Failed && session.current_step == Some(step.id) {
        // The task is over with it: what the agent does next is not part of this step.
        plan::clear_current(&mut write, &mut session).await?;
    }
    write.commit().await?;
    shared.notify_written();
    Ok(())
}
