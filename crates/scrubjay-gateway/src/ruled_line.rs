//! A line that was judged: what goes on, what goes back, and what goes on tape of both.

use std::time::Duration;

use scrubjay_core::entry::{Direction, EntryKind, Terminator};
use scrubjay_core::message::Parts;
use scrubjay_core::rules::{Judgement, Onward};
use scrubjay_tape::recording::Item;

use crate::backend::Answer;

/// A line with what rules made of it.
pub(crate) struct RuledLine {
    /// As it came.
    pub(crate) original: String,
    pub(crate) judgement: Judgement,
}

impl RuledLine {
    /// Returns the line as it goes on; empty where nothing does.
    pub(crate) fn text(&self) -> std::borrow::Cow<'_, str> {
        match &self.judgement.onward {
            Onward::Other(other) => String::from_utf8_lossy(other),
            Onward::Same => self.original.as_str().into(),
            Onward::Nothing => "".into(),
        }
    }

    /// Returns what the rules answer in the backend's place, where they do.
    pub(crate) fn answer(&self) -> Option<Answer> {
        answer_in(&String::from_utf8_lossy(self.judgement.back.as_deref()?))
    }

    /// Waits for as long as rules say.
    pub(crate) async fn hold(&self) {
        if self.judgement.delay > Duration::ZERO {
            tokio::time::sleep(self.judgement.delay).await;
        }
    }
}

/// Returns the answer that a line is.
pub(crate) fn answer_in(line: &str) -> Option<Answer> {
    let parts = Parts::of(line).ok()?;
    let (result, error) = (parts.result.map(|r| r.get().to_owned()), parts.error.map(|e| e.get().to_owned()));
    error.map(Answer::Error).or(result.map(Answer::Result))
}

/// Returns which of the entries of a line is the message as it goes on.
pub(crate) fn onward_index(judgement: &Judgement) -> usize {
    usize::from(matches!(judgement.onward, Onward::Other(_)))
}

/// Returns which of the entries of a line is what goes back, where something does.
pub(crate) fn back_index(judgement: &Judgement) -> usize {
    onward_index(judgement) + 1
}

/// Returns the entries of a line, in the order in which they are recorded together.
pub(crate) fn items<'a>(
    direction: Direction,
    terminator: Terminator,
    line: &'a [u8],
    judgement: &'a Judgement,
) -> Vec<Item<'a>> {
    let marked = |direction, terminator, payload| Item {
        rule_marks: judgement.marks.as_marks(),
        ..Item::new(EntryKind::Message, direction, terminator, payload)
    };
    let mut items = Vec::with_capacity(3);
    match &judgement.onward {
        Onward::Other(other) => {
            items.push(Item::new(EntryKind::Original, direction, terminator, line));
            items.push(marked(direction, terminator, other));
        }
        Onward::Same | Onward::Nothing => items.push(marked(direction, terminator, line)),
    }
    items.extend(judgement.back.as_ref().map(|back| marked(direction.reversed(), Terminator::Lf, back)));
    items
}
