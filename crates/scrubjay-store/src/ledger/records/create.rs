//! Creates a record: a root, or a child of a record that the session has activated.

use serde_json::{Map, Value, json};

use super::content::{self, NewVersion, VersionChange};
use super::scope::Scope;
use super::{
    DEPTH_MAX, Record, RecordContent, RecordError, RecordId, RecordRef, RecordState, activation, citation,
    collection, row, text_index,
};
use crate::ledger::event::{EventKind, NewEvent};
use crate::ledger::statement::{Key, change};
use crate::ledger::{LedgerError, Write};

/// A record to be created.
#[derive(Clone, Debug)]
pub struct NewRecord {
    /// Its parent; `None` for a root.
    pub parent: Option<RecordId>,
    /// What kind of thought it is.
    pub kind: String,
    /// What it is about.
    pub title: String,
    /// The gist.
    pub summary: String,
    /// All of it.
    pub body: String,
    /// Its first state.
    pub state: RecordState,
    /// Related records.
    pub related: Vec<RecordId>,
    /// Further data of the user's.
    pub metadata: Map<String, Value>,
    /// The code it cites.
    pub citations: Vec<String>,
}

/// Creates a record, and activates it in the session.
///
/// # Errors
/// The parent does not exist, is not activated or is too deep, or the content is invalid.
pub async fn create(write: &mut Write, scope: &mut Scope, new: NewRecord) -> Result<Record, RecordError> {
    let parent = match new.parent {
        Some(id) => Some(parent(write, scope, id).await?),
        None => None,
    };
    let content = RecordContent {
        kind: new.kind,
        title: new.title,
        summary: new.summary,
        body: new.body,
        state: new.state,
        resolved_by: None,
        related: new.related,
        metadata: new.metadata,
        citations: new.citations,
    };
    content::check(&content)?;
    let content = content::redact(write, content);
    content::check_related(write, &scope.collection, &content.related).await?;
    let tick = scope.tick(write).await?;
    // Counted before the insert: the total is the new record's number.
    scope.collection.totals.count_created(content.state, parent.is_none());
    collection::update(write, &scope.collection).await?;
    let now = insert(write, scope, parent.as_ref(), &content, tick).await?;
    let first = NewVersion {
        id: now.id,
        version: 1,
        tick,
        change: VersionChange::Created,
        reason: None,
        content: &content,
    };
    content::store(write, scope, &first).await?;
    citation::store(write, scope, now.id, &content.citations).await?;
    text_index::put(write, &scope.collection, &now, &content).await?;
    // A session has seen what it wrote, so it may change the record at once.
    activation::note_seen(write, scope, &now, tick).await?;
    let details = json!({ "tick": tick, "version": 1, "type": content.kind, "state": content.state,
        "parent_id": now.parent });
    let event = NewEvent::new(EventKind::RecordCreated, format!("created {}: {}", now.id, content.title));
    scope.append(write, event.about(now.id.to_string()).with(details)).await?;
    Ok(Record { now, version: 1, at_ns: write.at_ns(), content })
}

async fn parent(write: &mut Write, scope: &Scope, id: RecordId) -> Result<RecordRef, RecordError> {
    let parent = row::require(write, &scope.collection, id).await?;
    if activation::seen_version(write, &scope.session.id, id).await?.is_none() {
        return Err(RecordError::ParentNotActivated(id));
    }
    if parent.depth >= DEPTH_MAX {
        return Err(RecordError::TooDeep { parent: id, depth: parent.depth + 1 });
    }
    Ok(parent)
}

/// Inserts the record into the tree, with the next number.
async fn insert(
    write: &mut Write,
    scope: &Scope,
    parent: Option<&RecordRef>,
    content: &RecordContent,
    tick: i64,
) -> Result<RecordRef, LedgerError> {
    let id = RecordId(scope.collection.totals.records);
    let now = RecordRef {
        id,
        kind: content.kind.clone(),
        title: content.title.clone(),
        summary: content.summary.clone(),
        state: content.state,
        parent: parent.map(|p| p.id),
        children: 0,
        open_children: 0,
        depth: parent.map_or(1, |p| p.depth + 1),
        version: 1,
        tick,
        cited: content.citations.len() as i64,
        created_ns: write.at_ns(),
        modified_ns: write.at_ns(),
        path: parent.map_or_else(|| row::path("", id), |p| p.child_path(id)),
    };
    change(
        "INSERT INTO records (book, number, type, title, summary, state, parent, depth, path, children,
             open_children, version, tick, cited, created_ns, modified_ns)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, 0, 1, $10, $11, $12, $12)",
    )
    .bind(scope.collection.id)
    .bind(id.0)
    .bind(write.clean(&now.kind))
    .bind(write.clean(&now.title))
    .bind(write.clean(&now.summary))
    .bind(now.state.name())
    .bind(now.parent.map_or(0, |p| p.0))
    .bind(now.depth)
    .bind(Key::known(&now.path))
    .bind(tick)
    .bind(now.cited)
    .bind(now.created_ns)
    .execute(write)
    .await?;
    if let Some(parent) = parent {
        count_child(write, scope, parent.id, 1, i64::from(content.state == RecordState::Open)).await?;
    }
    Ok(now)
}

/// Updates a record's counts of children and of open children.
pub(super) async fn count_child(
    write: &mut Write,
    scope: &Scope,
    parent: RecordId,
    more: i64,
    more_open: i64,
) -> Result<(), LedgerError> {
    change(
        "UPDATE records SET children = children + $3, open_children = open_children + $4
         WHERE book = $1 AND number = $2",
    )
    .bind(scope.collection.id)
    .bind(parent.0)
    .bind(more)
    .bind(more_open)
    .execute(write)
    .await?;
    Ok(())
}
