//! Decides which messages are put on a tape if a user does not want all of them.
//!
//! A pure state machine: messages go in, in order, each with its time; for each comes out, at once or later, whether it
//! is kept. Operations are kept or left out as a whole. In doubt a message is kept: greetings, messages that cannot be
//! parsed, operations that wait too long or for which there is no room. Knows no bytes, no clock and no randomness of
//! its own.

mod deciding;
mod failure_window;
mod left_out;
mod sampling;
mod settings;
mod undecided;

use crate::bounded_map::BoundedMap;
use crate::entry::Direction;
use crate::envelope::{Envelope, MessageKind};
use crate::operation::{EntryPosition, OperationLink, OperationRole, Operations};
use crate::protocol::method;

pub use self::left_out::{LeftOut, LeftOutAmount, LeftOutReason};
pub use self::sampling::share;
pub use self::settings::{
    AlwaysKept, Capture, Filters, PriorityRule, Sampling, SelectionSettings, SelectionStrategy,
};

use self::failure_window::FailureWindow;
use self::sampling::Sampler;
use self::undecided::{OperationVerdict, UNDECIDED_NS_MAX, UndecidedOperations};

/// The most connections to backends whose ids are tracked; the oldest is forgotten first.
const LEGS_MAX: usize = 1024;
/// The methods that open a conversation. They are always kept, because a tape without them cannot be understood.
const GREETINGS: [&str; 3] = [method::INITIALIZE, method::SERVER_DISCOVER, method::NOTIFICATIONS_INITIALIZED];

/// A message that [`Selection`] decides about.
#[derive(Clone, Copy, Debug)]
pub struct OfferedMessage<'a> {
    /// Which way it goes.
    pub direction: Direction,
    /// The backend and the connection to it, for a message between the gateway and one.
    pub via: Option<(&'a str, u32)>,
    /// For such a message the operation it belongs to, by the number of the message that began it.
    pub operation: Option<u64>,
    /// Its envelope.
    pub envelope: &'a Envelope,
    /// Its length.
    pub bytes: u64,
    /// When it came, by a monotonic clock.
    pub at_ns: u64,
    /// When it came, since the Unix epoch.
    pub wall_ns: u64,
}

/// The decision about one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeepDecision {
    /// Its number.
    pub message: u64,
    /// Whether it is kept.
    pub is_kept: bool,
}

/// Decides which messages of one connection are kept.
#[derive(Debug)]
pub struct Selection {
    settings: SelectionSettings,
    sampler: Sampler,
    /// Only with the strategy that keeps what is around failures.
    failure_window: Option<FailureWindow>,
    operations: Operations,
    /// The operations that the gateway itself begins with backends, for each connection: ids are unique only within
    /// one.
    legs: BoundedMap<(String, u32), Operations>,
    undecided: UndecidedOperations,
    next: u64,
    decisions: Vec<KeepDecision>,
    left_out: LeftOut,
}

impl Selection {
    /// Begins with a seed for random numbers, and a number in 0..1 that follows from the session's id.
    #[must_use]
    pub fn new(settings: SelectionSettings, seed: u64, session_share: f64) -> Self {
        let failure_window = match settings.strategy {
            SelectionStrategy::ErrorFocused { before, after } => Some(FailureWindow::new(before, after)),
            _ => None,
        };
        Self {
            sampler: Sampler::new(settings.sampling.clone(), settings.strategy, seed, session_share),
            failure_window,
            settings,
            operations: Operations::default(),
            legs: BoundedMap::new(LEGS_MAX),
            undecided: UndecidedOperations::new(),
            next: 0,
            decisions: Vec::new(),
            left_out: LeftOut::default(),
        }
    }

    /// Returns the number that the next message or other entry will have.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Takes an entry that is not a message, which is always kept; returns its number.
    pub fn fact(&mut self) -> u64 {
        let number = self.number();
        self.decisions.push(KeepDecision { message: number, is_kept: true });
        number
    }

    /// Takes the next message; returns its number.
    pub fn offer(&mut self, offer: &OfferedMessage<'_>) -> u64 {
        // There is no timer here: messages that come are what makes time pass, and the caller may call this in
        // between.
        self.pass_time(offer.at_ns);
        let message = self.number();
        let links = self.link(message, offer);
        let mut operation_ids: Vec<u64> = match (offer.via, offer.operation) {
            (Some(_), Some(operation)) => vec![operation],
            _ => links.iter().filter_map(|link| link.operation).collect(),
        };
        operation_ids.sort_unstable();
        operation_ids.dedup();
        match operation_ids.as_slice() {
            [] => self.decide_alone(message, offer),
            [unit] => self.add_to_operation(*unit, message, offer, &links),
            several => {
                // A batch is one entry for several operations, so it is kept if one of them is.
                several.iter().for_each(|unit| self.keep(*unit));
                let kept = several
                    .iter()
                    .find(|unit| !matches!(self.undecided.verdict(**unit), OperationVerdict::Drop(_)));
                self.follow(*kept.unwrap_or(&several[0]), message, offer);
            }
        }
        while self.undecided.is_full() {
            self.make_room();
        }
        message
    }

