//! What goes on tape of a line that was judged: as it came, as it goes on, and what goes back.

use scrubjay_core::entry::{Direction, EntryKind, Terminator};
use scrubjay_core::rules::{Judgement, Onward};
use scrubjay_store::recording::Item;

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
        judged: judgement.marks.judged(),
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
