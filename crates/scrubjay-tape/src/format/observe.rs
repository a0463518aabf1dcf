//! Computes what a check needs while it reads a tape's entries: digests at given entries, statistics, clock jumps.

use std::collections::BTreeMap;
use std::io;

use scrubjay_core::entry::{End, Entry, EntryKind};
use serde::{Deserialize, Serialize};

use super::digest::RunningDigest;
use super::frame;
use super::header::Header;
use super::reader::Tape;
use super::totals::Totals;

/// Smaller corrections of the wall clock are not mentioned: NTP makes them all the time.
pub(crate) const CLOCK_SLACK_NS: u64 = 1_000_000_000;
/// A forward jump is mentioned from 24 hours on: while a machine sleeps for a night, the wall clock advances and the
/// monotonic clock does not.
const AHEAD_MIN_NS: u64 = 24 * 3600 * 1_000_000_000;
/// How many clock jumps are listed, so that footers stay small.
const JUMPS_MAX: usize = 100;
/// How many closing entries may follow the end that the next tape names: a note of what was left out, and the end.
pub(crate) const CLOSING_MAX: u64 = 2;

/// An entry before which the wall clock and the monotonic clock advanced differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockJump {
    /// The first entry behind the jump.
    pub entry: u64,
    /// By how much, in nanoseconds; negative if the clock went back.
    pub by_ns: i64,
}

impl ClockJump {
    /// Tells whether the clock went back.
    #[must_use]
    pub fn is_back(&self) -> bool {
        self.by_ns < 0
    }
}

/// Finds jumps of the wall clock, entry by entry.
#[derive(Debug, Default)]
pub(crate) struct ClockWatch {
    offset_ns: Option<i128>,
    pub(crate) jumps: Vec<ClockJump>,
}

impl ClockWatch {
    /// Compares how far both clocks advanced since the previous entry. Entries may be written in another order than
    /// they came; the difference between the clocks stays the same anyway, while none of them is set.
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
    /// Returns the clock jumps that the footer lists; none if the footer does not list them.
    #[must_use]
    pub fn noted_clock_jumps(&self) -> Option<&[ClockJump]> {
        let footer = self.footer()?;
        footer.totals_version.map(|_| footer.clock_jumps.as_slice())
    }

    /// Finds the clock jumps by reading all entries.
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

/// Takes the entries of one tape in order, and computes what was asked for.
#[derive(Debug)]
pub(crate) struct Observer {
    running: RunningDigest,
    /// For how many entries digests are wanted, ascending.
    wanted: std::iter::Peekable<std::vec::IntoIter<u64>>,
    found: BTreeMap<u64, String>,
    /// Short digests at regular distances.
    marks: Option<DigestMarks>,
    entries: u64,
    clock: ClockWatch,
    /// The statistics of the entries, if they are wanted.
    totals: Option<Totals>,
    last: Vec<LastEntry>,
    last_wall_ns: Option<u64>,
}

/// What an [`Observer`] computed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    pub(crate) digest: String,
    /// Digests, by the number of entries they cover.
    pub(crate) found: BTreeMap<u64, String>,
    pub(crate) marks: Vec<[u8; 4]>,
    pub(crate) mark_step: u64,
    pub(crate) entries: u64,
    pub(crate) jumps: Vec<ClockJump>,
    pub(crate) last: Vec<LastEntry>,
    pub(crate) last_wall_ns: Option<u64>,
}

impl Observer {
    /// Prepares for a tape; `wanted` lists for how many entries digests are wanted.
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

    /// Also keeps a short digest after every `step` entries, to locate changes; 0 chooses the step.
    pub(crate) fn with_marks(mut self, step: u64) -> Self {
        self.marks = Some(DigestMarks { step: step.max(1), may_grow: step == 0, marks: Vec::new() });
        self
    }

    /// Also computes statistics.
    pub(crate) fn with_totals(mut self) -> Self {
        self.totals = Some(Totals::default());
        self
    }

    /// Takes the statistics of the entries so far, if they were wanted.
    pub(crate) fn take_totals(&mut self) -> Option<Totals> {
        self.totals.take()
    }

    /// Takes the frame of the next entry; its checksum must be right.
    pub(crate) fn take(&mut self, number: u64, bytes: &[u8]) {
        let Some(entry) = frame::decode_checked(bytes) else { return };
        // Before the entry is added: a wanted digest covers the entries before it.
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

/// Short digests at regular distances.
#[derive(Debug)]
struct DigestMarks {
    step: u64,
    may_grow: bool,
    marks: Vec<[u8; 4]>,
}

/// How many marks are kept of a tape: 8 KiB of a checkpoint.
const MARKS_MAX: usize = 1024;

impl DigestMarks {
    fn note(&mut self, entries: u64, running: &RunningDigest) {
        if entries.is_multiple_of(self.step) {
            self.marks.push(running.short());
        }
        if self.may_grow && self.marks.len() > MARKS_MAX {
            // Keep every other mark: the distance doubles.
            self.marks = self.marks.iter().skip(1).step_by(2).copied().collect();
            self.step *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_marks_are_limited_and_evenly_spaced() {
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
