//! Builds the chapters of a story, event by event.

use std::collections::{BTreeMap, HashMap};

use scrubjay_core::shorten::shortened;

use super::{Chapter, Iteration, Quote, StoryNote, StoryTotals};
use crate::ledger::event::{Event, EventKind};
use crate::ledger::plan::PlanStep;
use crate::ledger::revision::{Revision, RevisionSource, RevisionState};
use crate::views::{event_text, iso, steps};

/// A step's text is cut to this number of characters.
const STEP_CHARS_MAX: usize = 200;

/// A chapter to which events are added one by one.
#[derive(Default)]
pub(super) struct ChapterDraft {
    chapter: Chapter,
    files: BTreeMap<String, Iteration>,
    first_ns: Option<i64>,
    last_ns: i64,
}

/// The chapters that are being built, in the order of their first events, and a draft of all events for the totals.
#[derive(Default)]
pub(super) struct ChapterDrafts {
    pub(super) drafts: Vec<(Option<i64>, ChapterDraft)>,
    index_of_step: HashMap<i64, usize>,
    pub(super) all: ChapterDraft,
}

impl ChapterDrafts {
    pub(super) fn add(&mut self, event: Option<&Event>, revision: Option<&Revision>) {
        let Some(event) = event else { return };
        self.all.add_event(event, revision);
        let index = match event.step {
            Some(step) => *self.index_of_step.entry(step).or_insert_with(|| {
                self.drafts.push((Some(step), ChapterDraft::default()));
                self.drafts.len() - 1
            }),
            // Events without a step form a chapter where they happened: before the plan, between plans, after them.
            None => {
                if self.drafts.last().is_none_or(|(step, _)| step.is_some()) {
                    self.drafts.push((None, ChapterDraft::default()));
                }
                self.drafts.len() - 1
            }
        };
        self.drafts[index].1.add_event(event, revision);
    }
}

impl ChapterDraft {
    pub(super) fn note_time(&mut self, event: &Event) {
        self.first_ns.get_or_insert(event.at_ns);
        self.last_ns = self.last_ns.max(event.at_ns);
        self.chapter.numbers.events += 1;
    }

    fn note(&mut self, event: &Event, revision: Option<&Revision>) {
        self.chapter
            .also
            .push(StoryNote { text: event_text::event_text(event, revision), event_id: event.id });
    }

    fn add_event(&mut self, event: &Event, revision: Option<&Revision>) {
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
                Some(revision) if revision.state == RevisionState::Done => self.add_revision(event, revision),
                _ => self.note(event, revision),
            },
        }
    }

    fn add_revision(&mut self, event: &Event, revision: &Revision) {
        let what = match (revision.source, &revision.before, &revision.after) {
            // A file that was only seen for the first time did not change.
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

    pub(super) fn numbers(&self) -> StoryTotals {
        StoryTotals {
            files: self.files.len() as i64,
            added: self.files.values().map(|i| i.added).sum(),
            removed: self.files.values().map(|i| i.removed).sum(),
            duration_ms: self.first_ns.map_or(0, |first| (self.last_ns - first) / 1_000_000),
            ..self.chapter.numbers
        }
    }

    pub(super) fn finish(self, step: Option<&PlanStep>) -> Chapter {
        let numbers = self.numbers();
        let mut iterations: Vec<Iteration> = self.files.into_values().collect();
        iterations.sort_by_key(|iteration| iteration.first_event);
        Chapter {
            number: step.map(|s| steps::number(s.plan, s.index)),
            index: step.map(|s| s.index),
            plan: step.map(|s| s.plan),
            step: step.map(|s| shortened(&s.text, STEP_CHARS_MAX).into_owned()),
            status: step.map(|s| s.status),
            began: self.first_ns.map(iso),
            iterations,
            numbers,
            ..self.chapter
        }
    }
}
