//! The timeline: all events of a session in order.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::Value;

use super::{SessionView, iso};
use crate::ledger::event::{self, Event, Page};
use crate::ledger::revision::{self, Revision};
use crate::ledger::session::Session;
use crate::ledger::{Conn, LedgerError};

/// A page of a timeline.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    /// The session.
    pub session: SessionView,
    /// Its events.
    pub events: Vec<EventView>,
    /// The event after which the next page begins; none where this is the last.
    pub next_after: Option<i64>,
    /// How many events there are in all.
    pub total: i64,
}

/// What is shown of an event.
#[derive(Clone, Debug, Serialize)]
pub struct EventView {
    /// Its number.
    pub id: i64,
    /// When it happened.
    pub at: String,
    /// What kind.
    #[serde(rename = "type")]
    pub kind: event::EventKind,
    /// The plan step it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    /// What it is about: a path, the id of a record or an entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// One line for people.
    pub summary: String,
    /// For a file change: done, failed, changed by someone else, or pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<revision::State>,
    /// For a file change: enforced, reported or observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<revision::Source>,
    /// The rest.
    pub details: Value,
    /// The tape on which the call that caused it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tape: Option<String>,
    /// The entry on that tape.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<i64>,
}

impl EventView {
    fn new(event: Event, revision: Option<&Revision>) -> Self {
        Self {
            id: event.id,
            at: iso(event.at_ns),
            kind: event.kind,
            step: event.step,
            subject: event.subject,
            summary: event.summary,
            outcome: revision.map(|r| r.state),
            source: revision.map(|r| r.source),
            details: event.details,
            tape: event.tape,
            entry: event.entry,
        }
    }
}

/// Reads a page of a session's timeline.
///
/// # Errors
/// The ledger failed.
pub async fn read(
    on: &mut impl Conn,
    session: &Session,
    after: i64,
    limit: i64,
) -> Result<Timeline, LedgerError> {
    let page = Page { session: &session.id, after, limit: limit.clamp(1, super::PAGE_MAX) };
    let events = event::page(on, page).await?;
    let total = event::count(on, &session.id).await?;
    let revisions: HashMap<i64, Revision> = match events.last() {
        Some(last) => revision::of_events(on, &session.id, after, last.id).await?,
        None => Vec::new(),
    }
    .into_iter()
    .map(|revision| (revision.event_id, revision))
    .collect();
    let next_after = (events.len() as i64 == page.limit).then(|| events.last().map(|e| e.id)).flatten();
    let events = events.into_iter().map(|event| {
        let revision = revisions.get(&event.id);
        EventView::new(event, revision)
    });
    Ok(Timeline { session: SessionView::new(session), events: events.collect(), next_after, total })
}
