//! Reads tapes into steps of rows: complete exchanges, and exchanges that still wait for an answer.
//!
//! The exchange to which a message belongs follows from all messages before it. So a live tape that was read to its end
//! stays open here with its state, and the next time only new entries are read. A tape that another process read before
//! is folded again from its beginning, and only new entries become rows. The result does not depend on how often
//! reading stops, or on which process continues.

use std::collections::VecDeque;
use std::io;

use scrubjay_core::entry::{EntryKind, SessionMoved};
use scrubjay_core::exchange::{Definition, Exchange, Exchanges};
use scrubjay_core::reading::EntryReader;
use tokio::sync::mpsc::Sender;

use super::catch_up::TapeToRead;
use scrubjay_tape::format::entries::Entries;
use scrubjay_tape::format::reader::OpenError;
use scrubjay_tape::home::Home;

/// The most live tapes that stay open: hosts start fifteen at once. The least recently read are closed first.
const OPEN_MAX: usize = 32;
/// The most entries, and the most text, that one transaction writes: it must not lock the index for long.
const BATCH_ENTRIES: u64 = 32_768;
const BATCH_TEXT_BYTES: usize = 16 << 20;

/// A part of what is new on one tape.
#[derive(Debug, Default)]
pub(super) struct IndexStep {
    /// The tape's number in the index.
    pub(super) number: i64,
    /// Whether the stored rows of this tape are to be deleted first.
    pub(super) begins_anew: bool,
    /// The exchanges, each with whether an earlier state of it may be stored already.
    pub(super) rows: Vec<(Exchange, bool)>,
    pub(super) definitions: Vec<Definition>,
    pub(super) new_entries: u64,
    /// Entries that were read for it, new or not.
    pub(super) read_entries: u64,
    /// How many bytes of the tape's file were read for it.
    pub(super) read_bytes: u64,
    pub(super) next_entry: u64,
    pub(super) tape: TapeFacts,
}

/// The facts of the tape itself.
#[derive(Clone, Debug, Default)]
pub(super) struct TapeFacts {
    pub(super) id: String,
    pub(super) server: String,
    pub(super) session: String,
    pub(super) started_ns: u64,
    /// Zero until the tape is read to its end.
    pub(super) file_bytes: u64,
    pub(super) is_sealed: bool,
    pub(super) damage: Option<String>,
}

/// The receiver that writes rows has stopped, so reading stops, too.
struct ReceiverGone;

/// Why a tape was not read to its end.
enum ReadFailure {
    /// It is damaged, so trying again does not help.
    Damaged(String),
    /// It could not be read now. The next catch-up tries again.
    Failed(String),
}

impl From<io::Error> for ReadFailure {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Steps to be written in one transaction, so that many small tapes cost no more than one large one.
struct StepBatch<'a> {
    sender: &'a Sender<Vec<IndexStep>>,
    steps: Vec<IndexStep>,
    entries: u64,
    text_bytes: usize,
}

impl StepBatch<'_> {
    fn is_full(&self) -> bool {
        self.entries >= BATCH_ENTRIES || self.text_bytes >= BATCH_TEXT_BYTES
    }

    fn send(&mut self) -> Result<(), ReceiverGone> {
        (self.entries, self.text_bytes) = (0, 0);
        // Blocks while the writer is behind, which keeps memory small.
        self.sender.blocking_send(std::mem::take(&mut self.steps)).map_err(|_| ReceiverGone)
    }
}

/// The state after reading a tape up to some entry.
#[derive(Debug, Default)]
struct TapeFold {
    facts: TapeFacts,
    reader: EntryReader,
    exchanges: Exchanges,
    next_entry: u64,
}

/// A live tape that was read to its end, to continue from there.
#[derive(Debug)]
struct OpenTape {
    number: i64,
    fold: TapeFold,
    entries: Entries,
}

/// The live tapes that stay open.
#[derive(Debug, Default)]
pub(super) struct OpenTapes {
    tapes: VecDeque<OpenTape>,
}

