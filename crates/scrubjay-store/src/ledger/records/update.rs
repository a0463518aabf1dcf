//! A change of what a record says, checked against the version the session activated.
//!
//! Where another session was faster nothing is written, and its version is returned; unless the change is
//! forced, or merged where the two do not touch.

use scrubjay_core::merge::merge;
use serde_json::{Map, Value, json};

use super::activation::{self, SeenVersion};
use super::content::{self, NewVersion, VersionChange};
use super::scope::Scope;
use super::{Record, RecordContent, RecordError, RecordId, citation, history, row, text_index};
use crate::ledger::Write;
use crate::ledger::event::{self, EventKind, NewEvent};

/// What is to change; the rest stays.
#[derive(Clone, Debug, Default)]
pub struct RecordChanges {
    /// What it is about.
    pub title: Option<String>,
    /// The gist.
    pub summary: Option<String>,
    /// All of it.
    pub body: Option<String>,
    /// What it has to do with.
    pub related: Option<Vec<RecordId>>,
    /// Whatever else the user keeps with it.
    pub metadata: Option<Map<String, Value>>,
    /// The code it speaks of.
    pub citations: Option<Vec<String>>,
}

/// What to do when another session was faster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Write nothing.
    #[default]
    Refuse,
    /// Put the two together where they do not touch.
    Merge,
    /// Write all the same.
    Force,
}

/// What came of a change.
#[derive(Clone, Debug)]
pub struct UpdateResult {
    /// The record as it is now.
    pub record: Record,
    /// How it went.
    pub outcome: UpdateOutcome,
}

/// How a change went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// Nobody else had changed it.
    Written,
    /// The other's changes were kept too: these fields of theirs.
    Merged(Vec<&'static str>),
    /// The other's changes were overridden.
    Forced {
        /// Whose they were.
        by: String,
    },
    /// Nothing was written.
    Conflict {
        /// Who was faster.
        by: String,
        /// The version this session had activated.
        activated: i64,
        /// Which fields both changed, where a merge was asked for.
        fields: Vec<&'static str>,
    },
}

/// Changes a record.
///
/// # Errors
/// It is not there or not activated, or what is said is not a record. A conflict is an outcome, not an error.
pub async fn update(
    write: &mut Write,
    scope: &mut Scope,
    id: RecordId,
    changes: RecordChanges,
    clash: OnConflict,
) -> Result<UpdateResult, RecordError> {
    let current = row::full(write, &scope.collection, id, None).await?;
    let held = activation::seen_version(write, &scope.session.id, id).await?;
    let held = held.ok_or(RecordError::NotActivated(id))?;
    if changes.is_empty() {
        return Err(RecordError::Invalid("nothing to change was given".to_owned()));
    }
    if held.version == current.version {
        let content = changes.onto(&current.content);
        return write_down(write, scope, &current, content, UpdateOutcome::Written).await;
    }
    let by = history::author(write, &scope.collection, id, current.version).await?;
    if clash == OnConflict::Force {
        let content = changes.onto(&current.content);
        return write_down(write, scope, &current, content, UpdateOutcome::Forced { by }).await;
    }
    let mut fields = Vec::new();
    if clash == OnConflict::Merge {
        let base = row::full(write, &scope.collection, id, Some(held.version)).await?;
        match merged(&base.content, &changes, &current.content) {
            Ok((content, theirs)) => {
                return write_down(write, scope, &current, content, UpdateOutcome::Merged(theirs)).await;
            }
            Err(touched) => fields = touched,
        }
    }
    detected(write, scope, &current, held, &by).await?;
    Ok(UpdateResult {
        record: current,
        outcome: UpdateOutcome::Conflict { by, activated: held.version, fields },
    })
}

