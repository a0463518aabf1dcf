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

use super::item::{Item, note_item};
use super::selection_buffer::EntryLocation;
use super::{RecordError, Recording};
use crate::clock::{self, Moment};

/// A flood of undelivered messages makes one note for this many of them.
const MESSAGES_PER_NOTE_MAX: u64 = 1024;
/// So many ranges may wait to be noted.
const RANGES_MAX: usize = 1024;
/// After such a pause the next one is noted at once again, and what waits is noted with the next message.
const PAUSE: Duration = Duration::from_secs(1);
/// How many earlier tapes of a recording are known, so that their entries can be named: more than pass while a message
/// waits for its receiver, and 200 KB at most.
const PAST_TAPES_MAX: usize = 4096;

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
pub(super) struct UndeliveredMarks {
    recording: u64,
    /// By the numbers of this recording.
    own: BTreeMap<WhyUndelivered, Ranges>,
    /// By the entries of tapes that are sealed.
    elsewhere: BTreeMap<(WhyUndelivered, TapeId), Ranges>,
    messages: u64,
    ranges: usize,
    /// How many messages make the next note.
    due_at: u64,
    /// How many of the messages and ranges could not be noted when it was last tried: alone they are no reason to try
    /// again at once.
    postponed: (u64, usize),
    tried: Option<Instant>,
    /// The earlier tapes of this recording.
    past: VecDeque<PastTape>,
}

/// A tape of a recording that is written no more.
#[derive(Debug)]
pub(super) struct PastTape {
    pub(super) part: u32,
    /// The number of its first entry.
    pub(super) first: u64,
    pub(super) entries: u64,
    pub(super) id: TapeId,
}

/// Undelivered messages whose notes are on a tape.
#[derive(Debug, Default)]
pub(super) struct NotedMarks {
    own: BTreeMap<WhyUndelivered, Ranges>,
    elsewhere: BTreeMap<(WhyUndelivered, TapeId), Ranges>,
}

impl Default for UndeliveredMarks {
    fn default() -> Self {
        Self {
            recording: NEXT_RECORDING.fetch_add(1, Ordering::Relaxed),
            own: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
            messages: 0,
            ranges: 0,
            due_at: 1,
            postponed: (0, 0),
            tried: None,
            past: VecDeque::new(),
        }
    }
}

impl UndeliveredMarks {
    /// Remembers a tape that is written no more.
    pub(super) fn tape_ended(&mut self, tape: PastTape) {
        self.past.push_back(tape);
        if self.past.len() > PAST_TAPES_MAX {
            self.past.pop_front();
        }
    }

    /// Takes on again what was noted on a tape and taken off it.
    pub(super) fn add_again(&mut self, marks: NotedMarks) {
        for (why, ranges) in marks.own {
            ranges.into_iter().for_each(|(first, last)| self.add(MarkTarget::Own(why), first, last));
        }
        for ((why, tape), ranges) in marks.elsewhere {
            ranges
                .into_iter()
                .for_each(|(first, last)| self.add(MarkTarget::Elsewhere(why, tape), first, last));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Returns whether something has waited for long enough.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        !self.is_empty() && self.tried.is_none_or(|tried| now.saturating_duration_since(tried) >= PAUSE)
    }

    fn add(&mut self, into: MarkTarget, first: u64, last: u64) {
        let ranges = match into {
            MarkTarget::Own(why) => self.own.entry(why).or_default(),
            MarkTarget::Elsewhere(why, tape) => self.elsewhere.entry((why, tape)).or_default(),
        };
        let before = ranges.len();
        add_range(ranges, first, last);
        self.ranges = self.ranges + ranges.len() - before;
        self.messages = self.messages.saturating_add(last - first + 1);
    }

    fn is_due(&self, now: Instant) -> bool {
        let (messages, ranges) = self.postponed;
        self.is_overdue(now)
            || self.messages >= self.due_at.saturating_add(messages)
            || self.ranges >= RANGES_MAX + ranges
    }

    /// Takes note that it was tried to write notes, and what is left to be noted.
    fn was_tried(&mut self, now: Instant) {
        let in_a_row = self.tried.is_some_and(|tried| now.saturating_duration_since(tried) < PAUSE);
        self.due_at = if in_a_row { (self.due_at * 2).min(MESSAGES_PER_NOTE_MAX) } else { 1 };
        self.tried = Some(now);
        self.postponed = (self.messages, self.ranges);
    }

    /// Takes note that notes were written of everything but what cannot be named yet.
    fn were_noted(&mut self, later: Vec<(WhyUndelivered, u64)>) {
        (self.messages, self.ranges) = (0, 0);
        self.own.clear();
        self.elsewhere.clear();
        for (why, number) in later {
            self.add(MarkTarget::Own(why), number, number);
        }
    }

    /// Finds an entry of a tape before the current one; none where it was taken off.
    fn past_tape(&self, number: u64) -> Option<(u64, TapeId)> {
        let at = self.past.partition_point(|tape| tape.first <= number);
        let tape = self.past.get(at.checked_sub(1)?)?;
        let entry = number - tape.first;
        (entry < tape.entries).then_some((entry, tape.id))
    }

    fn past_part(&self, part: u32) -> Option<TapeId> {
        let at = self.past.binary_search_by_key(&part, |tape| tape.part).ok()?;
        Some(self.past[at].id)
    }
}

enum MarkTarget {
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
pub(super) struct UndeliveredNotes {
    by: BTreeMap<(WhyUndelivered, Option<TapeId>), Ranges>,
    /// The same by the numbers of the recording.
    named: NotedMarks,
    later: Vec<(WhyUndelivered, u64)>,
}

impl UndeliveredNotes {
    fn add(&mut self, why: WhyUndelivered, tape: Option<TapeId>, first: u64, last: u64) {
        add_range(self.by.entry((why, tape)).or_default(), first, last);
    }

