//! Removes tapes for their age: only when two clocks agree on what time it is, and never of a conversation that goes on.

use std::collections::HashSet;
use std::time::Duration;

use crate::catalog::Overview;
use crate::clock::{saturate, touched_wall_ns};
use crate::clock_trust::{ClockDoubt, ClockReading};
use crate::format::header::TapeKind;
use crate::format::reader::{Tape, TapeState};
use crate::home::{FindError, Home, TapeFile, started_wall_ms};
use crate::removed::RemovedBy;

/// So many old tapes are looked at in one start.
const EXPIRED_MAX: usize = 1000;

/// What became of tapes that may be too old.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// How many were removed.
    pub removed: usize,
    /// Why none was, where the clock cannot be believed.
    pub doubt: Option<ClockDoubt>,
}

impl Home {
    /// Removes tapes that ended longer ago than an age, the oldest first; none while the clock is in doubt.
    ///
    /// # Errors
    /// The directory cannot be read, or a file cannot be removed.
    pub fn expire(&self, age: Duration, now: &ClockReading) -> Result<Expired, FindError> {
        let failed = |source| FindError::Io { path: self.root().to_owned(), source };
        let doubt = self.check_clock(now, Some(age)).map_err(failed)?;
        if doubt.is_some() {
            return Ok(Expired { removed: 0, doubt });
        }
        let removed = self.remove_ended_before(now.wall_ns.saturating_sub(saturate(age)))?;
        Ok(Expired { removed, doubt: None })
    }

    /// Removes tapes that ended before a moment, the oldest first; returns how many, or what was in the way.
    ///
    /// Only sealed ones: what is being written, or waits to be sealed, is not touched, nor what belongs to a
    /// conversation that goes on, nor what was recorded while the clock was behind. The file must be as old as the tape
    /// says. At most 1000 of them are looked at in one start, so that no start takes long.
    ///
    /// # Errors
    /// The directory cannot be read, or a file cannot be removed.
    pub fn remove_ended_before(&self, wall_ns: u64) -> Result<usize, FindError> {
        let files = self.list()?;
        let running = self.running_sessions(&files);
        let old = |file: &&TapeFile| {
            started_wall_ms(&file.path).is_some_and(|ms| ms < wall_ns / 1_000_000)
                && touched_wall_ns(&file.path).is_ok_and(|touched| touched < wall_ns)
        };
        // What stays because the clock was behind must not keep others from their turn.
        let dated = |file: &TapeFile| {
            let tape = self.open(file).ok()?;
            tape.header()?.clock_behind_ns.is_none().then_some((file.clone(), tape))
        };
        let mut removed = 0;
        for (file, tape) in files.iter().rev().filter(old).filter_map(dated).take(EXPIRED_MAX) {
            let ended = last_wall_ns(&tape).is_some_and(|last| last < wall_ns);
            if tape.state() == TapeState::Sealed && ended && !is_part_of(&tape, &running) {
                self.remove(&file, RemovedBy::Retention)
                    .map_err(|source| FindError::Io { path: file.path.clone(), source })?;
                removed += 1;
            }
        }
        if removed > 0 {
            // Notes that stay name tapes that are gone, which a reader of them finds out.
            let _ = self.forget_ends();
        }
        Ok(removed)
    }

    /// Returns the sessions of conversations that are being recorded.
    fn running_sessions(&self, files: &[TapeFile]) -> HashSet<String> {
        let live = files.iter().filter(|file| file.path.extension().is_some_and(|e| e == "live"));
        let open =
            live.filter_map(|file| self.open(file).ok()).filter(|tape| tape.state() == TapeState::Live);
        open.filter_map(|tape| Some(tape.header()?.session.id.clone())).collect()
    }
}

/// Returns when a tape ended: its last entry, or what the time that passed on it says, if that is later, because the
/// clock was set back meanwhile.
fn last_wall_ns(tape: &Tape) -> Option<u64> {
    let footer = tape.footer()?;
    let measured = tape.header()?.started_wall_ns.saturating_add(footer.duration_ns);
    Some(footer.ended_wall_ns.max(measured))
}

fn is_part_of(tape: &Tape, running: &HashSet<String>) -> bool {
    let header = tape.header();
    let moved_to = tape.footer().and_then(|footer| footer.metadata.moved_to.as_ref());
    header.is_some_and(|header| {
        header.kind() == TapeKind::Conversation
            && (running.contains(&header.session.id) || moved_to.is_some_and(|id| running.contains(id)))
    })
}

/// Finds the tapes of a list that belong to a conversation that is being recorded, by their places.
#[must_use]
pub fn of_running_sessions(all: &[Overview]) -> HashSet<usize> {
    let live = all.iter().filter(|tape| tape.state == TapeState::Live);
    let running: HashSet<String> = live.map(|tape| tape.session().id).collect();
    let is_running = |tape: &Overview| {
        let began = tape.header.as_ref().map(|header| header.session.id.as_str()).unwrap_or_default();
        tape.kind() == TapeKind::Conversation
            && (running.contains(&tape.session().id) || running.contains(began))
    };
    all.iter().enumerate().filter(|(_, tape)| is_running(tape)).map(|(at, _)| at).collect()
}
