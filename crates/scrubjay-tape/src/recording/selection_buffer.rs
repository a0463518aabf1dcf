//! Entries between arrival and writing: which of them are kept (`recorder` filters, sampling), and which may wait
//! (`recorder.performance.async_storage`).
//!
//! Runs only if the user configured it. Entries are redacted before they wait, and keep the times of their arrival. The
//! numbers given out here are not entry numbers of a tape: those are known only when an entry is written. Where one
//! entry names another, the number is translated then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use scrubjay_core::entry::EntryKind;
use scrubjay_core::envelope::Envelope;
use scrubjay_core::id::TapeId;
use scrubjay_core::redact::Redacted;
use scrubjay_core::selection::{LeftOut, OfferedMessage, Selection, SelectionSettings, share};
use serde_json::{Value, json};

use super::buffered_entry::{BufferedEntry, WrittenPositions};
use super::item::{Item, Stamp, note_item};
use super::policy::Policy;
use super::{RecordError, Recording};
use crate::clock::{self, Moment, saturate};

/// How many bytes may wait to be written: a crash loses at most this much, and memory stays small.
const DUE_BYTES_MAX: usize = 8 << 20;

/// Entries that are not written yet, and the settings that decide about them.
#[derive(Debug)]
pub(super) struct SelectionBuffer {
    is_off: bool,
    /// None if all entries are kept and only buffered.
    selection: Option<Selection>,
    settings: SelectionSettings,
    buffer_max: Option<usize>,
    flush_interval: Duration,
    began: Instant,
    next: u64,
    /// A message before rules changed it; the next item is what was forwarded instead.
    original: Option<Box<BufferedEntry>>,
    /// Entries whose fate depends on how their operation ends.
    undecided: BTreeMap<u64, BufferedEntry>,
    /// Entries that are to be written.
    due: Vec<BufferedEntry>,
    due_bytes: usize,
    places: WrittenPositions,
    /// Counts of entries left out of a tape that could not take the note.
    unreported: LeftOut,
}

/// Where an entry is.
pub(super) enum EntryLocation {
    /// On a tape: the part of the recording, and the entry's number there.
    Written { part: u32, entry: u64 },
    /// In memory.
    Buffered,
    /// Nowhere: it was not kept, or was written so long ago that its position is forgotten.
    LeftOut,
}

impl SelectionBuffer {
    pub(super) fn is_off(&self) -> bool {
        self.is_off
    }

    /// Returns where an entry is.
    pub(super) fn location(&self, number: u64) -> EntryLocation {
        if let Some((part, entry)) = self.places.find(number) {
            return EntryLocation::Written { part, entry };
        }
        let is_due = self.due.binary_search_by_key(&number, |waiting| waiting.number).is_ok();
        if is_due || self.undecided.contains_key(&number) {
            EntryLocation::Buffered
        } else {
            EntryLocation::LeftOut
        }
    }

    /// Makes a buffer for a policy; `None` if everything is to be written at once.
    fn new(policy: &Policy, session: Option<&str>) -> Option<Self> {
        if policy.enabled && policy.buffer_max.is_none() && policy.selection.keeps_all() {
            return None;
        }
        let mut seed = [0; 16];
        // Without randomness the sample is the same each time, which is better than no recording.
        let _ = getrandom::fill(&mut seed);
        let [seed, other] = [0, 8].map(|at| u64::from_le_bytes(*seed[at..].first_chunk().unwrap_or(&[0; 8])));
        // Derived from the session, so that all its connections are in the sample or none.
        let place = session.map_or(other, |id| {
            u64::from_le_bytes(*blake3::hash(id.as_bytes()).as_bytes().first_chunk().unwrap_or(&[0; 8]))
        });
        let selects = !policy.selection.keeps_all();
        Some(Self {
            is_off: !policy.enabled,
            selection: selects.then(|| Selection::new(policy.selection.clone(), seed, share(place))),
            settings: policy.selection.clone(),
            buffer_max: policy.buffer_max,
            flush_interval: policy.flush_interval,
            began: clock::now().instant,
            next: 0,
            original: None,
            undecided: BTreeMap::new(),
            due: Vec::new(),
            due_bytes: 0,
            places: WrittenPositions::default(),
            unreported: LeftOut::default(),
        })
    }

