//! Entries in memory: redacted, with the times at which they came, and where they went.

use std::collections::BTreeMap;

use scrubjay_core::entry::{Direction, EntryKind, Terminator};
use scrubjay_core::redact::Redacted;

use super::Item;
use crate::clock::Moment;
use crate::tape::frame::OVERHEAD;

/// The places of so many entries are remembered for those that name them.
const PLACES_MAX: usize = 65_536;

/// An entry in memory.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) number: u64,
    kind: EntryKind,
    direction: Direction,
    terminator: Terminator,
    via: Option<Box<str>>,
    pub(super) operation: Option<u64>,
    pub(super) redacted: Redacted<'static>,
    pub(super) arrived: Moment,
    pub(super) stamped: Moment,
}

impl Waiting {
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
            via: item.via.map(Into::into),
            operation: item.operation,
            redacted,
            arrived,
            stamped,
        }
    }

    /// Returns the item again; what it names is given with its number on the tape.
    pub(super) fn item(&self, operation: Option<u64>) -> Item<'_> {
        Item {
            kind: self.kind,
            direction: self.direction,
            terminator: self.terminator,
            via: self.via.as_deref(),
            operation,
            payload: self.redacted.as_bytes(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        OVERHEAD + self.redacted.as_bytes().len()
    }
}

/// Where entries are on the tapes of a recording; the oldest are forgotten.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The part and the number on it.
    map: BTreeMap<u64, (u32, u64)>,
}

impl Places {
    pub(super) fn insert(&mut self, number: u64, part: u32, entry: u64) {
        self.map.insert(number, (part, entry));
        while self.map.len() > PLACES_MAX {
            self.map.pop_first();
        }
    }

    /// Returns the number of an entry on this part; none where it is on none, or on another.
    pub(super) fn on(&self, part: u32, number: u64) -> Option<u64> {
        self.map.get(&number).filter(|(on, _)| *on == part).map(|(_, entry)| *entry)
    }
}
