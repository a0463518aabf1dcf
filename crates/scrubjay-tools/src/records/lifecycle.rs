//! `save_session` and `close_session`.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use schemars::JsonSchema;
use scrubjay_core::units::counted;
use scrubjay_store::ledger::CommitDurability;
use scrubjay_store::ledger::records::saving;
use serde::{Deserialize, Serialize};

use super::Records;
use super::time::iso;
use super::view::ids;
use crate::reply::{Failure, Reply, reply};

const SUMMARY_CHARS_MAX: usize = 5_000;

#[derive(Deserialize, JsonSchema)]
pub(super) struct SessionArgs {
    /// What was done, for the activity log.
    summary: Option<String>,
    /// The session. Left out: this connection's own.
    session_id: Option<String>,
    /// The project. Left out: the default one.
    project_id: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct SaveReply {
    success: bool,
    /// The records this session changed since its last save, at most 1000.
    saved_records: Vec<String>,
    saved_count: i64,
    /// When it was saved.
    last_save: String,
    session_id: String,
    /// The project's tick.
    tick: i64,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct CloseReply {
    success: bool,
    /// The records that were active, at most 1000.
    deactivated_records: Vec<String>,
    deactivated_count: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    unsaved_warning: Option<String>,
    session_id: String,
}

fn checked_summary(summary: Option<String>) -> Result<Option<String>, Failure> {
    let summary = summary.map(|s| s.trim().to_owned()).filter(|s| !s.is_empty());
    // NUL, because PostgreSQL cannot store it.
    match &summary {
        Some(text) if text.chars().count() > SUMMARY_CHARS_MAX || text.contains('\0') => Err(Failure::new(
            "TOO_LONG",
            format!("summary must have at most {SUMMARY_CHARS_MAX} characters, and no NUL"),
            "Shorten it, or write the long part into a record.",
        )),
        _ => Ok(summary),
    }
}

#[tool_router(router = lifecycle_tools, vis = "pub(super)")]
impl Records {
    /// Mark a milestone, with a summary for the activity log. Changes are stored without it; it is the point that
    /// get_record_diff calls last_save. Returns the records changed since the last one.
    #[tool(title = "Save the session", output_schema = crate::reply::schema::<SaveReply>(), annotations(destructive_hint = false, open_world_hint = false))]
    async fn save_session(
        &self,
        Parameters(args): Parameters<SessionArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let summary = checked_summary(args.summary)?;
        let (project, session) = (args.project_id.as_deref(), args.session_id.as_deref());
        let (mut write, mut scope) =
            self.write_scope(&context, CommitDurability::Power, project, session).await?;
        let saved = saving::save(&mut write, &mut scope, summary.as_deref()).await?;
        write.commit().await?;
        let answer = SaveReply {
            success: true,
            saved_records: ids(&saved.records),
            saved_count: saved.count,
            last_save: iso(saved.at_ns),
            session_id: scope.session.id,
            tick: saved.tick,
        };
        reply(format!("Saved. Changed since the last save: {}.", list_ids(&answer.saved_records)), &answer)
    }

    /// End the session and deactivate its records. Call it at the end of your work. Your next call begins another session.
    #[tool(title = "Close the session", output_schema = crate::reply::schema::<CloseReply>(), annotations(destructive_hint = false, open_world_hint = false))]
    async fn close_session(
        &self,
        Parameters(args): Parameters<SessionArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let summary = checked_summary(args.summary)?;
        let (project, session) = (args.project_id.as_deref(), args.session_id.as_deref());
        let (mut write, scope) =
            self.write_scope(&context, CommitDurability::Power, project, session).await?;
        let closed = saving::close(&mut write, scope, summary.as_deref()).await?;
        write.commit().await?;
        let unsaved_warning = (closed.unsaved_count > 0).then(|| {
            format!(
                "{} changed since the last save: {}. All changes are stored.",
                counted(closed.unsaved_count, "record"),
                list_ids(&ids(&closed.unsaved))
            )
        });
        let text = format!(
            "Session {} is closed; {} no longer active. {}",
            closed.session.id,
            counted(closed.count, "record"),
            unsaved_warning.as_deref().unwrap_or_default()
        );
        let answer = CloseReply {
            success: true,
            deactivated_records: ids(&closed.deactivated),
            deactivated_count: closed.count,
            unsaved_warning,
            session_id: closed.session.id,
        };
        reply(text.trim_end(), &answer)
    }
}

/// Lists the first few ids.
fn list_ids(ids: &[String]) -> String {
    const SHOWN: usize = 20;
    match ids.len() {
        0 => "nothing".to_owned(),
        n if n > SHOWN => format!("{} and {} more", ids[..SHOWN].join(", "), n - SHOWN),
        _ => ids.join(", "),
    }
}
