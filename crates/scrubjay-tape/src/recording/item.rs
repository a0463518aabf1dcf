//! The input of a recording, and the times that turn it into an entry.

use std::time::Instant;

use scrubjay_core::entry::{Direction, Entry, EntryKind, RuleMarks, Terminator, Transport};

use crate::clock::{self, Moment, saturate};
use crate::format::writer::Writer;

/// The connection between the gateway and a backend that carries a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg<'a> {
    /// The backend.
    pub backend: &'a str,
    /// Which connection to it, from 1: a restarted backend begins with its ids again.
    pub connection: u32,
    /// The transport of this connection; the client's may be another.
    pub transport: Transport,
}

/// Something to record: a message, a line of standard error, or a note.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// What it is.
    pub kind: EntryKind,
    /// Which way it goes.
    pub direction: Direction,
    /// How its line ended.
    pub terminator: Terminator,
    /// The connection to a backend, if it passed there; else it passed between client and recorder.
    pub via: Option<Leg<'a>>,
    /// The operation that a message of a backend belongs to.
    pub operation: Option<u64>,
    /// What rules did to it.
    pub rule_marks: RuleMarks<'a>,
    /// The raw bytes; only a redacted copy of them is written.
    pub payload: &'a [u8],
}

impl<'a> Item<'a> {
    /// Makes an item of the connection between client and recorder.
    #[must_use]
    pub fn new(kind: EntryKind, direction: Direction, terminator: Terminator, payload: &'a [u8]) -> Self {
        Self {
            kind,
            direction,
            terminator,
            via: None,
            operation: None,
            rule_marks: RuleMarks::default(),
            payload,
        }
    }
}

/// The times and the transport of an entry; all entries of one append share them.
#[derive(Clone, Copy)]
pub(super) struct Stamp {
    transport: Transport,
    wall_ns: u64,
    since_start_ns: u64,
    processing_ns: u32,
}

impl Stamp {
    pub(super) fn new(arrived: Moment, writer: &Writer, transport: Transport) -> Self {
        Self::at(arrived, clock::now(), writer.started(), transport)
    }

    /// Makes the stamp of an entry that waited in memory between its arrival and `now`.
    pub(super) fn at(arrived: Moment, now: Moment, started: Instant, transport: Transport) -> Self {
        let processing = saturate(now.instant.saturating_duration_since(arrived.instant));
        Self {
            transport,
            wall_ns: now.wall_ns,
            since_start_ns: saturate(now.instant.saturating_duration_since(started)),
            processing_ns: u32::try_from(processing).unwrap_or(u32::MAX),
        }
    }

    pub(super) fn entry<'a>(&self, item: Item<'a>) -> Entry<'a> {
        Entry {
            kind: item.kind,
            direction: item.direction,
            transport: item.via.map_or(self.transport, |leg| leg.transport),
            terminator: item.terminator,
            wall_ns: self.wall_ns,
            since_start_ns: self.since_start_ns,
            processing_ns: self.processing_ns,
            via: item.via.map(|leg| leg.backend),
            connection: item.via.map_or(0, |leg| leg.connection),
            operation: item.operation,
            rule_marks: item.rule_marks,
            payload: item.payload,
        }
    }
}

/// Makes an item of a note of the recording's own.
pub(super) fn note_item(facts: &[u8]) -> Item<'_> {
    Item::new(EntryKind::Note, Direction::ServerToClient, Terminator::Eof, facts)
}

/// Makes an item of the end of a connection.
pub(super) fn end_item(payload: &[u8]) -> Item<'_> {
    Item::new(EntryKind::End, Direction::ServerToClient, Terminator::Eof, payload)
}
