//! What a check works out as it passes over the entries: digests at given places, and whether time ran as it should.

use std::collections::BTreeMap;
use std::io;

use scrubjay_core::entry::{End, Entry, EntryKind};
use serde::{Deserialize, Serialize};

use super::digest::RunningDigest;
use super::frame;
use super::header::Header;
use super::reader::Tape;
use super::totals::Totals;

/// The wall clock may be corrected by this much without a word: network time does so all the time.
pub(crate) const CLOCK_SLACK_NS: u64 = 1_000_000_000;
/// A clock that is further ahead than the time that passed is mentioned from here on: a machine that slept for a
/// night has a wall clock that went on and a monotonic clock that did not.
const AHEAD_MIN_NS: u64 = 24 * 3600 * 1_000_000_000;
/// So many jumps of the clock are listed.
const JUMPS_MAX: usize = 100;
/// So many entries may stand behind the place at which a tape was continued: a note of what was left out, the end.
pub(crate) const CLOSING_MAX: u64 = 2;

/// A place on a tape where the wall clock did not move as the time that passed says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockJump {
    /// The first entry behind the jump.
    pub entry: u64,
    /// By how much, in nanoseconds; negative where the clock went back.
    pub by_ns: i64,
}

impl ClockJump {
    /// Tells whether time ran backwards.
    #[must_use]
    pub fn is_back(&self) -> bool {
        self.by_ns < 0
    }
}

/// Looks for jumps of the wall clock, entry by entry.
#[derive(Debug, Default)]
pub(crate) struct ClockWatch {
    offset_ns: Option<i128>,
    pub(crate) jumps: Vec<ClockJump>,
}

impl ClockWatch {
    /// Compares how far both clocks went since the entry before. Entries may stand in another order than they came:
    /// what counts is the difference between the clocks, which is the same for all while neither is set.
    pub(crate) fn take(&mut self, number: u64, entry: &Entry<'_>) {
        let offset = i128::from(entry.wall_ns) - i128::from(entry.since_start_ns);
        let by = self.offset_ns.map_or(0, |before| offset - before);
        self.offset_ns = Some(offset);
        let is_jump = by < -i128::from(CLOCK_SLACK_NS) || by > i128::from(AHEAD_MIN_NS);
        if is_jump && self.jumps.len() < JUMPS_MAX {
            let by_ns = i64::try_from(by).unwrap_or(if by < 0 { i64::MIN } else { i64::MAX });
            self.jumps.push(ClockJump { entry: number, by_ns });
        }
    }
}

impl Tape {
    /// Returns the jumps of the wall clock as its footer notes them; none where there is no such note.
    #[must_use]
    pub fn noted_clock_jumps(&self) -> Option<&[ClockJump]> {
        let footer = self.footer()?;
        footer.totals_version.map(|_| footer.clock_jumps.as_slice())
    }

    /// Returns the jumps of the wall clock as its entries tell them: all of them are read.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn find_clock_jumps(&self) -> io::Result<Vec<ClockJump>> {
        let (mut entries, mut clock) = (self.entries()?, ClockWatch::default());
        while let Some((number, entry)) = entries.next()? {
            clock.take(number, &entry);
        }
        Ok(clock.jumps)
    }
}

/// One of the last entries of a tape.
#[derive(Clone, Debug)]
pub(crate) struct LastEntry {
    pub(crate) number: u64,
    pub(crate) kind: EntryKind,
    pub(crate) end: Option<End>,
}

/// Passes over the entries of one tape, in order.
#[derive(Debug)]
pub(crate) struct Observer {
    running: RunningDigest,
    /// Before which entries digests are wanted, in order.
    wanted: std::iter::Peekable<std::vec::IntoIter<u64>>,
    found: BTreeMap<u64, String>,
    /// Digests cut short, one for each entry up to a limit; every other one goes when there are too many.
    marks: Option<DigestMarks>,
    entries: u64,
    clock: ClockWatch,
    /// What the entries add up to, where that is wanted.
    totals: Option<Totals>,
    last: Vec<LastEntry>,
    last_wall_ns: Option<u64>,
}

/// What was seen of a tape.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    pub(crate) digest: String,
    /// Digests of as many entries as the key says.
    pub(crate) found: BTreeMap<u64, String>,
    pub(crate) marks: Vec<[u8; 4]>,
    pub(crate) mark_step: u64,
    pub(crate) entries: u64,
    pub(crate) jumps: Vec<ClockJump>,
    pub(crate) last: Vec<LastEntry>,
    pub(crate) last_wall_ns: Option<u64>,
}

