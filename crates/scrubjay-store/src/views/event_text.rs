//! Describes an event in one sentence for people.

use scrubjay_core::shorten::shortened;

use crate::ledger::event::{Event, EventKind};
use crate::ledger::revision::{Revision, RevisionState};

/// The longest description: one line in a list.
const CHARS_MAX: usize = 400;
/// The summary of a session's end if its agent gave none.
const ENDED: &str = "session ended";

/// Describes an event; `revision` is that of its file change, if it made one.
pub(super) fn event_text(event: &Event, revision: Option<&Revision>) -> String {
    let summary = event.summary.as_str();
    let text = match event.kind {
        EventKind::FileCreate | EventKind::FileEdit | EventKind::FileDelete => changed(event, revision),
        EventKind::SessionStarted => labelled("session started", summary),
        EventKind::SessionNamed => labelled("session named", summary),
        EventKind::SessionSaved => labelled("session saved", summary),
        EventKind::SessionClosed => labelled(ENDED, summary),
        EventKind::SessionResumed | EventKind::SessionBranched => format!("session {summary}"),
        EventKind::PlanStep => labelled("planned", summary),
        EventKind::Progress => labelled("progress", summary),
        _ => summary.to_owned(),
    };
    shortened(&text, CHARS_MAX).into_owned()
}

/// Returns the agent's closing summary from the event that ended a session, if it gave one.
pub(super) fn closing_text(event: &Event) -> Option<&str> {
    let is_of_agent = event.kind == EventKind::SessionClosed && event.details["deserted"] != true;
    Some(event.summary.as_str()).filter(|summary| is_of_agent && *summary != ENDED)
}

fn labelled(label: &str, text: &str) -> String {
    if text == label || text.is_empty() { label.to_owned() } else { format!("{label}: {text}") }
}

/// Describes a file change: "edited …" if it was made, else "edit … (not done)".
fn changed(event: &Event, revision: Option<&Revision>) -> String {
    let details = &event.details;
    let path = event.subject.as_deref().or(details["path"].as_str()).unwrap_or("a file");
    let (done, meant) = match event.kind {
        EventKind::FileCreate => ("created", "create"),
        EventKind::FileDelete => ("deleted", "delete"),
        _ => ("edited", "edit"),
    };
    let mut text = match revision.map(|revision| revision.state) {
        None | Some(RevisionState::Done) => format!("{done} {path}"),
        Some(RevisionState::Pending) => format!("{meant} {path} (outcome not known yet)"),
        Some(RevisionState::Failed) => format!("{meant} {path} (not done)"),
        Some(RevisionState::Changed) => format!("{meant} {path} (changed by someone else)"),
    };
    if details["reported"] == true {
        text.push_str(" (reported)");
    }
    if details["unchanged"] == true {
        text.push_str(" (unchanged)");
    }
    if let Some(event) = details["rewinds_to"].as_i64() {
        text.push_str(&format!(" (back to event {event})"));
    }
    text
}
