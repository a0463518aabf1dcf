//! `record_file_create`, `record_file_edit`, `record_file_delete`: for hosts that write files themselves.
//!
//! These tools do not touch files. The evolution marks such revisions as reported.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use schemars::JsonSchema;
use scrubjay_store::files::{ChangeReport, ReportedAction};
use serde::Deserialize;

use super::Recorder;
use super::file_op::FileReply;
use crate::reply::{Reply, reply};

#[derive(Deserialize, JsonSchema)]
pub(super) struct CreatedArgs {
    /// The session. Left out: this connection's own.
    session_id: Option<String>,
    /// The file: relative to the workspace, or absolute within it.
    path: String,
    /// The new content. Left out: it is read from the file.
    content: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct EditedArgs {
    /// The session. Left out: this connection's own.
    session_id: Option<String>,
    /// The file: relative to the workspace, or absolute within it.
    path: String,
    /// The old content. Left out: the content that was last recorded.
    old_content: Option<String>,
    /// The new content. Left out: it is read from the file.
    new_content: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct DeletedArgs {
    /// The session. Left out: this connection's own.
    session_id: Option<String>,
    /// The file: relative to the workspace, or absolute within it.
    path: String,
}

#[tool_router(router = reported_tools, vis = "pub(super)")]
impl Recorder {
    /// Record that you created a file with another tool. The file itself is not touched. Prefer file_op, which does both.
    #[tool(title = "Record a created file", output_schema = crate::reply::schema::<FileReply>(), annotations(destructive_hint = false, open_world_hint = false))]
    async fn record_file_create(
        &self,
        Parameters(args): Parameters<CreatedArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let action = ReportedAction::Create(args.content);
        self.report(ChangeReport { session: args.session_id, path: args.path, action }, "create", &context)
            .await
    }

    /// Record that you changed a file with another tool. The file itself is not touched. Prefer file_op, which does both.
    #[tool(title = "Record a changed file", output_schema = crate::reply::schema::<FileReply>(), annotations(destructive_hint = false, open_world_hint = false))]
    async fn record_file_edit(
        &self,
        Parameters(args): Parameters<EditedArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let action = ReportedAction::Edit(args.old_content, args.new_content);
        self.report(ChangeReport { session: args.session_id, path: args.path, action }, "edit", &context)
            .await
    }

    /// Record that you deleted a file with another tool. The file itself is not touched. Prefer file_op, which does both.
    #[tool(title = "Record a deleted file", output_schema = crate::reply::schema::<FileReply>(), annotations(destructive_hint = false, open_world_hint = false))]
    async fn record_file_delete(
        &self,
        Parameters(args): Parameters<DeletedArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let report =
            ChangeReport { session: args.session_id, path: args.path, action: ReportedAction::Delete };
        self.report(report, "delete", &context).await
    }

    async fn report(
        &self,
        report: ChangeReport,
        action: &str,
        context: &RequestContext<RoleServer>,
    ) -> Reply {
        let caller = self.shared.caller(context);
        let recorded = self.shared.files().await?.report(&caller, report).await?;
        self.shared.notify_written();
        let text = format!("Recorded {action} of {} as event {}.", recorded.path, recorded.event_id);
        reply(text, &FileReply::new(&recorded, action))
    }
}
