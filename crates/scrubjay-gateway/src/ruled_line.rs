//! A line with the rules' judgement of it: what is passed on, what is sent back, and the entries that record both.

use std::time::Duration;

use scrubjay_core::entry::{Direction, EntryKind, Terminator};
use scrubjay_core::message::Parts;
use scrubjay_core::rules::{Forwarded, Judgement};
use scrubjay_tape::recording::Item;

use crate::backend::Answer;

/// A line with what rules made of it.
pub(crate) struct RuledLine {
    /// The line as it was received.
    pub(crate) original: String,
    pub(crate) judgement: Judgement,
}

impl RuledLine {
    /// Returns the line to pass on; empty if the rules stopped it.
    pub(crate) fn text(&self) -> std::borrow::Cow<'_, str> {
        match &self.judgement.forwarded {
            Forwarded::Changed(other) => String::from_utf8_lossy(other),
            Forwarded::Unchanged => self.original.as_str().into(),
            Forwarded::Nothing => "".into(),
        }
    }

    /// Returns the rules' answer instead of the backend's, if they have one.
    pub(crate) fn answer(&self) -> Option<Answer> {
        answer_in(&String::from_utf8_lossy(self.judgement.back.as_deref()?))
    }

    /// Waits for as long as the rules delay it.
    pub(crate) async fn hold(&self) {
        if self.judgement.delay > Duration::ZERO {
            tokio::time::sleep(self.judgement.delay).await;
        }
    }
}

/// Returns the answer in a line; `None` if it is no response.
pub(crate) fn answer_in(line: &str) -> Option<Answer> {
    let parts = Parts::of(line).ok()?;
    let (result, error) = (parts.result.map(|r| r.get().to_owned()), parts.error.map(|e| e.get().to_owned()));
    error.map(Answer::Error).or(result.map(Answer::Result))
}

/// Returns the index, among the entries of a line, of the message that is passed on.
pub(crate) fn forwarded_index(judgement: &Judgement) -> usize {
    usize::from(matches!(judgement.forwarded, Forwarded::Changed(_)))
}

/// Returns the index, among the entries of a line, of the message that is sent back, if there is one.
pub(crate) fn back_index(judgement: &Judgement) -> usize {
    forwarded_index(judgement) + 1
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
    match &judgement.forwarded {
        Forwarded::Changed(other) => {
            // Both: the tape shows what was received and what the receiver got.
            items.push(Item::new(EntryKind::Original, direction, terminator, line));
            items.push(marked(direction, terminator, other));
        }
        Forwarded::Unchanged | Forwarded::Nothing => items.push(marked(direction, terminator, line)),
    }
    items.extend(judgement.back.as_ref().map(|back| marked(direction.reversed(), Terminator::Lf, back)));
    items
}
