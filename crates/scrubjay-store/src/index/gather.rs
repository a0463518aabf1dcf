//! Reads tapes into steps: rows that are complete, and rows that stand as they are for now.
//!
//! A tape that was read before is folded from its beginning again, since what a message belongs to follows
//! from all before it; only what is new becomes rows. So it does not matter how often one stops in between.

use scrubjay_core::exchange::{Definition, Exchange, Exchanges};
use scrubjay_core::reading::Reader;
use tokio::sync::mpsc::Sender;

use super::catch_up::Planned;
use crate::home::Home;

/// So many entries, or so much text, are written together.
const LOAD_ENTRIES: u64 = 32_768;
const LOAD_TEXT_BYTES: usize = 16 << 20;

/// A piece of what is new on one tape.
#[derive(Debug, Default)]
pub(super) struct Step {
    /// The tape's number in the index.
    pub(super) number: i64,
    /// Whether what the index has of this tape is to be thrown away first.
    pub(super) begins_anew: bool,
    /// The exchanges; those that are there already in an earlier state take its place.
    pub(super) rows: Vec<(Exchange, bool)>,
    pub(super) definitions: Vec<Definition>,
    pub(super) new_entries: u64,
    pub(super) next_entry: u64,
    pub(super) tape: TapeFacts,
}

/// What is known of the tape itself.
#[derive(Clone, Debug, Default)]
pub(super) struct TapeFacts {
    pub(super) id: String,
    pub(super) server: String,
    pub(super) session: String,
    pub(super) started_ns: u64,
    /// Zero until it was read to its end.
    pub(super) file_bytes: u64,
    pub(super) is_sealed: bool,
    pub(super) damage: Option<String>,
}

/// Nobody listens any more.
struct Gone;

/// Steps that are written together: many small tapes cost no more than one large one.
struct Load<'a> {
    sender: &'a Sender<Vec<Step>>,
    steps: Vec<Step>,
    entries: u64,
    text_bytes: usize,
}

impl Load<'_> {
    fn is_full(&self) -> bool {
        self.entries >= LOAD_ENTRIES || self.text_bytes >= LOAD_TEXT_BYTES
    }

    fn send(&mut self) -> Result<(), Gone> {
        (self.entries, self.text_bytes) = (0, 0);
        self.sender.blocking_send(std::mem::take(&mut self.steps)).map_err(|_| Gone)
    }
}

/// Reads all of them, one after the other.
pub(super) fn gather(home: &Home, tapes: &[Planned], sender: &Sender<Vec<Step>>) {
    let mut load = Load { sender, steps: Vec::new(), entries: 0, text_bytes: 0 };
    for planned in tapes {
        if read(home, planned, &mut load).is_err() {
            return;
        }
    }
    // Nobody left to hear it has no need of it.
    let _ = load.send();
}

fn read(home: &Home, planned: &Planned, load: &mut Load<'_>) -> Result<(), Gone> {
    let mut gathering = Gathering::new(planned);
    if let Err(e) = gathering.fold(home, planned.next_entry, load)? {
        gathering.facts.damage = Some(e);
    }
    // Fewer entries than were there before: damage took some, and what the index has may be of those.
    if gathering.next_entry < planned.next_entry {
        gathering = Gathering::new(planned);
        gathering.begins_anew = true;
        if let Err(e) = gathering.fold(home, 0, load)? {
            gathering.facts.damage = Some(e);
        }
    }
    gathering.facts.file_bytes = planned.seen.file_bytes;
    gathering.facts.is_sealed = planned.seen.is_sealed;
    gathering.put(load);
    if load.is_full() { load.send() } else { Ok(()) }
}

struct Gathering<'a> {
    planned: &'a Planned,
    facts: TapeFacts,
    exchanges: Exchanges,
    begins_anew: bool,
    rows: Vec<(Exchange, bool)>,
    new_entries: u64,
    next_entry: u64,
}

impl<'a> Gathering<'a> {
    fn new(planned: &'a Planned) -> Self {
        Self {
            planned,
            facts: TapeFacts { id: planned.seen.file.id.to_string(), ..TapeFacts::default() },
            exchanges: Exchanges::default(),
            begins_anew: false,
            rows: Vec::new(),
            new_entries: 0,
            next_entry: 0,
        }
    }

    /// Folds the tape; what cannot be read is told, and what can be is kept.
    fn fold(&mut self, home: &Home, known_to: u64, load: &mut Load<'_>) -> Result<Result<(), String>, Gone> {
        let tape = match home.open(&self.planned.seen.file) {
            Ok(tape) => tape,
            Err(e) => return Ok(Err(e.to_string())),
        };
        if let Some(header) = tape.header() {
            self.facts.server.clone_from(&header.name);
            self.facts.session.clone_from(&header.session.id);
            self.facts.started_ns = header.started_wall_ns;
        }
        let mut entries = match tape.entries() {
            Ok(entries) => entries,
            Err(e) => return Ok(Err(e.to_string())),
        };
        let mut reader = Reader::default();
        let mut skipping = known_to > 0;
        loop {
            let (number, entry) = match entries.next() {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(e) => return Ok(Err(e.to_string())),
            };
            if skipping && number >= known_to {
                skipping = false;
                self.exchanges.waiting().for_each(drop);
            }
            let reading = reader.read(&entry);
            self.exchanges.observe(number, &entry, &reading);
            self.next_entry = number + 1;
            if skipping {
                self.exchanges.skip();
                continue;
            }
            self.new_entries += 1;
            load.entries += 1;
            for settled in self.exchanges.take_settled() {
                load.text_bytes += settled.exchange.text.len();
                self.rows.push((settled.exchange, settled.was_given));
            }
            if load.is_full() {
                self.put(load);
                load.send()?;
            }
        }
        if skipping {
            self.exchanges.waiting().for_each(drop);
        }
        Ok(entries.damage().first().map_or(Ok(()), |damage| Err(damage.what.clone())))
    }

    fn put(&mut self, load: &mut Load<'_>) {
        self.rows.extend(self.exchanges.waiting().map(|exchange| (exchange.clone(), false)));
        // In this order the text of many is written at once.
        self.rows.sort_by_key(|(exchange, _)| exchange.place);
        load.steps.push(Step {
            number: self.planned.number,
            begins_anew: std::mem::take(&mut self.begins_anew),
            rows: std::mem::take(&mut self.rows),
            definitions: self.exchanges.take_definitions(),
            new_entries: std::mem::take(&mut self.new_entries),
            next_entry: self.next_entry,
            tape: self.facts.clone(),
        });
    }
}
