//! Changes the workflow state of a record.

use serde_json::json;

use super::content::{self, VersionChange};
use super::scope::Scope;
use super::{
    Record, RecordError, RecordId, RecordRef, RecordState, activation, collection, create, history, listing,
    row, update,
};
use crate::ledger::Write;
use crate::ledger::event::{EventKind, NewEvent};

/// A requested change of state.
#[derive(Clone, Debug)]
pub struct Transition {
    /// The new state.
    pub to: RecordState,
    /// The reason.
    pub reason: Option<String>,
    /// The record that answered this one.
    pub resolved_by: Option<RecordId>,
}

/// The result of a change of state.
#[derive(Clone, Debug)]
pub struct TransitionResult {
    /// The record as it is now.
    pub record: Record,
    /// The first of its children that are still open, unless the record itself is open now.
    pub open_children: Vec<RecordRef>,
}

/// The most open children that are listed.
const CHILDREN_SHOWN_MAX: i64 = 50;

/// Changes a record's state.
///
/// If another session changed the record since the activation, that is an error and recorded as an event: the caller
/// must commit after [`RecordError::Conflict`], too.
///
/// # Errors
/// The record does not exist or is not activated, or the change is not allowed or lacks an argument.
pub async fn transition(
    write: &mut Write,
    scope: &mut Scope,
    id: RecordId,
    transition: Transition,
) -> Result<TransitionResult, RecordError> {
    let current = row::full(write, &scope.collection, id, None).await?;
    let seen = activation::seen_version(write, &scope.session.id, id).await?;
    let seen = seen.ok_or(RecordError::NotActivated(id))?;
    // Checked before the states are: the session decided on a version that is not the current one.
    if seen.version != current.version {
        let by = history::author(write, &scope.collection, id, current.version).await?;
        update::record_conflict(write, scope, &current, seen, &by).await?;
        return Err(RecordError::Conflict { by, activated: seen.version, other: Box::new(current) });
    }
    let (from, to) = (current.content.state, transition.to);
    if !from.next().contains(&to) {
        return Err(RecordError::InvalidTransition { id, from, to });
    }
    let reason = transition.reason.as_deref().map(|reason| write.clean(reason.trim()));
    let reason = reason.as_deref().filter(|reason| !reason.is_empty());
    check(write, scope, &transition, reason).await?;

    // A change of state is a version like any other, so that the history and a sync show it.
    let mut content = current.content.clone();
    content.state = to;
    // A reopened record has no answer any more; the version before still names it.
    content.resolved_by = transition.resolved_by.filter(|_| to == RecordState::Resolved);
    let record =
        content::add_version(write, scope, &current, VersionChange::StateChanged, reason, &content).await?;
    scope.collection.totals.count_transition(from, to);
    collection::update(write, &scope.collection).await?;
    // The parent counts its open children.
    let opened = i64::from(to == RecordState::Open) - i64::from(from == RecordState::Open);
    if let Some(parent) = current.now.parent.filter(|_| opened != 0) {
        create::count_child(write, scope, parent, 0, opened).await?;
    }
    let details = json!({ "tick": record.now.tick, "version": record.version, "from": from, "to": to, "reason": reason,
        "resolved_by": content.resolved_by });
    let summary = format!("{id}: {} → {}", from.name(), to.name());
    let event = NewEvent::new(EventKind::StateTransition, summary).about(id.to_string()).with(details);
    scope.append(write, event).await?;
    let open_children = match to {
        RecordState::Open => Vec::new(),
        _ => {
            listing::children(write, &scope.collection, id, Some(RecordState::Open), CHILDREN_SHOWN_MAX)
                .await?
        }
    };
    Ok(TransitionResult { record, open_children })
}

async fn check(
    write: &mut Write,
    scope: &Scope,
    transition: &Transition,
    reason: Option<&str>,
) -> Result<(), RecordError> {
    let to = transition.to;
    match to {
        RecordState::Later | RecordState::Discarded if reason.is_none() => {
            Err(RecordError::Incomplete { to, needs: "a reason" })
        }
        RecordState::Resolved => {
            let by = transition.resolved_by;
            let by =
                by.ok_or(RecordError::Incomplete { to, needs: "resolved_by, the record that resolved it" })?;
            row::require(write, &scope.collection, by).await.map(drop)
        }
        _ => Ok(()),
    }?;
    match reason {
        Some(reason) if reason.chars().count() > content::SUMMARY_CHARS_MAX || reason.contains('\0') => {
            let max = content::SUMMARY_CHARS_MAX;
            Err(RecordError::Invalid(format!("reason has at most {max} characters, and no NUL")))
        }
        _ => Ok(()),
    }
}
