//! Updates the content of a record, checked against the version that the session activated.
//!
//! If another session changed the record since, nothing is written and the other version is returned, unless the update
//! is forced or can be merged.

use scrubjay_core::merge::merge;
use serde_json::{Map, Value, json};

use super::activation::{self, SeenVersion};
use super::content::{self, VersionChange};
use super::scope::Scope;
use super::{Record, RecordContent, RecordError, RecordId, citation, history, row};
use crate::ledger::Write;
use crate::ledger::event::{EventKind, NewEvent};

/// The fields to change; the others stay.
#[derive(Clone, Debug, Default)]
pub struct RecordChanges {
    /// What it is about.
    pub title: Option<String>,
    /// The gist.
    pub summary: Option<String>,
    /// All of it.
    pub body: Option<String>,
    /// Related records.
    pub related: Option<Vec<RecordId>>,
    /// Further data of the user's.
    pub metadata: Option<Map<String, Value>>,
    /// The code it cites.
    pub citations: Option<Vec<String>>,
}

/// What to do if another session changed the record since the activation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Write nothing.
    #[default]
    Refuse,
    /// Merge, if the two changes do not touch the same parts.
    Merge,
    /// Overwrite the other session's changes.
    Force,
}

/// The result of an update.
#[derive(Clone, Debug)]
pub struct UpdateResult {
    /// The record as it is now.
    pub record: Record,
    /// Whether and how it was written.
    pub outcome: UpdateOutcome,
}

/// Whether and how an update was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// Written; no other session had changed the record.
    Written,
    /// Merged with the other session's changes of these fields.
    Merged(Vec<&'static str>),
    /// Written over the other session's changes.
    Forced {
        /// The other session.
        by: String,
    },
    /// Nothing was written.
    Conflict {
        /// The other session.
        by: String,
        /// The version this session had activated.
        activated: i64,
        /// The fields that both changed, if a merge was tried.
        fields: Vec<&'static str>,
    },
}

/// Changes a record.
///
/// # Errors
/// The record does not exist or is not activated, or the content is invalid. A conflict is an outcome, not an error.
pub async fn update(
    write: &mut Write,
    scope: &mut Scope,
    id: RecordId,
    changes: RecordChanges,
    on_conflict: OnConflict,
) -> Result<UpdateResult, RecordError> {
    let current = row::full(write, &scope.collection, id, None).await?;
    let seen = activation::seen_version(write, &scope.session.id, id).await?;
    let seen = seen.ok_or(RecordError::NotActivated(id))?;
    if changes.is_empty() {
        return Err(RecordError::Invalid("nothing to change was given".to_owned()));
    }
    // Nobody else can write in between: the mutation holds the lock of all writers.
    if seen.version == current.version {
        let content = changes.onto(&current.content);
        return write_version(write, scope, &current, content, UpdateOutcome::Written).await;
    }
    let by = history::author(write, &scope.collection, id, current.version).await?;
    if on_conflict == OnConflict::Force {
        let content = changes.onto(&current.content);
        return write_version(write, scope, &current, content, UpdateOutcome::Forced { by }).await;
    }
    let mut fields = Vec::new();
    if on_conflict == OnConflict::Merge {
        // The version that the session had seen is the common ancestor of both changes.
        let base = row::full(write, &scope.collection, id, Some(seen.version)).await?;
        match merge_changes(&base.content, &changes, &current.content) {
            Ok((content, theirs)) => {
                return write_version(write, scope, &current, content, UpdateOutcome::Merged(theirs)).await;
            }
            Err(conflicts) => fields = conflicts,
        }
    }
    record_conflict(write, scope, &current, seen, &by).await?;
    Ok(UpdateResult {
        record: current,
        outcome: UpdateOutcome::Conflict { by, activated: seen.version, fields },
    })
}

/// Records that two sessions changed one record.
pub(super) async fn record_conflict(
    write: &mut Write,
    scope: &Scope,
    current: &Record,
    seen: SeenVersion,
    by: &str,
) -> Result<(), RecordError> {
    let id = current.now.id;
    let details = json!({ "by_session": by, "activated_version": seen.version, "version": current.version });
    let event = NewEvent::new(EventKind::ConflictDetected, format!("{id} was changed by session {by}"));
    scope.append(write, event.about(id.to_string()).with(details)).await?;
    Ok(())
}

