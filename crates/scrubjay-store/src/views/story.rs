//! The story: a session's events grouped by plan step. Many small edits of a file become one iteration, decisions are
//! quoted, and the closing summary comes last.
//!
//! It needs no model. With one, the recorder toolset adds a narrative to each chapter, made from [`Chapter::facts`].

mod draft;
mod text;

use std::collections::HashMap;

use scrubjay_core::shorten::shortened;
use scrubjay_core::units::counted;
use serde::Serialize;

use super::steps::StepTotals;
use super::{SessionView, budget, event_text};
use crate::ledger::event::{self, EventKind, EventPage};
use crate::ledger::plan::{self, PlanStep};
use crate::ledger::revision::{self, Revision};
use crate::ledger::session::Session;
use crate::ledger::{LedgerConnection, LedgerError};
use draft::ChapterDrafts;

/// The number of events that are read at once.
const BATCH: i64 = 5000;
/// The ways to shorten a story, tried in turn: the most items of each kind in a chapter, and the most characters of
/// each text.
const CUTS: [(usize, usize); 7] =
    [(200, 4000), (100, 1000), (50, 500), (20, 300), (10, 200), (3, 100), (1, 80)];

/// The story of a session.
#[derive(Clone, Debug, Serialize)]
pub struct Story {
    /// The session.
    pub session: SessionView,
    /// How many steps its plans have.
    pub steps: StepTotals,
    /// What was done, by plan step. Events without a step are chapters of their own, in the order of time.
    pub chapters: Vec<Chapter>,
    /// The agent's closing summary, if it gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closing_summary: Option<Quote>,
    /// The totals of all chapters.
    pub totals: StoryTotals,
    /// A note that parts were left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
}

/// What was done in one plan step.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Chapter {
    /// The step's number for people: `1`, or `2.1` in a second plan; `None` for events without a step.
    pub number: Option<String>,
    /// The step's index in its plan, from 0.
    pub index: Option<i64>,
    /// The number of its plan in the session, from 1.
    pub plan: Option<i64>,
    /// The step's text.
    pub step: Option<String>,
    /// Its status.
    pub status: Option<plan::StepStatus>,
    /// When its first event happened.
    pub began: Option<String>,
    /// The files changed, each with all its edits together.
    pub iterations: Vec<Iteration>,
    /// Decisions, milestones and notes, word for word.
    pub decisions: Vec<Quote>,
    /// Other events, a line each.
    pub also: Vec<StoryNote>,
    /// How many items were left out to stay within the limit of tokens.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// The totals.
    pub numbers: StoryTotals,
    /// A few sentences by a model, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub narrative: Option<String>,
}

/// All edits of one file in one step.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Iteration {
    /// The path in the workspace.
    pub path: String,
    /// created, edited, deleted, or found changed.
    pub what: &'static str,
    /// How many revisions it took.
    pub revisions: i64,
    /// How many lines were added.
    pub added: i64,
    /// How many were removed.
    pub removed: i64,
    /// Its first event.
    pub first_event: i64,
    /// Its last.
    pub last_event: i64,
}

/// Something that an agent noted about its work.
#[derive(Clone, Debug, Serialize)]
pub struct Quote {
    /// decision, milestone, note, or a label of the agent's.
    pub label: String,
    /// The note.
    pub text: String,
    /// The event.
    pub event_id: i64,
}

/// Another event.
#[derive(Clone, Debug, Serialize)]
pub struct StoryNote {
    /// Its description.
    pub text: String,
    /// The event.
    pub event_id: i64,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// How much was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoryTotals {
    /// How many events.
    pub events: i64,
    /// How many files.
    pub files: i64,
    /// How many lines were added.
    pub added: i64,
    /// How many were removed.
    pub removed: i64,
    /// How many file operations were refused.
    pub refused: i64,
    /// From the first event to the last, in milliseconds.
    pub duration_ms: i64,
}

/// Reads a session's story.
///
/// # Errors
/// The ledger failed.
pub async fn read(on: &mut impl LedgerConnection, session: &Session) -> Result<Story, LedgerError> {
    let steps = plan::steps(on, &session.id).await?;
    let totals = StepTotals::of(&steps);
    let steps: HashMap<i64, PlanStep> = steps.into_iter().map(|step| (step.id, step)).collect();
    let (mut drafts, mut closed, mut after) = (ChapterDrafts::default(), None, 0);
    loop {
        let events = event::page(on, EventPage { session: &session.id, after, limit: BATCH }).await?;
        // By the last id and not by an offset, so each batch costs the same.
        let Some(last) = events.last().map(|event| event.id) else { break };
        let revisions = revision::of_events(on, &session.id, after, last).await?;
        let revisions: HashMap<i64, Revision> = revisions.into_iter().map(|r| (r.event_id, r)).collect();
        for event in events {
            let revision = revisions.get(&event.id);
            if event.kind == EventKind::SessionClosed {
                // Only the last end is the closing summary. After earlier ones the session was resumed, so they are
                // events.
                let earlier = closed.replace(event);
                drafts.add(earlier.as_ref(), None);
            } else {
                drafts.add(Some(&event), revision);
            }
        }
        after = last;
    }
    let closing = closed.as_ref().filter(|_| session.ended_ns.is_some()).and_then(|event| {
        let text = event_text::closing_text(event)?.to_owned();
        Some(Quote { label: "closing summary".to_owned(), text, event_id: event.id })
    });
    match (&closed, &closing) {
        // The closing summary is shown by itself, so its event only counts in the totals.
        (Some(event), Some(_)) => drafts.all.note_time(event),
        (closed, _) => drafts.add(closed.as_ref(), None),
    }
    let ChapterDrafts { all, drafts, .. } = drafts;
    let chapters = drafts.into_iter().map(|(id, draft)| draft.finish(id.and_then(|id| steps.get(&id))));
    Ok(Story {
        session: SessionView::new(session),
        steps: totals,
        chapters: chapters.collect(),
        closing_summary: closing,
        totals: all.numbers(),
        cut: None,
    })
}

impl Chapter {
    fn shorten(&mut self, items_max: usize, chars_max: usize) {
        let had = self.iterations.len() + self.decisions.len() + self.also.len();
        self.iterations.truncate(items_max);
        self.decisions.truncate(items_max);
        self.also.truncate(items_max);
        self.left_out += had - self.iterations.len() - self.decisions.len() - self.also.len();
        for text in
            self.decisions.iter_mut().map(|q| &mut q.text).chain(self.also.iter_mut().map(|n| &mut n.text))
        {
            *text = shortened(text, chars_max).into_owned();
        }
    }
}

impl Story {
    /// Shortens the story until it has at most `tokens_max` tokens; what is left out is counted.
    #[must_use]
    pub fn shorten_to(mut self, tokens_max: usize) -> Self {
        let whole = budget::tokens_of(&self);
        for (items_max, chars_max) in CUTS {
            if budget::tokens_of(&self) <= tokens_max {
                return self;
            }
            self.chapters.iter_mut().for_each(|chapter| chapter.shorten(items_max, chars_max));
            if let Some(closing) = &mut self.closing_summary {
                closing.text = shortened(&closing.text, chars_max.max(1000)).into_owned();
            }
            self.cut = Some(format!(
                "cut; all of it has about {}: allow more max_tokens, or read the timeline page by page",
                counted(whole, "token")
            ));
        }
        // There are too many chapters. The last ones matter most, so the first are dropped.
        while budget::tokens_of(&self) > tokens_max && self.chapters.len() > 1 {
            self.chapters.drain(..self.chapters.len().div_ceil(4));
        }
        self
    }
}
