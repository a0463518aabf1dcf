//! A tape as exchanges: each request together with its answer, and each message or fact that stands alone.
//!
//! What the index keeps, and what analysis looks at. A fold over what [`crate::reading`] makes of the entries,
//! so a tape always gives the same exchanges in the same order, however often one stops and begins anew.
//! Everything it holds on to has a limit.

mod definition;
mod shape;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::entry::{BackendEnded, Entry, EntryKind};
use crate::envelope::{Envelope, JsonId, MessageKind};
use crate::operation::{Link, OPEN_MAX, Role};
use crate::reading::Reading;

pub use definition::Definition;
pub use shape::shape;
pub use text::{TEXT_BYTES_MAX, searchable, searchable_marks};

/// How much text of unanswered requests is held on to; the oldest go first.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// So many tool definitions of one tape are told apart.
const DEFINITIONS_MAX: usize = 4096;

/// What a message or another entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Asks for an answer.
    Request,
    /// An answer with a result.
    Response,
    /// An answer with an error.
    Error,
    /// Asks for no answer.
    Notification,
    /// A batch that cannot be taken apart.
    Batch,
    /// Not JSON-RPC.
    Opaque,
    /// A line of standard error.
    Stderr,
    /// A line beyond the limit.
    TooLong,
    /// Messages that are missing.
    Gap,
    /// The connection's end.
    End,
    /// Something else worth knowing.
    Note,
    /// A message as it came, before rules changed it.
    Original,
}

impl What {
    /// All of them, in the order of their codes.
    const ALL: [(Self, &str); 12] = [
        (Self::Request, "request"),
        (Self::Response, "response"),
        (Self::Error, "error"),
        (Self::Notification, "notification"),
        (Self::Batch, "batch"),
        (Self::Opaque, "opaque"),
        (Self::Stderr, "stderr"),
        (Self::TooLong, "too_long"),
        (Self::Gap, "gap"),
        (Self::End, "end"),
        (Self::Note, "note"),
        (Self::Original, "original"),
    ];
    /// Their names, for a person.
    pub const NAMES: &'static str = "request, response, error, notification, batch, opaque, stderr, too_long, gap, end, note and original";

    /// Reads a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(what, _)| *what)
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Returns a small number for it.
    #[must_use]
    pub fn code(self) -> i64 {
        self as i64
    }

    /// Returns what has this number.
    #[must_use]
    pub fn of_code(code: i64) -> Option<Self> {
        usize::try_from(code).ok().and_then(|code| Self::ALL.get(code)).map(|(what, _)| *what)
    }

    fn of_message(kind: MessageKind) -> Self {
        match kind {
            MessageKind::Request => Self::Request,
            MessageKind::Response => Self::Response,
            MessageKind::Error => Self::Error,
            MessageKind::Notification => Self::Notification,
            MessageKind::Batch => Self::Batch,
            MessageKind::Opaque => Self::Opaque,
        }
    }

    fn of_entry(kind: EntryKind) -> Self {
        match kind {
            EntryKind::Message => Self::Opaque,
            EntryKind::Stderr => Self::Stderr,
            EntryKind::Oversize => Self::TooLong,
            EntryKind::Gap => Self::Gap,
            EntryKind::End => Self::End,
            EntryKind::Note => Self::Note,
            EntryKind::Original => Self::Original,
        }
    }
}

/// A request with its answer, or whatever stands alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Its place among the exchanges of its tape, by what began it.
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
    pub what: What,
    /// What answered it: a response or an error.
    pub answered_with: Option<What>,
    /// The method.
    pub method: Option<String>,
    /// The tool, prompt or resource.
    pub name: Option<String>,
    /// The backend, for what passed between the gateway and one.
    pub via: Option<String>,
    /// Whether it is the backend's leg of something the client's leg shows too.
    pub is_second_leg: bool,
    /// Whether the client asked or said it.
    pub by_client: bool,
    /// How long the answer took.
    pub took_ns: Option<u64>,
    /// Whether it failed.
    pub failed: bool,
    /// The code of the error.
    pub error_code: Option<i64>,
    /// What kind of failure it is, whatever the numbers and names in it.
    pub error_shape: Option<String>,
    /// The size of what began it.
    pub asked_bytes: u64,
    /// The size of the answer.
    pub answered_bytes: u64,
    /// The text by which it is found.
    pub text: String,
    /// Whether there is more text than that.
    pub clipped: bool,
}

