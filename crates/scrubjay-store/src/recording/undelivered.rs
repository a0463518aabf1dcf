//! What of a recording did not reach its receiver, until the tape says so.
//!
//! A message is recorded before it is sent, so that it was not sent is a note behind it. Many such messages make few
//! notes: the first is noted at once, those that follow together, in ranges. What waits to be noted is written before
//! a tape ends; only a killed process takes it along.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use scrubjay_core::entry::{Undelivered, WhyUndelivered};
use scrubjay_core::id::TapeId;

use super::kept::Whereabouts;
use super::{Item, RecordError, Recording, note_item};
use crate::clock::{self, Moment};

/// A flood of undelivered messages makes one note for this many of them.
const MESSAGES_PER_NOTE_MAX: u64 = 1024;
/// So many ranges may wait to be noted.
const RANGES_MAX: usize = 1024;
/// After such a pause the next one is noted at once again, and what waits is noted with the next message.
const PAUSE: Duration = Duration::from_secs(1);
/// The ids of so many earlier tapes of a recording are known.
const PAST_TAPES_MAX: usize = 64;

/// Tells recordings of one process apart.
static NEXT_RECORDING: AtomicU64 = AtomicU64::new(1);

/// A recorded message, to be named when it turns out that it was not delivered.
#[derive(Clone, Copy, Debug)]
pub struct EntryRef {
    recording: u64,
    number: u64,
    /// Where it was when this was made: known also when its recording is over.
    place: Option<(u64, TapeId)>,
}

impl EntryRef {
    /// Returns the entry that was recorded together with this one, right behind it.
    #[must_use]
    pub fn next(self) -> Self {
        let place = self.place.map(|(entry, tape)| (entry + 1, tape));
        Self { number: self.number + 1, place, ..self }
    }
}

type Ranges = Vec<(u64, u64)>;

/// Undelivered messages that no note tells of yet.
#[derive(Debug)]
pub(super) struct Marks {
    recording: u64,
    /// By the numbers of this recording.
    own: BTreeMap<WhyUndelivered, Ranges>,
    /// By the entries of tapes that are sealed.
    elsewhere: BTreeMap<(WhyUndelivered, TapeId), Ranges>,
    messages: u64,
    ranges: usize,
    /// How many messages make the next note.
    due_at: u64,
    noted: Option<Instant>,
    /// The earlier tapes of this recording: part, the number of the first entry, id.
    past: VecDeque<(u32, u64, TapeId)>,
}

impl Default for Marks {
    fn default() -> Self {
        Self {
            recording: NEXT_RECORDING.fetch_add(1, Ordering::Relaxed),
            own: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
            messages: 0,
            ranges: 0,
            due_at: 1,
            noted: None,
            past: VecDeque::new(),
        }
    }
}

impl Marks {
    /// Remembers a tape that is full.
    pub(super) fn tape_ended(&mut self, part: u32, first: u64, id: TapeId) {
        self.past.push_back((part, first, id));
        if self.past.len() > PAST_TAPES_MAX {
            self.past.pop_front();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Returns whether something has waited for long enough.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        !self.is_empty() && self.noted.is_none_or(|noted| now.saturating_duration_since(noted) >= PAUSE)
    }

    fn add(&mut self, into: Into, first: u64, last: u64) {
        let ranges = match into {
            Into::Own(why) => self.own.entry(why).or_default(),
            Into::Elsewhere(why, tape) => self.elsewhere.entry((why, tape)).or_default(),
        };
        let before = ranges.len();
        add_range(ranges, first, last);
        self.ranges = self.ranges + ranges.len() - before;
        self.messages = self.messages.saturating_add(last - first + 1);
    }

    fn is_due(&self, now: Instant) -> bool {
        self.is_overdue(now) || self.messages >= self.due_at || self.ranges >= RANGES_MAX
    }

    /// Notes that a note was written.
    fn was_noted(&mut self, now: Instant) {
        let in_a_row = self.noted.is_some_and(|noted| now.saturating_duration_since(noted) < PAUSE);
        self.due_at = if in_a_row { (self.due_at * 2).min(MESSAGES_PER_NOTE_MAX) } else { 1 };
        self.noted = Some(now);
    }

    fn past_tape(&self, number: u64) -> Option<(u64, TapeId)> {
        let (_, first, id) = self.past.iter().rev().find(|(_, first, _)| *first <= number)?;
        Some((number - first, *id))
    }

    fn past_part(&self, part: u32) -> Option<TapeId> {
        self.past.iter().find(|(known, ..)| *known == part).map(|(.., id)| *id)
    }
}

enum Into {
    Own(WhyUndelivered),
    Elsewhere(WhyUndelivered, TapeId),
}

/// Adds a range, joined to the one it follows: numbers come mostly in order.
fn add_range(ranges: &mut Ranges, first: u64, last: u64) {
    match ranges.last_mut() {
        Some((_, end)) if *end + 1 == first => *end = last,
        _ => ranges.push((first, last)),
    }
}

/// The notes to write, and what cannot be named yet.
#[derive(Default)]
struct Told {
    by: BTreeMap<(WhyUndelivered, Option<TapeId>), Ranges>,
    later: Vec<(WhyUndelivered, u64)>,
}

impl Told {
    fn add(&mut self, why: WhyUndelivered, tape: Option<TapeId>, first: u64, last: u64) {
        add_range(self.by.entry((why, tape)).or_default(), first, last);
    }

