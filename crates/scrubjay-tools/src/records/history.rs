//! `get_record_history` and `get_record_diff`.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use schemars::JsonSchema;
use scrubjay_store::ledger::records::diff::{self, VersionPoint};
use scrubjay_store::ledger::records::history::{self, Version, VersionChange};
use scrubjay_store::ledger::records::{self, RecordId};
use serde::{Deserialize, Serialize};

use super::time::{iso, parse, since};
use super::view::{RecordView, ids, limit};
use super::{ReadScope, Records};
use crate::reply::{Failure, Reply, reply};

/// The default number of versions on a page.
const VERSIONS_SHOWN: i64 = 50;
/// The most versions on a page: each comes with the diff of its body.
const VERSIONS_MAX: i64 = 200;

#[derive(Deserialize, JsonSchema)]
pub(super) struct HistoryArgs {
    /// The record.
    id: String,
    /// Only from this time on, such as 2026-01-31T09:00:00Z.
    since: Option<String>,
    /// The most versions to list, the newest first. Default: 50, maximum: 200.
    limit: Option<i64>,
    /// Only versions before this one, for the next page.
    before_version: Option<i64>,
    /// The project. Left out: the default one.
    project_id: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct DiffArgs {
    /// The record.
    id: String,
    /// An ISO time, "version:N", "tick:N", or "last_save".
    from: String,
    /// Like from. Default: "current".
    to: Option<String>,
    /// The session for last_save. Left out: this connection's own.
    session_id: Option<String>,
    /// The project. Left out: the default one.
    project_id: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct HistoryReply {
    /// The newest first.
    history: Vec<VersionView>,
}

#[derive(Serialize, JsonSchema)]
struct VersionView {
    version: i64,
    tick: i64,
    timestamp: String,
    session_id: String,
    /// created, modified or state_changed.
    change_type: &'static str,
    summary: String,
    /// How the body changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct DiffReply {
    from_version: RecordView,
    to_version: RecordView,
    diff: FieldsView,
}

#[derive(Serialize, JsonSchema)]
struct FieldsView {
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<Pair<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<Pair<String>>,
    /// In unified diff format.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<Pair<&'static str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_by: Option<Pair<Option<String>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    related: Option<Pair<Vec<String>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Pair<serde_json::Map<String, serde_json::Value>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    citations: Option<Pair<Vec<String>>>,
}

#[derive(Serialize, JsonSchema)]
struct Pair<T> {
    old: T,
    new: T,
}

impl<T: PartialEq> Pair<T> {
    fn of(old: T, new: T) -> Option<Self> {
        (old != new).then_some(Self { old, new })
    }
}

#[tool_router(router = history_tools, vis = "pub(super)")]
impl Records {
    /// List the versions of a record, the newest first: when, by which session and why, with diffs of the body.
    #[tool(title = "Record history", output_schema = crate::reply::schema::<HistoryReply>(), annotations(read_only_hint = true, open_world_hint = false))]
    async fn get_record_history(
        &self,
        Parameters(args): Parameters<HistoryArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let ReadScope { mut read, collection, .. } =
            self.read_scope(&context, args.project_id.as_deref()).await?;
        let id: RecordId = args.id.parse()?;
        let since_ns = since(args.since.as_deref())?;
        let limit = limit(args.limit, VERSIONS_SHOWN, VERSIONS_MAX);
        let before = args.before_version.unwrap_or(i64::MAX);
        let versions = history::versions(&mut read, &collection, id, since_ns, before, limit).await?;
        // The oldest version that is shown is compared with its predecessor, which is not.
        let older = match versions.last() {
            Some(last) if last.version > 1 => {
                history::versions(&mut read, &collection, id, 0, last.version, 1).await?
            }
            _ => vec![],
        };
        let shown = versions.iter().zip(versions.iter().skip(1).chain(&older).map(Some).chain([None]));
        let history: Vec<_> = shown.map(|(new, old)| VersionView::of(id, new, old)).collect();
        let mut text = format!("{} versions of {id}\n", history.len());
        for view in &history {
            text += &format!(
                "- version {} at {} by session {}: {}\n",
                view.version, view.timestamp, view.session_id, view.summary
            );
            text += view.diff.as_deref().unwrap_or_default();
        }
        reply(text, &HistoryReply { history })
    }

    /// Compare two versions of a record field by field, for instance the last save with now. Returns both versions and the
    /// fields that differ.
    #[tool(title = "Compare versions", output_schema = crate::reply::schema::<DiffReply>(), annotations(read_only_hint = true, open_world_hint = false))]
    async fn get_record_diff(
        &self,
        Parameters(args): Parameters<DiffArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let ReadScope { mut read, caller, collection, .. } =
            self.read_scope(&context, args.project_id.as_deref()).await?;
        let id: RecordId = args.id.parse()?;
        // Only `last_save` needs a session, so having none is no error yet.
        let own = match args.session_id {
            Some(session) => Some(session),
            None => {
                records::current(&mut read, &caller, &collection.project).await?.map(|session| session.id)
            }
        };
        let (from, to) = (point(&args.from, &own)?, point(args.to.as_deref().unwrap_or("current"), &own)?);
        let old = diff::at(&mut read, &collection, id, &from).await?;
        let new = diff::at(&mut read, &collection, id, &to).await?;
        let (a, b) = (&old.content, &new.content);
        let body = diff::of_bodies(id, (old.version, a), (new.version, b));
        let text = format!(
            "{id}, version {} → {}. Changed: {}\n{body}",
            old.version,
            new.version,
            a.differences(b).join(", ")
        );
        let by = |content: &records::RecordContent| content.resolved_by.map(|id| id.to_string());
        let diff = FieldsView {
            title: Pair::of(a.title.clone(), b.title.clone()),
            summary: Pair::of(a.summary.clone(), b.summary.clone()),
            body: Some(body).filter(|body| !body.is_empty()),
            state: Pair::of(a.state.name(), b.state.name()),
            resolved_by: Pair::of(by(a), by(b)),
            related: Pair::of(ids(&a.related), ids(&b.related)),
            metadata: Pair::of(a.metadata.clone(), b.metadata.clone()),
            citations: Pair::of(a.citations.clone(), b.citations.clone()),
        };
        reply(text, &DiffReply { from_version: RecordView::of(&old), to_version: RecordView::of(&new), diff })
    }
}

/// Parses the name of a version.
fn point(text: &str, session: &Option<String>) -> Result<VersionPoint, Failure> {
    let text = text.trim();
    let number = |start: &str| text.strip_prefix(start).and_then(|n| n.parse().ok());
    let found = match text {
        "current" => Some(VersionPoint::Current),
        "last_save" => Some(VersionPoint::LastSave { session: session.clone() }),
        _ => number("version:")
            .map(VersionPoint::Version)
            .or_else(|| number("tick:").map(VersionPoint::Tick))
            .or_else(|| parse(text).map(VersionPoint::Time)),
    };
    found.ok_or_else(|| {
        Failure::new(
            "INVALID_VERSION",
            format!("\"{text}\" does not name a version"),
            "Write an ISO time such as 2026-01-31T09:00:00Z, version:N, tick:N, last_save or current.",
        )
    })
}

impl VersionView {
    fn of(id: RecordId, new: &Version, old: Option<&Version>) -> Self {
        let summary = match (new.change, old) {
            (VersionChange::Created, _) | (_, None) => format!("created: {}", new.content.title),
            (VersionChange::Modified, Some(old)) => match old.content.differences(&new.content) {
                fields if fields.is_empty() => "saved without a change".to_owned(),
                fields => format!("changed {}", fields.join(", ")),
            },
            (VersionChange::StateChanged, Some(old)) => {
                let mut summary = format!("{} → {}", old.content.state.name(), new.content.state.name());
                if let Some(by) = new.content.resolved_by {
                    summary += &format!(", resolved by {by}");
                }
                if let Some(reason) = &new.reason {
                    summary += &format!(": {reason}");
                }
                summary
            }
        };
        let diff =
            old.map(|old| diff::of_bodies(id, (old.version, &old.content), (new.version, &new.content)));
        Self {
            version: new.version,
            tick: new.tick,
            timestamp: iso(new.at_ns),
            session_id: new.session_id.clone(),
            change_type: new.change.name(),
            summary,
            diff: diff.filter(|diff| !diff.is_empty()),
        }
    }
}