/// An exchange that is settled: nothing on the tape can change it any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The exchange.
    pub exchange: Exchange,
    /// Whether [`Exchanges::waiting`] gave it out before.
    pub was_given: bool,
}

#[derive(Debug)]
struct Waiting {
    exchange: Exchange,
    was_given: bool,
}

/// The fold over the entries of one tape, in order.
#[derive(Debug, Default)]
pub struct Exchanges {
    /// Counted as the reading counts them: where entries are lost, numbers are left out.
    observed: u64,
    next_place: u64,
    waiting: BTreeMap<(u64, JsonId), Waiting>,
    waiting_bytes: usize,
    settled: Vec<Settled>,
    definitions: Vec<Definition>,
    known_definitions: BTreeSet<Definition>,
}

impl Exchanges {
    /// Takes the next entry and what the reading made of it.
    pub fn observe(&mut self, number: u64, entry: &Entry<'_>, reading: &Reading) {
        let envelope = &reading.envelope;
        self.observed += 1;
        if entry.kind != EntryKind::Message {
            let mut exchange = self.begin(number, entry, What::of_entry(entry.kind), entry.payload);
            if entry.kind == EntryKind::Original {
                let came = Envelope::parse(entry.payload);
                (exchange.method, exchange.name) = (came.method, came.name);
            }
            self.settle(exchange, false);
            for key in &reading.abandoned {
                self.abandon(key, number, entry.payload);
            }
        } else if envelope.batch.is_empty() {
            let link = reading.link();
            self.observe_message(number, entry, envelope, link, entry.payload);
        } else {
            let parts: Vec<&RawValue> = serde_json::from_slice(entry.payload).unwrap_or_default();
            for (at, message) in envelope.batch.iter().enumerate() {
                let payload = parts.get(at).map_or(&b""[..], |part| part.get().as_bytes());
                self.observe_message(number, entry, message, reading.links.get(at), payload);
            }
        }
    }

    /// Takes what is settled since the last call.
    pub fn take_settled(&mut self) -> Vec<Settled> {
        std::mem::take(&mut self.settled)
    }

    /// Lets go of everything so far: somebody has it already.
    pub fn skip(&mut self) {
        self.settled.clear();
        self.definitions.clear();
    }

    /// Takes the tool definitions that are new since the last call.
    pub fn take_definitions(&mut self) -> Vec<Definition> {
        std::mem::take(&mut self.definitions)
    }

    /// Gives out the requests without an answer as they stand, each once.
    pub fn waiting(&mut self) -> impl Iterator<Item = &Exchange> {
        self.waiting.values_mut().filter_map(|waiting| {
            let was_given = std::mem::replace(&mut waiting.was_given, true);
            (!was_given).then_some(&waiting.exchange)
        })
    }

    fn observe_message(
        &mut self,
        number: u64,
        entry: &Entry<'_>,
        message: &Envelope,
        link: Option<&Link>,
        payload: &[u8],
    ) {
        let asked = link.and_then(|l| l.answers).zip(message.id.clone());
        if let Some(waiting) = asked.and_then(|key| self.waiting.remove(&key)) {
            self.waiting_bytes -= waiting.exchange.text.len();
            return self.answer(number, entry, waiting, message, link, payload);
        }
        let mut exchange = self.begin(number, entry, What::of_message(message.kind), payload);
        exchange.method = link.and_then(|l| l.method.clone()).or_else(|| message.method.clone());
        exchange.name = link.and_then(|l| l.name.clone()).or_else(|| message.name.clone());
        fail(&mut exchange, message, payload);
        match &message.id {
            Some(id) if message.kind == MessageKind::Request && link.is_some_and(|l| is_asking(l.role)) => {
                self.wait((self.observed - 1, id.clone()), exchange);
            }
            _ => self.settle(exchange, false),
        }
    }