/// Tells that two sessions changed one record.
pub(super) async fn detected(
    write: &mut Write,
    scope: &Scope,
    current: &Record,
    held: SeenVersion,
    by: &str,
) -> Result<(), RecordError> {
    let id = current.now.id;
    let told = json!({ "by_session": by, "activated_version": held.version, "version": current.version });
    let event = NewEvent::new(EventKind::ConflictDetected, format!("{id} was changed by session {by}"));
    event::append(write, &scope.session, &scope.caller, event.about(id.to_string()).with(told)).await?;
    Ok(())
}

async fn write_down(
    write: &mut Write,
    scope: &mut Scope,
    current: &Record,
    content: RecordContent,
    outcome: UpdateOutcome,
) -> Result<UpdateResult, RecordError> {
    let id = current.now.id;
    content::check(&content)?;
    let content = content::cleaned(write, content);
    if content.related != current.content.related {
        content::check_related(write, &scope.collection, &content.related).await?;
    }
    let tick = scope.tick(write).await?;
    let version = current.version + 1;
    let new =
        NewVersion { id, version, tick, change: VersionChange::Modified, reason: None, content: &content };
    content::keep(write, scope, &new).await?;
    content::advance(write, &scope.collection, &new).await?;
    if content.citations != current.content.citations {
        citation::keep(write, scope, id, &content.citations).await?;
    }
    let record = row::full(write, &scope.collection, id, None).await?;
    text_index::put(write, &scope.collection, &record.now, &content).await?;
    activation::note_seen(write, scope, &record.now, tick).await?;
    let fields = current.content.differences(&content);
    let mut told = json!({ "tick": tick, "version": version, "fields": fields });
    match &outcome {
        UpdateOutcome::Merged(theirs) => told["merged"] = json!(theirs),
        UpdateOutcome::Forced { by } => resolved(write, scope, id, by, current.version).await?,
        UpdateOutcome::Written | UpdateOutcome::Conflict { .. } => {}
    }
    let event = NewEvent::new(EventKind::RecordUpdated, format!("updated {id}: {}", fields.join(", ")));
    event::append(write, &scope.session, &scope.caller, event.about(id.to_string()).with(told)).await?;
    Ok(UpdateResult { record, outcome })
}

async fn resolved(
    write: &mut Write,
    scope: &Scope,
    id: RecordId,
    by: &str,
    version: i64,
) -> Result<(), RecordError> {
    let told = json!({ "overridden_session": by, "overridden_version": version });
    let summary = format!("{id}: this version was taken instead of session {by}'s");
    let event = NewEvent::new(EventKind::ConflictResolved, summary);
    event::append(write, &scope.session, &scope.caller, event.about(id.to_string()).with(told)).await?;
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

/// Puts two changes together; tells which fields the other changed, or which both did.
fn merged(
    base: &RecordContent,
    changes: &RecordChanges,
    theirs: &RecordContent,
) -> Result<(RecordContent, Vec<&'static str>), Vec<&'static str>> {
    let ours = changes.clone().onto(base);
    let mut content = theirs.clone();
    let mut touched = Vec::new();
    let texts = [
        ("title", &base.title, &ours.title, &mut content.title),
        ("summary", &base.summary, &ours.summary, &mut content.summary),
    ];
    for (name, base, ours, theirs) in texts {
        one(name, base, ours, theirs, &mut touched);
    }
    one("related", &base.related, &ours.related, &mut content.related, &mut touched);
    one("metadata", &base.metadata, &ours.metadata, &mut content.metadata, &mut touched);
    one("citations", &base.citations, &ours.citations, &mut content.citations, &mut touched);
    match merge(&base.body, &ours.body, &theirs.body) {
        Some(body) => content.body = body,
        None => touched.push("body"),
    }
    if touched.is_empty() { Ok((content, base.differences(theirs))) } else { Err(touched) }
}

/// Decides a field that is whole: whoever alone changed it is right.
fn one<T: PartialEq + Clone>(
    name: &'static str,
    base: &T,
    ours: &T,
    theirs: &mut T,
    touched: &mut Vec<&'static str>,
) {
    if ours == base || ours == theirs {
        return;
    }
    if theirs == base {
        theirs.clone_from(ours);
    } else {
        touched.push(name);
    }
}
