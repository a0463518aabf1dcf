//! Which entries of a tape did not reach their receiver, according to all tapes of a data directory.
//!
//! A message may turn out to be undelivered after its tape was rotated or sealed. A later tape of the same recording
//! notes it then, or the tape `after the end` of the same run of the gateway. Headers tell which tapes those are; only
//! they are read. Notes on any other tape are ignored.

use std::collections::{BTreeSet, HashMap};
use std::io;

use scrubjay_core::delivery::UndeliveredSum;
use scrubjay_core::id::TapeId;
use scrubjay_core::reading::EntryReader;

use crate::format::header::{Header, TapeKind};
use crate::format::reader::{Tape, peek_header};
use crate::home::{Home, TapeFile, started_wall_ms};

/// A later tape may have an earlier name if the wall clock was set back. Nobody sets it back by more than a day without
/// noticing, and reading the header of every older tape takes time.
const CLOCK_SLACK_MS: u64 = 24 * 3600 * 1000;

/// Tapes whose notes may name entries of other tapes.
#[derive(Debug, Default)]
pub struct LaterTapes {
    /// By the tape that they continue.
    continuing: HashMap<TapeId, Vec<TapeFile>>,
    /// The tapes of late messages, by the run of the gateway.
    late: HashMap<String, Vec<TapeFile>>,
    /// The notes on them, read when first needed.
    sums: HashMap<TapeId, UndeliveredSum>,
}

impl Home {
    /// Returns which entries of a tape are noted as undelivered, on itself or on a later tape.
    ///
    /// # Errors
    /// The tape cannot be read. A later tape that cannot be read says nothing.
    pub fn undelivered(&self, tape: &Tape) -> io::Result<UndeliveredSum> {
        LaterTapes::of(self, [tape]).undelivered(self, tape)
    }

    /// Returns a reader that knows which entries of a tape are noted as undelivered.
    ///
    /// # Errors
    /// The same as of [`Home::undelivered`].
    pub fn reader(&self, tape: &Tape) -> io::Result<EntryReader> {
        Ok(EntryReader::with_undelivered(self.undelivered(tape)?))
    }
}

impl LaterTapes {
    /// Reads the headers of all tapes that may have notes about `tapes`.
    pub fn of<'a>(home: &Home, tapes: impl IntoIterator<Item = &'a Tape>) -> Self {
        let headers = tapes.into_iter().filter(|tape| may_be_named_later(tape)).filter_map(Tape::header);
        let Some(since_ns) = headers.map(|header| header.started_wall_ns).min() else {
            return Self::default();
        };
        let since_ms = (since_ns / 1_000_000).saturating_sub(CLOCK_SLACK_MS);
        let mut later = Self::default();
        // The data directory may be missing: the tape may be a file from elsewhere.
        for file in home.list().unwrap_or_default() {
            // A file that was renamed may be of any time.
            if started_wall_ms(&file.path).is_none_or(|ms| ms >= since_ms)
                && let Ok(Some(header)) = peek_header(&file.path)
            {
                later.add(&header, file);
            }
        }
        later
    }

    fn add(&mut self, header: &Header, file: TapeFile) {
        if header.kind() == TapeKind::Late
            && let Some(gateway) = &header.gateway
        {
            self.late.entry(gateway.clone()).or_default().push(file);
        } else if let Some(before) = header.continues {
            self.continuing.entry(before).or_default().push(file);
        }
    }

    /// Returns which entries of a tape are noted as undelivered, on itself or on a later tape.
    ///
    /// # Errors
    /// The tape cannot be read. A later tape that cannot be read says nothing.
    pub fn undelivered(&mut self, home: &Home, tape: &Tape) -> io::Result<UndeliveredSum> {
        let mut sum = tape.undelivered()?.of_this_tape();
        let Some(header) = tape.header() else { return Ok(sum) };
        for file in self.about(header) {
            let other = self.sums.entry(file.id).or_insert_with(|| {
                home.open(&file)
                    .map_err(io::Error::other)
                    .and_then(|tape| tape.noted_of_others())
                    .unwrap_or_default()
            });
            sum.add_noted_elsewhere(header.id, other);
        }
        Ok(sum)
    }

    /// Returns the tapes that may have notes about entries of the tape with this header, each once.
    fn about(&self, header: &Header) -> Vec<TapeFile> {
        let mut seen = BTreeSet::from([header.id]);
        let mut found: Vec<TapeFile> = Vec::new();
        let mut looking = vec![header.id];
        // Forged headers may name each other in a circle, so each tape is visited once.
        while let Some(id) = looking.pop() {
            for next in self.continuing.get(&id).into_iter().flatten() {
                if seen.insert(next.id) {
                    looking.push(next.id);
                    found.push(next.clone());
                }
            }
        }
        let late = header.gateway.as_ref().and_then(|gateway| self.late.get(gateway));
        found.extend(late.into_iter().flatten().filter(|late| seen.insert(late.id)).cloned());
        found
    }
}

/// Tells whether a later tape may have notes about entries of this one. After the end of a connection without a gateway
/// nobody is left who could write them.
fn may_be_named_later(tape: &Tape) -> bool {
    let Some(header) = tape.header() else { return false };
    let end = tape.footer().and_then(|footer| footer.end.as_ref());
    header.gateway.is_some() || end.is_none_or(|end| end.continues_on.is_some())
}
