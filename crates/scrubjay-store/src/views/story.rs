//! The story: a session told by plan step. Many small edits of a file are one iteration; decisions are quoted.
//!
//! Needs no model. Whoever has one may add a narrative to each step; what it is made from is [`Chapter::facts`].

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use serde::Serialize;

use super::{SessionView, iso};
use crate::ledger::event::{self, Event, EventKind, Page};
use crate::ledger::plan::{self, Step};
use crate::ledger::revision::{self, Revision, Source, State};
use crate::ledger::session::Session;
use crate::ledger::{Conn, LedgerError};

/// How many events are read at once.
const BATCH: i64 = 5000;

/// A session, told.
#[derive(Clone, Debug, Serialize)]
pub struct Story {
    /// The session.
    pub session: SessionView,
    /// What was done, by plan step; what belongs to none comes where it happened.
    pub chapters: Vec<Chapter>,
    /// The numbers of all of it.
    pub totals: Numbers,
}

/// What was done in one plan step.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Chapter {
    /// The step's place in its plan; none for what belongs to no step.
    pub index: Option<i64>,
    /// Which of the session's plans it is of.
    pub plan: Option<i64>,
    /// What was to be done.
    pub step: Option<String>,
    /// How far it is.
    pub status: Option<plan::StepStatus>,
    /// When its first event happened.
    pub began: Option<String>,
    /// The files changed, each with all its edits together.
    pub iterations: Vec<Iteration>,
    /// Decisions, milestones and notes, word for word.
    pub decisions: Vec<Quote>,
    /// What else happened, a line each.
    pub also: Vec<String>,
    /// The numbers.
    pub numbers: Numbers,
    /// A few sentences by a model, where there is one.
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
    /// How many lines came.
    pub added: i64,
    /// How many went.
    pub removed: i64,
    /// Its first event.
    pub first_event: i64,
    /// Its last.
    pub last_event: i64,
}

/// Something an agent said of its work.
#[derive(Clone, Debug, Serialize)]
pub struct Quote {
    /// decision, milestone, note or the agent's own word.
    pub label: String,
    /// What it said.
    pub text: String,
    /// The event.
    pub event_id: i64,
}

/// How much was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// How many events.
    pub events: i64,
    /// How many files.
    pub files: i64,
    /// How many lines came.
    pub added: i64,
    /// How many went.
    pub removed: i64,
    /// How many file operations were refused.
    pub refused: i64,
    /// From the first event to the last, in milliseconds.
    pub duration_ms: i64,
}

/// A chapter while it is written.
#[derive(Default)]
struct Draft {
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
    let steps: HashMap<i64, Step> =
        plan::steps(on, &session.id).await?.into_iter().map(|step| (step.id, step)).collect();
    let mut order: Vec<Option<i64>> = Vec::new();
    let mut drafts: HashMap<Option<i64>, Draft> = HashMap::new();
    let mut after = 0;
    loop {
        let events = event::page(on, Page { session: &session.id, after, limit: BATCH }).await?;
        let Some(last) = events.last().map(|event| event.id) else { break };
        let revisions = revision::of_events(on, &session.id, after, last).await?;
        let revisions: HashMap<i64, Revision> = revisions.into_iter().map(|r| (r.event_id, r)).collect();
        for event in &events {
            let draft = drafts.entry(event.step).or_insert_with(|| {
                order.push(event.step);
                Draft::default()
            });
            draft.take(event, revisions.get(&event.id));
        }
        after = last;
    }
    let mut all = Draft::default();
    let chapters: Vec<Chapter> = order
        .into_iter()
        .filter_map(|id| Some((id, drafts.remove(&id)?)))
        .map(|(id, draft)| {
            all.add(&draft);
            draft.finish(id.and_then(|id| steps.get(&id)))
        })
        .collect();
    Ok(Story { session: SessionView::new(session), chapters, totals: all.numbers() })
}

