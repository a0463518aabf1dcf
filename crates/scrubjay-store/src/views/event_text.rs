//! An event as one sentence for people: what was done, said once.

use super::budget::cut;
use crate::ledger::event::{Event, EventKind};
use crate::ledger::revision::{Revision, RevisionState};

/// How much of an event is said.
const CHARS_MAX: usize = 400;
/// What the end of a session is called where nobody said what came of it.
const ENDED: &str = "session ended";

/// Says what happened.
pub(super) fn event_text(event: &Event, revision: Option<&Revision>) -> String {
    let summary = event.summary.as_str();
    let told = match event.kind {
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
    cut(&told, CHARS_MAX).into_owned()
}

/// Returns what came of a session, where its end says so.
pub(super) fn closing_text(event: &Event) -> Option<&str> {
    let is_said = event.kind == EventKind::SessionClosed && event.details["deserted"] != true;
    Some(event.summary.as_str()).filter(|summary| is_said && *summary != ENDED)
}

fn labelled(label: &str, text: &str) -> String {
    if text == label || text.is_empty() { label.to_owned() } else { format!("{label}: {text}") }
}

/// Says of a change whether it was made; one that was not is named as what was meant.
fn changed(event: &Event, revision: Option<&Revision>) -> String {
    let details = &event.details;
    let path = event.subject.as_deref().or(details["path"].as_str()).unwrap_or("a file");
    let (done, meant) = match event.kind {
        EventKind::FileCreate => ("created", "create"),
        EventKind::FileDelete => ("deleted", "delete"),
        _ => ("edited", "edit"),
    };
    let mut told = match revision.map(|revision| revision.state) {
        None | Some(RevisionState::Done) => format!("{done} {path}"),
        Some(RevisionState::Pending) => format!("{meant} {path} (outcome not known yet)"),
        Some(RevisionState::Failed) => format!("{meant} {path} (not done)"),
        Some(RevisionState::Changed) => format!("{meant} {path} (changed by someone else)"),
    };
    if details["reported"] == true {
        told.push_str(" (reported)");
    }
    if details["unchanged"] == true {
        told.push_str(" (unchanged)");
    }
    if let Some(event) = details["rewinds_to"].as_i64() {
        told.push_str(&format!(" (back to event {event})"));
    }
    told
}
