//! Which leg shows what: a call of the client is on its own leg and on a backend's, and is found and counted once.
//!
//! A request to a backend is the second leg of the client's where it is the same call under the same or the long
//! name (`backend__tool`). Any other, like a router's call, has this trace alone. What a backend asks is on one leg
//! until the client is asked the same.

use std::collections::BTreeSet;

use super::{Exchange, Exchanges, ObservedMessage, mark, searchable};
use crate::bounded_map::BoundedMap;
use crate::entry::Direction;
use crate::envelope::{Envelope, JsonId, MessageKind};

/// What so many entries of the client asked is remembered.
const ASKED_MAX: usize = 16_384;
/// So many questions of backends may wait for the client to be asked the same.
const BACKEND_ASKS_MAX: usize = 1024;
/// No more text than this is told of the client's leg by the other.
const TOLD_TEXT_BYTES_MAX: usize = 1 << 20;

/// What the client's leg shows so far.
#[derive(Debug)]
pub(super) struct Legs {
    /// By the number of the entry.
    asked: BoundedMap<u64, Asked>,
    /// The requests of backends that wait for an answer, while no client was asked the same.
    backend_asks: BTreeSet<(u64, JsonId)>,
}

#[derive(Debug)]
struct Asked {
    /// The entry's number as the reading counts.
    observed: u64,
    method: Option<String>,
    name: Option<String>,
}

impl Default for Legs {
    fn default() -> Self {
        Self { asked: BoundedMap::new(ASKED_MAX), backend_asks: BTreeSet::new() }
    }
}

impl Exchanges {
    /// Finds out which leg a message is of, and whether the other shows it too.
    pub(super) fn place_leg(
        &mut self,
        exchange: &mut Exchange,
        said: &ObservedMessage<'_>,
        original: Option<&[u8]>,
        is_asking: bool,
    ) {
        let ObservedMessage { number, entry, message, .. } = *said;
        let by_client = entry.direction == Direction::ClientToServer;
        let observed = self.observed - 1;
        match (entry.via, entry.operation) {
            (None, _) if by_client && message.method.is_some() => {
                let asked = Asked { observed, method: message.method.clone(), name: message.name.clone() };
                self.legs.asked.insert(number, asked);
            }
            (None, _) if is_asking => self.client_is_asked(message),
            (Some(backend), Some(operation)) if by_client && message.kind == MessageKind::Request => {
                exchange.is_second_leg = self.is_same_call(operation, backend, message, original);
                exchange.by_gateway = !exchange.is_second_leg;
                exchange.by_client = exchange.is_second_leg;
            }
            // Asked for no client's request, like a greeting.
            (Some(_), None) if by_client && message.kind == MessageKind::Request => {
                exchange.by_gateway = true;
                exchange.by_client = false;
            }
            (Some(_), Some(_)) if is_asking => {
                let asks = &mut self.legs.backend_asks;
                asks.extend(message.id.clone().map(|id| (observed, id)));
                if asks.len() > BACKEND_ASKS_MAX {
                    asks.pop_first();
                }
            }
            // Answers and notifications are passed on.
            (Some(_), Some(_)) => exchange.is_second_leg = true,
            _ => {}
        }
        if exchange.is_second_leg {
            self.tell_client_leg(said, original);
        }
    }

    fn is_same_call(
        &self,
        operation: u64,
        backend: &str,
        message: &Envelope,
        original: Option<&[u8]>,
    ) -> bool {
        // Where what the client said is forgotten or on an earlier tape, its leg is the usual case.
        let Some(asked) = self.legs.asked.get(&operation) else { return true };
        let is_long = |name: &str| {
            asked.name.as_deref().and_then(|n| n.strip_prefix(backend)?.strip_prefix("__")) == Some(name)
        };
        let is_same = |leg: &Envelope| {
            leg.method == asked.method && (leg.name == asked.name || leg.name.as_deref().is_some_and(is_long))
        };
        is_same(message) || original.is_some_and(|came| is_same(&Envelope::parse(came)))
    }

    /// Finds the backend's request that the client is asked now: that is the second leg of this one.
    fn client_is_asked(&mut self, message: &Envelope) {
        let (asks, waiting) = (&mut self.legs.backend_asks, &mut self.waiting);
        asks.retain(|key| waiting.contains_key(key));
        let same =
            |key: &&(u64, JsonId)| waiting.get(*key).is_some_and(|w| w.exchange.method == message.method);
        let Some(key) = asks.iter().find(same).cloned() else { return };
        asks.remove(&key);
        if let Some(leg) = waiting.get_mut(&key) {
            leg.exchange.is_second_leg = true;
            leg.is_current = false;
        }
    }

    /// Tells the client's leg of an operation what only the other shows: what rules did.
    pub(super) fn tell_client_leg(&mut self, said: &ObservedMessage<'_>, original: Option<&[u8]>) {
        let judged = said.entry.rule_marks;
        if judged.rules.is_empty() && judged.tags.is_empty() && original.is_none() {
            return;
        }
        let asked = said.entry.operation.and_then(|operation| self.legs.asked.get(&operation));
        let Some(observed) = asked.map(|asked| asked.observed) else { return };
        let first = (observed, JsonId::from_raw(""));
        let Some((_, leg)) = self.waiting.range_mut(first..).next().filter(|((of, _), _)| *of == observed)
        else {
            return;
        };
        leg.is_current = false;
        let exchange = &mut leg.exchange;
        let before = exchange.text.len();
        if before > TOLD_TEXT_BYTES_MAX {
            exchange.clipped = true;
            return;
        }
        if judged.is_intercepted() || original.is_some() {
            exchange.text.push('\n');
            exchange.clipped |= searchable(said.payload, &mut exchange.text);
        }
        mark(exchange, said.entry, original);
        self.waiting_bytes += exchange.text.len() - before;
    }
}
