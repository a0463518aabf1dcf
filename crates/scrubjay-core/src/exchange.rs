//! A tape as exchanges: each request together with its answer, and each entry that stands alone.
//!
//! The index stores exchanges, and analysis reads them. A call through the gateway is recorded on two legs, but is one
//! exchange: the backend's leg is marked as the second one, and what only it has (rules, tags, the message before rules
//! changed it) is added to the client's. A fold over what [`crate::reading`] makes of the entries, so a tape always
//! gives the same exchanges in the same order, even if reading is interrupted and starts again. Everything it keeps is
//! bounded.

mod costs;
mod definition;
mod identity;
mod kind;
mod legs;
mod shape;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

use crate::entry::{BackendEnded, Direction, Entry, EntryKind};
use crate::envelope::{Envelope, JsonId, MessageKind};
use crate::operation::{OPEN_MAX, OperationLink, OperationRole, short_id};
use crate::protocol::method;
use crate::reading::EntryReading;

use legs::Legs;

pub use definition::{Definition, DefinitionHash, ListedTool, ToolList, ToolLists};
pub use identity::{answer_identity, request_identity};
pub use kind::ExchangeKind;
pub use shape::shape;
pub use text::{TEXT_BYTES_MAX, searchable, searchable_marks};

/// The most bytes of text of unanswered requests that are kept; the oldest requests are settled first.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// The most rules and the most tags that are kept of one exchange.
const NAMES_MAX: usize = 256;
/// The most different tool definitions that are kept of one tape.
const DEFINITIONS_MAX: usize = 4096;

/// A request with its answer, or an entry that stands alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Its position among the exchanges of its tape, in the order in which they began.
    pub place: u64,
    /// The entry that began it.
    pub entry: u64,
    /// The entry that answered it.
    pub answer: Option<u64>,
    /// When it began, nanoseconds since the Unix epoch.
    pub wall_ns: u64,
    /// When it began, nanoseconds since the tape did.
    pub since_start_ns: u64,
    /// What began it.
    pub what: ExchangeKind,
    /// What answered it: a response or an error.
    pub answered_with: Option<ExchangeKind>,
    /// The method.
    pub method: Option<String>,
    /// The tool, prompt or resource.
    pub name: Option<String>,
    /// The backend, for messages between the gateway and one.
    pub via: Option<String>,
    /// Whether it is the backend's leg of an exchange that the client's leg has, too.
    pub is_second_leg: bool,
    /// Whether the client began it.
    pub by_client: bool,
    /// Whether the gateway began it for the client, as a router does: it is on no other leg.
    pub by_gateway: bool,
    /// Whether rules changed, delayed, blocked or answered a message of it, on either leg.
    pub intercepted: bool,
    /// Whether rules changed a message of it; the text then includes the message before the change.
    pub has_original: bool,
    /// The rules that applied to it, on either leg.
    pub rules: BTreeSet<String>,
    /// The tags that rules gave it.
    pub tags: BTreeSet<String>,
    /// How long the answer took.
    pub took_ns: Option<u64>,
    /// Whether it failed.
    pub failed: bool,
    /// The code of the error.
    pub error_code: Option<i64>,
    /// The failure's message without the numbers and names in it, as [`shape`] returns it.
    pub error_shape: Option<String>,
    /// The size of what began it.
    pub asked_bytes: u64,
    /// The size of the answer.
    pub answered_bytes: u64,
    /// About how many tokens what began it costs a model.
    pub asked_tokens: u64,
    /// About how many tokens the answer costs.
    pub answered_tokens: u64,
    /// The text by which it is found.
    pub text: String,
    /// Whether some of its text was left out.
    pub clipped: bool,
}

/// An exchange that is settled: no later entry of the tape can change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledExchange {
    /// The exchange.
    pub exchange: Exchange,
    /// Whether [`Exchanges::waiting`] returned it before.
    pub was_given: bool,
}

#[derive(Debug)]
struct OpenExchange {
    exchange: Exchange,
    was_given: bool,
    /// Whether it is unchanged since [`Exchanges::waiting`] returned it.
    is_current: bool,
}

/// The fold over the entries of one tape, in order.
#[derive(Debug, Default)]
pub struct Exchanges {
    legs: Legs,
    /// A message before rules changed it; the changed one is the next entry.
    original: Option<Exchange>,
    /// The number of entries read. Not the number on the tape: where entries are lost, that skips numbers, and the
    /// links of [`crate::reading`] do not.
    observed: u64,
    next_place: u64,
    waiting: BTreeMap<(u64, JsonId), OpenExchange>,
    waiting_bytes: usize,
    settled: Vec<SettledExchange>,
    definitions: Vec<Definition>,
    known_definitions: BTreeSet<Definition>,
}

