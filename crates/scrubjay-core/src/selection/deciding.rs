//! What is decided about an operation: when it begins, when it has its outcome, when a failure is near it.

use super::failure_window::FailureWindow;
use super::left_out::LeftOutReason;
use super::settings::SelectionStrategy;
use super::undecided::{OperationVerdict, UndecidedOperation};
use super::{GREETINGS, KeepDecision, OfferedMessage, Selection, is_failure, is_greeting, messages};

impl Selection {
    /// Decides about an operation that begins, as far as that can be done.
    pub(super) fn begin(&mut self, id: u64, offer: &OfferedMessage<'_>) {
        let all = || messages(offer.envelope);
        if all().any(is_greeting) {
            self.held.decide(id, OperationVerdict::Greeting);
            return;
        }
        let wanted = all().filter_map(|one| one.method.as_deref()).any(|m| self.settings.filters.pass(m));
        if !wanted {
            self.held.decide(id, OperationVerdict::Drop(LeftOutReason::Filter));
            return;
        }
        let in_sample = self.sample(offer);
        let always = self.settings.always;
        let can_be_forced = self.near.is_some() || always.errors || always.slow.is_some();
        let must_wait = self.settings.filters.min_response_time.is_some()
            || matches!(
                self.settings.strategy,
                SelectionStrategy::ErrorFocused { .. } | SelectionStrategy::Performance { .. }
            );
        if !in_sample && !can_be_forced {
            self.held.decide(id, OperationVerdict::Drop(LeftOutReason::Sample));
        } else if in_sample && !must_wait {
            self.held.decide(id, OperationVerdict::Keep);
        } else {
            self.held.begin(id, UndecidedOperation::new(offer.at_ns, in_sample));
        }
    }

    pub(super) fn sample(&mut self, offer: &OfferedMessage<'_>) -> bool {
        let first = messages(offer.envelope).find(|one| one.method.is_some());
        let method = first.and_then(|one| one.method.as_deref()).unwrap_or_default();
        self.sampler.takes(method, first.and_then(|one| one.name.as_deref()), offer.wall_ns)
    }

    /// Takes a message that belongs to no operation.
    pub(super) fn stands_alone(&mut self, message: u64, offer: &OfferedMessage<'_>) {
        let methods: Vec<&str> = messages(offer.envelope).filter_map(|one| one.method.as_deref()).collect();
        let wanted = methods.iter().any(|method| self.settings.filters.pass(method));
        let verdict = if methods.is_empty() {
            // No request asked for it, or it is no message at all: that is worth knowing.
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
            Some(verdict) => self.rule(verdict, message, offer),
            None if !self.settings.capture.has(offer.envelope) => {
                self.rule_out(message, offer.bytes, LeftOutReason::Filter);
            }
            None => {
                self.held.begin(message, UndecidedOperation::new(offer.at_ns, true));
                self.held.set_done(message, true);
                self.held.add(message, message, offer.bytes);
            }
        }
        if is_failure(offer.envelope) {
            self.around_failure();
        } else if self.near.as_mut().is_some_and(FailureWindow::is_behind) {
            self.approach(message);
        }
        self.remember(message);
    }

    /// Lets a message share what was decided about its operation.
    pub(super) fn follow(&mut self, id: u64, message: u64, offer: &OfferedMessage<'_>) {
        let verdict = self.held.recall(id);
        self.rule(verdict, message, offer);
    }

    fn rule(&mut self, verdict: OperationVerdict, message: u64, offer: &OfferedMessage<'_>) {
        match verdict {
            OperationVerdict::Drop(reason) => self.rule_out(message, offer.bytes, reason),
            OperationVerdict::Keep if !self.settings.capture.has(offer.envelope) => {
                self.rule_out(message, offer.bytes, LeftOutReason::Filter);
            }
            OperationVerdict::Keep | OperationVerdict::Greeting => {
                self.decisions.push(KeepDecision { message, is_kept: true });
            }
        }
    }

