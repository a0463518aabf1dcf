//! Removes tapes for their age: only while the wall clock can be trusted, and never of a running conversation.

use std::collections::HashSet;
use std::time::Duration;

use crate::catalog::Overview;
use crate::clock::{saturate, touched_wall_ns};
use crate::clock_trust::{ClockDoubt, ClockReading};
use crate::format::header::TapeKind;
use crate::format::reader::{Tape, TapeState};
use crate::home::{FindError, Home, TapeFile, started_wall_ms};
use crate::removed::RemovedBy;

/// How many old tapes one start looks at, so that it does not take long.
const EXPIRED_MAX: usize = 1000;

/// The outcome of removing expired tapes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// How many were removed.
    pub removed: usize,
    /// Why none was removed, if the clock cannot be trusted.
    pub doubt: Option<ClockDoubt>,
}

impl Home {
    /// Removes tapes that ended longer than `age` ago, the oldest first; none while the clock cannot be trusted.
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

    /// Removes tapes that ended before a moment, the oldest first; returns how many.
    ///
    /// Only sealed tapes are removed, and none of a running conversation or that was recorded while the clock was
    /// behind. The file must be as old as the tape says. At most 1000 of them are looked at in one start, so that no
    /// start takes long.
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
        // Tapes that stay for good must not use up the limit.
        let dated = |file: &TapeFile| {
            let tape = self.open(file).ok()?;
            tape.header()?.clock_behind_ns.is_none().then_some((file.clone(), tape))
        };
        let mut removed = 0;
        // Oldest first, because one start looks at a limited number.
        for (file, tape) in files.iter().rev().filter(old).filter_map(dated).take(EXPIRED_MAX) {
            let ended = last_wall_ns(&tape).is_some_and(|last| last < wall_ns);
            if tape.state() == TapeState::Sealed && ended && !is_part_of(&tape, &running) {
                self.remove(&file, RemovedBy::Retention)
                    .map_err(|source| FindError::Io { path: file.path.clone(), source })?;
                removed += 1;
            }
        }
        if removed > 0 {
            // A note that stays names a removed tape; its reader finds that out.
            let _ = self.forget_ends();
        }
        Ok(removed)
    }

    /// Returns the sessions that have a live tape.
    fn running_sessions(&self, files: &[TapeFile]) -> HashSet<String> {
        let live = files.iter().filter(|file| file.path.extension().is_some_and(|e| e == "live"));
        let open =
            live.filter_map(|file| self.open(file).ok()).filter(|tape| tape.state() == TapeState::Live);
        open.filter_map(|tape| Some(tape.header()?.session.id.clone())).collect()
    }
}

/// Returns when a tape ended: the time of its last entry, or its start plus its duration if that is later, because the
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

/// Returns the indices of the tapes in a list that belong to a running conversation.
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
