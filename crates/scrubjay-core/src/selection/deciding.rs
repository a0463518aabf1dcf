//! The decisions about an operation: when it begins, when it has its outcome, and when there is a failure near it.

use super::failure_window::FailureWindow;
use super::left_out::LeftOutReason;
use super::settings::SelectionStrategy;
use super::undecided::{OperationVerdict, UndecidedOperation};
use super::{GREETINGS, KeepDecision, OfferedMessage, Selection, is_failure, is_greeting, messages};

impl Selection {
    /// Decides about an operation that begins, unless the decision depends on how it ends.
    pub(super) fn begin(&mut self, id: u64, offer: &OfferedMessage<'_>) {
        let all = || messages(offer.envelope);
        if all().any(is_greeting) {
            self.undecided.decide(id, OperationVerdict::Greeting);
            return;
        }
        let wanted = all().filter_map(|one| one.method.as_deref()).any(|m| self.settings.filters.pass(m));
        if !wanted {
            self.undecided.decide(id, OperationVerdict::Drop(LeftOutReason::Filter));
            return;
        }
        let in_sample = self.sample(offer);
        let always = self.settings.always;
        // An operation outside the sample may still be kept for how it ends, so the decision about it has to wait.
        let can_be_forced = self.failure_window.is_some() || always.errors || always.slow.is_some();
        let must_wait = self.settings.filters.min_response_time.is_some()
            || matches!(
                self.settings.strategy,
                SelectionStrategy::ErrorFocused { .. } | SelectionStrategy::Performance { .. }
            );
        if !in_sample && !can_be_forced {
            self.undecided.decide(id, OperationVerdict::Drop(LeftOutReason::Sample));
        } else if in_sample && !must_wait {
            self.undecided.decide(id, OperationVerdict::Keep);
        } else {
            self.undecided.begin(id, UndecidedOperation::new(offer.at_ns, in_sample));
        }
    }

    pub(super) fn sample(&mut self, offer: &OfferedMessage<'_>) -> bool {
        let first = messages(offer.envelope).find(|one| one.method.is_some());
        let method = first.and_then(|one| one.method.as_deref()).unwrap_or_default();
        self.sampler.is_sampled(method, first.and_then(|one| one.name.as_deref()), offer.wall_ns)
    }

    /// Takes a message that belongs to no operation.
    pub(super) fn decide_alone(&mut self, message: u64, offer: &OfferedMessage<'_>) {
        let methods: Vec<&str> = messages(offer.envelope).filter_map(|one| one.method.as_deref()).collect();
        let wanted = methods.iter().any(|method| self.settings.filters.pass(method));
        let verdict = if methods.is_empty() {
            // An answer to no request, or not a message at all: rare, and what one looks for when something is wrong.
            Some(OperationVerdict::Keep)
        } else if methods.iter().any(|method| GREETINGS.contains(method)) {
            Some(OperationVerdict::Greeting)
        } else if !wanted {
            Some(OperationVerdict::Drop(LeftOutReason::Filter))
        } else if !self.sample(offer) {
            Some(OperationVerdict::Drop(LeftOutReason::Sample))
        } else {
            match self.settings.strategy {
                SelectionStrategy::Performance { .. } => {
                    Some(OperationVerdict::Drop(LeftOutReason::Strategy))
                }
                SelectionStrategy::ErrorFocused { .. } => None,
                _ => Some(OperationVerdict::Keep),
            }
        };
        match verdict {
            Some(verdict) => self.apply_verdict(verdict, message, offer),
            None if !self.settings.capture.has(offer.envelope) => {
                self.leave_out(message, offer.bytes, LeftOutReason::Filter);
            }
            None => {
                self.undecided.begin(message, UndecidedOperation::new(offer.at_ns, true));
                self.undecided.set_done(message, true);
                self.undecided.add(message, message, offer.bytes);
            }
        }
        if is_failure(offer.envelope) {
            self.keep_around_failure();
        } else if self.failure_window.as_mut().is_some_and(FailureWindow::is_after_failure) {
            self.mark_near_failure(message);
        }
        self.remember(message);
    }

    /// Applies what was decided about an operation to another message of it.
    pub(super) fn follow(&mut self, id: u64, message: u64, offer: &OfferedMessage<'_>) {
        let verdict = self.undecided.recall(id);
        self.apply_verdict(verdict, message, offer);
    }

    fn apply_verdict(&mut self, verdict: OperationVerdict, message: u64, offer: &OfferedMessage<'_>) {
        match verdict {
            OperationVerdict::Drop(reason) => self.leave_out(message, offer.bytes, reason),
            OperationVerdict::Keep if !self.settings.capture.has(offer.envelope) => {
                self.leave_out(message, offer.bytes, LeftOutReason::Filter);
            }
            OperationVerdict::Keep | OperationVerdict::Greeting => {
                self.decisions.push(KeepDecision { message, is_kept: true });
            }
        }
    }

