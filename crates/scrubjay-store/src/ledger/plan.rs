//! Plans: the steps that an agent intends to take, and which one it is at.
//!
//! A new plan replaces the pending steps of the old one. Steps are never removed. A step is done or failed only if the
//! agent says so: one that it leaves for another step or another plan is `left`.

use serde::Serialize;
use serde_json::json;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::event::{self, EventKind, NewEvent};
use super::names::{name_of, value_of};
use super::session::{Caller, Session};
use super::statement::{Key, change, select};
use super::{LedgerConnection, LedgerError, Write};

/// The most characters of a step: a longer text describes the work itself, and views list steps in lines.
pub const STEP_CHARS_MAX: usize = 500;

/// The status of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    /// Not begun.
    Pending,
    /// Under way.
    Current,
    /// Finished.
    Done,
    /// Tried, without success.
    Failed,
    /// Not done, on purpose.
    Skipped,
    /// Begun, then left for another step without being reported as done.
    Left,
    /// Another plan took its place.
    Replaced,
}

const STATUSES: [(StepStatus, &str); 7] = [
    (StepStatus::Pending, "pending"),
    (StepStatus::Current, "current"),
    (StepStatus::Done, "done"),
    (StepStatus::Failed, "failed"),
    (StepStatus::Skipped, "skipped"),
    (StepStatus::Left, "left"),
    (StepStatus::Replaced, "replaced"),
];

impl StepStatus {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        name_of(&STATUSES, &self)
    }

    /// Returns the status with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        value_of(&STATUSES, name)
    }
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanStep {
    /// Its number.
    pub id: i64,
    /// The number of its plan in the session, from 1.
    pub plan: i64,
    /// Its position in the plan, from 0.
    pub index: i64,
    /// What is to be done.
    pub text: String,
    /// How far it is.
    pub status: StepStatus,
}

impl PlanStep {
    fn of(row: &AnyRow) -> Result<Self, LedgerError> {
        let status: String = row.try_get(4)?;
        Ok(Self {
            id: row.try_get(0)?,
            plan: row.try_get(1)?,
            index: row.try_get(2)?,
            text: row.try_get(3)?,
            status: StepStatus::from_name(&status)
                .ok_or_else(|| LedgerError::Damaged(format!("unknown step status \"{status}\"")))?,
        })
    }
}

/// Returns all steps of a session, of all its plans, in order.
///
/// # Errors
/// The ledger failed.
pub async fn steps(on: &mut impl LedgerConnection, session: &str) -> Result<Vec<PlanStep>, LedgerError> {
    let rows = select(
        "SELECT id, plan, position, text, status FROM plan_steps WHERE session_id = $1 ORDER BY plan, position",
    )
    .bind(session)
    .fetch_all(on.conn())
    .await?;
    rows.iter().map(PlanStep::of).collect()
}

/// Sets a new plan: replaces the pending steps of the old one, and begins the first step.
///
/// # Errors
/// The ledger failed.
pub async fn set(
    write: &mut Write,
    caller: &Caller,
    session: &mut Session,
    texts: &[String],
) -> Result<Vec<PlanStep>, LedgerError> {
    let old = steps(write, &session.id).await?;
    let plan = old.iter().map(|step| step.plan).max().unwrap_or(0) + 1;
    for step in &old {
        let replaced = match step.status {
            StepStatus::Pending => StepStatus::Replaced,
            // Only the agent can say that it is done.
            StepStatus::Current => StepStatus::Left,
            _ => continue,
        };
        set_status(write, step.id, replaced).await?;
    }
    session.current_step = None;
    let mut added = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        added.push(add(write, caller, session, plan, index as i64, text).await?);
    }
    if let Some(first) = added.first_mut() {
        first.status = StepStatus::Current;
        set_status(write, first.id, StepStatus::Current).await?;
        move_to(write, session, Some(first.id)).await?;
    }
    Ok(added)
}

