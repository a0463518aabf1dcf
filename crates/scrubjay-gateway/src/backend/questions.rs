//! What a legacy backend asked a client that cannot be sent requests, until a request of that client takes it along.
//!
//! A modern client is asked by the result of a call. So a question waits here for the next call that may demand
//! input; which of several calls under way takes it does not matter, for all are of one client.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::session::{Demand, lock};

/// How many questions may wait.
const WAITING_MAX: usize = 16;
const ACT_ON_ANSWER: Duration = Duration::from_millis(100);
const RECHECK: Duration = Duration::from_secs(1);

/// A question that waits.
#[derive(Debug)]
struct WaitingQuestion {
    demand: Demand,
    /// Whether it was asked while no call was under way that it could be part of.
    outside_calls: bool,
}

/// Which call takes questions along.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuestionTaker {
    /// Whether it has taken one before.
    pub(crate) was_asked: bool,
    /// Whether it also takes what was asked outside calls: calls of tools do, but who reads a resource expects to
    /// read it.
    pub(crate) takes_all: bool,
}

/// The questions of one connection.
#[derive(Debug)]
pub(crate) struct Questions {
    waiting: Mutex<VecDeque<WaitingQuestion>>,
    /// Notifies a call that has taken no question yet; the counter is how many of those wait.
    fresh: Notify,
    fresh_calls: AtomicUsize,
    /// Notifies a call that has taken one before.
    again: Notify,
    /// How many that were asked outside any call have no answer yet: a call should not run ahead of them.
    unsettled: watch::Sender<usize>,
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
    /// Lets a question wait; gives it back where too many do.
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

    /// Wakes the newest call that was not asked yet, which is the likeliest to be the one it is for; else another.
    fn wake_a_call(&self) {
        if self.fresh_calls.load(Ordering::Acquire) > 0 {
            self.fresh.notify_last();
        } else {
            self.again.notify_one();
        }
    }

    /// Returns the next question that its backend still wants answered, waiting for one.
    pub(crate) async fn take(&self, taker: QuestionTaker) -> Demand {
        let is_fresh = !taker.was_asked && taker.takes_all;
        let _counted = is_fresh.then(|| FreshCallGuard::new(&self.fresh_calls));
        let news = if is_fresh { &self.fresh } else { &self.again };
        loop {
            if let Some(demand) = self.try_take(taker) {
                return demand;
            }
            // Looks by itself now and then: the call that was told may have ended at that moment.
            let _ = tokio::time::timeout(RECHECK, news.notified()).await;
        }
    }

    /// Returns the next question, if one waits.
    pub(crate) fn try_take(&self, taker: QuestionTaker) -> Option<Demand> {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|asked| !asked.demand.reply.is_closed());
        let next = waiting.iter().position(|asked| taker.takes_all || !asked.outside_calls)?;
        let taken = waiting.remove(next).map(|asked| asked.demand);
        let more = !waiting.is_empty();
        drop(waiting);
        if more {
            self.wake_a_call();
        }
        taken
    }

    /// Counts a question from the moment it is asked until it is answered.
    pub(super) fn begin(self: &Arc<Self>, outside_calls: bool) -> OpenQuestion {
        self.asked.fetch_add(1, Ordering::AcqRel);
        if outside_calls {
            self.unsettled.send_modify(|count| *count += 1);
        }
        self.arrived.notify_waiters();
        OpenQuestion { questions: self.clone(), outside_calls }
    }

    /// Waits until something has been asked.
    pub(super) async fn first(&self) {
        let arrived = self.arrived.notified();
        tokio::pin!(arrived);
        // Enabled before the check, so that a question asked in between is not missed.
        arrived.as_mut().enable();
        if self.asked.load(Ordering::Acquire) == 0 {
            arrived.await;
        }
    }

    /// Waits until everything that was asked outside calls is answered, and the server had a moment to act on it:
    /// it does not tell when it has, and a call right behind the answer would overtake that.
    pub(crate) async fn settled(&self) {
        let mut unsettled = self.unsettled.subscribe();
        if *unsettled.borrow_and_update() == 0 {
            return;
        }
        // The sender lives as long as this does.
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
