//! The steps of a task, written down where people look for what an agent does: as planned, then as they went.
//!
//! The gateway knows that there is such a book, not what it is: the binary hands it one. A book that fails says
//! so itself; the calls are on tape all the same.

use std::pin::Pin;
use std::sync::Arc;

use scrubjay_router::PlannedCall;
use serde_json::Value;

use super::asking::described;
use crate::backend::caller::caller;
use crate::session::Call;

/// What a book does, done later.
pub type Writing<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How far a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepMark {
    /// Under way.
    Current,
    /// It succeeded.
    Done,
    /// It was made, and failed.
    Failed,
    /// It was not made, because an earlier one failed or the task was called off.
    Skipped,
}

/// Steps that were written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Who asked for them, as toolsets are told it.
    pub caller: Value,
    /// The book's own numbers of them, in order.
    pub steps: Vec<i64>,
}

/// A book of steps.
pub trait PlanBook: Send + Sync {
    /// Writes steps down before the first is made; none where that fails.
    fn plan(&self, caller: Value, steps: Vec<String>) -> Writing<'_, Option<Planned>>;
    /// Says how far one is.
    fn mark<'a>(&'a self, planned: &'a Planned, at: usize, to: StepMark) -> Writing<'a, ()>;
}

/// A plan in a book, from its first step to its end.
pub(super) struct Booked {
    plan: Option<(Arc<dyn PlanBook>, Planned)>,
    /// The first step that is not over.
    at: usize,
}

impl Booked {
    /// Writes a plan down.
    pub(super) async fn begin(book: Option<&Arc<dyn PlanBook>>, call: &Call, steps: &[PlannedCall]) -> Self {
        let Some(book) = book else { return Self { plan: None, at: 0 } };
        let planned = book.plan(caller(call), steps.iter().map(described).collect()).await;
        Self { plan: planned.map(|planned| (book.clone(), planned)), at: 0 }
    }

    /// Says that the next step begins.
    pub(super) async fn begin_step(&self) {
        if let Some((book, planned)) = &self.plan {
            book.mark(planned, self.at, StepMark::Current).await;
        }
    }

    /// Says that it succeeded.
    pub(super) async fn finish_step(&mut self) {
        let at = self.at;
        self.at += 1;
        if let Some((book, planned)) = &self.plan {
            book.mark(planned, at, StepMark::Done).await;
        }
    }

    /// Says that the step under way failed, and that the rest is not made.
    pub(super) async fn fail_step(mut self) {
        if let Some((book, planned)) = self.plan.take() {
            skip_from(&*book, &planned, self.at + 1).await;
            book.mark(&planned, self.at, StepMark::Failed).await;
        }
    }
}

impl Drop for Booked {
    /// A task that is called off half-way leaves no step under way.
    fn drop(&mut self) {
        let at = self.at;
        if let Some((book, planned)) = self.plan.take().filter(|(_, planned)| at < planned.steps.len()) {
            tokio::spawn(async move { skip_from(&*book, &planned, at).await });
        }
    }
}

async fn skip_from(book: &dyn PlanBook, planned: &Planned, first: usize) {
    // The last first: a step that is over moves on to the next that is not.
    for at in (first..planned.steps.len()).rev() {
        book.mark(planned, at, StepMark::Skipped).await;
    }
}