impl OpenTapes {
    /// Takes out a tape if the index has exactly the entries that were read of it here. The flag tells whether the
    /// tape's writer has removed entries since, which the index still has.
    fn take(&mut self, planned: &TapeToRead) -> (Option<OpenTape>, bool) {
        let id = planned.on_disk.file.id.as_str();
        let at = self.tapes.iter().position(|tape| tape.fold.facts.id == id);
        let tape = at.and_then(|at| self.tapes.remove(at));
        let is_known =
            |tape: &OpenTape| tape.number == planned.number && tape.fold.next_entry == planned.next_entry;
        match tape.filter(is_known) {
            Some(tape) if tape.entries.still_stands() => (Some(tape), false),
            tape => (None, tape.is_some()),
        }
    }

    fn keep(&mut self, tape: OpenTape) {
        self.tapes.push_back(tape);
        while self.tapes.len() > OPEN_MAX {
            self.tapes.pop_front();
        }
    }

    /// Drops removed tapes.
    pub(super) fn forget(&mut self, numbers: &[i64]) {
        self.tapes.retain(|tape| !numbers.contains(&tape.number));
    }
}

/// Reads tapes one after the other and sends their steps; returns the live tapes that stay open.
pub(super) fn read_all(
    home: &Home,
    tapes: &[TapeToRead],
    mut open: OpenTapes,
    sender: &Sender<Vec<IndexStep>>,
) -> OpenTapes {
    let mut batch = StepBatch { sender, steps: Vec::new(), entries: 0, text_bytes: 0 };
    for planned in tapes {
        if read(home, planned, &mut open, &mut batch).is_err() {
            return OpenTapes::default();
        }
    }
    // A receiver that has gone does not need the rest.
    let _ = batch.send();
    open
}

fn read(
    home: &Home,
    planned: &TapeToRead,
    open: &mut OpenTapes,
    batch: &mut StepBatch<'_>,
) -> Result<(), ReceiverGone> {
    let (known, was_truncated) = open.take(planned);
    let mut reading = TapeReading::new(planned, known);
    let mut outcome = Ok(());
    if !was_truncated {
        outcome = reading.read(home, planned.next_entry, batch)?;
    }
    // The tape has fewer entries than the index: damage or the tape's writer removed some.
    if was_truncated || (reading.fold.next_entry < planned.next_entry && !has_failed(&outcome)) {
        reading = TapeReading::new(planned, None);
        reading.begins_anew = true;
        outcome = reading.read(home, 0, batch)?;
    }
    if has_failed(&outcome) && reading.fold.next_entry < planned.next_entry {
        // Nothing new was read. The stored rows stay, and the next catch-up tries again.
        return Ok(());
    }
    // With a size of 0 the next catch-up sees a change, and tries a failed tape again.
    reading.fold.facts.file_bytes = if has_failed(&outcome) { 0 } else { planned.on_disk.file_bytes };
    reading.fold.facts.damage =
        outcome.err().map(|(ReadFailure::Damaged(what) | ReadFailure::Failed(what))| what);
    reading.fold.facts.is_sealed = planned.on_disk.is_sealed;
    reading.put(batch, planned.on_disk.file_bytes);
    let TapeReading { fold, entries, .. } = reading;
    if let Some(entries) = entries.filter(|_| !planned.on_disk.is_sealed && fold.facts.damage.is_none()) {
        open.keep(OpenTape { number: planned.number, fold, entries });
    }
    if batch.is_full() { batch.send() } else { Ok(()) }
}

fn has_failed(outcome: &Result<(), ReadFailure>) -> bool {
    matches!(outcome, Err(ReadFailure::Failed(_)))
}

struct TapeReading<'a> {
    planned: &'a TapeToRead,
    fold: TapeFold,
    entries: Option<Entries>,
    begins_anew: bool,
    rows: Vec<(Exchange, bool)>,
    new_entries: u64,
    read_entries: u64,
    /// How many bytes of the file earlier steps have reported.
    counted_bytes: u64,
}

