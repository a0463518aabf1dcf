//! Which messages are put on a tape, where a user does not want all of them.
//!
//! A pure state machine: messages in order, each with the time and its place in the conversation; for each of
//! them, at once or later, whether it is kept. Operations are kept or left out as a whole; greetings, what
//! cannot be understood, and whatever waits too long or does not fit are kept. Knows no bytes, no clock and no
//! randomness of its own.

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
pub use self::undecided::{UNDECIDED_BYTES_MAX, UNDECIDED_MAX, UNDECIDED_NS_MAX};

use self::failure_window::FailureWindow;
use self::sampling::Sampler;
use self::undecided::{OperationVerdict, UndecidedOperations};

/// How many connections to backends are told apart; the oldest are forgotten.
const LEGS_MAX: usize = 1024;
/// What opens a conversation: a tape without it tells nothing.
const GREETINGS: [&str; 3] = [method::INITIALIZE, method::SERVER_DISCOVER, method::NOTIFICATIONS_INITIALIZED];

/// A message to decide about.
#[derive(Clone, Copy, Debug)]
pub struct OfferedMessage<'a> {
    /// Which way it goes.
    pub direction: Direction,
    /// The backend and the connection to it, for a message between the gateway and one.
    pub via: Option<(&'a str, u32)>,
    /// The operation such a message belongs to, by the number of the message that began it.
    pub operation: Option<u64>,
    /// Its outside.
    pub envelope: &'a Envelope,
    /// Its length.
    pub bytes: u64,
    /// When, by a clock that does not jump.
    pub at_ns: u64,
    /// When, since the Unix epoch.
    pub wall_ns: u64,
}

/// What becomes of a message.
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
    near: Option<FailureWindow>,
    operations: Operations,
    /// Of what the gateway says to backends on its own account: ids are each connection's.
    legs: BoundedMap<(String, u32), Operations>,
    held: UndecidedOperations,
    next: u64,
    decisions: Vec<KeepDecision>,
    left_out: LeftOut,
}

impl Selection {
    /// Begins with a seed for chance, and where the session stands among all sessions, 0 to 1.
    #[must_use]
    pub fn new(settings: SelectionSettings, seed: u64, session_share: f64) -> Self {
        let near = match settings.strategy {
            SelectionStrategy::ErrorFocused { before, after } => Some(FailureWindow::new(before, after)),
            _ => None,
        };
        Self {
            sampler: Sampler::new(settings.sampling.clone(), settings.strategy, seed, session_share),
            near,
            settings,
            operations: Operations::default(),
            legs: BoundedMap::new(LEGS_MAX),
            held: UndecidedOperations::new(),
            next: 0,
            decisions: Vec::new(),
            left_out: LeftOut::default(),
        }
    }

    /// Returns the number that the next message or fact will have.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Takes something that is no message, and is kept; returns its number.
    pub fn fact(&mut self) -> u64 {
        let number = self.number();
        self.decisions.push(KeepDecision { message: number, is_kept: true });
        number
    }

    /// Takes the next message; returns its number.
    pub fn offer(&mut self, offer: &OfferedMessage<'_>) -> u64 {
        self.pass_time(offer.at_ns);
        let message = self.number();
        let links = self.link(message, offer);
        let mut units: Vec<u64> = match (offer.via, offer.operation) {
            (Some(_), Some(operation)) => vec![operation],
            _ => links.iter().filter_map(|link| link.operation).collect(),
        };
        units.sort_unstable();
        units.dedup();
        match units.as_slice() {
            [] => self.stands_alone(message, offer),
            [unit] => self.belongs(*unit, message, offer, &links),
            several => {
                // One entry for several operations: as long as one of them is kept, so is it.
                several.iter().for_each(|unit| self.keep(*unit));
                let kept = several
                    .iter()
                    .find(|unit| !matches!(self.held.verdict(**unit), OperationVerdict::Drop(_)));
                self.follow(*kept.unwrap_or(&several[0]), message, offer);
            }
        }
        while self.held.is_full() {
            self.let_go();
        }
        message
    }

    /// Decides about what has waited too long.
    pub fn pass_time(&mut self, at_ns: u64) {
        let Some(until_ns) = at_ns.checked_sub(UNDECIDED_NS_MAX) else { return };
        while let Some(oldest) = self.held.oldest_open(until_ns) {
            self.keep(oldest);
        }
    }

    /// Decides about everything that is left: the conversation is over.
    pub fn finish(&mut self) {
        for id in self.held.ids() {
            let Some(unit) = self.held.get_mut(id) else { continue };
            if unit.is_done() {
                self.drop_for(id, LeftOutReason::Strategy);
            } else {
                self.keep(id);
            }
        }
    }

    /// Returns what was decided since the last call, in the order in which the messages came.
    pub fn decisions(&mut self) -> Vec<KeepDecision> {
        let mut decisions = std::mem::take(&mut self.decisions);
        decisions.sort_unstable();
        decisions
    }

    /// Returns what was left out since the last call.
    pub fn take_left_out(&mut self) -> LeftOut {
        std::mem::take(&mut self.left_out)
    }

    /// Returns how many messages and bytes wait for a decision.
    #[must_use]
    pub fn held(&self) -> (usize, u64) {
        self.held.size()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Finds out what a message belongs to, within its leg.
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
    fn belongs(&mut self, id: u64, message: u64, offer: &OfferedMessage<'_>, links: &[OperationLink]) {
        if id == message {
            self.begin(id, offer);
        }
        let failed = is_failure(offer.envelope);
        let Some(unit) = self.held.get_mut(id) else {
            self.follow(id, message, offer);
            if failed && !matches!(self.held.verdict(id), OperationVerdict::Drop(LeftOutReason::Filter)) {
                self.around_failure();
            } else if let Some(near) = &mut self.near {
                near.is_behind();
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
        self.held.set_done(id, is_done);
        if self.settings.capture.has(offer.envelope) {
            self.held.add(id, message, offer.bytes);
        } else {
            self.rule_out(message, offer.bytes, LeftOutReason::Filter);
        }
        if failed && self.near.is_some() {
            self.force(id);
            self.around_failure();
        } else if self.near.as_mut().is_some_and(FailureWindow::is_behind) {
            self.approach(id);
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