    /// Decides about an operation that has its outcome.
    pub(super) fn settle(&mut self, id: u64) {
        let Some(unit) = self.held.get_mut(id) else { return };
        let (failed, took_ns, in_sample, is_near) = (unit.failed, unit.took_ns, unit.in_sample, unit.is_near);
        let at_least = |time: std::time::Duration| u128::from(took_ns) >= time.as_nanos();
        let settings = &self.settings;
        let spared = failed && settings.capture.errors;
        if settings.filters.min_response_time.is_some_and(|time| !at_least(time)) && !spared {
            return self.drop_for(id, LeftOutReason::Filter);
        }
        let always = settings.always;
        if failed && always.errors || always.slow.is_some_and(at_least) {
            return self.force(id);
        }
        match settings.strategy {
            SelectionStrategy::ErrorFocused { .. } if is_near && in_sample => self.keep(id),
            // It waits in the ring for a failure that may still come.
            SelectionStrategy::ErrorFocused { .. } => {
                if self.held.get_mut(id).is_some_and(|unit| unit.in_ring == 0) {
                    self.drop_for(id, LeftOutReason::Strategy);
                }
            }
            SelectionStrategy::Performance { threshold } if !at_least(threshold) => {
                self.drop_for(id, LeftOutReason::Strategy);
            }
            _ if in_sample => self.keep(id),
            _ => self.drop_for(id, LeftOutReason::Sample),
        }
    }

    /// Keeps what is near a failure that was just seen.
    pub(super) fn around_failure(&mut self) {
        let before = self.near.as_mut().map(FailureWindow::failure).unwrap_or_default();
        before.iter().for_each(|id| self.approach(*id));
        before.iter().for_each(|id| self.fall(*id));
    }

    /// Notes that an operation is near a failure.
    pub(super) fn approach(&mut self, id: u64) {
        let may_be_too_quick = self.settings.filters.min_response_time.is_some();
        let Some(unit) = self.held.get_mut(id) else { return };
        unit.is_near = true;
        let is_wanted = unit.in_sample && (unit.is_done() || !may_be_too_quick);
        if is_wanted {
            self.keep(id);
        }
    }

    /// Puts a message's operation into the ring; what falls out of it and has its outcome is left out.
    pub(super) fn remember(&mut self, id: u64) {
        let Some(near) = &mut self.near else { return };
        near.push(id);
        if let Some(unit) = self.held.get_mut(id) {
            unit.in_ring += 1;
        }
        while let Some(fallen) = self.near.as_mut().and_then(FailureWindow::fallen) {
            self.fall(fallen);
        }
    }

    pub(super) fn fall(&mut self, id: u64) {
        let Some(unit) = self.held.get_mut(id) else { return };
        unit.in_ring = unit.in_ring.saturating_sub(1);
        if unit.in_ring == 0 && unit.is_done() {
            self.drop_for(id, LeftOutReason::Strategy);
        }
    }

    /// Makes room: what was only in case of a failure goes first, then the oldest is kept.
    pub(super) fn let_go(&mut self) {
        if let Some(oldest) = self.near.as_mut().and_then(FailureWindow::give_up) {
            self.fall(oldest);
        } else if let Some(oldest) = self.held.oldest_open(u64::MAX) {
            self.keep(oldest);
        } else if let Some(oldest) = self.held.ids().first() {
            self.keep(*oldest);
        }
    }

    /// Keeps an operation, in the sample or not.
    pub(super) fn force(&mut self, id: u64) {
        if self.held.get_mut(id).is_some_and(|unit| !unit.in_sample) {
            self.sampler.was_forced();
        }
        self.keep(id);
    }

    pub(super) fn keep(&mut self, id: u64) {
        if self.held.get_mut(id).is_none() {
            return;
        }
        let unit = self.held.decide(id, OperationVerdict::Keep);
        for (message, _) in unit.into_iter().flat_map(|unit| unit.messages) {
            self.decisions.push(KeepDecision { message, is_kept: true });
        }
    }

    pub(super) fn drop_for(&mut self, id: u64, reason: LeftOutReason) {
        let unit = self.held.decide(id, OperationVerdict::Drop(reason));
        for (message, bytes) in unit.into_iter().flat_map(|unit| unit.messages) {
            self.rule_out(message, bytes, reason);
        }
    }

    pub(super) fn rule_out(&mut self, message: u64, bytes: u64, reason: LeftOutReason) {
        self.left_out.count(reason, bytes);
        self.decisions.push(KeepDecision { message, is_kept: false });
    }
}