    /// Returns the note with which a tape begins: what may be missing on it, and why.
    pub(super) fn preface(&self) -> Vec<u8> {
        let mut missing: Vec<String> = Vec::new();
        if self.selection.is_some() {
            missing.push("what the settings leave out; the end of the tape says how much".to_owned());
        }
        let waits = self.selection.is_some() && self.settings.waits_for_outcomes();
        if waits {
            missing.push(
                "after a crash, operations whose outcome was not known: they were passed on before they were written"
                    .to_owned(),
            );
        }
        if let Some(buffer_max) = self.buffer_max {
            missing.push(format!(
                "after a crash, the last {buffer_max} entries or those of the last {} ms: they were passed on before they were written",
                self.flush_interval.as_millis()
            ));
        }
        let note = json!({
            "event": "selection",
            "settings": self.settings.facts(),
            "buffer_size": self.buffer_max,
            "recorded_before_passed_on": !waits && self.buffer_max.is_none(),
            "may_be_missing": missing,
        });
        note.to_string().into_bytes()
    }

    fn take_left_out(&mut self) -> Option<LeftOut> {
        let mut left_out = self.selection.as_mut()?.take_left_out();
        left_out.add(&std::mem::take(&mut self.unreported));
        (!left_out.is_nothing()).then_some(left_out)
    }

    /// Takes an entry in. What happens to it is decided by [`SelectionBuffer::release`].
    fn take(&mut self, item: &Item<'_>, redacted: Redacted<'static>, arrived: Moment, now: Moment) {
        if item.kind == EntryKind::Original {
            self.original = Some(Box::new(BufferedEntry::new(self.next, item, redacted, arrived, now)));
            return;
        }
        let original = self.original.take();
        let original_bytes = original.as_ref().map_or(0, |original| original.redacted.as_bytes().len());
        let number = match &mut self.selection {
            Some(selection) if item.kind == EntryKind::Message => {
                let envelope = Envelope::parse(redacted.as_bytes());
                selection.offer(&OfferedMessage {
                    direction: item.direction,
                    via: item.via.map(|leg| (leg.backend, leg.connection)),
                    operation: item.operation,
                    envelope: &envelope,
                    bytes: (redacted.as_bytes().len() + original_bytes) as u64,
                    at_ns: saturate(now.instant.saturating_duration_since(self.began)),
                    wall_ns: now.wall_ns,
                })
            }
            Some(selection) => selection.fact(),
            None => self.next,
        };
        self.next = number + 1;
        let mut waiting = BufferedEntry::new(number, item, redacted, arrived, now);
        waiting.original = original;
        if self.selection.is_some() {
            self.undecided.insert(number, waiting);
        } else {
            self.push_due(waiting);
        }
    }

    fn push_due(&mut self, waiting: BufferedEntry) {
        self.due_bytes += waiting.bytes();
        self.due.push(waiting);
    }

    /// Moves entries that were decided about: kept ones are due, the others are dropped.
    fn release(&mut self) {
        let rulings = self.selection.as_mut().map(Selection::decisions).unwrap_or_default();
        if rulings.is_empty() {
            // Without a selection entries are in order already; sorting a long buffer for each message would be slow.
            return;
        }
        for ruling in rulings {
            if let Some(waiting) = self.undecided.remove(&ruling.message)
                && ruling.is_kept
            {
                self.push_due(waiting);
            }
        }
        // Entries are written in the order in which they came.
        self.due.sort_by_key(|waiting| waiting.number);
    }

    /// Tells whether due entries may stay in memory for now.
    fn may_wait(&self) -> bool {
        self.due.is_empty()
            || self.buffer_max.is_some_and(|max| self.due.len() < max && self.due_bytes < DUE_BYTES_MAX)
    }

    /// Removes the entries of a batch that could not be recorded.
    fn withdraw(&mut self, first: u64) {
        self.undecided.split_off(&first);
        self.due.retain(|waiting| waiting.number < first);
        self.due_bytes = self.due.iter().map(BufferedEntry::bytes).sum();
    }
}

impl Recording {
    /// Applies the user's settings for selecting, buffering and compressing.
    #[must_use]
    pub fn with_policy(mut self, policy: &Policy) -> Self {
        let session = self.subject.session.as_ref().map(|session| session.id.as_str());
        self.selection_buffer = SelectionBuffer::new(policy, session).map(Box::new);
        self.compression = policy.compression;
        self
    }