/// Appends one step to the current plan.
///
/// # Errors
/// The ledger failed.
pub async fn append(
    write: &mut Write,
    caller: &Caller,
    session: &mut Session,
    text: &str,
) -> Result<PlanStep, LedgerError> {
    let old = steps(write, &session.id).await?;
    let plan = old.iter().map(|step| step.plan).max().unwrap_or(1);
    let index = old.iter().filter(|step| step.plan == plan).map(|step| step.index + 1).max().unwrap_or(0);
    add(write, caller, session, plan, index, text).await
}

async fn add(
    write: &mut Write,
    caller: &Caller,
    session: &Session,
    plan: i64,
    index: i64,
    text: &str,
) -> Result<PlanStep, LedgerError> {
    let row = change(
        "INSERT INTO plan_steps (session_id, plan, position, text, status) VALUES ($1, $2, $3, $4, 'pending')
         RETURNING id",
    )
    .bind(Key::known(&session.id))
    .bind(plan)
    .bind(index)
    .bind(write.clean(text))
    .fetch_one(write)
    .await?;
    let step =
        PlanStep { id: row.try_get(0)?, plan, index, text: text.to_owned(), status: StepStatus::Pending };
    // An event belongs to the session's current step, and this one is about the new step.
    let at_step = Session { current_step: Some(step.id), ..session.clone() };
    let details = json!({ "step": text, "index": index, "plan": plan });
    let event = NewEvent::new(EventKind::PlanStep, text).with(details);
    event::append(write, &at_step, caller, event).await?;
    Ok(step)
}

/// Sets the status of a step. The session is then at this step, or at the next one if this one is over.
///
/// # Errors
/// The ledger failed.
pub async fn mark(
    write: &mut Write,
    caller: &Caller,
    session: &mut Session,
    step: &PlanStep,
    status: StepStatus,
) -> Result<(), LedgerError> {
    if status == StepStatus::Current {
        // Only one step is current. The other one is left, because only the agent can say that it is done.
        for other in steps(write, &session.id).await? {
            if other.status == StepStatus::Current && other.id != step.id {
                set_status(write, other.id, StepStatus::Left).await?;
            }
        }
    }
    set_status(write, step.id, status).await?;
    let at_step = Session { current_step: Some(step.id), ..session.clone() };
    let event = NewEvent::new(EventKind::PlanStepStatus, format!("{}: {}", status.name(), step.text))
        .with(json!({ "step": step.text, "index": step.index, "plan": step.plan, "status": status.name() }));
    event::append(write, &at_step, caller, event).await?;
    let next = match status {
        StepStatus::Current => Some(step.id),
        // After a failure the agent may try again, so the next step does not begin by itself.
        StepStatus::Failed => session.current_step,
        // Only the end of the current step moves the session on: an agent may also report another step, out of order.
        _ if session.current_step == Some(step.id) => begin_next(write, &session.id, step).await?,
        _ => session.current_step,
    };
    move_to(write, session, next).await
}

/// Clears the session's current step.
///
/// # Errors
/// The ledger failed.
pub async fn clear_current(write: &mut Write, session: &mut Session) -> Result<(), LedgerError> {
    move_to(write, session, None).await
}

async fn begin_next(write: &mut Write, session: &str, after: &PlanStep) -> Result<Option<i64>, LedgerError> {
    let all = steps(write, session).await?;
    let next =
        all.iter().find(|s| s.plan == after.plan && s.status == StepStatus::Pending && s.index > after.index);
    if let Some(next) = next {
        set_status(write, next.id, StepStatus::Current).await?;
    }
    Ok(next.map(|step| step.id))
}

async fn set_status(write: &mut Write, step: i64, status: StepStatus) -> Result<(), LedgerError> {
    change("UPDATE plan_steps SET status = $2 WHERE id = $1")
        .bind(step)
        .bind(status.name())
        .execute(write)
        .await?;
    Ok(())
}

async fn move_to(write: &mut Write, session: &mut Session, step: Option<i64>) -> Result<(), LedgerError> {
    session.current_step = step;
    super::session::update(write, session).await
}
