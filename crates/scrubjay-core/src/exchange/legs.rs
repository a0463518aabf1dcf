//! Tells the two legs of a call apart: it is on the client's leg and on a backend's, but is found and counted once.
//!
//! A request to a backend is the second leg of the client's request if it is the same call under the same name or the
//! long one (`backend__tool`). Any other, like a router's call, is on the backend's leg alone. A backend's question is
//! on one leg until the client is asked the same.

use std::collections::BTreeSet;

use super::{Exchange, Exchanges, ObservedMessage, mark, searchable};
use crate::bounded_map::BoundedMap;
use crate::entry::Direction;
use crate::envelope::{Envelope, JsonId, MessageKind};

/// The most requests of the client that are remembered.
const CLIENT_REQUESTS_MAX: usize = 16_384;
/// The most questions of backends that wait for the client to be asked the same.
const BACKEND_ASKS_MAX: usize = 1024;
/// A client's exchange with more text than this gets no more from the backend's leg.
const ADDED_TEXT_BYTES_MAX: usize = 1 << 20;

/// The requests on the client's leg so far, and open questions of backends.
#[derive(Debug)]
pub(super) struct Legs {
    /// The client's requests by the number of their entry.
    client_requests: BoundedMap<u64, ClientRequest>,
    /// The requests of backends that wait for an answer, while no client was asked the same.
    backend_asks: BTreeSet<(u64, JsonId)>,
}

#[derive(Debug)]
struct ClientRequest {
    /// The number of entries read before it, which is how links number entries.
    position: u64,
    method: Option<String>,
    name: Option<String>,
}

impl Default for Legs {
    fn default() -> Self {
        Self { client_requests: BoundedMap::new(CLIENT_REQUESTS_MAX), backend_asks: BTreeSet::new() }
    }
}

impl Exchanges {
    /// Finds out on which leg a message is, and whether it is on the other one, too.
    pub(super) fn place_leg(
        &mut self,
        exchange: &mut Exchange,
        observed: &ObservedMessage<'_>,
        original: Option<&[u8]>,
        is_asking: bool,
    ) {
        let ObservedMessage { number, entry, message, .. } = *observed;
        let by_client = entry.direction == Direction::ClientToServer;
        let position = self.observed - 1;
        match (entry.via, entry.operation) {
            (None, _) if by_client && message.method.is_some() => {
                let request =
                    ClientRequest { position, method: message.method.clone(), name: message.name.clone() };
                self.legs.client_requests.insert(number, request);
            }
            (None, _) if is_asking => self.client_is_asked(message),
            (Some(backend), Some(operation)) if by_client && message.kind == MessageKind::Request => {
                exchange.is_second_leg = self.is_same_call(operation, backend, message, original);
                exchange.by_gateway = !exchange.is_second_leg;
                exchange.by_client = exchange.is_second_leg;
            }
            // For no request of a client, like a greeting.
            (Some(_), None) if by_client && message.kind == MessageKind::Request => {
                exchange.by_gateway = true;
                exchange.by_client = false;
            }
            (Some(_), Some(_)) if is_asking => {
                let asks = &mut self.legs.backend_asks;
                asks.extend(message.id.clone().map(|id| (position, id)));
                if asks.len() > BACKEND_ASKS_MAX {
                    asks.pop_first();
                }
            }
            // Answers and notifications are passed on.
            (Some(_), Some(_)) => exchange.is_second_leg = true,
            _ => {}
        }
        if exchange.is_second_leg {
            self.add_to_client_leg(observed, original);
        }
    }

    fn is_same_call(
        &self,
        operation: u64,
        backend: &str,
        message: &Envelope,
        original: Option<&[u8]>,
    ) -> bool {
        // If the client's request is forgotten or on an earlier tape, assume that this is the same call: it nearly
        // always is.
        let Some(asked) = self.legs.client_requests.get(&operation) else { return true };
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
        // Questions that were answered meanwhile can no longer be the one that is passed on.
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

    /// Adds to the client's leg of an operation what only the backend's leg has: what rules did.
    pub(super) fn add_to_client_leg(&mut self, observed: &ObservedMessage<'_>, original: Option<&[u8]>) {
        let marks = observed.entry.rule_marks;
        if marks.rules.is_empty() && marks.tags.is_empty() && original.is_none() {
            return;
        }
        let request =
            observed.entry.operation.and_then(|operation| self.legs.client_requests.get(&operation));
        let Some(position) = request.map(|request| request.position) else { return };
        // The id of the waiting request is not known here; the empty one sorts before any.
        let first = (position, JsonId::from_raw(""));
        let Some((_, leg)) = self.waiting.range_mut(first..).next().filter(|((of, _), _)| *of == position)
        else {
            return;
        };
        leg.is_current = false;
        let exchange = &mut leg.exchange;
        let before = exchange.text.len();
        if before > ADDED_TEXT_BYTES_MAX {
            exchange.clipped = true;
            return;
        }
        if marks.is_intercepted() || original.is_some() {
            exchange.text.push('\n');
            exchange.clipped |= searchable(observed.payload, &mut exchange.text);
        }
        mark(exchange, observed.entry, original);
        self.waiting_bytes += exchange.text.len() - before;
    }
}
