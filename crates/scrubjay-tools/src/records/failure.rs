//! Turns record errors into failures with a hint for the agent.

use scrubjay_store::ledger::records::{DEPTH_MAX, RecordError};
use serde_json::json;

use super::view::RecordView;
use crate::reply::Failure;

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        let message = error.to_string();
        match error {
            RecordError::NotFound(id) => Self::new(
                "RECORD_NOT_FOUND",
                message,
                "Check the spelling of the id; search_records and list_records find records.",
            )
            .with(json!({ "id": id })),
            RecordError::NotActivated(id) => Self::new(
                "NOT_ACTIVATED",
                message,
                format!("Call activate with id {id} first, and read what it returns."),
            )
            .with(json!({ "id": id })),
            RecordError::ParentNotActivated(id) => Self::new(
                "PARENT_NOT_ACTIVATED",
                message,
                format!("Activate the parent first: activate with id {id}."),
            )
            .with(json!({ "parent_id": id })),
            RecordError::InvalidTransition { id, from, to } => {
                let next: Vec<_> = from.next().iter().map(|state| state.name()).collect();
                Self::new(
                    "INVALID_TRANSITION",
                    message,
                    format!("From {} a record can go to {}.", from.name(), next.join(", ")),
                )
                .with(json!({ "id": id, "from": from, "to": to, "valid": next }))
            }
            RecordError::Incomplete { to, needs } => {
                Self::new("INVALID_TRANSITION", message, format!("Call transition again with {needs}."))
                    .with(json!({ "to": to, "missing": needs }))
            }
            RecordError::Conflict { by, activated, other } => Self::new(
                "CONFLICT",
                message,
                "See what changed: sync_session lists the changes, activate returns the record as it is now. Then \
                 try again with what you have learned.",
            )
            .with(json!({ "by_session": by, "activated_version": activated,
                "other_version": RecordView::of(&other) })),
            RecordError::TooDeep { parent, depth } => Self::new(
                "DEPTH_EXCEEDED",
                message,
                "Consider flattening: create it below an ancestor, or as a root that names this one in related.",
            )
            .with(json!({ "parent_id": parent, "depth": depth, "depth_max": DEPTH_MAX })),
            RecordError::Invalid(_) => {
                Self::new("INVALID_RECORD", message, "Nothing was written. Correct it and call again.")
            }
            RecordError::NoVersion { .. } => Self::new(
                "VERSION_NOT_FOUND",
                message,
                "get_record_history lists the versions; name one as version:N, tick:N, a time, or last_save \
                 after save_session.",
            ),
            RecordError::NoProject(id) => Self::new(
                "PROJECT_NOT_FOUND",
                message,
                "Leave project_id out for the default project, or create it with create_project.",
            )
            .with(json!({ "project_id": id })),
            RecordError::Session(error) => error.into(),
            RecordError::Ledger(error) => error.into(),
        }
    }
}
