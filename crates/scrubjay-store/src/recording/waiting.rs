//! Entries in memory: redacted, with the times at which they came, and where they went.

use std::collections::BTreeMap;

use scrubjay_core::entry::{Acts, Direction, EntryKind, Judged, Terminator, Transport};
use scrubjay_core::redact::Redacted;

use super::{Item, Leg};
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
    /// The backend, the connection to it and what carries that.
    via: Option<(Box<str>, u32, Transport)>,
    pub(super) operation: Option<u64>,
    acts: Acts,
    rules: Box<str>,
    tags: Box<str>,
    pub(super) redacted: Redacted<'static>,
    pub(super) arrived: Moment,
    pub(super) stamped: Moment,
    /// The message as it came, where rules changed it: it goes where this goes.
    pub(super) original: Option<Box<Self>>,
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
            via: item.via.map(|leg| (leg.backend.into(), leg.connection, leg.transport)),
            operation: item.operation,
            acts: item.judged.acts,
            rules: item.judged.rules.into(),
            tags: item.judged.tags.into(),
            redacted,
            arrived,
            stamped,
            original: None,
        }
    }

    /// Returns the item again; what it names is given with its number on the tape.
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
            judged: Judged { acts: self.acts, rules: &self.rules, tags: &self.tags },
            payload: self.redacted.as_bytes(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let original = self.original.as_ref().map_or(0, |original| original.bytes());
        OVERHEAD + self.redacted.as_bytes().len() + original
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

    /// Returns the part an entry is on, and its number there.
    pub(super) fn find(&self, number: u64) -> Option<(u32, u64)> {
        self.map.get(&number).copied()
    }

    /// Returns the number of an entry on this part; none where it is on none, or on another.
    pub(super) fn on(&self, part: u32, number: u64) -> Option<u64> {
        self.map.get(&number).filter(|(on, _)| *on == part).map(|(_, entry)| *entry)
    }
}
