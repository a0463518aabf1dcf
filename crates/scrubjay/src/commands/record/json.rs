//! Converts records and their versions to JSON.

use scrubjay_core::export::iso_time;
use scrubjay_store::ledger::records::history::Version;
use scrubjay_store::ledger::records::{Record, RecordContent, RecordRef};
use serde_json::{Value, json};

/// Formats a time.
pub(super) fn time(at_ns: i64) -> String {
    iso_time(u64::try_from(at_ns).unwrap_or(0))
}

/// Returns a record without its body.
pub(super) fn brief(now: &RecordRef) -> Value {
    json!({
        "id": now.id, "type": now.kind, "title": now.title, "summary": now.summary, "state": now.state,
        "parent_id": now.parent, "children_count": now.children, "open_children_count": now.open_children,
        "depth": now.depth, "version": now.version, "tick": now.tick, "created": time(now.created_ns),
        "modified": time(now.modified_ns),
    })
}

/// Returns the content of a version.
pub(super) fn content(content: &RecordContent) -> Value {
    json!({
        "type": content.kind, "title": content.title, "summary": content.summary, "body": content.body,
        "state": content.state, "resolved_by": content.resolved_by, "related": content.related,
        "metadata": content.metadata, "citations": content.citations,
    })
}

/// Returns a record with all its fields.
pub(super) fn whole(record: &Record) -> Value {
    let mut value = content(&record.content);
    value["id"] = json!(record.now.id);
    value["parent_id"] = json!(record.now.parent);
    value["version"] = json!(record.version);
    value["created"] = json!(time(record.now.created_ns));
    value["modified"] = json!(time(record.at_ns));
    value
}

/// Returns a version, with when, how and by which session it was made.
pub(super) fn version(version: &Version) -> Value {
    json!({
        "version": version.version, "tick": version.tick, "timestamp": time(version.at_ns),
        "session_id": version.session_id, "change_type": version.change.name(), "reason": version.reason,
        "content": content(&version.content),
    })
}
