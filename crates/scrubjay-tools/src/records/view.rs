//! Records as agents see them: as data, and as lines of text.

use std::fmt::Write as _;

use schemars::JsonSchema;
use scrubjay_store::ledger::records::collection::RecordCollection;
use scrubjay_store::ledger::records::{Record, RecordId, RecordRef, RecordState, citation};
use scrubjay_store::ledger::{LedgerConnection, LedgerError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::time::iso;

/// A workflow state, as agents write it.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum WorkflowState {
    Open,
    Later,
    Resolved,
    Discarded,
}

impl From<WorkflowState> for RecordState {
    fn from(state: WorkflowState) -> Self {
        match state {
            WorkflowState::Open => Self::Open,
            WorkflowState::Later => Self::Later,
            WorkflowState::Resolved => Self::Resolved,
            WorkflowState::Discarded => Self::Discarded,
        }
    }
}

/// Converts the states of a filter; none means all.
pub(super) fn states(given: Option<Vec<WorkflowState>>) -> Vec<RecordState> {
    given.unwrap_or_default().into_iter().map(RecordState::from).collect()
}

/// Converts ids to text.
pub(super) fn ids(ids: &[RecordId]) -> Vec<String> {
    ids.iter().map(RecordId::to_string).collect()
}

/// A record with all its fields.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct RecordView {
    pub(super) id: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) title: String,
    pub(super) summary: String,
    pub(super) body: String,
    /// OPEN, LATER, RESOLVED or DISCARDED.
    pub(super) state: &'static str,
    /// The parent; null for a root.
    // `Value`: with a type the schema would not allow null, and `schema.rs` would remove the member.
    #[schemars(with = "Value")]
    pub(super) parent_id: Option<String>,
    pub(super) created: String,
    pub(super) modified: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resolved_by: Option<String>,
    // `default`: what may be absent must not be required, because hosts check answers against the schema.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub(super) related: Vec<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schemars(default)]
    pub(super) metadata: Map<String, Value>,
    /// The code it cites.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub(super) citations: Vec<String>,
    /// The number of this version; every change makes a new one.
    pub(super) version: i64,
}

impl RecordView {
    pub(super) fn of(record: &Record) -> Self {
        let content = record.content.clone();
        Self {
            id: record.now.id.to_string(),
            kind: content.kind,
            title: content.title,
            summary: content.summary,
            body: content.body,
            state: content.state.name(),
            parent_id: record.now.parent.map(|id| id.to_string()),
            created: iso(record.now.created_ns),
            modified: iso(record.at_ns),
            resolved_by: content.resolved_by.map(|id| id.to_string()),
            related: ids(&content.related),
            metadata: content.metadata,
            citations: content.citations,
            version: record.version,
        }
    }

    /// Writes the record as text.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{} [{}] {}: {}\n", self.id, self.state, self.kind, self.title);
        if let Some(by) = &self.resolved_by {
            let _ = writeln!(text, "resolved by {by}");
        }
        if !self.related.is_empty() {
            let _ = writeln!(text, "related: {}", self.related.join(", "));
        }
        if !self.summary.is_empty() {
            let _ = writeln!(text, "{}", self.summary);
        }
        if !self.body.is_empty() {
            let _ = writeln!(text, "\n{}", self.body);
        }
        text
    }
}

/// A record without its body.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct RefView {
    pub(super) id: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) title: String,
    pub(super) summary: String,
    /// OPEN, LATER, RESOLVED or DISCARDED.
    pub(super) state: &'static str,
    /// The parent; null for a root.
    #[schemars(with = "Value")]
    pub(super) parent_id: Option<String>,
    /// How many children it has.
    pub(super) children_count: i64,
    /// How many of those are OPEN.
    pub(super) open_children_count: i64,
    /// Whether code that it cites has changed since it was cited.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    pub(super) suspect: bool,
}

impl RefView {
    pub(super) fn of(now: &RecordRef) -> Self {
        Self {
            id: now.id.to_string(),
            kind: now.kind.clone(),
            title: now.title.clone(),
            summary: now.summary.clone(),
            state: now.state.name(),
            parent_id: now.parent.map(|id| id.to_string()),
            children_count: now.children,
            open_children_count: now.open_children,
            suspect: false,
        }
    }

    /// Writes it as one line.
    pub(super) fn line(&self) -> String {
        let suspect = if self.suspect { " (suspect: cited code has changed)" } else { "" };
        let below = match self.children_count {
            0 => String::new(),
            n => format!(" ({n} below, {} open)", self.open_children_count),
        };
        format!(
            "{} [{}] {}: {}{below}{suspect} — {}",
            self.id, self.state, self.kind, self.title, self.summary
        )
    }
}

/// Makes the brief views of records, and finds out which of them are suspect.
pub(super) async fn refs(
    on: &mut impl LedgerConnection,
    collection: &RecordCollection,
    records: &[RecordRef],
) -> Result<Vec<RefView>, LedgerError> {
    let mut views = Vec::with_capacity(records.len());
    for now in records {
        let mut view = RefView::of(now);
        // Most records cite no code, and then no file is read.
        view.suspect = now.cited > 0 && !citation::suspects(on, collection, now.id).await?.is_empty();
        views.push(view);
    }
    Ok(views)
}

/// Writes a list of records under a heading; an empty text if there are none.
pub(super) fn section(heading: &str, records: &[RefView], total: i64) -> String {
    if records.is_empty() {
        return String::new();
    }
    let more = total - records.len() as i64;
    let mut text = format!("\n{heading} ({total})\n");
    for record in records {
        let _ = writeln!(text, "- {}", record.line());
    }
    if more > 0 {
        let _ = writeln!(text, "- … and {more} more");
    }
    text
}

/// Returns a page size within bounds.
pub(super) fn limit(given: Option<i64>, default: i64, max: i64) -> i64 {
    // Clamped, not refused: the agent still gets a page, and the answer says that there is more.
    given.unwrap_or(default).clamp(1, max)
}