async fn write_version(
    write: &mut Write,
    scope: &mut Scope,
    current: &Record,
    content: RecordContent,
    outcome: UpdateOutcome,
) -> Result<UpdateResult, RecordError> {
    let id = current.now.id;
    content::check(&content)?;
    let content = content::redact(write, content);
    // Stored relations were checked when they were added, and records are never removed.
    if content.related != current.content.related {
        content::check_related(write, &scope.collection, &content.related).await?;
    }
    let record = content::add_version(write, scope, current, VersionChange::Modified, None, &content).await?;
    if content.citations != current.content.citations {
        citation::store(write, scope, id, &content.citations).await?;
    }
    let fields = current.content.differences(&content);
    let mut details = json!({ "tick": record.now.tick, "version": record.version, "fields": fields });
    match &outcome {
        UpdateOutcome::Merged(theirs) => details["merged"] = json!(theirs),
        UpdateOutcome::Forced { by } => record_override(write, scope, id, by, current.version).await?,
        UpdateOutcome::Written | UpdateOutcome::Conflict { .. } => {}
    }
    let event = NewEvent::new(EventKind::RecordUpdated, format!("updated {id}: {}", fields.join(", ")));
    scope.append(write, event.about(id.to_string()).with(details)).await?;
    Ok(UpdateResult { record, outcome })
}

async fn record_override(
    write: &mut Write,
    scope: &Scope,
    id: RecordId,
    by: &str,
    version: i64,
) -> Result<(), RecordError> {
    let details = json!({ "overridden_session": by, "overridden_version": version });
    let summary = format!("{id}: this version was taken instead of session {by}'s");
    let event = NewEvent::new(EventKind::ConflictResolved, summary);
    scope.append(write, event.about(id.to_string()).with(details)).await?;
    Ok(())
}

impl RecordChanges {
    fn is_empty(&self) -> bool {
        self.title.is_none()
            && self.summary.is_none()
            && self.body.is_none()
            && self.related.is_none()
            && self.metadata.is_none()
            && self.citations.is_none()
    }

    fn onto(self, old: &RecordContent) -> RecordContent {
        let old = old.clone();
        RecordContent {
            title: self.title.unwrap_or(old.title),
            summary: self.summary.unwrap_or(old.summary),
            body: self.body.unwrap_or(old.body),
            related: self.related.unwrap_or(old.related),
            metadata: self.metadata.unwrap_or(old.metadata),
            citations: self.citations.unwrap_or(old.citations),
            ..old
        }
    }
}

impl RecordContent {
    /// Returns the names of the fields in which two differ.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let same = [
            ("title", self.title == other.title),
            ("summary", self.summary == other.summary),
            ("body", self.body == other.body),
            ("state", self.state == other.state),
            ("resolved_by", self.resolved_by == other.resolved_by),
            ("related", self.related == other.related),
            ("metadata", self.metadata == other.metadata),
            ("citations", self.citations == other.citations),
        ];
        same.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
    }
}

/// Merges two changes; returns the fields that the other session changed, or as an error those that both changed.
fn merge_changes(
    base: &RecordContent,
    changes: &RecordChanges,
    theirs: &RecordContent,
) -> Result<(RecordContent, Vec<&'static str>), Vec<&'static str>> {
    let ours = changes.clone().onto(base);
    let mut content = theirs.clone();
    let mut conflicts = Vec::new();
    let texts = [
        ("title", &base.title, &ours.title, &mut content.title),
        ("summary", &base.summary, &ours.summary, &mut content.summary),
    ];
    for (name, base, ours, theirs) in texts {
        merge_field(name, base, ours, theirs, &mut conflicts);
    }
    merge_field("related", &base.related, &ours.related, &mut content.related, &mut conflicts);
    merge_field("metadata", &base.metadata, &ours.metadata, &mut content.metadata, &mut conflicts);
    merge_field("citations", &base.citations, &ours.citations, &mut content.citations, &mut conflicts);
    match merge(&base.body, &ours.body, &theirs.body) {
        Some(body) => content.body = body,
        None => conflicts.push("body"),
    }
    if conflicts.is_empty() { Ok((content, base.differences(theirs))) } else { Err(conflicts) }
}

/// Merges a field as a whole: takes our value, unless the other session changed the field too.
fn merge_field<T: PartialEq + Clone>(
    name: &'static str,
    base: &T,
    ours: &T,
    theirs: &mut T,
    conflicts: &mut Vec<&'static str>,
) {
    if ours == base || ours == theirs {
        return;
    }
    if theirs == base {
        theirs.clone_from(ours);
    } else {
        conflicts.push(name);
    }
}
