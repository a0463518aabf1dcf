//! Timelines: all events of a session in order, each with its plan step. A file change has the URIs of the contents
//! before and after.

use std::collections::HashMap;

use scrubjay_core::units::counted;
use serde::Serialize;
use serde_json::Value;

use super::address::{self, Side};
use super::budget::{self, Window};
use super::steps::{StepTotals, StepView};
use super::{SessionView, event_text, iso};
use crate::ledger::blob::{Hash, hex};
use crate::ledger::event::{self, Event, EventPage};
use crate::ledger::plan::{self, PlanStep};
use crate::ledger::revision::{self, Revision};
use crate::ledger::session::Session;
use crate::ledger::{LedgerConnection, LedgerError};

/// Details of a file change that are left out because `EventView::change` shows them.
const SHOWN_AS_CHANGE: [&str; 5] = ["before", "after", "added", "removed", "revision"];
/// The texts of an event that is too long are cut to these numbers of characters, tried in turn.
const CUTS: [usize; 5] = [10_000, 2_000, 500, 100, 20];

/// A page of a timeline.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    /// The session.
    pub session: SessionView,
    /// How many steps its plans have.
    pub steps: StepTotals,
    /// Its events.
    pub events: Vec<EventView>,
    /// The event after which the next page begins; `None` if this is the last.
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
    /// Its kind.
    #[serde(rename = "type")]
    pub kind: event::EventKind,
    /// The plan step it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepView>,
    /// What it is about: a path, the id of a record or an entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// One line for people.
    pub summary: String,
    /// For a file change: done, failed, changed by someone else, or pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<revision::RevisionState>,
    /// For a file change: enforced, reported or observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<revision::RevisionSource>,
    /// For a file change: the revision, and the URIs of its contents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<ChangeView>,
    /// Further facts, by kind.
    pub details: Value,
    /// The tape of the call that caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tape: Option<String>,
    /// The entry of that call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<i64>,
    /// A note that texts were cut, and how to read all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
}

/// What an event did to a file's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangeView {
    /// The revision; for an unchanged file, the revision that has its content.
    pub revision: i64,
    /// How many lines were added.
    pub added: i64,
    /// How many were removed.
    pub removed: i64,
    /// The size of the content after, in bytes.
    pub size: i64,
    /// The content before; `None` if there was no file.
    pub before: Option<ContentRef>,
    /// The content after; `None` if the file was deleted.
    pub after: Option<ContentRef>,
}

/// The hash and the URI of a content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContentRef {
    /// The BLAKE3 hash, in hex.
    pub hash: String,
    /// The URI of the resource.
    pub uri: String,
}

impl ContentRef {
    pub(super) fn new(session: &str, revision: &Revision, hash: Option<&Hash>, side: Side) -> Option<Self> {
        let uri = || address::content(session, &revision.path, revision.id, side);
        hash.map(|hash| Self { hash: hex(hash), uri: uri() })
    }
}

impl ChangeView {
    fn new(session: &str, revision: &Revision) -> Self {
        Self {
            revision: revision.id,
            added: revision.added,
            removed: revision.removed,
            size: revision.size,
            before: ContentRef::new(session, revision, revision.before.as_ref(), Side::Before),
            after: ContentRef::new(session, revision, revision.after.as_ref(), Side::After),
        }
    }

    /// Shows the revision of an unchanged file.
    fn unchanged(session: &str, revision: &Revision) -> Self {
        let content = ContentRef::new(session, revision, revision.after.as_ref(), Side::After);
        Self { added: 0, removed: 0, before: content.clone(), after: content, ..Self::new(session, revision) }
    }
}