    fn begin(&mut self, number: u64, entry: &Entry<'_>, what: What, payload: &[u8]) -> Exchange {
        let place = self.next_place;
        self.next_place += 1;
        let mut text = String::new();
        let clipped = searchable(payload, &mut text);
        searchable_marks(entry.judged, &mut text);
        Exchange {
            place,
            entry: number,
            answer: None,
            wall_ns: entry.wall_ns,
            since_start_ns: entry.since_start_ns,
            what,
            answered_with: None,
            method: None,
            name: None,
            via: entry.via.map(str::to_owned),
            is_second_leg: entry.via.is_some()
                && entry.operation.is_some()
                && matches!(entry.kind, EntryKind::Message | EntryKind::Original),
            by_client: entry.direction == crate::entry::Direction::ClientToServer,
            took_ns: None,
            failed: false,
            error_code: None,
            error_shape: None,
            asked_bytes: payload.len() as u64,
            answered_bytes: 0,
            text,
            clipped,
        }
    }

    fn answer(
        &mut self,
        number: u64,
        entry: &Entry<'_>,
        waiting: Waiting,
        message: &Envelope,
        link: Option<&Link>,
        payload: &[u8],
    ) {
        let Waiting { mut exchange, was_given } = waiting;
        exchange.answer = Some(number);
        exchange.answered_with = Some(What::of_message(message.kind));
        exchange.took_ns = link.and_then(|l| l.response_ns);
        exchange.answered_bytes = payload.len() as u64;
        fail(&mut exchange, message, payload);
        exchange.text.push('\n');
        exchange.clipped |= searchable(payload, &mut exchange.text);
        searchable_marks(entry.judged, &mut exchange.text);
        if exchange.method.as_deref() == Some("tools/list") && !exchange.failed {
            self.define(number, exchange.via.as_deref(), payload);
        }
        self.settle(exchange, was_given);
    }

    /// Ends a request that nobody will answer: its backend ended, as the note of this number tells.
    fn abandon(&mut self, key: &(u64, JsonId), number: u64, note: &[u8]) {
        let Some(Waiting { mut exchange, was_given }) = self.waiting.remove(key) else { return };
        self.waiting_bytes -= exchange.text.len();
        exchange.answer = Some(number);
        exchange.answered_with = Some(What::Note);
        exchange.failed = true;
        exchange.error_shape = BackendEnded::from_note(note).map(|ended| ended.how());
        self.settle(exchange, was_given);
    }

    fn define(&mut self, entry: u64, via: Option<&str>, payload: &[u8]) {
        for definition in Definition::all_in(payload, entry, via) {
            // The same one in a later list is nothing new.
            let key = Definition { entry: 0, ..definition.clone() };
            if self.known_definitions.len() < DEFINITIONS_MAX && self.known_definitions.insert(key) {
                self.definitions.push(definition);
            }
        }
    }

    fn wait(&mut self, key: (u64, JsonId), exchange: Exchange) {
        self.waiting_bytes += exchange.text.len();
        if let Some(same) = self.waiting.insert(key, Waiting { exchange, was_given: false }) {
            self.forget(same);
        }
        while self.waiting.len() > OPEN_MAX || self.waiting_bytes > WAITING_BYTES_MAX {
            let Some((_, oldest)) = self.waiting.pop_first() else { break };
            self.forget(oldest);
        }
    }

    /// Gives up waiting: an answer that comes all the same stands alone.
    fn forget(&mut self, waiting: Waiting) {
        self.waiting_bytes -= waiting.exchange.text.len();
        self.settle(waiting.exchange, waiting.was_given);
    }

    fn settle(&mut self, exchange: Exchange, was_given: bool) {
        self.settled.push(Settled { exchange, was_given });
    }
}

fn is_asking(role: Role) -> bool {
    matches!(role, Role::Request | Role::Round | Role::Poll)
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
