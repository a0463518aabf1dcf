//! How long a list waits for the backends that have not answered.
//!
//! A slow server looks like one that hangs. A list waits for a moment after the last good answer. For a new server it
//! waits longer while that uses processor time before its first output, or while it may have a wanted name. For a
//! server that kept clients waiting for nothing before, it hardly waits.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::backend::Backend;
use crate::backend::list::ListKind;
use crate::session::{Session, lock};

/// How long a list waits after the last good answer.
const QUIET: Duration = Duration::from_millis(700);
/// How long it waits for the first answer of any server outside this process.
const FIRST_MAX: Duration = Duration::from_secs(3);
/// How long it waits for a new server that is busy, or may have a wanted name.
const NEW_MAX: Duration = Duration::from_secs(10);
/// How often the processor time of a server is read: 25 ticks of a clock that has 100 a second, so that a busy one
/// shows.
const LOOK: Duration = Duration::from_millis(250);

pub(super) struct ListDeadline {
    begun: Instant,
    /// When a good answer came last.
    last_good: Instant,
    /// Whether a server outside this process has answered.
    any_answered: bool,
    /// Which backends are no new ones: they have given a list before, to this client or another.
    known: Vec<bool>,
    /// Whether a name is wanted that no list had so far.
    is_wanting: bool,
    /// How much processor time each had used when it was last seen busy, and when that was.
    at_work: Vec<(u64, Instant)>,
}

impl ListDeadline {
    pub(super) fn new(
        backends: &[Arc<Backend>],
        session: &Session,
        kind: ListKind,
        is_wanting: bool,
    ) -> Self {
        let now = Instant::now();
        let lists = lock(&session.lists);
        let is_known = |backend: &Arc<Backend>| {
            backend.is_own || backend.known.has_list(kind) || lists.contains_key(&(kind, backend.id.clone()))
        };
        Self {
            begun: now,
            last_good: now,
            any_answered: backends.iter().all(is_known),
            known: backends.iter().map(is_known).collect(),
            is_wanting,
            at_work: backends.iter().map(|_| (0, now)).collect(),
        }
    }

    /// Notes an answer.
    pub(super) fn answered(&mut self, backend: &Backend, is_good: bool) {
        if is_good {
            self.last_good = Instant::now();
            self.any_answered |= !backend.is_own;
        }
    }

    /// Notes that the wanted name was found.
    pub(super) fn found(&mut self) {
        self.is_wanting = false;
    }

    /// Waits for the next answer; `None` when the list is not to wait any longer.
    pub(super) async fn wait<T>(
        &mut self,
        backends: &[Arc<Backend>],
        answered: &[usize],
        next: impl Future<Output = Option<T>>,
    ) -> Option<T> {
        let mut next = std::pin::pin!(next);
        loop {
            let until = self.until(backends, answered);
            let look = until.min(Instant::now() + LOOK);
            if let Ok(answer) = tokio::time::timeout_at(look, &mut next).await {
                return answer;
            }
            if Instant::now() >= self.until(backends, answered) {
                return None;
            }
        }
    }

    /// Returns when to stop waiting for those that have not answered.
    fn until(&mut self, backends: &[Arc<Backend>], answered: &[usize]) -> Instant {
        let missing = (0..backends.len()).filter(|place| !answered.contains(place));
        let until: Vec<Instant> = missing.map(|place| self.until_for(place, &backends[place])).collect();
        until.into_iter().max().unwrap_or(self.begun)
    }

    fn until_for(&mut self, place: usize, backend: &Backend) -> Instant {
        if backend.known.was_slow() {
            // Hardly any wait of its own. Its answer is still used if it comes while the list waits for others.
            return self.last_good + QUIET / 10;
        }
        let quiet = self.last_good + QUIET;
        if self.known[place] {
            return quiet;
        }
        if self.is_wanting {
            return self.begun + NEW_MAX;
        }
        let first = if self.any_answered { quiet } else { quiet.max(self.begun + FIRST_MAX) };
        let (ticks, since) = &mut self.at_work[place];
        let now = Instant::now();
        match backend.starting_ticks() {
            Some(used) if used > *ticks => (*ticks, *since) = (used, now),
            Some(_) => {}
            None => return first,
        }
        // It was busy a moment ago, so the list waits for three more checks.
        first.max((*since + LOOK * 3).min(self.begun + NEW_MAX))
    }
}

#[cfg(test)]
mod tests;
