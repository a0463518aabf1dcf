//! `transition`: changes the workflow state of a record.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use schemars::JsonSchema;
use scrubjay_core::units::counted;
use scrubjay_store::ledger::CommitDurability;
use scrubjay_store::ledger::records::{self, RecordError, Transition};
use serde::{Deserialize, Serialize};

use super::Records;
use super::view::{RecordView, RefView, WorkflowState, refs, section};
use crate::reply::{Reply, reply};

#[derive(Deserialize, JsonSchema)]
pub(super) struct TransitionArgs {
    /// The record, which must be activated.
    id: String,
    /// OPEN goes to LATER, RESOLVED or DISCARDED; LATER to OPEN or DISCARDED; RESOLVED and DISCARDED to OPEN.
    to_state: WorkflowState,
    /// The reason. Required for LATER and DISCARDED.
    reason: Option<String>,
    /// The id of the record that resolved it. Required for RESOLVED.
    resolved_by: Option<String>,
    /// The session. Left out: this connection's own.
    session_id: Option<String>,
    /// The project. Left out: the default one.
    project_id: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct TransitionReply {
    record: RecordView,
    /// Children that are still open; they stay open.
    #[serde(skip_serializing_if = "Option::is_none")]
    cascade_warning: Option<CascadeView>,
    session_id: String,
}

#[derive(Serialize, JsonSchema)]
struct CascadeView {
    /// At most 50 of them.
    open_children: Vec<RefView>,
    message: String,
}

#[tool_router(router = transition_tools, vis = "pub(super)")]
impl Records {
    /// Change the state of an activated record: defer it (LATER), resolve it, discard it or reopen it. Its children keep
    /// their states; the answer lists those that are still open.
    #[tool(title = "Change a record's state", output_schema = crate::reply::schema::<TransitionReply>(), annotations(destructive_hint = false, open_world_hint = false))]
    async fn transition(
        &self,
        Parameters(args): Parameters<TransitionArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let wanted = Transition {
            to: args.to_state.into(),
            reason: args.reason,
            resolved_by: args.resolved_by.as_deref().map(str::parse).transpose()?,
        };
        let (project, session) = (args.project_id.as_deref(), args.session_id.as_deref());
        let (mut write, mut scope) =
            self.write_scope(&context, CommitDurability::Power, project, session).await?;
        let moved = match records::transition(&mut write, &mut scope, args.id.parse()?, wanted).await {
            Ok(moved) => moved,
            Err(conflict @ RecordError::Conflict { .. }) => {
                // A conflict writes an event and nothing else; without a commit it would not be in the activity.
                write.commit().await?;
                return Err(conflict.into());
            }
            Err(error) => return Err(error.into()),
        };
        // The children are read before the commit, so that their states are those of this transition.
        let open = moved.record.now.open_children;
        let open_children = refs(&mut write, &scope.collection, &moved.open_children).await?;
        write.commit().await?;
        let record = RecordView::of(&moved.record);
        let mut text = format!("{} is {}: {}", record.id, record.state, record.title);
        let cascade_warning = (!open_children.is_empty()).then(|| {
            let message = format!("{} of {} still OPEN; not changed", counted(open, "child"), record.id);
            text += &format!("\n{message}{}", section("Open children", &open_children, open));
            CascadeView { open_children, message }
        });
        reply(text, &TransitionReply { record, cascade_warning, session_id: scope.session.id })
    }
}
