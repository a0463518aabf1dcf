//! What a recording is given, and the times it stamps on it.

use std::time::Instant;

use scrubjay_core::entry::{Direction, Entry, EntryKind, Judged, Terminator, Transport};

use crate::clock::{self, Moment, saturate};
use crate::format::writer::Writer;

/// The connection between the gateway and a backend that carries a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg<'a> {
    /// The backend.
    pub backend: &'a str,
    /// Which connection to it, counted from 1: a backend that was restarted begins with its ids again.
    pub connection: u32,
    /// What carries its messages, which need not be what carries the client's.
    pub transport: Transport,
}

/// One thing to record.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// What it is.
    pub kind: EntryKind,
    /// Which way it goes.
    pub direction: Direction,
    /// How its line ended.
    pub terminator: Terminator,
    /// The connection to a backend, for a message between the gateway and one.
    pub via: Option<Leg<'a>>,
    /// The operation such a message belongs to.
    pub operation: Option<u64>,
    /// What rules did to it.
    pub judged: Judged<'a>,
    /// The message or line; only a redacted copy of it is written.
    pub payload: &'a [u8],
}

impl<'a> Item<'a> {
    /// Makes an item of the client's own leg.
    #[must_use]
    pub fn new(kind: EntryKind, direction: Direction, terminator: Terminator, payload: &'a [u8]) -> Self {
        Self { kind, direction, terminator, via: None, operation: None, judged: Judged::default(), payload }
    }
}

/// What all entries of one append have in common.
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

    /// Stamps what was taken in at a moment that may be past.
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
            judged: item.judged,
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