impl<'a> TapeReading<'a> {
    fn new(planned: &'a TapeToRead, open: Option<OpenTape>) -> Self {
        let (fold, entries) = match open {
            Some(open) => (open.fold, Some(open.entries)),
            None => {
                let facts = TapeFacts { id: planned.on_disk.file.id.to_string(), ..TapeFacts::default() };
                (TapeFold { facts, ..TapeFold::default() }, None)
            }
        };
        Self {
            planned,
            fold,
            entries,
            begins_anew: false,
            rows: Vec::new(),
            new_entries: 0,
            read_entries: 0,
            counted_bytes: 0,
        }
    }

    /// Opens the tape at its beginning, unless it is open already.
    fn entries(&mut self, home: &Home) -> Result<Entries, ReadFailure> {
        if let Some(entries) = self.entries.take() {
            return Ok(entries);
        }
        let tape = home.open(&self.planned.on_disk.file).map_err(|e| match e {
            OpenError::Io { source, .. } => source.into(),
            other => ReadFailure::Damaged(other.to_string()),
        })?;
        if let Some(header) = tape.header() {
            let facts = &mut self.fold.facts;
            facts.server.clone_from(&header.name);
            facts.session.clone_from(&header.session.id);
            facts.started_ns = header.started_wall_ns;
        }
        Ok(tape.entries()?)
    }

    /// Reads the tape to its end. Entries that were read stay, even if the result is an error.
    fn read(
        &mut self,
        home: &Home,
        known_to: u64,
        batch: &mut StepBatch<'_>,
    ) -> Result<Result<(), ReadFailure>, ReceiverGone> {
        let mut entries = match self.entries(home) {
            Ok(entries) => entries,
            Err(e) => return Ok(Err(e)),
        };
        let mut skipping = self.fold.next_entry < known_to;
        loop {
            let (number, entry) = match entries.next() {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(e) => return Ok(Err(e.into())),
            };
            if skipping && number >= known_to {
                skipping = false;
                // Taking them marks what waits here as stored already, as it was when the index was filled up to here.
                self.fold.exchanges.waiting().for_each(drop);
            }
            let reading = self.fold.reader.read(&entry);
            if entry.kind == EntryKind::Note
                && let Some(moved) = SessionMoved::from_note(entry.payload)
            {
                self.fold.facts.session = moved.session;
            }
            self.fold.exchanges.observe(number, &entry, &reading);
            self.fold.next_entry = number + 1;
            self.read_entries += 1;
            if skipping {
                // These entries have rows. They are read only for the state that later entries need.
                self.fold.exchanges.skip();
                continue;
            }
            self.new_entries += 1;
            batch.entries += 1;
            for settled in self.fold.exchanges.take_settled() {
                batch.text_bytes += settled.exchange.text.len();
                self.rows.push((settled.exchange, settled.was_given));
            }
            if batch.is_full() {
                let read_to = entries.file_offset();
                self.put(batch, read_to);
                batch.send()?;
            }
        }
        if skipping {
            self.fold.exchanges.waiting().for_each(drop);
        }
        let damage =
            entries.damage().first().map_or(Ok(()), |damage| Err(ReadFailure::Damaged(damage.what.clone())));
        self.entries = Some(entries);
        Ok(damage)
    }

    /// Adds a step to the batch: complete exchanges, and waiting ones in their current state.
    fn put(&mut self, batch: &mut StepBatch<'_>, read_to: u64) {
        let read_bytes = read_to.min(self.planned.on_disk.file_bytes).saturating_sub(self.counted_bytes);
        self.counted_bytes += read_bytes;
        let exchanges = &mut self.fold.exchanges;
        self.rows.extend(exchanges.waiting().map(|(exchange, was_given)| (exchange.clone(), was_given)));
        // Rows get their ids in this order, and full-text search buffers many texts only while ids ascend.
        self.rows.sort_by_key(|(exchange, _)| exchange.place);
        batch.steps.push(IndexStep {
            number: self.planned.number,
            begins_anew: std::mem::take(&mut self.begins_anew),
            rows: std::mem::take(&mut self.rows),
            definitions: exchanges.take_definitions(),
            new_entries: std::mem::take(&mut self.new_entries),
            read_entries: std::mem::take(&mut self.read_entries),
            read_bytes,
            next_entry: self.fold.next_entry,
            tape: self.fold.facts.clone(),
        });
    }
}