impl Exchanges {
    /// Takes the next entry with its reading.
    pub fn observe(&mut self, number: u64, entry: &Entry<'_>, reading: &EntryReading) {
        let envelope = &reading.envelope;
        self.observed += 1;
        if entry.kind != EntryKind::Message {
            self.settle_original();
            let mut exchange = begin(number, entry, ExchangeKind::of_entry(entry.kind), entry.payload);
            if entry.kind == EntryKind::Original {
                let came = Envelope::parse(entry.payload);
                (exchange.method, exchange.name) = (came.method, came.name);
                // It is kept until the next entry, which is the message that was forwarded instead.
                self.original = Some(exchange);
            } else {
                self.settle(exchange, false);
            }
            for key in &reading.abandoned {
                self.abandon(key, number, entry.payload);
            }
        } else if envelope.batch.is_empty() {
            // The original is no exchange of its own: its text is added to that of the changed message.
            self.original = None;
            let observed = ObservedMessage {
                number,
                entry,
                message: envelope,
                link: reading.link(),
                payload: entry.payload,
            };
            self.observe_message(&observed, reading.original.as_deref());
        } else {
            self.original = None;
            let parts: Vec<&RawValue> = serde_json::from_slice(entry.payload).unwrap_or_default();
            for (at, message) in envelope.batch.iter().enumerate() {
                let payload = parts.get(at).map_or(&b""[..], |part| part.get().as_bytes());
                let observed =
                    ObservedMessage { number, entry, message, link: reading.links.get(at), payload };
                // The original is the whole line, so it is added only once.
                self.observe_message(&observed, reading.original.as_deref().filter(|_| at == 0));
            }
        }
    }

    /// Takes what is settled since the last call.
    pub fn take_settled(&mut self) -> Vec<SettledExchange> {
        std::mem::take(&mut self.settled)
    }

    /// Drops everything settled so far, because the caller has it already.
    pub fn skip(&mut self) {
        self.settled.clear();
        self.definitions.clear();
    }

    /// Takes the tool definitions that are new since the last call.
    pub fn take_definitions(&mut self) -> Vec<Definition> {
        std::mem::take(&mut self.definitions)
    }

    /// Returns the requests without an answer, each once and again after it has changed, and whether it was returned
    /// before.
    pub fn waiting(&mut self) -> impl Iterator<Item = (&Exchange, bool)> {
        self.waiting.values_mut().filter_map(|waiting| {
            let was_given = std::mem::replace(&mut waiting.was_given, true);
            let was_current = std::mem::replace(&mut waiting.is_current, true);
            (!was_current).then_some((&waiting.exchange, was_given))
        })
    }

    fn observe_message(&mut self, observed: &ObservedMessage<'_>, original: Option<&[u8]>) {
        let ObservedMessage { number, entry, message, link, payload } = *observed;
        // Links have shortened ids, so waiting requests are kept under shortened ones, too.
        let request_key =
            link.and_then(|l| l.answers).zip(message.id.as_ref().map(|id| short_id(id).into_owned()));
        if let Some(waiting) = request_key.and_then(|key| self.waiting.remove(&key)) {
            self.waiting_bytes -= waiting.exchange.text.len();
            return self.answer(observed, waiting, original);
        }
        let mut exchange = begin(number, entry, ExchangeKind::of_message(message.kind), payload);
        // The message's own names come first, because those of a link may be shortened.
        exchange.method = message.method.clone().or_else(|| link.and_then(|l| l.method.clone()));
        exchange.name = message.name.clone().or_else(|| link.and_then(|l| l.name.clone()));
        exchange.asked_tokens = match message.kind {
            MessageKind::Request | MessageKind::Notification => costs::of_request(payload),
            MessageKind::Response | MessageKind::Error => {
                costs::of_answer(exchange.method.as_deref(), payload)
            }
            MessageKind::Batch | MessageKind::Opaque => 0,
        };
        fail(&mut exchange, message, payload);
        mark(&mut exchange, entry, original);
        let is_asking = message.kind == MessageKind::Request
            && link.is_some_and(|l| is_asking(l.role))
            && message.id.is_some();
        self.place_leg(&mut exchange, observed, original, is_asking);
        match &message.id {
            Some(id) if is_asking => self.wait((self.observed - 1, short_id(id).into_owned()), exchange),
            _ => self.settle(exchange, false),
        }
    }

    fn answer(&mut self, observed: &ObservedMessage<'_>, waiting: OpenExchange, original: Option<&[u8]>) {
        let ObservedMessage { number, entry, message, link, payload } = *observed;
        let OpenExchange { mut exchange, was_given, .. } = waiting;
        exchange.answer = Some(number);
        exchange.answered_with = Some(ExchangeKind::of_message(message.kind));
        exchange.took_ns = link.and_then(|l| l.response_ns);
        exchange.answered_bytes = payload.len() as u64;
        exchange.answered_tokens = costs::of_answer(exchange.method.as_deref(), payload);
        fail(&mut exchange, message, payload);
        exchange.text.push('\n');
        exchange.clipped |= searchable(payload, &mut exchange.text);
        mark(&mut exchange, entry, original);
        if exchange.method.as_deref() == Some(method::TOOLS_LIST) && !exchange.failed {
            self.define(number, exchange.via.as_deref(), payload);
        }
        if exchange.is_second_leg {
            self.add_to_client_leg(observed, original);
        }
        self.settle(exchange, was_given);
    }

