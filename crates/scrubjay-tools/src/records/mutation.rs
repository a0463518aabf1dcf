//! `create_record` and `update_record`.

use rmcp::handler::server::wrapper::Parameters;
use rmcp::service::RequestContext;
use rmcp::{RoleServer, tool, tool_router};
use schemars::JsonSchema;
use scrubjay_store::ledger::CommitDurability;
use scrubjay_store::ledger::records::{
    self, NewRecord, OnConflict, RecordChanges, RecordError, RecordId, RecordState, UpdateOutcome,
    UpdateResult,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Records;
use super::view::{RecordView, WorkflowState};
use crate::reply::{Reply, reply};

#[derive(Deserialize, JsonSchema)]
pub(super) struct CreateArgs {
    /// The parent, which must be activated. Null or left out: a root.
    parent_id: Option<String>,
    /// The kind of record, in your own word: question, decision, conclusion, note, …
    #[serde(rename = "type")]
    kind: String,
    /// What it is about, in a few words.
    title: String,
    /// A summary, in a sentence or two.
    summary: String,
    /// The full text, written for readers who have not seen this chat.
    body: String,
    /// Default: OPEN.
    state: Option<WorkflowState>,
    /// Ids of related records elsewhere in the tree.
    related: Option<Vec<String>>,
    /// Any further data, as an object.
    metadata: Option<Map<String, Value>>,
    /// The code it cites, as "path#L10-L20". When those lines change, the record is shown as suspect.
    citations: Option<Vec<String>>,
    /// The session. Left out: this connection's own.
    session_id: Option<String>,
    /// The project. Left out: the default one.
    project_id: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct UpdateArgs {
    /// The record, which must be activated.
    id: String,
    /// What it is about.
    title: Option<String>,
    /// A summary.
    summary: Option<String>,
    /// The full text.
    body: Option<String>,
    /// Ids of related records; replaces all of them.
    related: Option<Vec<String>>,
    /// Any further data; replaces all of it.
    metadata: Option<Map<String, Value>>,
    /// The code it cites, as "path#L10-L20"; replaces all citations.
    citations: Option<Vec<String>>,
    /// If another session changed the record meanwhile: overwrite that change.
    #[serde(default)]
    force: bool,
    /// If another session changed the record meanwhile: merge both changes, if they are in different fields or
    /// paragraphs.
    #[serde(default)]
    merge: bool,
    /// The session. Left out: this connection's own.
    session_id: Option<String>,
    /// The project. Left out: the default one.
    project_id: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct CreateReply {
    record: RecordView,
    /// New records are active at once.
    auto_activated: bool,
    session_id: String,
    /// The project's tick.
    tick: i64,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct UpdateReply {
    /// The record as it is now.
    record: RecordView,
    /// Whether anything was written.
    written: bool,
    /// Set if another session changed the record first. Nothing was written then.
    #[serde(skip_serializing_if = "Option::is_none")]
    conflict: Option<ConflictView>,
    /// The fields of the other session's changes that were merged with yours.
    #[serde(skip_serializing_if = "Option::is_none")]
    merged: Option<Vec<&'static str>>,
    /// The session whose changes were overwritten.
    #[serde(skip_serializing_if = "Option::is_none")]
    overridden_session: Option<String>,
    session_id: String,
}

#[derive(Serialize, JsonSchema)]
struct ConflictView {
    message: String,
    /// What the other session wrote.
    other_version: RecordView,
    by_session: String,
    /// The version you had activated.
    activated_version: i64,
    /// Which fields both changed, so that they could not be merged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    fields: Vec<&'static str>,
}

fn parse_ids(ids: Vec<String>) -> Result<Vec<RecordId>, RecordError> {
    ids.iter().map(|id| id.parse()).collect()
}

#[tool_router(router = mutation_tools, vis = "pub(super)")]
impl Records {
    /// Create a record for a question, a decision or a conclusion: below an activated record, or as a root. It is active at
    /// once. Returns the record with its id.
    #[tool(title = "Create a record", output_schema = crate::reply::schema::<CreateReply>(), annotations(destructive_hint = false, open_world_hint = false))]
    async fn create_record(
        &self,
        Parameters(args): Parameters<CreateArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let new = NewRecord {
            parent: args.parent_id.as_deref().map(str::parse).transpose()?,
            kind: args.kind,
            title: args.title,
            summary: args.summary,
            body: args.body,
            state: args.state.map_or(RecordState::Open, RecordState::from),
            related: parse_ids(args.related.unwrap_or_default())?,
            metadata: args.metadata.unwrap_or_default(),
            citations: args.citations.unwrap_or_default(),
        };
        let (project, session) = (args.project_id.as_deref(), args.session_id.as_deref());
        let (mut write, mut scope) =
            self.write_scope(&context, CommitDurability::Power, project, session).await?;
        let created = records::create(&mut write, &mut scope, new).await?;
        write.commit().await?;
        let record = RecordView::of(&created);
        let text = format!("Created {} [{}]: {}. It is active.", record.id, record.state, record.title);
        let (session_id, tick) = (scope.session.id, created.now.tick);
        reply(text, &CreateReply { record, auto_activated: true, session_id, tick })
    }

    /// Change fields of an activated record; fields left out stay. If another session changed the record since you
    /// activated it, nothing is written and that version is returned: show both to the user, or call again with merge or
    /// force.
    #[tool(title = "Update a record", output_schema = crate::reply::schema::<UpdateReply>(), annotations(destructive_hint = false, open_world_hint = false))]
    async fn update_record(
        &self,
        Parameters(args): Parameters<UpdateArgs>,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let changes = RecordChanges {
            title: args.title,
            summary: args.summary,
            body: args.body,
            related: args.related.map(parse_ids).transpose()?,
            metadata: args.metadata,
            citations: args.citations,
        };
        let on_conflict = match (args.force, args.merge) {
            (true, _) => OnConflict::Force,
            (false, true) => OnConflict::Merge,
            (false, false) => OnConflict::Refuse,
        };
        let (project, session) = (args.project_id.as_deref(), args.session_id.as_deref());
        let (mut write, mut scope) =
            self.write_scope(&context, CommitDurability::Power, project, session).await?;
        let updated = records::update(&mut write, &mut scope, args.id.parse()?, changes, on_conflict).await?;
        // After a conflict too: the event that reports it was written.
        write.commit().await?;
        let (text, answer) = UpdateReply::of(updated, scope.session.id);
        reply(text, &answer)
    }
}

impl UpdateReply {
    fn of(updated: UpdateResult, session_id: String) -> (String, Self) {
        let record = RecordView::of(&updated.record);
        let id = record.id.clone();
        let mut answer = Self {
            record,
            written: true,
            conflict: None,
            merged: None,
            overridden_session: None,
            session_id,
        };
        let version = updated.record.version;
        let text = match updated.outcome {
            UpdateOutcome::Written => format!("Updated {id} to version {version}."),
            UpdateOutcome::Merged(theirs) => {
                let text = format!(
                    "Updated {id} to version {version}, merged with another session's changes of {}:\n{}",
                    theirs.join(", "),
                    answer.record.text()
                );
                answer.merged = Some(theirs);
                text
            }
            UpdateOutcome::Forced { by } => {
                let text =
                    format!("Updated {id} to version {version}; session {by}'s changes were overwritten.");
                answer.overridden_session = Some(by);
                text
            }
            UpdateOutcome::Conflict { by, activated, fields } => {
                let message = format!(
                    "{id} was changed by session {by} since you activated it (version {activated} → {version}); \
                     nothing was written. Show both versions to the user, then call update_record with force, \
                     or with merge."
                );
                let text = format!("{message}\n\nTheir version:\n{}", answer.record.text());
                answer.written = false;
                let other_version = answer.record.clone();
                answer.conflict = Some(ConflictView {
                    message,
                    other_version,
                    by_session: by,
                    activated_version: activated,
                    fields,
                });
                text
            }
        };
        (text, answer)
    }
}