    /// Keeps the operations that have waited too long for their outcome.
    pub fn pass_time(&mut self, at_ns: u64) {
        let Some(until_ns) = at_ns.checked_sub(UNDECIDED_NS_MAX) else { return };
        while let Some(oldest) = self.undecided.oldest_open(until_ns) {
            self.keep(oldest);
        }
    }

    /// Decides about all operations that still wait, because the conversation is over.
    pub fn finish(&mut self) {
        for id in self.undecided.ids() {
            let Some(unit) = self.undecided.get_mut(id) else { continue };
            // With an outcome it only waited for a failure near it. Without one it may have failed, so it is kept.
            if unit.is_done() {
                self.drop_operation(id, LeftOutReason::Strategy);
            } else {
                self.keep(id);
            }
        }
    }

    /// Returns the decisions since the last call, in the order of the messages.
    pub fn decisions(&mut self) -> Vec<KeepDecision> {
        let mut decisions = std::mem::take(&mut self.decisions);
        decisions.sort_unstable();
        decisions
    }

    /// Returns what was left out since the last call.
    pub fn take_left_out(&mut self) -> LeftOut {
        std::mem::take(&mut self.left_out)
    }

    #[cfg(test)]
    fn undecided_size(&self) -> (usize, u64) {
        self.undecided.size()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Finds the operation that a message belongs to, within its leg.
    fn link(&mut self, entry: u64, offer: &OfferedMessage<'_>) -> Vec<OperationLink> {
        let at = EntryPosition { entry, direction: offer.direction, since_start_ns: offer.at_ns };
        match (offer.via, offer.operation) {
            (None, _) => self.operations.observe(at, offer.envelope),
            (Some(_), Some(_)) => Vec::new(),
            (Some((backend, connection)), None) => {
                let leg = self.legs.get_or_insert_default((backend.to_owned(), connection));
                leg.observe(at, offer.envelope)
            }
        }
    }

    /// Takes a message that belongs to an operation, or begins one.
    fn add_to_operation(
        &mut self,
        id: u64,
        message: u64,
        offer: &OfferedMessage<'_>,
        links: &[OperationLink],
    ) {
        if id == message {
            self.begin(id, offer);
        }
        let failed = is_failure(offer.envelope);
        let Some(unit) = self.undecided.get_mut(id) else {
            self.follow(id, message, offer);
            // A failure that the user filters out does not make the messages around it worth keeping.
            if failed && !matches!(self.undecided.verdict(id), OperationVerdict::Drop(LeftOutReason::Filter))
            {
                self.keep_around_failure();
            } else if let Some(window) = &mut self.failure_window {
                // It is kept or left out anyway, but it counts as one of the messages after a failure.
                window.is_after_failure();
            }
            return self.remember(id);
        };
        unit.failed |= failed;
        for (link, one) in links.iter().zip(messages(offer.envelope)) {
            match link.role {
                OperationRole::Request | OperationRole::Round | OperationRole::Poll => unit.unanswered += 1,
                OperationRole::Answer => {
                    unit.unanswered = unit.unanswered.saturating_sub(1);
                    unit.goes_on = one.input_required || one.references.task.is_some() && !one.is_failure();
                    unit.took_ns = unit.took_ns.max(link.response_ns.unwrap_or(0));
                }
                OperationRole::Progress
                | OperationRole::Cancellation
                | OperationRole::Notice
                | OperationRole::Alone => {}
            }
        }
        let is_done = unit.is_done();
        self.undecided.set_done(id, is_done);
        if self.settings.capture.has(offer.envelope) {
            self.undecided.add(id, message, offer.bytes);
        } else {
            self.leave_out(message, offer.bytes, LeftOutReason::Filter);
        }
        if failed && self.failure_window.is_some() {
            self.keep_unsampled(id);
            self.keep_around_failure();
        } else if self.failure_window.as_mut().is_some_and(FailureWindow::is_after_failure) {
            self.mark_near_failure(id);
        }
        self.remember(id);
        if is_done {
            self.settle(id);
        }
    }
}

/// Returns the messages of an entry: the one, or those of a batch.
fn messages(envelope: &Envelope) -> impl Iterator<Item = &Envelope> + Clone {
    let alone = std::slice::from_ref(envelope);
    if envelope.kind == MessageKind::Batch { &envelope.batch } else { alone }.iter()
}

fn is_greeting(envelope: &Envelope) -> bool {
    envelope.method.as_deref().is_some_and(|method| GREETINGS.contains(&method))
}

fn is_failure(envelope: &Envelope) -> bool {
    messages(envelope).any(Envelope::is_failure)
}

#[cfg(test)]
mod tests;
