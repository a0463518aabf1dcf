//! `get_active_sessions` and `get_recent_activity`.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use schemars::JsonSchema;
use scrubjay_core::units::counted;
use scrubjay_store::ledger::event::{Event, EventKind};
use scrubjay_store::ledger::records::activity::{self, ActivityFilter, KINDS};
use scrubjay_store::ledger::records::{self, RecordId, activation};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::time::{iso, since};
use super::view::limit;
use super::{ReadScope, Records};
use crate::reply::{Failure, Reply, reply};

/// The default number of activities.
const ACTIVITY_SHOWN: i64 = 50;
/// The most activities in an answer.
const ACTIVITY_MAX: i64 = 500;

#[derive(Deserialize, JsonSchema)]
pub(super) struct SessionsArgs {
    /// The record.
    record_id: String,
    /// The project. Left out: the default one.
    project_id: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct ActivityArgs {
    /// The most activities to list. Default: 50, maximum: 500.
    limit: Option<i64>,
    /// Only from this time on, such as 2026-01-31T09:00:00Z.
    since: Option<String>,
    /// Only these types: record_created, record_updated, state_transition, session_started, session_saved,
    /// session_closed, session_branched, activation, conflict_detected, conflict_resolved.
    types: Option<Vec<String>>,
    /// Only activity about this record.
    record_id: Option<String>,
    /// The project. Left out: the default one.
    project_id: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct SessionsReply {
    /// The most recently active first.
    sessions: Vec<HolderView>,
}

#[derive(Serialize, JsonSchema)]
struct HolderView {
    session_id: String,
    last_activity: String,
    /// Whether it is this connection's own.
    is_current: bool,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct ActivityReply {
    /// The newest first.
    activity: Vec<ActivityView>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct ActivityView {
    timestamp: String,
    #[serde(rename = "type")]
    kind: String,
    session_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    record_id: Option<String>,
    summary: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(default)]
    details: Value,
}

impl From<Event> for ActivityView {
    fn from(event: Event) -> Self {
        Self {
            timestamp: iso(event.at_ns),
            kind: event.kind.name(),
            session_id: event.session_id,
            record_id: event.subject,
            summary: event.summary,
            details: event.details,
        }
    }
}

impl ActivityView {
    /// Writes activities as lines under a heading; an empty text if there are none.
    pub(super) fn lines(heading: &str, all: &[Self]) -> String {
        let lines: String =
            all.iter().map(|a| format!("- {} {}: {}\n", a.timestamp, a.kind, a.summary)).collect();
        if lines.is_empty() { lines } else { format!("{heading}{lines}") }
    }
}

#[tool_router(router = activity_tools, vis = "pub(super)")]
impl Records {
    /// List the sessions that have a record active. Call it before you change a record that others may work on.
    #[tool(title = "Sessions on a record", output_schema = crate::reply::schema::<SessionsReply>(), annotations(read_only_hint = true, open_world_hint = false))]
    async fn get_active_sessions(
        &self,
        Parameters(args): Parameters<SessionsArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        // Sessions whose process is gone are ended first: nobody works in them.
        self.shared.end_departed().await?;
        let ReadScope { mut read, caller, collection, .. } =
            self.read_scope(&context, args.project_id.as_deref()).await?;
        let id: RecordId = args.record_id.parse()?;
        records::require(&mut read, &collection, id).await?;
        let own = records::current(&mut read, &caller, &collection.project).await?.map(|session| session.id);
        let holders = activation::active_sessions(&mut read, &collection, id).await?;
        let mut text = format!("Active in {}: {id}.\n", counted(holders.len(), "session"));
        let sessions: Vec<_> = holders
            .into_iter()
            .map(|holder| HolderView {
                is_current: own.as_ref() == Some(&holder.session_id),
                last_activity: iso(holder.last_activity_ns),
                session_id: holder.session_id,
            })
            .collect();
        for session in &sessions {
            let whose = if session.is_current { " (this one)" } else { "" };
            text += &format!("- {}{whose}, last active {}\n", session.session_id, session.last_activity);
        }
        reply(text, &SessionsReply { sessions })
    }

    /// List what happened in a project, the newest first: records created and changed, sessions started and saved,
    /// conflicts.
    #[tool(title = "Recent activity", output_schema = crate::reply::schema::<ActivityReply>(), annotations(read_only_hint = true, open_world_hint = false))]
    async fn get_recent_activity(
        &self,
        Parameters(args): Parameters<ActivityArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let ReadScope { mut read, project, collection, .. } =
            self.read_scope(&context, args.project_id.as_deref()).await?;
        let record = args.record_id.as_deref().map(str::parse::<RecordId>).transpose()?;
        if let Some(id) = record {
            records::require(&mut read, &collection, id).await?;
        }
        let wanted = ActivityFilter {
            kinds: args.types.unwrap_or_default().iter().map(|name| kind(name)).collect::<Result<_, _>>()?,
            since_ns: since(args.since.as_deref())?,
            record,
            limit: limit(args.limit, ACTIVITY_SHOWN, ACTIVITY_MAX),
        };
        let recent = activity::recent(&mut read, &project.id, &wanted).await?;
        let activity: Vec<_> = recent.into_iter().map(ActivityView::from).collect();
        let text = ActivityView::lines("Activity, the newest first\n", &activity);
        reply(if text.is_empty() { "No activity.".to_owned() } else { text }, &ActivityReply { activity })
    }
}

/// Parses the name of a type of activity.
fn kind(name: &str) -> Result<EventKind, Failure> {
    EventKind::from_name(name).filter(|kind| KINDS.contains(kind)).ok_or_else(|| {
        let known: Vec<_> = KINDS.iter().map(|kind| kind.name()).collect();
        Failure::new(
            "INVALID_TYPE",
            format!("\"{name}\" is not a type of activity"),
            format!("The types are {}.", known.join(", ")),
        )
    })
}