    /// Returns how often [`Recording::flush`] must be called; `None` if never.
    #[must_use]
    pub fn flush_interval(&self) -> Option<Duration> {
        let buffer = self.selection_buffer.as_ref().filter(|buffer| !buffer.is_off)?;
        let waits = buffer.selection.is_some() && buffer.settings.waits_for_outcomes();
        (waits || buffer.buffer_max.is_some()).then_some(buffer.flush_interval)
    }

    /// Writes the entries that are due.
    ///
    /// # Errors
    /// They cannot be written, and go on waiting.
    pub fn flush(&mut self, now: Moment) -> Result<(), RecordError> {
        let Some(buffer) = &mut self.selection_buffer else { return Ok(()) };
        if let Some(selection) = &mut buffer.selection {
            selection.pass_time(saturate(now.instant.saturating_duration_since(buffer.began)));
        }
        buffer.release();
        self.write_due(now)?;
        self.note_undelivered(now)
    }

    /// Returns the position of the entry to which [`Recording::record`] gave this number: its number on the current
    /// tape, and that tape. None while it is not written, and once it is on an earlier tape.
    #[must_use]
    pub fn tape_position(&self, number: u64) -> Option<(u64, TapeId)> {
        let entry = match &self.selection_buffer {
            Some(buffer) => buffer.places.on(self.part()?, number)?,
            None => number.checked_sub(self.earlier)?,
        };
        Some((entry, self.tape()?))
    }

