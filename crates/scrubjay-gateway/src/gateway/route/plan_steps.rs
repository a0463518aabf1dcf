//! The steps of a task that becomes several calls, recorded where people look for what an agent does: all of
//! them before the first call, then how far each one is.
//!
//! The binary hands the gateway a recorder; where it writes is not known here. A recorder that fails logs it itself:
//! the task goes on, because its calls are on tape all the same.

use std::pin::Pin;
use std::sync::Arc;

use scrubjay_router::PlannedCall;
use serde_json::Value;

use super::elicitation::described;
use crate::backend::caller::caller;
use crate::session::Call;

/// How far a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepProgress {
    /// Its call is under way.
    Current,
    /// Its call succeeded.
    Done,
    /// Its call failed.
    Failed,
    /// It was not called, because an earlier step failed or the task was cancelled.
    Skipped,
}

/// Steps that were recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedPlan {
    /// Who asked for them, in the form that toolsets get.
    pub caller: Value,
    /// The recorder's own ids of the steps, in order.
    pub steps: Vec<i64>,
}

type Recording<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type AddSteps = dyn Fn(Value, Vec<String>) -> Recording<Option<RecordedPlan>> + Send + Sync;
type MarkStep = dyn Fn(Arc<RecordedPlan>, usize, StepProgress) -> Recording<()> + Send + Sync;

/// Records the steps of tasks. The future of each function is done when the change is recorded.
#[derive(Clone)]
pub struct PlanRecorder {
    add: Arc<AddSteps>,
    mark: Arc<MarkStep>,
}

impl PlanRecorder {
    /// Makes a recorder of two functions: `add` takes the caller and the texts of a plan's steps, and returns nothing
    /// if it fails; `mark` takes the index of a step.
    pub fn new<Add, Mark>(
        add: impl Fn(Value, Vec<String>) -> Add + Send + Sync + 'static,
        mark: impl Fn(Arc<RecordedPlan>, usize, StepProgress) -> Mark + Send + Sync + 'static,
    ) -> Self
    where
        Add: Future<Output = Option<RecordedPlan>> + Send + 'static,
        Mark: Future<Output = ()> + Send + 'static,
    {
        Self {
            add: Arc::new(move |caller, steps| Box::pin(add(caller, steps))),
            mark: Arc::new(move |plan, step, progress| Box::pin(mark(plan, step, progress))),
        }
    }
}

/// A plan from its first step to its end.
pub(super) struct PlanProgress {
    recorder: PlanRecorder,
    /// Absent if it could not be recorded, and after its end.
    plan: Option<Arc<RecordedPlan>>,
    /// The index of the first step that is not over.
    step: usize,
}

impl PlanProgress {
    /// Records the steps of a plan, before the first is called.
    pub(super) async fn begin(recorder: &PlanRecorder, call: &Call, steps: &[PlannedCall]) -> Self {
        let plan = (recorder.add)(caller(call), steps.iter().map(described).collect()).await;
        Self { recorder: recorder.clone(), plan: plan.map(Arc::new), step: 0 }
    }

    /// Records that the next step begins.
    pub(super) async fn begin_step(&self) {
        if let Some(plan) = &self.plan {
            (self.recorder.mark)(plan.clone(), self.step, StepProgress::Current).await;
        }
    }

    /// Records that the step succeeded.
    pub(super) async fn finish_step(&mut self) {
        let step = self.step;
        // Before the await: if the task is cancelled there, this step is not to be marked as skipped.
        self.step += 1;
        if let Some(plan) = &self.plan {
            (self.recorder.mark)(plan.clone(), step, StepProgress::Done).await;
        }
    }

    /// Records that the step failed and that those after it are not called.
    pub(super) async fn fail_step(mut self) {
        if let Some(plan) = self.plan.take() {
            skip_from(&self.recorder, &plan, self.step + 1).await;
            (self.recorder.mark)(plan, self.step, StepProgress::Failed).await;
        }
    }
}

impl Drop for PlanProgress {
    /// A task that is cancelled leaves no step under way.
    fn drop(&mut self) {
        let (recorder, first) = (self.recorder.clone(), self.step);
        if let Some(plan) = self.plan.take().filter(|plan| first < plan.steps.len()) {
            tokio::spawn(async move { skip_from(&recorder, &plan, first).await });
        }
    }
}

async fn skip_from(recorder: &PlanRecorder, plan: &Arc<RecordedPlan>, first: usize) {
    // The last first: when a step is over, the recorder makes the next open one current.
    for step in (first..plan.steps.len()).rev() {
        (recorder.mark)(plan.clone(), step, StepProgress::Skipped).await;
    }
}