    fn name_own(&mut self, why: WhyUndelivered, first: u64, last: u64) {
        add_range(self.named.own.entry(why).or_default(), first, last);
    }

    pub(super) fn encode(&self) -> Vec<Vec<u8>> {
        let note = |((why, tape), entries): (&(WhyUndelivered, Option<TapeId>), &Ranges)| {
            let (tape, mut entries) = (*tape, entries.clone());
            entries.sort_unstable();
            let messages = entries.iter().map(|(first, last)| last - first + 1).sum();
            Undelivered { why: why.to_string(), messages, entries, tape }.note()
        };
        self.by.iter().map(note).collect()
    }
}

impl Recording {
    /// Returns by what a recorded message is named should it turn out not to be delivered.
    #[must_use]
    pub fn entry_ref(&self, number: u64) -> EntryRef {
        EntryRef { recording: self.marks.recording, number, place: self.tape_position(number) }
    }

    /// Returns the number of one of the items that were recorded together, of which the first has this number.
    #[must_use]
    pub fn number_of(&self, first: u64, items: &[Item<'_>], index: usize) -> u64 {
        use scrubjay_core::entry::EntryKind::Original;
        let before = items.iter().take(index);
        // Where entries may wait, a message as it came has no number of its own.
        let counted = before.filter(|item| self.selection_buffer.is_none() || item.kind != Original).count();
        first + counted as u64
    }

    /// Notes that messages of this recording, by their numbers, did not reach their receiver.
    pub fn mark_undelivered(&mut self, numbers: std::ops::Range<u64>, why: WhyUndelivered) {
        if numbers.is_empty() || self.selection_buffer.as_ref().is_some_and(|buffer| buffer.is_off()) {
            return;
        }
        self.marks.add(MarkTarget::Own(why), numbers.start, numbers.end - 1);
        self.note_undelivered_when_due();
    }

    /// Notes that a recorded message, of this recording or of one that is over, did not reach its receiver.
    pub fn mark_entry_undelivered(&mut self, entry: &EntryRef, why: WhyUndelivered) {
        if entry.recording == self.marks.recording {
            return self.mark_undelivered(entry.number..entry.number + 1, why);
        }
        if let Some((number, tape)) = entry.place {
            self.marks.add(MarkTarget::Elsewhere(why, tape), number, number);
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
        let noted = self.try_note_undelivered(now);
        self.marks.was_tried(now.instant);
        noted
    }

    fn try_note_undelivered(&mut self, now: Moment) -> Result<(), RecordError> {
        // Only then is it known which entries stay on the tape whose sync failed.
        self.leave_failed()?;
        let pending = self.undelivered_notes();
        let notes = pending.encode();
        if !notes.is_empty() {
            self.append_notes(now, &notes)?;
            self.durable.note_marks(pending.named);
        }
        self.marks.were_noted(pending.later);
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
    pub(super) fn undelivered_notes(&self) -> UndeliveredNotes {
        let mut notes = UndeliveredNotes::default();
        for (why, ranges) in &self.marks.own {
            for &(first, last) in ranges {
                if self.selection_buffer.is_none() && self.writer.is_some() && first >= self.earlier {
                    notes.add(*why, None, first - self.earlier, last - self.earlier);
                    notes.name_own(*why, first, last);
                } else {
                    (first..=last).for_each(|number| self.add_entry(&mut notes, *why, number));
                }
            }
        }
        let current = self.tape();
        for ((why, tape), ranges) in &self.marks.elsewhere {
            let tape = Some(*tape).filter(|tape| Some(*tape) != current);
            ranges.iter().for_each(|(first, last)| notes.add(*why, tape, *first, *last));
        }
        notes.named.elsewhere.clone_from(&self.marks.elsewhere);
        notes
    }

    fn add_entry(&self, notes: &mut UndeliveredNotes, why: WhyUndelivered, number: u64) {
        let found = match self.selection_buffer.as_ref().map(|buffer| buffer.location(number)) {
            None => match number.checked_sub(self.earlier) {
                Some(entry) => self.writer.is_some().then_some((entry, None)),
                None => self.marks.past_tape(number).map(|(entry, tape)| (entry, Some(tape))),
            },
            Some(EntryLocation::Written { part, entry }) if Some(part) == self.part() => Some((entry, None)),
            Some(EntryLocation::Written { part, entry }) => {
                self.marks.past_part(part).map(|tape| (entry, Some(tape)))
            }
            Some(EntryLocation::Buffered) => return notes.later.push((why, number)),
            Some(EntryLocation::LeftOut) => None,
        };
        if let Some((entry, tape)) = found {
            notes.add(why, tape, entry, entry);
            notes.name_own(why, number, number);
        }
    }

    /// Returns which part of the recording the current tape is; none while there is no tape.
    pub(super) fn part(&self) -> Option<u32> {
        self.writer.as_ref().map(|writer| writer.header().part)
    }
}
