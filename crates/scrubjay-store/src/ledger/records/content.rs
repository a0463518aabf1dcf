//! Checks the content of records, and stores versions.

use super::collection::RecordCollection;
use super::scope::Scope;
use super::{Record, RecordContent, RecordError, RecordId, activation, citation, row, text_index};
use crate::ledger::names::{name_of, value_of};
use crate::ledger::statement::{Key, change};
use crate::ledger::{LedgerError, Write};

/// The longest type, in characters. Beyond this and the following limits a record is refused, not cut.
const TYPE_CHARS_MAX: usize = 100;
/// The longest title.
const TITLE_CHARS_MAX: usize = 500;
/// The longest summary.
pub(super) const SUMMARY_CHARS_MAX: usize = 5_000;
/// The longest body.
const BODY_CHARS_MAX: usize = 100_000;
/// The most related records.
const RELATED_MAX: usize = 100;
/// The largest metadata, as JSON.
const METADATA_BYTES_MAX: usize = 64 * 1024;

/// What created a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionChange {
    /// The record was created.
    Created,
    /// The content was changed.
    Modified,
    /// The state was changed.
    StateChanged,
}

const CHANGES: [(VersionChange, &str); 3] = [
    (VersionChange::Created, "created"),
    (VersionChange::Modified, "modified"),
    (VersionChange::StateChanged, "state_changed"),
];

impl VersionChange {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        name_of(&CHANGES, &self)
    }

    pub(super) fn from_name(name: &str) -> Result<Self, LedgerError> {
        value_of(&CHANGES, name).ok_or_else(|| LedgerError::Damaged(format!("unknown change \"{name}\"")))
    }
}

/// Redacts the texts of a record.
pub(super) fn redact(write: &Write, content: RecordContent) -> RecordContent {
    let metadata = write.clean_json(&serde_json::Value::Object(content.metadata));
    let text = |text: &str| write.clean(text).into_string();
    RecordContent {
        kind: text(&content.kind),
        title: text(&content.title),
        summary: text(&content.summary),
        body: text(&content.body),
        metadata: serde_json::from_str(metadata.as_str()).unwrap_or_default(),
        citations: content.citations.iter().map(|citation| text(citation)).collect(),
        ..content
    }
}

/// Checks a content, except whether the related records exist.
pub(super) fn check(content: &RecordContent) -> Result<(), RecordError> {
    let texts = [
        ("type", &content.kind, TYPE_CHARS_MAX, false),
        ("title", &content.title, TITLE_CHARS_MAX, false),
        ("summary", &content.summary, SUMMARY_CHARS_MAX, true),
        ("body", &content.body, BODY_CHARS_MAX, true),
    ];
    for (name, text, chars_max, may_be_empty) in texts {
        if !may_be_empty && text.trim().is_empty() {
            return Err(RecordError::Invalid(format!("{name} must not be empty")));
        }
        if text.chars().count() > chars_max {
            return Err(RecordError::Invalid(format!("{name} has at most {chars_max} characters")));
        }
        // PostgreSQL cannot store NUL, and no text that people write contains one.
        if text.contains('\0') {
            return Err(RecordError::Invalid(format!("{name} must not contain a NUL character")));
        }
    }
    if content.related.len() > RELATED_MAX {
        return Err(RecordError::Invalid(format!("related has at most {RELATED_MAX} records")));
    }
    let metadata = serde_json::to_string(&content.metadata).unwrap_or_default();
    if metadata.len() > METADATA_BYTES_MAX {
        return Err(RecordError::Invalid(format!("metadata has at most {METADATA_BYTES_MAX} bytes as JSON")));
    }
    citation::check(&content.citations)
}

/// Checks that related records exist.
pub(super) async fn check_related(
    write: &mut Write,
    collection: &RecordCollection,
    related: &[RecordId],
) -> Result<(), RecordError> {
    for id in related {
        row::require(write, collection, *id).await?;
    }
    Ok(())
}

/// A version to be stored.
pub(super) struct NewVersion<'a> {
    pub(super) id: RecordId,
    pub(super) version: i64,
    pub(super) tick: i64,
    pub(super) change: VersionChange,
    pub(super) reason: Option<&'a str>,
    pub(super) content: &'a RecordContent,
}

/// Stores a version.
///
/// The content is clean already; statements take only redacted text, so it passes the redactor again.
pub(super) async fn store(write: &mut Write, scope: &Scope, new: &NewVersion<'_>) -> Result<(), LedgerError> {
    let content = new.content;
    let related: Vec<i64> = content.related.iter().map(|id| id.0).collect();
    change(
        "INSERT INTO record_versions (book, number, version, tick, at_ns, session_id, change, reason, type,
             title, summary, body, state, resolved_by, related, metadata, citations)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)",
    )
    .bind(scope.collection.id)
    .bind(new.id.0)
    .bind(new.version)
    .bind(new.tick)
    .bind(write.at_ns())
    .bind(Key::known(&scope.session.id))
    .bind(new.change.name())
    .bind(new.reason.map(|reason| write.clean(reason)))
    .bind(write.clean(&content.kind))
    .bind(write.clean(&content.title))
    .bind(write.clean(&content.summary))
    .bind(write.clean(&content.body))
    .bind(content.state.name())
    .bind(content.resolved_by.map(|id| id.0))
    .bind(write.clean_json(&serde_json::json!(related)))
    .bind(write.clean_json(&serde_json::json!(content.metadata)))
    .bind(write.clean_json(&serde_json::json!(content.citations)))
    .execute(write)
    .await?;
    Ok(())
}

/// Makes a stored version the current one of its record.
async fn set_current(
    write: &mut Write,
    collection: &RecordCollection,
    new: &NewVersion<'_>,
) -> Result<(), LedgerError> {
    // Without the type, which cannot change.
    change(
        "UPDATE records SET version = $3, tick = $4, modified_ns = $5, title = $6, summary = $7, state = $8,
             cited = $9 WHERE book = $1 AND number = $2",
    )
    .bind(collection.id)
    .bind(new.id.0)
    .bind(new.version)
    .bind(new.tick)
    .bind(write.at_ns())
    .bind(write.clean(&new.content.title))
    .bind(write.clean(&new.content.summary))
    .bind(new.content.state.name())
    .bind(new.content.citations.len() as i64)
    .execute(write)
    .await?;
    Ok(())
}

/// Adds a version to a record and makes it the current one, which the session has then seen; returns the record.
pub(super) async fn add_version(
    write: &mut Write,
    scope: &mut Scope,
    current: &Record,
    change: VersionChange,
    reason: Option<&str>,
    content: &RecordContent,
) -> Result<Record, RecordError> {
    let (id, version) = (current.now.id, current.version + 1);
    let tick = scope.tick(write).await?;
    let new = NewVersion { id, version, tick, change, reason, content };
    store(write, scope, &new).await?;
    set_current(write, &scope.collection, &new).await?;
    let record = row::full(write, &scope.collection, id, None).await?;
    text_index::put(write, &scope.collection, &record.now, content).await?;
    activation::note_seen(write, scope, &record.now, tick).await?;
    Ok(record)
}
