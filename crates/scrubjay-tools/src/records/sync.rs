//! `sync_session`: what other sessions wrote since this one last synced.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use schemars::JsonSchema;
use scrubjay_store::ledger::CommitDurability;
use scrubjay_store::ledger::records::history::VersionChange;
use scrubjay_store::ledger::records::sync::{self, ForeignChange, SyncResult};
use scrubjay_store::ledger::records::{RecordContent, RecordId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Records;
use crate::reply::{Reply, reply};

#[derive(Deserialize, JsonSchema)]
pub(super) struct SyncArgs {
    /// The session. Left out: this connection's own.
    session_id: Option<String>,
    /// The project. Left out: the default one.
    project_id: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct SyncReply {
    session_id: String,
    /// The project's tick now.
    project_tick: i64,
    /// The tick up to which the session was synced before this call.
    session_tick_before: i64,
    /// How many writes occurred since.
    tick_gap: i64,
    /// What other sessions changed, in order.
    changes: Vec<ChangeView>,
    /// How many of those writes touched records near to this session.
    relevance: RelevanceView,
    /// The status before this call: active, or stale after many writes.
    session_status: &'static str,
    /// Whether there are more changes: call again.
    more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct ChangeView {
    record_id: String,
    /// modified, state_changed or created.
    change_type: &'static str,
    /// The changed fields before.
    #[serde(skip_serializing_if = "Option::is_none")]
    old_value: Option<Value>,
    /// The changed fields after.
    new_value: Value,
    by_session: String,
    at_tick: i64,
    /// The reason, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Counts of writes by other sessions. Each is counted once, in the first group that it belongs to.
#[derive(Serialize, JsonSchema)]
struct RelevanceView {
    /// Writes to records this session has active.
    active: i64,
    /// Writes to their parents.
    parents: i64,
    /// Writes to their children.
    children: i64,
    /// Other writes to records by other sessions.
    elsewhere: i64,
}

#[tool_router(router = sync_tools, vis = "pub(super)")]
impl Records {
    /// List what other sessions changed since this one last synced. Call it when you resume work, or when an answer warns
    /// that your session is stale. Records stay as you activated them: call activate again for one that changed.
    #[tool(title = "Sync the session", output_schema = crate::reply::schema::<SyncReply>(), annotations(destructive_hint = false, open_world_hint = false))]
    async fn sync_session(
        &self,
        Parameters(args): Parameters<SyncArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let (project, session) = (args.project_id.as_deref(), args.session_id.as_deref());
        // `Process`: if the new tick is lost with the power, the same changes are listed once more.
        let (mut write, mut scope) =
            self.write_scope(&context, CommitDurability::Process, project, session).await?;
        let synced = sync::sync(&mut write, &mut scope).await?;
        write.commit().await?;
        let SyncResult { tick, before, seen, ref changes, total, nearness } = synced;
        let gap = tick - before;
        let stale = self.is_stale(tick, before);
        let near = nearness.active + nearness.parents + nearness.children;
        let warning = (total > 0).then(|| {
            format!(
                "{gap} writes occurred since your last sync; {total} by other sessions, {near} of them on \
                 your active records, their parents or children"
            )
        });
        let mut text = warning.clone().unwrap_or_else(|| "Nothing changed since your last sync.".to_owned());
        for change in changes {
            let (id, version) = (change.id, &change.version);
            text += &format!(
                "\n- tick {}: {id} {} by session {}",
                version.tick,
                version.change.name(),
                version.session_id
            );
        }
        let answer = SyncReply {
            session_id: scope.session.id,
            project_tick: tick,
            session_tick_before: before,
            tick_gap: gap,
            changes: changes.iter().map(ChangeView::of).collect(),
            relevance: RelevanceView {
                active: nearness.active,
                parents: nearness.parents,
                children: nearness.children,
                elsewhere: nearness.elsewhere,
            },
            session_status: if stale { "stale" } else { "active" },
            more: seen < tick,
            warning,
        };
        reply(text, &answer)
    }
}

impl ChangeView {
    fn of(change: &ForeignChange) -> Self {
        let ForeignChange { id, version, old } = change;
        let fields = match (version.change, old) {
            (VersionChange::Created, _) | (_, None) => vec!["type", "title", "summary", "body", "state"],
            (_, Some(old)) => old.differences(&version.content),
        };
        Self {
            record_id: id.to_string(),
            change_type: version.change.name(),
            old_value: old.as_ref().map(|old| value(old, &fields)),
            new_value: value(&version.content, &fields),
            by_session: version.session_id.clone(),
            at_tick: version.tick,
            reason: version.reason.clone(),
        }
    }
}

/// Returns the named fields of a record's content.
fn value(content: &RecordContent, fields: &[&'static str]) -> Value {
    let mut value = Map::new();
    for field in fields {
        let one = match *field {
            "type" => json!(content.kind),
            "title" => json!(content.title),
            "summary" => json!(content.summary),
            "body" => json!(content.body),
            "state" => json!(content.state),
            "resolved_by" => json!(content.resolved_by),
            "related" => json!(content.related.iter().map(RecordId::to_string).collect::<Vec<_>>()),
            "metadata" => json!(content.metadata),
            _ => json!(content.citations),
        };
        value.insert((*field).to_owned(), one);
    }
    Value::Object(value)
}