impl EventView {
    fn new(
        event: Event,
        step: Option<&PlanStep>,
        revision: Option<&Revision>,
        same: Option<&Revision>,
    ) -> Self {
        let session = event.session_id.as_str();
        let change = match (revision, same) {
            (Some(revision), _) => Some(ChangeView::new(session, revision)),
            (None, same) => same.map(|revision| ChangeView::unchanged(session, revision)),
        };
        let summary = event_text::event_text(&event, revision);
        let mut details = event.details;
        if let (true, Some(details)) = (change.is_some(), details.as_object_mut()) {
            details.retain(|key, _| !SHOWN_AS_CHANGE.contains(&key.as_str()));
        }
        Self {
            id: event.id,
            at: iso(event.at_ns),
            kind: event.kind,
            step: step.map(StepView::new),
            subject: event.subject,
            summary,
            outcome: revision.map(|r| r.state),
            source: revision.map(|r| r.source),
            change,
            details,
            tape: event.tape,
            entry: event.entry,
            cut: None,
        }
    }

    /// Returns how many lines were added and removed, if any were.
    #[must_use]
    pub fn lines(&self) -> Option<String> {
        let change = self.change.as_ref().filter(|change| change.added + change.removed > 0)?;
        Some(format!("+{} -{}", change.added, change.removed))
    }

    /// Returns it as one line for people.
    #[must_use]
    pub fn line(&self) -> String {
        let step = self.step.as_ref().map(|step| format!(" [{step}]")).unwrap_or_default();
        let lines = self.lines().map(|lines| format!(" ({lines})")).unwrap_or_default();
        format!("{} {}{step} {}{lines}", self.id, self.at, self.summary)
    }

    /// Cuts texts until the view has at most `tokens_max` tokens, or cannot be cut further.
    fn shorten_to(&mut self, tokens_max: usize) {
        let whole = budget::tokens_of(self);
        if whole <= tokens_max {
            return;
        }
        for chars_max in CUTS {
            if budget::cut_texts(&mut self.details, chars_max) {
                self.cut = Some(format!(
                    "texts are cut; all of it has about {}: read it with after {}, limit 1 and max_tokens {}",
                    counted(whole, "token"),
                    self.id - 1,
                    // More, because a page also has the session and its totals.
                    whole + 1000
                ));
            }
            if budget::tokens_of(self) <= tokens_max {
                return;
            }
        }
    }
}

/// Reads a page of a session's timeline.
///
/// # Errors
/// The ledger failed.
pub async fn read(
    on: &mut impl LedgerConnection,
    session: &Session,
    window: Window,
) -> Result<Timeline, LedgerError> {
    let page = EventPage { session: &session.id, after: window.after, limit: window.items_read() };
    let mut events = event::page(on, page).await?;
    let more = events.len() as i64 > window.items_shown();
    events.truncate(usize::try_from(window.items_shown()).unwrap_or(0));
    let total = event::count(on, &session.id).await?;
    // All revisions of the page with one query, and not one query for each event.
    let revisions: HashMap<i64, Revision> = match events.last() {
        Some(last) => revision::of_events(on, &session.id, window.after, last.id).await?,
        None => Vec::new(),
    }
    .into_iter()
    .map(|revision| (revision.event_id, revision))
    .collect();
    let steps = plan::steps(on, &session.id).await?;
    let (session, totals) = (SessionView::new(session), StepTotals::of(&steps));
    let used = budget::tokens_of(&session) + budget::tokens_of(&totals);
    let mut views = Vec::with_capacity(events.len());
    for event in events {
        let revision = revisions.get(&event.id);
        // A change that changed nothing has no revision of its own; its event names the one with that content.
        let same = match (revision, event.details["revision"].as_i64()) {
            (None, Some(id)) if event.details["unchanged"] == true => revision::get(on, id).await?,
            _ => None,
        };
        let step = event.step.and_then(|id| steps.iter().find(|step| step.id == id));
        let mut view = EventView::new(event, step, revision, same.as_ref());
        if let Some(tokens_max) = window.tokens_max {
            view.shorten_to(tokens_max.saturating_sub(used));
        }
        views.push(view);
    }
    let (events, all) = budget::take_within(views, window.tokens_max, used, budget::tokens_of);
    let next_after = if more || !all { events.last().map(|event| event.id) } else { None };
    Ok(Timeline { session, steps: totals, events, next_after, total })
}
