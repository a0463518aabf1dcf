//! `audit_event`: decisions, milestones, notes.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use schemars::JsonSchema;
use scrubjay_store::ledger::CommitDurability;
use scrubjay_store::ledger::event::{self, EventKind, NewEvent};
use scrubjay_store::ledger::session;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Recorder;
use crate::reply::{Failure, Reply, reply};

/// The longest label: it heads an event on the timeline.
const LABEL_CHARS_MAX: usize = 100;
/// The longest description. Longer texts belong in a file, where they have revisions.
const DESCRIPTION_CHARS_MAX: usize = 100_000;

#[derive(Deserialize, JsonSchema)]
pub(super) struct AuditArgs {
    /// The session. Left out: this connection's own.
    session_id: Option<String>,
    /// A short label: decision, milestone, note, or your own.
    #[serde(rename = "type")]
    label: String,
    /// What happened, for people to read.
    description: String,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct AuditReply {
    /// The session.
    session_id: String,
    /// The event's number on the timeline.
    event_id: i64,
}

#[tool_router(router = audit_tools, vis = "pub(super)")]
impl Recorder {
    /// Record a decision, a milestone or a note on the session's timeline. File changes are recorded by file_op.
    #[tool(title = "Record an event", output_schema = crate::reply::schema::<AuditReply>(), annotations(destructive_hint = false, open_world_hint = false))]
    async fn audit_event(
        &self,
        Parameters(args): Parameters<AuditArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let (label, description) = (args.label.trim(), args.description.trim());
        if label.is_empty() || description.is_empty() {
            return Err(Failure::new(
                "INVALID_EVENT",
                "type and description must not be empty",
                "Give both.",
            ));
        }
        if label.chars().count() > LABEL_CHARS_MAX || description.chars().count() > DESCRIPTION_CHARS_MAX {
            return Err(Failure::new(
                "TOO_LONG",
                format!("type has at most {LABEL_CHARS_MAX} characters, description {DESCRIPTION_CHARS_MAX}"),
                "Shorten it, or write the long part to a file with file_op.",
            ));
        }
        let caller = self.shared.caller(&context);
        let mut write = self.shared.ledger().await?.write(CommitDurability::Power).await?;
        let session = session::current(&mut write, &caller, args.session_id.as_deref()).await?;
        let details = json!({ "title": label, "content": description });
        let event = NewEvent::new(EventKind::Deliverable, format!("{label}: {description}")).with(details);
        let event_id = event::append(&mut write, &session, &caller, event).await?;
        write.commit().await?;
        self.shared.notify_written();
        reply(
            format!("Recorded {label} as event {event_id}."),
            &AuditReply { session_id: session.id, event_id },
        )
    }
}