    /// Records what arrived together, as far as it is selected.
    pub(super) fn record_selected<'a>(
        &mut self,
        arrived: Moment,
        items: impl Iterator<Item = Item<'a>>,
    ) -> Result<u64, RecordError> {
        let redactor = Arc::clone(&self.redactor);
        let now = clock::now();
        let first = self.selection_buffer.as_ref().filter(|buffer| !buffer.is_off).map(|buffer| buffer.next);
        if first.is_none() && !self.is_watched() {
            return Ok(0);
        }
        for item in items {
            let redacted = self.redacted(&redactor, item).into_owned();
            // The watcher sees all messages, kept or not.
            self.show(arrived, std::iter::once((item, redacted.payload())));
            if first.is_some()
                && let Some(buffer) = &mut self.selection_buffer
            {
                buffer.take(&item, redacted, arrived, now);
            }
        }
        let (Some(first), Some(buffer)) = (first, &mut self.selection_buffer) else { return Ok(0) };
        buffer.release();
        if buffer.may_wait() {
            return Ok(first);
        }
        let written = self.write_due(now);
        if written.is_ok() && self.marks.is_overdue(now.instant) {
            // If this fails the notes wait for the next time; what was just recorded stands.
            let _ = self.note_undelivered(now);
        }
        if written.is_err()
            && let Some(buffer) = &mut self.selection_buffer
        {
            // Entries that were forwarded before go on waiting. No others join them: until they are written, new
            // messages are refused.
            buffer.withdraw(first);
        }
        written.map(|()| first)
    }

    /// Decides about all entries, and writes those that are kept. What cannot be written is a gap.
    pub(super) fn finish_selection(&mut self) {
        let Some(buffer) = &mut self.selection_buffer else { return };
        if let Some(selection) = &mut buffer.selection {
            selection.finish();
        }
        buffer.release();
        let Err(e) = self.write_due(clock::now()) else { return };
        let due =
            self.selection_buffer.as_mut().map(|buffer| std::mem::take(&mut buffer.due)).unwrap_or_default();
        let bytes = due.iter().map(|waiting| waiting.redacted.as_bytes().len() as u64).sum();
        self.note_gap(due.len() as u64, bytes, true, &e);
    }

    fn write_due(&mut self, now: Moment) -> Result<(), RecordError> {
        let Some(buffer) = &self.selection_buffer else { return Ok(()) };
        let Some(oldest) = buffer.due.first() else { return Ok(()) };
        // A tape begins at the arrival of its first entry.
        let (begins, bytes) = (if self.writer.is_none() { oldest.arrived } else { now }, buffer.due_bytes);
        // Due entries stay in the buffer meanwhile, because a tape that ends here looks up which were not delivered.
        self.make_room(begins, bytes as u64)?;
        let Some(buffer) = &mut self.selection_buffer else { return Ok(()) };
        let (due, bytes) = (std::mem::take(&mut buffer.due), std::mem::take(&mut buffer.due_bytes));
        let written = self.append_due(now, &due);
        // Should this fail, entries that were forwarded already are still here to be written again.
        let written = written.and_then(|placed| self.sync_if_wanted().map(|()| placed));
        let Some(buffer) = &mut self.selection_buffer else { return Ok(()) };
        match written {
            Ok((part, placed)) => {
                placed.into_iter().for_each(|(number, entry)| buffer.places.insert(number, part, entry));
                Ok(())
            }
            Err(e) => {
                (buffer.due, buffer.due_bytes) = (due, bytes);
                Err(e)
            }
        }
    }

    /// Appends due entries; returns the part they are on, and for each number its entry there. Others may name them by
    /// that only when they are sure to stay.
    fn append_due(
        &mut self,
        now: Moment,
        due: &[BufferedEntry],
    ) -> Result<(u32, Vec<(u64, u64)>), RecordError> {
        let redactor = Arc::clone(&self.redactor);
        let preface = self.preface();
        let preface = preface.as_deref().map(|facts| (note_item(facts), redactor.redact(facts)));
        let writer = self.writer.as_ref().expect("there is a tape by now");
        let (started, transport, part) = (writer.started(), self.subject.transport, writer.header().part);
        let first = writer.entries() + self.gaps.count() + u64::from(preface.is_some());
        let stamp = Stamp::new(now, writer, transport);
        let buffer = self.selection_buffer.as_ref().expect("what is due is kept there");
        let placed: Vec<(u64, u64)> = due
            .iter()
            .scan(first, |next, waiting| {
                let entry = *next + u64::from(waiting.original.is_some());
                *next = entry + 1;
                Some((waiting.number, entry))
            })
            .collect();
        // `placed` is sorted by number, because due entries are.
        let among_these = |number: u64| {
            placed.binary_search_by_key(&number, |(number, _)| *number).ok().map(|at| placed[at].1)
        };
        let named: Vec<Option<u64>> = due
            .iter()
            .map(|waiting| waiting.operation)
            .map(|operation| operation.and_then(|n| among_these(n).or_else(|| buffer.places.on(part, n))))
            .collect();
        // The preface is the first entry, so it gets the earliest time.
        let begin = due.first().map_or(stamp, |w| Stamp::at(w.arrived, w.arrived, started, transport));
        let preface = preface.iter().map(|(item, redacted)| (begin, *item, redacted.payload()));
        let entries = due.iter().zip(named).flat_map(|(waiting, operation)| {
            let stamp = Stamp::at(waiting.arrived, waiting.stamped, started, transport);
            let both = waiting.original.as_deref().into_iter().chain(std::iter::once(waiting));
            both.map(move |waiting| (stamp, waiting.item(operation), waiting.redacted.payload()))
        });
        self.append_stamped(stamp, preface.chain(entries))?;
        Ok((part, placed))
    }

    /// Returns the preface of the current tape, if it has no entries yet.
    pub(super) fn preface(&self) -> Option<Vec<u8>> {
        let is_new = self.writer.as_ref().is_some_and(|writer| writer.entries() == 0);
        self.selection_buffer.as_ref().filter(|_| is_new).map(|buffer| buffer.preface())
    }

    /// Takes the counts of what was left out of the tape that ends now.
    pub(super) fn take_left_out(&mut self) -> Option<LeftOut> {
        self.selection_buffer.as_mut()?.take_left_out()
    }

    /// Keeps the counts for the end of the next tape, because this one could not take the note.
    pub(super) fn defer_left_out_note(&mut self, left_out: &LeftOut) {
        if let Some(buffer) = &mut self.selection_buffer {
            buffer.unreported.add(left_out);
        }
    }
}

/// Reads the `selection` note with which a tape begins that does not hold everything; none if it is another note.
#[must_use]
pub fn selection_note(payload: &[u8]) -> Option<Value> {
    serde_json::from_slice::<Value>(payload).ok().filter(|note| note["event"] == "selection")
}
