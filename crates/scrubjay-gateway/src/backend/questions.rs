//! Questions of a legacy backend to a modern client, which cannot be sent requests.
//!
//! A modern client is asked by the result of a call (`input_required`). So a question waits here for the next call
//! that may demand input. It does not matter which of several calls takes it: all belong to the same client.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::session::{Demand, lock};

/// The most questions that wait on a connection; the backend gets an error for any other. They wait for a client that
/// may not come back.
const WAITING_MAX: usize = 16;
/// How long a server gets to act on an answer before the next call is sent to it.
const ACT_ON_ANSWER: Duration = Duration::from_millis(100);
/// How often a waiting call checks for questions without being notified.
const RECHECK: Duration = Duration::from_secs(1);

/// A question that waits.
#[derive(Debug)]
struct WaitingQuestion {
    demand: Demand,
    /// Whether it came while no call was under way that it could be part of.
    outside_calls: bool,
}

/// What a call that takes questions is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuestionTaker {
    /// Whether it has taken one before.
    pub(crate) was_asked: bool,
    /// Whether it also takes questions from outside calls. Tool calls do; a client that reads a resource expects its
    /// contents.
    pub(crate) takes_all: bool,
}

/// The questions of one connection.
#[derive(Debug)]
pub(crate) struct Questions {
    waiting: Mutex<VecDeque<WaitingQuestion>>,
    /// Notifies a call that has taken no question yet; `fresh_calls` counts those that wait.
    fresh: Notify,
    fresh_calls: AtomicUsize,
    /// Notifies a call that has taken one before.
    again: Notify,
    /// How many questions from outside calls have no answer yet: a call must not overtake the answers.
    unsettled: watch::Sender<usize>,
    /// How many questions ever came.
    asked: AtomicUsize,
    arrived: Notify,
}

impl Default for Questions {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            fresh: Notify::new(),
            fresh_calls: AtomicUsize::new(0),
            again: Notify::new(),
            unsettled: watch::Sender::new(0),
            asked: AtomicUsize::new(0),
            arrived: Notify::new(),
        }
    }
}

impl Questions {
    /// Adds a question; gives it back if there are too many.
    pub(crate) fn put(&self, demand: Demand, outside_calls: bool) -> Result<(), Demand> {
        let mut waiting = lock(&self.waiting);
        if waiting.len() >= WAITING_MAX {
            return Err(demand);
        }
        waiting.push_back(WaitingQuestion { demand, outside_calls });
        drop(waiting);
        self.wake_a_call();
        Ok(())
    }

    /// Wakes the newest call that has taken no question yet, since the question is most likely about that one; else
    /// another.
    fn wake_a_call(&self) {
        if self.fresh_calls.load(Ordering::Acquire) > 0 {
            self.fresh.notify_last();
        } else {
            self.again.notify_one();
        }
    }

    /// Waits for a question whose backend still wants an answer, and returns it.
    pub(crate) async fn take(&self, taker: QuestionTaker) -> Demand {
        let is_fresh = !taker.was_asked && taker.takes_all;
        let _counted = is_fresh.then(|| FreshCallGuard::new(&self.fresh_calls));
        let news = if is_fresh { &self.fresh } else { &self.again };
        loop {
            if let Some(demand) = self.try_take(taker) {
                return demand;
            }
            // Checked at intervals too: the call that was notified may have ended at that moment.
            let _ = tokio::time::timeout(RECHECK, news.notified()).await;
        }
    }

    /// Returns the next question, if there is one.
    pub(crate) fn try_take(&self, taker: QuestionTaker) -> Option<Demand> {
        let mut waiting = lock(&self.waiting);
        // Nobody waits for the answers to these any more.
        waiting.retain(|asked| !asked.demand.reply.is_closed());
        let next = waiting.iter().position(|asked| taker.takes_all || !asked.outside_calls)?;
        let taken = waiting.remove(next).map(|asked| asked.demand);
        let more = !waiting.is_empty();
        drop(waiting);
        // Several questions may have left a single notification.
        if more {
            self.wake_a_call();
        }
        taken
    }

    /// Counts a question until the guard is dropped, when it is answered.
    pub(super) fn begin(self: &Arc<Self>, outside_calls: bool) -> OpenQuestion {
        self.asked.fetch_add(1, Ordering::AcqRel);
        if outside_calls {
            self.unsettled.send_modify(|count| *count += 1);
        }
        self.arrived.notify_waiters();
        OpenQuestion { questions: self.clone(), outside_calls }
    }

    /// Waits until a question has come, ever.
    pub(super) async fn first(&self) {
        let arrived = self.arrived.notified();
        tokio::pin!(arrived);
        // Enabled before the check, so that a question asked in between is not missed.
        arrived.as_mut().enable();
        if self.asked.load(Ordering::Acquire) == 0 {
            arrived.await;
        }
    }

    /// Waits until all questions from outside calls are answered, and the server had a moment to act on the answers:
    /// it does not report when it has, and a call right behind an answer would find the old state.
    pub(crate) async fn settled(&self) {
        let mut unsettled = self.unsettled.subscribe();
        if *unsettled.borrow_and_update() == 0 {
            return;
        }
        // Cannot fail: the sender is a field of this.
        let _ = unsettled.wait_for(|count| *count == 0).await;
        tokio::time::sleep(ACT_ON_ANSWER).await;
    }
}

/// Counts a call that has taken no question yet, while it waits.
struct FreshCallGuard<'a>(&'a AtomicUsize);

impl<'a> FreshCallGuard<'a> {
    fn new(calls: &'a AtomicUsize) -> Self {
        calls.fetch_add(1, Ordering::AcqRel);
        Self(calls)
    }
}

impl Drop for FreshCallGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A question without an answer.
pub(super) struct OpenQuestion {
    questions: Arc<Questions>,
    outside_calls: bool,
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        if self.outside_calls {
            self.questions.unsettled.send_modify(|count| *count -= 1);
        }
    }
}

#[cfg(test)]
mod tests;
