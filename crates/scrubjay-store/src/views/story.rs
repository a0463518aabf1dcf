//! The story: a session's events grouped by plan step. Many small edits of a file become one iteration, decisions are
//! quoted, and the closing summary comes last.
//!
//! Needs no model. With one, the recorder toolset adds a narrative to each step, made from [`Chapter::facts`].

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use scrubjay_core::units::counted;
use serde::Serialize;

use super::steps::{self, StepTotals};
use super::{SessionView, budget, event_text, iso};
use crate::ledger::event::{self, Event, EventKind, EventPage};
use crate::ledger::plan::{self, PlanStep};
use crate::ledger::revision::{self, Revision, RevisionSource, RevisionState};
use crate::ledger::session::Session;
use crate::ledger::{Conn, LedgerError};

/// How many events are read at once.
const BATCH: i64 = 5000;
/// To how many characters a step's text is cut.
const STEP_CHARS_MAX: usize = 200;
/// How a story is shortened, tried in turn: how many items of each kind a chapter keeps, and how many characters of each
/// quote.
const CUTS: [(usize, usize); 7] =
    [(200, 4000), (100, 1000), (50, 500), (20, 300), (10, 200), (3, 100), (1, 80)];

/// The story of a session.
#[derive(Clone, Debug, Serialize)]
pub struct Story {
    /// The session.
    pub session: SessionView,
    /// How many steps its plans have.
    pub steps: StepTotals,
    /// What was done, by plan step; events without a step come where they happened.
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
    /// The step's number for people: `1`, or `2.1` in a second plan; none for events without a step.
    pub number: Option<String>,
    /// The step's index in its plan, from 0.
    pub index: Option<i64>,
    /// Which of the session's plans it is of.
    pub plan: Option<i64>,
    /// What was to be done.
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
    /// How many items were left out for lack of room.
    #[serde(skip_serializing_if = "is_none")]
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

fn is_none(count: &usize) -> bool {
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

/// A chapter that is being built.
#[derive(Default)]
struct ChapterDraft {
    chapter: Chapter,
    files: BTreeMap<String, Iteration>,
    first_ns: Option<i64>,
    last_ns: i64,
}

/// Reads a session's story.
///
/// # Errors
/// The ledger failed.
pub async fn read(on: &mut impl Conn, session: &Session) -> Result<Story, LedgerError> {
    let steps = plan::steps(on, &session.id).await?;
    let totals = StepTotals::of(&steps);
    let steps: HashMap<i64, PlanStep> = steps.into_iter().map(|step| (step.id, step)).collect();
    let (mut drafts, mut closed, mut after) = (ChapterDrafts::default(), None, 0);
    loop {
        let events = event::page(on, EventPage { session: &session.id, after, limit: BATCH }).await?;
        let Some(last) = events.last().map(|event| event.id) else { break };
        let revisions = revision::of_events(on, &session.id, after, last).await?;
        let revisions: HashMap<i64, Revision> = revisions.into_iter().map(|r| (r.event_id, r)).collect();
        for event in events {
            let revision = revisions.get(&event.id);
            if event.kind == EventKind::SessionClosed {
                // Only the last end counts: after earlier ones the session was resumed.
                let earlier = closed.replace(event);
                drafts.take_all(earlier.as_ref(), None);
            } else {
                drafts.take_all(Some(&event), revision);
            }
        }
        after = last;
    }
    let closing = closed.as_ref().filter(|_| session.ended_ns.is_some()).and_then(|event| {
        let text = event_text::closing_text(event)?.to_owned();
        Some(Quote { label: "closing summary".to_owned(), text, event_id: event.id })
    });
    match (&closed, &closing) {
        (Some(event), Some(_)) => drafts.all.note_time(event),
        (closed, _) => drafts.take_all(closed.as_ref(), None),
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

/// The chapters that are being built, in the order of their first events, and all of them together.
#[derive(Default)]
struct ChapterDrafts {
    drafts: Vec<(Option<i64>, ChapterDraft)>,
    places: HashMap<i64, usize>,
    all: ChapterDraft,
}

impl ChapterDrafts {
    fn take_all(&mut self, event: Option<&Event>, revision: Option<&Revision>) {
        let Some(event) = event else { return };
        self.all.take(event, revision);
        let place = match event.step {
            Some(step) => *self.places.entry(step).or_insert_with(|| {
                self.drafts.push((Some(step), ChapterDraft::default()));
                self.drafts.len() - 1
            }),
            // Events without a step come where they happened: before the plan, between plans, after them.
            None => {
                if self.drafts.last().is_none_or(|(step, _)| step.is_some()) {
                    self.drafts.push((None, ChapterDraft::default()));
                }
                self.drafts.len() - 1
            }
        };
        self.drafts[place].1.take(event, revision);
    }
}

impl ChapterDraft {
    fn note_time(&mut self, event: &Event) {
        self.first_ns.get_or_insert(event.at_ns);
        self.last_ns = self.last_ns.max(event.at_ns);
        self.chapter.numbers.events += 1;
    }

    fn note(&mut self, event: &Event, revision: Option<&Revision>) {
        self.chapter
            .also
            .push(StoryNote { text: event_text::event_text(event, revision), event_id: event.id });
    }

    fn take(&mut self, event: &Event, revision: Option<&Revision>) {
        self.note_time(event);
        match event.kind {
            EventKind::Deliverable => {
                let text = |key: &str| event.details[key].as_str().unwrap_or_default().to_owned();
                let (label, text) = (text("title"), text("content"));
                self.chapter.decisions.push(Quote { label, text, event_id: event.id });
            }
            EventKind::FileRefused => {
                self.chapter.numbers.refused += 1;
                self.note(event, None);
            }
            EventKind::PlanStep
            | EventKind::PlanStepStatus
            | EventKind::SessionStarted
            | EventKind::SessionNamed => {}
            _ => match revision {
                Some(revision) if revision.state == RevisionState::Done => {
                    self.take_revision(event, revision)
                }
                _ => self.note(event, revision),
            },
        }
    }

    fn take_revision(&mut self, event: &Event, revision: &Revision) {
        let what = match (revision.source, &revision.before, &revision.after) {
            (RevisionSource::Observed, before, after) if before == after => return,
            (RevisionSource::Observed, ..) => "found changed",
            (_, None, _) => "created",
            (_, _, None) => "deleted",
            _ => "edited",
        };
        let iteration = self.files.entry(revision.path.clone()).or_insert_with(|| Iteration {
            path: revision.path.clone(),
            what,
            first_event: event.id,
            ..Iteration::default()
        });
        // A file that was created and then edited counts as created; one that was deleted last counts as deleted.
        if what == "deleted" || (iteration.what == "found changed" && what == "edited") {
            iteration.what = what;
        }
        iteration.revisions += 1;
        iteration.added += revision.added;
        iteration.removed += revision.removed;
        iteration.last_event = event.id;
    }

    fn numbers(&self) -> StoryTotals {
        StoryTotals {
            files: self.files.len() as i64,
            added: self.files.values().map(|i| i.added).sum(),
            removed: self.files.values().map(|i| i.removed).sum(),
            duration_ms: self.first_ns.map_or(0, |first| (self.last_ns - first) / 1_000_000),
            ..self.chapter.numbers
        }
    }

    fn finish(self, step: Option<&PlanStep>) -> Chapter {
        let numbers = self.numbers();
        let mut iterations: Vec<Iteration> = self.files.into_values().collect();
        iterations.sort_by_key(|iteration| iteration.first_event);
        Chapter {
            number: step.map(|s| steps::number(s.plan, s.index)),
            index: step.map(|s| s.index),
            plan: step.map(|s| s.plan),
            step: step.map(|s| budget::cut(&s.text, STEP_CHARS_MAX).into_owned()),
            status: step.map(|s| s.status),
            began: self.first_ns.map(iso),
            iterations,
            numbers,
            ..self.chapter
        }
    }
}

impl Chapter {
    /// Returns what happened in order, a line each: for people, and as input of the narrative.
    #[must_use]
    pub fn facts(&self) -> Vec<String> {
        let files = self.iterations.iter().map(|i| {
            let times =
                if i.revisions > 1 { format!(" in {}", counted(i.revisions, "edit")) } else { String::new() };
            (i.first_event, format!("{} {} (+{} -{}){times}", i.what, i.path, i.added, i.removed))
        });
        let quotes = self.decisions.iter().map(|q| (q.event_id, format!("{}: {}", q.label, q.text)));
        let also = self.also.iter().map(|note| (note.event_id, note.text.clone()));
        let mut facts: Vec<(i64, String)> = files.chain(quotes).chain(also).collect();
        facts.sort_by_key(|(event, _)| *event);
        facts.into_iter().map(|(_, fact)| fact).collect()
    }

    fn shorten(&mut self, items_max: usize, chars_max: usize) {
        let had = self.iterations.len() + self.decisions.len() + self.also.len();
        self.iterations.truncate(items_max);
        self.decisions.truncate(items_max);
        self.also.truncate(items_max);
        self.left_out += had - self.iterations.len() - self.decisions.len() - self.also.len();
        for text in
            self.decisions.iter_mut().map(|q| &mut q.text).chain(self.also.iter_mut().map(|n| &mut n.text))
        {
            *text = budget::cut(text, chars_max).into_owned();
        }
    }
}

impl Story {
    /// Shortens the story until it fits; what is left out is counted.
    #[must_use]
    pub fn fit(mut self, tokens_max: usize) -> Self {
        let whole = budget::tokens_of(&self);
        for (items_max, chars_max) in CUTS {
            if budget::tokens_of(&self) <= tokens_max {
                return self;
            }
            self.chapters.iter_mut().for_each(|chapter| chapter.shorten(items_max, chars_max));
            if let Some(closing) = &mut self.closing_summary {
                closing.text = budget::cut(&closing.text, chars_max.max(1000)).into_owned();
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

    /// Writes the story as Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        let title = self.session.title.as_deref().unwrap_or("Untitled session");
        // Writing to a string does not fail.
        let _ = writeln!(out, "# {title}\n");
        if let Some(message) = &self.session.user_message {
            let _ = writeln!(out, "> {}\n", message.replace('\n', "\n> "));
        }
        let n = &self.totals;
        let _ = writeln!(
            out,
            "{}, {}, {}, +{} -{} lines, {:.1} s. Session {} ({}).\n",
            self.steps,
            counted(n.events, "event"),
            counted(n.files, "file"),
            n.added,
            n.removed,
            n.duration_ms as f64 / 1000.0,
            self.session.id,
            self.session.status
        );
        for chapter in self.chapters.iter().filter(|c| c.step.is_some() || !c.facts().is_empty()) {
            let heading = match (&chapter.step, &chapter.number, chapter.status) {
                (Some(step), Some(number), Some(status)) => format!("{number}. {step} ({})", status.name()),
                _ => "Outside the plan".to_owned(),
            };
            let _ = writeln!(out, "## {heading}\n");
            if let Some(narrative) = &chapter.narrative {
                let _ = writeln!(out, "{narrative}\n");
            }
            for fact in chapter.facts() {
                let _ = writeln!(out, "- {}", fact.replace('\n', "\n  "));
            }
            if chapter.left_out > 0 {
                let _ = writeln!(out, "- … and {} more", chapter.left_out);
            }
            out.push('\n');
        }
        if let Some(closing) = &self.closing_summary {
            let _ = writeln!(out, "## Closing summary\n\n{}\n", closing.text);
        }
        if let Some(cut) = &self.cut {
            let _ = writeln!(out, "({cut})");
        }
        out
    }
}