    fn notes(self) -> Vec<Vec<u8>> {
        let note = |((why, tape), mut entries): ((WhyUndelivered, Option<TapeId>), Ranges)| {
            entries.sort_unstable();
            let messages = entries.iter().map(|(first, last)| last - first + 1).sum();
            Undelivered { why: why.to_string(), messages, entries, tape }.note()
        };
        self.by.into_iter().map(note).collect()
    }
}

impl Recording {
    /// Returns by what a recorded message is named should it turn out not to be delivered.
    #[must_use]
    pub fn entry_ref(&self, number: u64) -> EntryRef {
        EntryRef { recording: self.marks.recording, number, place: self.place(number) }
    }

    /// Returns the number of one of the items that were recorded together, of which the first has this number.
    #[must_use]
    pub fn number_of(&self, first: u64, items: &[Item<'_>], index: usize) -> u64 {
        use scrubjay_core::entry::EntryKind::Original;
        let before = items.iter().take(index);
        // Where entries may wait, a message as it came has no number of its own.
        let counted = before.filter(|item| self.kept.is_none() || item.kind != Original).count();
        first + counted as u64
    }

    /// Notes that messages of this recording, by their numbers, did not reach their receiver.
    pub fn mark_undelivered(&mut self, numbers: std::ops::Range<u64>, why: WhyUndelivered) {
        if numbers.is_empty() || self.kept.as_ref().is_some_and(|kept| kept.is_off()) {
            return;
        }
        self.marks.add(Into::Own(why), numbers.start, numbers.end - 1);
        self.note_undelivered_when_due();
    }

    /// Notes that a recorded message, of this recording or of one that is over, did not reach its receiver.
    pub fn mark_entry_undelivered(&mut self, entry: &EntryRef, why: WhyUndelivered) {
        if entry.recording == self.marks.recording {
            return self.mark_undelivered(entry.number..entry.number + 1, why);
        }
        if let Some((number, tape)) = entry.place {
            self.marks.add(Into::Elsewhere(why, tape), number, number);
            self.note_undelivered_when_due();
        }
    }

    fn note_undelivered_when_due(&mut self) {
        let now = clock::now();
        if self.marks.is_due(now.instant) {
            // What cannot be written now waits for the next time; the tape's own failure is told elsewhere.
            let _ = self.note_undelivered(now);
        }
    }

    /// Writes the notes of what was not delivered.
    ///
    /// # Errors
    /// They could not be written, and go on waiting.
    pub(super) fn note_undelivered(&mut self, now: Moment) -> Result<(), RecordError> {
        if self.marks.is_empty() {
            return Ok(());
        }
        let mut told = self.told_undelivered();
        let later = std::mem::take(&mut told.later);
        let notes = told.notes();
        if !notes.is_empty() {
            self.append_notes(now, &notes)?;
        }
        self.marks.was_noted(now.instant);
        (self.marks.messages, self.marks.ranges) = (0, 0);
        self.marks.own.clear();
        self.marks.elsewhere.clear();
        for (why, number) in later {
            self.marks.add(Into::Own(why), number, number);
        }
        Ok(())
    }

    fn append_notes(&mut self, now: Moment, notes: &[Vec<u8>]) -> Result<(), RecordError> {
        if self.writer.is_none() {
            self.writer = Some(self.next_tape(now, self.durable.before)?);
        }
        let redactor = Arc::clone(&self.redactor);
        let preface = self.preface();
        let all = preface.iter().chain(notes).map(|note| (note.as_slice(), redactor.redact(note)));
        let all: Vec<_> = all.collect();
        self.append(now, all.iter().map(|(note, redacted)| (note_item(note), redacted.payload()))).map(|_| ())
    }

    /// Finds where the undelivered messages are; what is on no tape because the user does not want it needs no note.
    fn told_undelivered(&self) -> Told {
        let mut told = Told::default();
        let current = self.tape();
        for (why, ranges) in &self.marks.own {
            for &(first, last) in ranges {
                match &self.kept {
                    None if first >= self.earlier => {
                        told.add(*why, None, first - self.earlier, last - self.earlier);
                    }
                    None => (first..=last).for_each(|number| self.tell_entry(&mut told, *why, number)),
                    Some(kept) => {
                        for number in first..=last {
                            match kept.whereabouts(number) {
                                Whereabouts::Written { part, entry } if part == self.parts => {
                                    told.add(*why, None, entry, entry);
                                }
                                Whereabouts::Written { part, entry } => {
                                    if let Some(tape) = self.marks.past_part(part) {
                                        told.add(*why, Some(tape), entry, entry);
                                    }
                                }
                                Whereabouts::Waiting => told.later.push((*why, number)),
                                Whereabouts::LeftOut => {}
                            }
                        }
                    }
                }
            }
        }
        for ((why, tape), ranges) in &self.marks.elsewhere {
            let tape = Some(*tape).filter(|tape| Some(*tape) != current);
            ranges.iter().for_each(|(first, last)| told.add(*why, tape, *first, *last));
        }
        told
    }

    fn tell_entry(&self, told: &mut Told, why: WhyUndelivered, number: u64) {
        if let Some(entry) = number.checked_sub(self.earlier) {
            told.add(why, None, entry, entry);
        } else if let Some((entry, tape)) = self.marks.past_tape(number) {
            told.add(why, Some(tape), entry, entry);
        }
    }
}
