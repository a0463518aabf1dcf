//! Undelivered messages, until a note on the tape names them.
//!
//! A message is recorded before it is sent. If it cannot be sent, a later note says so. Many such messages make few
//! notes: the first is noted at once, later ones together, in ranges. Pending notes are written before a tape ends;
//! only a process that is killed loses them.

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

/// How many messages one note names at most while many are undelivered: notes must not outgrow the messages.
const MESSAGES_PER_NOTE_MAX: u64 = 1024;
/// How many ranges may wait to be noted: 16 KiB of memory, and notes of a readable length.
const RANGES_MAX: usize = 1024;
/// After a second without a note the next one is written at once again, and pending ones with the next message.
const PAUSE: Duration = Duration::from_secs(1);
/// How many earlier tapes of a recording are remembered, so that their entries can be named: more than can pass while a
/// message waits for its receiver, and 200 KB of memory at most.
const PAST_TAPES_MAX: usize = 4096;

/// Numbers the recordings of this process.
static NEXT_RECORDING: AtomicU64 = AtomicU64::new(1);

/// Names a recorded message, to mark it later if it turns out to be undelivered.
#[derive(Clone, Copy, Debug)]
pub struct EntryRef {
    recording: u64,
    number: u64,
    /// Its entry and tape when this was made, which are needed once its recording is over.
    place: Option<(u64, TapeId)>,
}

impl EntryRef {
    /// Returns the entry right behind this one, which was recorded together with it.
    #[must_use]
    pub fn next(self) -> Self {
        let place = self.place.map(|(entry, tape)| (entry + 1, tape));
        Self { number: self.number + 1, place, ..self }
    }
}

type Ranges = Vec<(u64, u64)>;

/// Undelivered messages that no note names yet.
#[derive(Debug)]
pub(super) struct UndeliveredMarks {
    recording: u64,
    /// By the numbers of this recording.
    own: BTreeMap<WhyUndelivered, Ranges>,
    /// By the entries of tapes that are sealed.
    elsewhere: BTreeMap<(WhyUndelivered, TapeId), Ranges>,
    messages: u64,
    ranges: usize,
    /// How many messages trigger the next note.
    due_at: u64,
    /// How many messages and ranges were left at the last try: they alone do not trigger another one at once.
    postponed: (u64, usize),
    tried: Option<Instant>,
    /// The earlier tapes of this recording.
    past: VecDeque<PastTape>,
}

/// An earlier tape of a recording.
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
    /// Remembers a tape that has ended.
    pub(super) fn tape_ended(&mut self, tape: PastTape) {
        self.past.push_back(tape);
        if self.past.len() > PAST_TAPES_MAX {
            self.past.pop_front();
        }
    }

    /// Adds messages again whose notes were taken off a tape.
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

    /// Tells whether something has waited long enough.
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

    /// Remembers that notes were tried, and what is left.
    fn was_tried(&mut self, now: Instant) {
        let in_a_row = self.tried.is_some_and(|tried| now.saturating_duration_since(tried) < PAUSE);
        // Doubled while tries follow each other closely, so that many undelivered messages make few notes.
        self.due_at = if in_a_row { (self.due_at * 2).min(MESSAGES_PER_NOTE_MAX) } else { 1 };
        self.tried = Some(now);
        self.postponed = (self.messages, self.ranges);
    }

    /// Remembers that everything was noted except `later`, whose entries are not written yet.
    fn were_noted(&mut self, later: Vec<(WhyUndelivered, u64)>) {
        (self.messages, self.ranges) = (0, 0);
        self.own.clear();
        self.elsewhere.clear();
        for (why, number) in later {
            self.add(MarkTarget::Own(why), number, number);
        }
    }

    /// Finds an entry on an earlier tape; none if it was taken off.
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

/// Adds a range, merged with the last one if it follows it: numbers mostly come in order.
fn add_range(ranges: &mut Ranges, first: u64, last: u64) {
    match ranges.last_mut() {
        Some((_, end)) if *end + 1 == first => *end = last,
        _ => ranges.push((first, last)),
    }
}

/// The notes to write, and the messages that cannot be named yet.
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
    /// Returns a name for a recorded message, to mark it later if it turns out to be undelivered.
    #[must_use]
    pub fn entry_ref(&self, number: u64) -> EntryRef {
        EntryRef { recording: self.marks.recording, number, place: self.tape_position(number) }
    }

    /// Returns the number of the item at `index` among items that were recorded together; `first` is the first one's.
    #[must_use]
    pub fn number_of(&self, first: u64, items: &[Item<'_>], index: usize) -> u64 {
        use scrubjay_core::entry::EntryKind::Original;
        let before = items.iter().take(index);
        // In the selection buffer an original has no number of its own.
        let counted = before.filter(|item| self.selection_buffer.is_none() || item.kind != Original).count();
        first + counted as u64
    }

    /// Marks messages of this recording as undelivered, by their numbers.
    pub fn mark_undelivered(&mut self, numbers: std::ops::Range<u64>, why: WhyUndelivered) {
        if numbers.is_empty() || self.selection_buffer.as_ref().is_some_and(|buffer| buffer.is_off()) {
            return;
        }
        self.marks.add(MarkTarget::Own(why), numbers.start, numbers.end - 1);
        self.note_undelivered_when_due();
    }

    /// Marks a message as undelivered, of this recording or of one that is over.
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
            // If this fails the notes wait for the next time. The next `record` reports the failure.
            let _ = self.note_undelivered(now);
        }
    }

    /// Writes notes of all undelivered messages that can be named.
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
        // Decides first which entries stay on a tape whose sync failed.
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

    /// Looks up where the undelivered messages are. Messages that were not kept need no note.
    pub(super) fn undelivered_notes(&self) -> UndeliveredNotes {
        let mut notes = UndeliveredNotes::default();
        for (why, ranges) in &self.marks.own {
            for &(first, last) in ranges {
                // Without a buffer numbers follow each other on the current tape, so a range needs one step, not one
                // for each message.
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