impl Observer {
    /// Prepares for a tape; digests are wanted of as many entries as the numbers say.
    pub(crate) fn new(header: Option<&Header>, mut wanted: Vec<u64>) -> Self {
        wanted.sort_unstable();
        wanted.dedup();
        Self {
            running: RunningDigest::new(header),
            wanted: wanted.into_iter().peekable(),
            found: BTreeMap::new(),
            marks: None,
            entries: 0,
            clock: ClockWatch::default(),
            totals: None,
            last: Vec::new(),
            last_wall_ns: None,
        }
    }

    /// Keeps marks by which a changed entry can be found, every so many entries; 0 lets it choose.
    pub(crate) fn with_marks(mut self, step: u64) -> Self {
        self.marks = Some(DigestMarks { step: step.max(1), may_grow: step == 0, marks: Vec::new() });
        self
    }

    /// Adds up the entries as they go by, too.
    pub(crate) fn with_totals(mut self) -> Self {
        self.totals = Some(Totals::default());
        self
    }

    /// Returns what the entries so far add up to, where that was wanted.
    pub(crate) fn take_totals(&mut self) -> Option<Totals> {
        self.totals.take()
    }

    /// Takes the frame of the next entry, whose checksum was found right.
    pub(crate) fn take(&mut self, number: u64, bytes: &[u8]) {
        let Some(entry) = frame::decode_checked(bytes) else { return };
        self.note_wanted();
        self.running.update(bytes);
        self.entries += 1;
        if let Some(marks) = &mut self.marks {
            marks.note(self.entries, &self.running);
        }
        self.clock.take(number, &entry);
        self.last_wall_ns = Some(entry.wall_ns);
        if let Some(totals) = &mut self.totals {
            totals.take(number, &entry);
        }
        if self.last.len() as u64 == CLOSING_MAX {
            self.last.remove(0);
        }
        let end =
            (entry.kind == EntryKind::End).then(|| serde_json::from_slice(entry.payload).ok()).flatten();
        self.last.push(LastEntry { number, kind: entry.kind, end });
    }

    /// Returns the digest of all entries so far.
    pub(crate) fn digest(&self) -> String {
        self.running.hex()
    }

    fn note_wanted(&mut self) {
        while self.wanted.next_if(|at| *at < self.entries).is_some() {}
        if self.wanted.next_if_eq(&self.entries).is_some() {
            self.found.insert(self.entries, self.running.hex());
        }
    }

    pub(crate) fn finish(mut self) -> Observed {
        self.note_wanted();
        let (marks, mark_step) = self.marks.map(|marks| (marks.marks, marks.step)).unwrap_or_default();
        Observed {
            digest: self.running.hex(),
            found: self.found,
            marks,
            mark_step,
            entries: self.entries,
            jumps: self.clock.jumps,
            last: self.last,
            last_wall_ns: self.last_wall_ns,
        }
    }
}

/// Digests at even distances, cut short.
#[derive(Debug)]
struct DigestMarks {
    step: u64,
    may_grow: bool,
    marks: Vec<[u8; 4]>,
}

/// So many marks are kept of a tape at most: 8 KiB of a checkpoint.
const MARKS_MAX: usize = 1024;

impl DigestMarks {
    fn note(&mut self, entries: u64, running: &RunningDigest) {
        if entries.is_multiple_of(self.step) {
            self.marks.push(running.short());
        }
        if self.may_grow && self.marks.len() > MARKS_MAX {
            // Every other one stays: the distance is twice as long.
            self.marks = self.marks.iter().skip(1).step_by(2).copied().collect();
            self.step *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stay_few_and_at_even_distances() {
        let mut marks = DigestMarks { step: 1, may_grow: true, marks: Vec::new() };
        let mut running = RunningDigest::new(None);
        let mut all = Vec::new();
        for entries in 1..=5_000 {
            running.update(b"x");
            all.push(running.short());
            marks.note(entries, &running);
        }
        assert!(marks.marks.len() <= MARKS_MAX && marks.marks.len() > MARKS_MAX / 4);
        for (at, mark) in (1..).zip(&marks.marks) {
            assert_eq!(*mark, all[usize::try_from(at * marks.step).unwrap() - 1]);
        }
    }
}
