//! Names and counts the steps of plans, for all views.

use std::collections::BTreeMap;
use std::fmt;

use scrubjay_core::shorten::shortened;
use scrubjay_core::units::counted;
use serde::Serialize;

use crate::ledger::plan::{self, PlanStep, StepStatus};
use crate::ledger::{LedgerConnection, LedgerError};

/// A step's text is cut to this number of characters.
const TEXT_CHARS_MAX: usize = 200;

/// What is shown of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepView {
    /// Its number for people: `1`, `2` and so on; in a session's second plan `2.1`, `2.2` and so on.
    pub number: String,
    /// Its index in its plan, from 0, which is what tools take.
    pub index: i64,
    /// The number of its plan in the session, from 1.
    pub plan: i64,
    /// What is to be done.
    pub text: String,
}

impl StepView {
    /// Shows a step.
    #[must_use]
    pub fn new(step: &PlanStep) -> Self {
        shown(step.plan, step.index, &step.text)
    }
}

/// Shows a step, given its plan and index.
pub(super) fn shown(plan: i64, index: i64, text: &str) -> StepView {
    let text = shortened(text, TEXT_CHARS_MAX).into_owned();
    StepView { number: number(plan, index), index, plan, text }
}

impl fmt::Display for StepView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.text)
    }
}

/// Returns the number of a step for people.
#[must_use]
pub fn number(plan: i64, index: i64) -> String {
    match plan {
        ..=1 => (index + 1).to_string(),
        _ => format!("{plan}.{}", index + 1),
    }
}

/// How many steps a session's plans have. Steps that a new plan replaced do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepTotals {
    /// All but the replaced ones.
    pub total: i64,
    /// The number of steps of each status, including replaced ones.
    #[serde(flatten)]
    pub by_status: BTreeMap<&'static str, i64>,
}

impl StepTotals {
    /// Counts steps by status.
    #[must_use]
    pub fn of(steps: &[PlanStep]) -> Self {
        let mut totals = Self::default();
        for step in steps {
            totals.total += i64::from(step.status != StepStatus::Replaced);
            *totals.by_status.entry(step.status.name()).or_default() += 1;
        }
        totals
    }

    /// Counts the steps of a session.
    ///
    /// # Errors
    /// The ledger failed.
    pub async fn read(on: &mut impl LedgerConnection, session: &str) -> Result<Self, LedgerError> {
        Ok(Self::of(&plan::steps(on, session).await?))
    }
}

impl fmt::Display for StepTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", counted(self.total, "step"))?;
        let parts: Vec<String> =
            self.by_status.iter().map(|(status, count)| format!("{count} {status}")).collect();
        if parts.is_empty() { Ok(()) } else { write!(f, " ({})", parts.join(", ")) }
    }
}
