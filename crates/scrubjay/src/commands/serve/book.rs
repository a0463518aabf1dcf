//! The steps of a routed task in the ledger: plan steps of the session of whoever asked.
//!
//! An agent's own plan stays as it is: steps are put behind it, and what is current there stays current.

use std::sync::Arc;

use scrubjay_gateway::gateway::{PlanBook, Planned, StepMark, Writing};
use scrubjay_store::ledger::Survives;
use scrubjay_store::ledger::plan::{self, STEP_CHARS_MAX, StepStatus};
use scrubjay_store::ledger::session;
use scrubjay_store::views::budget::cut;
use scrubjay_tools::Shared;
use serde_json::Value;

/// The ledger as a book of steps.
pub(super) struct LedgerBook(pub(super) Arc<Shared>);

impl PlanBook for LedgerBook {
    fn plan(&self, caller: Value, steps: Vec<String>) -> Writing<'_, Option<Planned>> {
        Box::pin(async move {
            let written = self.write_plan(&caller, &steps).await;
            let ids =
                written.inspect_err(|e| tracing::warn!(error = %e, "a plan is not in the ledger")).ok()?;
            Some(Planned { caller, steps: ids })
        })
    }

    fn mark<'a>(&'a self, planned: &'a Planned, at: usize, to: StepMark) -> Writing<'a, ()> {
        Box::pin(async move {
            if let Err(e) = self.write_mark(planned, at, to).await {
                tracing::warn!(error = %e, "how far a plan is, is not in the ledger");
            }
        })
    }
}

impl LedgerBook {
    async fn write_plan(&self, caller: &Value, steps: &[String]) -> anyhow::Result<Vec<i64>> {
        let caller = self.0.caller_of_meta(caller);
        let mut write = self.0.ledger().await?.write(Survives::Power).await?;
        let mut session = session::current(&mut write, &caller, None).await?;
        let mut ids = Vec::with_capacity(steps.len());
        for step in steps {
            // The router words them from a task, which may be of any length.
            let step = cut(step, STEP_CHARS_MAX);
            ids.push(plan::append(&mut write, &caller, &mut session, &step).await?.id);
        }
        write.commit().await?;
        self.0.notify_written();
        Ok(ids)
    }

    async fn write_mark(&self, planned: &Planned, at: usize, to: StepMark) -> anyhow::Result<()> {
        let caller = self.0.caller_of_meta(&planned.caller);
        let mut write = self.0.ledger().await?.write(Survives::Power).await?;
        let mut session = session::current(&mut write, &caller, None).await?;
        let steps = plan::steps(&mut write, &session.id).await?;
        // The agent may have begun another session in between.
        let Some(step) = planned.steps.get(at).and_then(|id| steps.iter().find(|step| step.id == *id)) else {
            return Ok(());
        };
        let status = match to {
            // A step of the agent's own goes on while this one is made.
            StepMark::Current if session.current_step.is_some_and(|id| !planned.steps.contains(&id)) => {
                return Ok(());
            }
            StepMark::Current => StepStatus::Current,
            StepMark::Done => StepStatus::Done,
            StepMark::Failed => StepStatus::Failed,
            StepMark::Skipped => StepStatus::Skipped,
        };
        plan::mark(&mut write, &caller, &mut session, step, status).await?;
        if status == StepStatus::Failed && session.current_step == Some(step.id) {
            // The task is over with it: what the agent does next is not part of this step.
            plan::rest(&mut write, &mut session).await?;
        }
        write.commit().await?;
        self.0.notify_written();
        Ok(())
    }
}