    /// Settles a request that will not be answered, because its backend ended: this note says so.
    fn abandon(&mut self, key: &(u64, JsonId), number: u64, note: &[u8]) {
        let Some(OpenExchange { mut exchange, was_given, .. }) = self.waiting.remove(key) else { return };
        self.waiting_bytes -= exchange.text.len();
        exchange.answer = Some(number);
        exchange.answered_with = Some(ExchangeKind::Note);
        exchange.failed = true;
        exchange.error_shape = BackendEnded::from_note(note).map(|ended| ended.how());
        self.settle(exchange, was_given);
    }

    fn define(&mut self, entry: u64, via: Option<&str>, payload: &[u8]) {
        for definition in Definition::all_in(payload, entry, via) {
            // The same definition in a later list is not new.
            let key = Definition { entry: 0, ..definition.clone() };
            if self.known_definitions.len() < DEFINITIONS_MAX && self.known_definitions.insert(key) {
                self.definitions.push(definition);
            }
        }
    }

    fn wait(&mut self, key: (u64, JsonId), mut exchange: Exchange) {
        // Placed when it begins and not when it settles, so that the order is that of the tape.
        exchange.place = self.place();
        self.waiting_bytes += exchange.text.len();
        // The key is the entry with the id, so this is the same id twice in one batch.
        if let Some(same) =
            self.waiting.insert(key, OpenExchange { exchange, was_given: false, is_current: false })
        {
            self.forget(same);
        }
        while self.waiting.len() > OPEN_MAX || self.waiting_bytes > WAITING_BYTES_MAX {
            let Some((_, oldest)) = self.waiting.pop_first() else { break };
            self.forget(oldest);
        }
    }

    /// Stops waiting for an answer; if it still comes, it stands alone.
    fn forget(&mut self, waiting: OpenExchange) {
        self.waiting_bytes -= waiting.exchange.text.len();
        self.settle(waiting.exchange, waiting.was_given);
    }

    /// Lets an original message stand alone, because no changed one followed.
    fn settle_original(&mut self) {
        if let Some(original) = self.original.take() {
            self.settle(original, false);
        }
    }

    fn place(&mut self) -> u64 {
        self.next_place += 1;
        self.next_place - 1
    }

    fn settle(&mut self, mut exchange: Exchange, was_given: bool) {
        if exchange.place == UNPLACED {
            exchange.place = self.place();
        }
        self.settled.push(SettledExchange { exchange, was_given });
    }
}

/// A message with its entry and its link to others.
#[derive(Clone, Copy)]
struct ObservedMessage<'a> {
    number: u64,
    entry: &'a Entry<'a>,
    message: &'a Envelope,
    link: Option<&'a OperationLink>,
    payload: &'a [u8],
}

/// The place of an exchange that has none yet.
const UNPLACED: u64 = u64::MAX;

fn begin(number: u64, entry: &Entry<'_>, what: ExchangeKind, payload: &[u8]) -> Exchange {
    let mut text = String::new();
    let clipped = searchable(payload, &mut text);
    Exchange {
        place: UNPLACED,
        entry: number,
        answer: None,
        wall_ns: entry.wall_ns,
        since_start_ns: entry.since_start_ns,
        what,
        answered_with: None,
        method: None,
        name: None,
        via: entry.via.map(str::to_owned),
        is_second_leg: false,
        by_client: entry.direction == Direction::ClientToServer,
        by_gateway: false,
        intercepted: false,
        has_original: false,
        rules: BTreeSet::new(),
        tags: BTreeSet::new(),
        took_ns: None,
        failed: false,
        error_code: None,
        error_shape: None,
        asked_bytes: payload.len() as u64,
        answered_bytes: 0,
        asked_tokens: 0,
        answered_tokens: 0,
        text,
        clipped,
    }
}

/// Adds what rules did to a message, and the message before.
fn mark(exchange: &mut Exchange, entry: &Entry<'_>, original: Option<&[u8]>) {
    let marks = entry.rule_marks;
    exchange.intercepted |= marks.is_intercepted();
    exchange.has_original |= original.is_some();
    let room = |names: &BTreeSet<String>| NAMES_MAX.saturating_sub(names.len());
    let (rules, tags) = (room(&exchange.rules), room(&exchange.tags));
    exchange.rules.extend(marks.rules.lines().take(rules).map(str::to_owned));
    exchange.tags.extend(marks.tags.lines().take(tags).map(str::to_owned));
    if let Some(original) = original {
        exchange.text.push('\n');
        exchange.clipped |= searchable(original, &mut exchange.text);
    }
    searchable_marks(marks, &mut exchange.text);
}

fn is_asking(role: OperationRole) -> bool {
    matches!(role, OperationRole::Request | OperationRole::Round | OperationRole::Poll)
}

fn fail(exchange: &mut Exchange, message: &Envelope, payload: &[u8]) {
    if message.is_failure() {
        exchange.failed = true;
        exchange.error_code = message.error_code;
        exchange.error_shape = Some(shape::of_failure(message, payload));
    }
}

#[cfg(test)]
mod tests;