impl Draft {
    fn take(&mut self, event: &Event, revision: Option<&Revision>) {
        self.first_ns.get_or_insert(event.at_ns);
        self.last_ns = self.last_ns.max(event.at_ns);
        self.chapter.numbers.events += 1;
        match event.kind {
            EventKind::Deliverable => {
                let text = |key: &str| event.details[key].as_str().unwrap_or_default().to_owned();
                let (label, text) = (text("title"), text("content"));
                self.chapter.decisions.push(Quote { label, text, event_id: event.id });
            }
            EventKind::FileRefused => {
                self.chapter.numbers.refused += 1;
                self.chapter.also.push(event.summary.clone());
            }
            EventKind::PlanStep | EventKind::PlanStepStatus | EventKind::SessionStarted => {}
            _ => match revision {
                Some(revision) if revision.state == State::Done => self.take_revision(event, revision),
                Some(revision) => {
                    self.chapter.also.push(format!("{} ({})", event.summary, revision.state.name()));
                }
                None => self.chapter.also.push(event.summary.clone()),
            },
        }
    }

    fn take_revision(&mut self, event: &Event, revision: &Revision) {
        let what = match (revision.source, &revision.before, &revision.after) {
            (Source::Observed, before, after) if before == after => return,
            (Source::Observed, ..) => "found changed",
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
        // A file created and then edited was created; whatever is deleted at last was deleted.
        if what == "deleted" || (iteration.what == "found changed" && what == "edited") {
            iteration.what = what;
        }
        iteration.revisions += 1;
        iteration.added += revision.added;
        iteration.removed += revision.removed;
        iteration.last_event = event.id;
    }

    fn add(&mut self, other: &Self) {
        self.first_ns = [self.first_ns, other.first_ns].into_iter().flatten().min();
        self.last_ns = self.last_ns.max(other.last_ns);
        self.chapter.numbers.events += other.chapter.numbers.events;
        self.chapter.numbers.refused += other.chapter.numbers.refused;
        for (path, iteration) in &other.files {
            let sum = self.files.entry(path.clone()).or_default();
            sum.added += iteration.added;
            sum.removed += iteration.removed;
        }
    }

    fn numbers(&self) -> Numbers {
        Numbers {
            files: self.files.len() as i64,
            added: self.files.values().map(|i| i.added).sum(),
            removed: self.files.values().map(|i| i.removed).sum(),
            duration_ms: self.first_ns.map_or(0, |first| (self.last_ns - first) / 1_000_000),
            ..self.chapter.numbers
        }
    }

    fn finish(self, step: Option<&Step>) -> Chapter {
        let numbers = self.numbers();
        let mut iterations: Vec<Iteration> = self.files.into_values().collect();
        iterations.sort_by_key(|iteration| iteration.first_event);
        Chapter {
            index: step.map(|s| s.index),
            plan: step.map(|s| s.plan),
            step: step.map(|s| s.text.clone()),
            status: step.map(|s| s.status),
            began: self.first_ns.map(iso),
            iterations,
            numbers,
            ..self.chapter
        }
    }
}

impl Chapter {
    /// Returns what happened, a line each: for people, and for a model to tell it.
    #[must_use]
    pub fn facts(&self) -> Vec<String> {
        let files = self.iterations.iter().map(|i| {
            let times = if i.revisions > 1 { format!(" in {} edits", i.revisions) } else { String::new() };
            format!("{} {} (+{} -{}){times}", i.what, i.path, i.added, i.removed)
        });
        let quotes = self.decisions.iter().map(|q| format!("{}: {}", q.label, q.text));
        files.chain(quotes).chain(self.also.iter().cloned()).collect()
    }
}

impl Story {
    /// Tells it in Markdown.
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
            "{} events, {} files, +{} -{} lines, {:.1} s. Session {} ({}).\n",
            n.events,
            n.files,
            n.added,
            n.removed,
            n.duration_ms as f64 / 1000.0,
            self.session.id,
            self.session.status
        );
        for chapter in self.chapters.iter().filter(|c| c.step.is_some() || !c.facts().is_empty()) {
            let heading = match (&chapter.step, chapter.index, chapter.status) {
                (Some(step), Some(index), Some(status)) => {
                    format!("{}. {step} ({})", index + 1, status.name())
                }
                _ => "Outside the plan".to_owned(),
            };
            let _ = writeln!(out, "## {heading}\n");
            if let Some(narrative) = &chapter.narrative {
                let _ = writeln!(out, "{narrative}\n");
            }
            for fact in chapter.facts() {
                let _ = writeln!(out, "- {}", fact.replace('\n', "\n  "));
            }
            out.push('\n');
        }
        out
    }
}
