//! Entries that wait in memory, and where on the tapes the written ones are.

use std::collections::BTreeMap;

use scrubjay_core::entry::{Direction, EntryKind, RuleEffects, RuleMarks, Terminator, Transport};
use scrubjay_core::redact::Redacted;

use super::{Item, Leg};
use crate::clock::Moment;
use crate::format::frame::OVERHEAD;

/// How many runs of written entries are remembered: 4 MB, if no two entries are in a row.
const RUNS_MAX: usize = 65_536;

/// An entry that waits in memory: redacted, with the times of its arrival.
#[derive(Debug)]
pub(super) struct BufferedEntry {
    pub(super) number: u64,
    kind: EntryKind,
    direction: Direction,
    terminator: Terminator,
    /// The backend, the connection to it and what carries that.
    via: Option<(Box<str>, u32, Transport)>,
    pub(super) operation: Option<u64>,
    effects: RuleEffects,
    rules: Box<str>,
    tags: Box<str>,
    pub(super) redacted: Redacted<'static>,
    pub(super) arrived: Moment,
    pub(super) stamped: Moment,
    /// The message before rules changed it; it is written or dropped together with this one.
    pub(super) original: Option<Box<Self>>,
}

impl BufferedEntry {
    pub(super) fn new(
        number: u64,
        item: &Item<'_>,
        redacted: Redacted<'static>,
        arrived: Moment,
        stamped: Moment,
    ) -> Self {
        Self {
            number,
            kind: item.kind,
            direction: item.direction,
            terminator: item.terminator,
            via: item.via.map(|leg| (leg.backend.into(), leg.connection, leg.transport)),
            operation: item.operation,
            effects: item.rule_marks.effects,
            rules: item.rule_marks.rules.into(),
            tags: item.rule_marks.tags.into(),
            redacted,
            arrived,
            stamped,
            original: None,
        }
    }

    /// Returns the item again, with the tape's number of the operation it names.
    pub(super) fn item(&self, operation: Option<u64>) -> Item<'_> {
        Item {
            kind: self.kind,
            direction: self.direction,
            terminator: self.terminator,
            via: self.via.as_ref().map(|(backend, connection, transport)| Leg {
                backend,
                connection: *connection,
                transport: *transport,
            }),
            operation,
            rule_marks: RuleMarks { effects: self.effects, rules: &self.rules, tags: &self.tags },
            payload: self.redacted.as_bytes(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        // What the entry will take on the tape, so that a tape with room for the buffer is chosen.
        let original = self.original.as_ref().map_or(0, |original| original.bytes());
        OVERHEAD + self.redacted.as_bytes().len() + original
    }
}

/// Positions of written entries on the tapes of a recording; the oldest are forgotten.
///
/// Entries that were written in the order in which they came share one run, so there are few.
#[derive(Debug, Default)]
pub(super) struct WrittenPositions {
    /// By the number of the first entry.
    runs: BTreeMap<u64, Run>,
}

#[derive(Debug)]
struct Run {
    part: u32,
    /// The first entry's number on the tape.
    entry: u64,
    entries: u64,
}

impl WrittenPositions {
    pub(super) fn insert(&mut self, number: u64, part: u32, entry: u64) {
        if let Some((first, run)) = self.runs.range_mut(..=number).next_back()
            // A run is on one tape, because each tape numbers its entries from zero.
            && run.part == part
            && first + run.entries == number
            && run.entry + run.entries == entry
        {
            run.entries += 1;
            return;
        }
        self.runs.insert(number, Run { part, entry, entries: 1 });
        while self.runs.len() > RUNS_MAX {
            self.runs.pop_first();
        }
    }

    /// Returns the part that an entry is on, and its number there.
    pub(super) fn find(&self, number: u64) -> Option<(u32, u64)> {
        let (first, run) = self.runs.range(..=number).next_back()?;
        (number - first < run.entries).then(|| (run.part, run.entry + (number - first)))
    }

    /// Returns the number of an entry on this part; none if it is on no tape, or on another.
    pub(super) fn on(&self, part: u32, number: u64) -> Option<u64> {
        self.find(number).filter(|(on, _)| *on == part).map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_in_a_row_are_one_run_and_all_are_found() {
        let mut places = WrittenPositions::default();
        let wide = 3 * RUNS_MAX as u64;
        (0..wide).for_each(|number| places.insert(number, 1, number + 2));
        // One entry was written late, and one has its original before it.
        places.insert(wide + 1, 1, wide + 2);
        places.insert(wide, 1, wide + 3);
        places.insert(wide + 2, 2, 5);
        assert_eq!(places.runs.len(), 4);
        let found: Vec<_> = [0, wide - 1, wide, wide + 1, wide + 2].map(|n| places.find(n)).into();
        let expected = [(1, 2), (1, wide + 1), (1, wide + 3), (1, wide + 2), (2, 5)];
        assert_eq!(found, expected.map(Some));
        assert_eq!(
            (places.find(wide + 3), places.on(1, wide + 2), places.on(2, wide + 2)),
            (None, None, Some(5))
        );
    }

    #[test]
    fn the_oldest_positions_are_dropped_at_the_limit() {
        let mut places = WrittenPositions::default();
        (0..=RUNS_MAX as u64).for_each(|n| places.insert(n * 2, 1, n * 2));
        assert_eq!((places.find(0), places.find(2)), (None, Some((1, 2))));
    }
}