    /// Decides about an operation whose outcome is known.
    pub(super) fn settle(&mut self, id: u64) {
        let Some(unit) = self.undecided.get_mut(id) else { return };
        let (failed, took_ns, in_sample, is_near) = (unit.failed, unit.took_ns, unit.in_sample, unit.is_near);
        let at_least = |time: std::time::Duration| u128::from(took_ns) >= time.as_nanos();
        let settings = &self.settings;
        // Failures are kept however quick they were: a filter for slow requests should not hide what went wrong.
        let spared = failed && settings.capture.errors;
        if settings.filters.min_response_time.is_some_and(|time| !at_least(time)) && !spared {
            return self.drop_operation(id, LeftOutReason::Filter);
        }
        // Before the strategy, which could drop what the user always wants.
        let always = settings.always;
        if failed && always.errors || always.slow.is_some_and(at_least) {
            return self.keep_unsampled(id);
        }
        match settings.strategy {
            SelectionStrategy::ErrorFocused { .. } if is_near && in_sample => self.keep(id),
            // As long as one of its messages is in the ring, the next failure can still make it worth keeping.
            SelectionStrategy::ErrorFocused { .. } => {
                if self.undecided.get_mut(id).is_some_and(|unit| unit.in_ring == 0) {
                    self.drop_operation(id, LeftOutReason::Strategy);
                }
            }
            SelectionStrategy::Performance { threshold } if !at_least(threshold) => {
                self.drop_operation(id, LeftOutReason::Strategy);
            }
            _ if in_sample => self.keep(id),
            _ => self.drop_operation(id, LeftOutReason::Sample),
        }
    }

    /// Keeps the operations near a failure that just happened.
    pub(super) fn keep_around_failure(&mut self) {
        let before = self.failure_window.as_mut().map(FailureWindow::failure).unwrap_or_default();
        // All are marked before any leaves the ring, because an operation that leaves it unmarked is dropped.
        before.iter().for_each(|id| self.mark_near_failure(*id));
        before.iter().for_each(|id| self.leave_ring(*id));
    }

    /// Notes that an operation is near a failure.
    pub(super) fn mark_near_failure(&mut self, id: u64) {
        let may_be_too_quick = self.settings.filters.min_response_time.is_some();
        let Some(unit) = self.undecided.get_mut(id) else { return };
        unit.is_near = true;
        let is_wanted = unit.in_sample && (unit.is_done() || !may_be_too_quick);
        if is_wanted {
            self.keep(id);
        }
    }

    /// Puts a message's operation into the ring; an operation that leaves the ring and has its outcome is left out.
    pub(super) fn remember(&mut self, id: u64) {
        let Some(window) = &mut self.failure_window else { return };
        window.push(id);
        if let Some(unit) = self.undecided.get_mut(id) {
            unit.in_ring += 1;
        }
        while let Some(excess) = self.failure_window.as_mut().and_then(FailureWindow::pop_excess) {
            self.leave_ring(excess);
        }
    }

    pub(super) fn leave_ring(&mut self, id: u64) {
        let Some(unit) = self.undecided.get_mut(id) else { return };
        unit.in_ring = unit.in_ring.saturating_sub(1);
        if unit.in_ring == 0 && unit.is_done() {
            self.drop_operation(id, LeftOutReason::Strategy);
        }
    }

    /// Makes room: first drops what waits only in case of a failure, then keeps the oldest operation.
    pub(super) fn make_room(&mut self) {
        if let Some(oldest) = self.failure_window.as_mut().and_then(FailureWindow::pop_oldest) {
            self.leave_ring(oldest);
        } else if let Some(oldest) = self.undecided.oldest_open(u64::MAX) {
            self.keep(oldest);
        } else if let Some(oldest) = self.undecided.ids().first() {
            self.keep(*oldest);
        }
    }

    /// Keeps an operation even if it is not in the sample.
    pub(super) fn keep_unsampled(&mut self, id: u64) {
        if self.undecided.get_mut(id).is_some_and(|unit| !unit.in_sample) {
            self.sampler.count_forced();
        }
        self.keep(id);
    }

    pub(super) fn keep(&mut self, id: u64) {
        if self.undecided.get_mut(id).is_none() {
            return;
        }
        let unit = self.undecided.decide(id, OperationVerdict::Keep);
        for (message, _) in unit.into_iter().flat_map(|unit| unit.messages) {
            self.decisions.push(KeepDecision { message, is_kept: true });
        }
    }

    pub(super) fn drop_operation(&mut self, id: u64, reason: LeftOutReason) {
        let unit = self.undecided.decide(id, OperationVerdict::Drop(reason));
        for (message, bytes) in unit.into_iter().flat_map(|unit| unit.messages) {
            self.leave_out(message, bytes, reason);
        }
    }

    pub(super) fn leave_out(&mut self, message: u64, bytes: u64, reason: LeftOutReason) {
        self.left_out.count(reason, bytes);
        self.decisions.push(KeepDecision { message, is_kept: false });
    }
}
