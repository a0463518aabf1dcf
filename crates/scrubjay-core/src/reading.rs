//! Reads a tape as a conversation: each entry with its envelope and its links to others.
//!
//! The only fold over entries. The sealer, `tape show`, the exporters and the index all use it, so they cannot
//! disagree.

use crate::bounded_map::BoundedMap;
use crate::delivery::UndeliveredSum;
use crate::entry::{BackendEnded, Entry, EntryKind, Gap, SessionMoved, Undelivered};
use crate::envelope::{Envelope, JsonId};
use crate::operation::{EntryPosition, OperationLink, Operations};
use crate::selection::LeftOut;
use crate::stats::{Collector, TapeMetadata};

/// The most connections to backends whose ids are tracked; the oldest is forgotten first.
const CONNECTIONS_MAX: usize = 1024;

/// What an entry means.
#[derive(Clone, Debug)]
pub struct EntryReading {
    /// The envelope of the message; empty for an entry that is not a message.
    pub envelope: Envelope,
    /// The link of the message, or of each message of a batch, to others.
    pub links: Vec<OperationLink>,
    /// The message before rules changed it, if they did.
    pub original: Option<Box<[u8]>>,
    /// The requests that will never be answered, because this entry notes the end of their backend.
    pub abandoned: Vec<(u64, JsonId)>,
    /// Why the message did not reach its receiver, if a later entry notes that and the reader was given the notes.
    pub undelivered: Option<String>,
}

impl EntryReading {
    /// Returns the link of a single message, or of the first of a batch.
    #[must_use]
    pub fn link(&self) -> Option<&OperationLink> {
        self.links.first()
    }

    /// Returns whether this entry reports a failure.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.envelope.is_failure() || self.envelope.batch.iter().any(Envelope::is_failure)
    }
}

/// The fold over the entries of one tape, in order.
#[derive(Debug)]
pub struct EntryReader {
    /// The operations of the client's leg.
    operations: Operations,
    /// The operations of each connection to a backend: ids are unique only within one.
    backends: BoundedMap<(String, u32), Operations>,
    collector: Collector,
    next_entry: u64,
    /// The original of the next message, if the entry just read was one.
    original: Option<Box<[u8]>>,
    /// The undelivered entries that notes further on name.
    undelivered: UndeliveredSum,
}

impl Default for EntryReader {
    fn default() -> Self {
        Self {
            operations: Operations::default(),
            backends: BoundedMap::new(CONNECTIONS_MAX),
            collector: Collector::default(),
            next_entry: 0,
            original: None,
            undelivered: UndeliveredSum::default(),
        }
    }
}

impl EntryReader {
    /// Creates a reader that knows which entries later notes of the tape name as undelivered.
    #[must_use]
    pub fn with_undelivered(undelivered: UndeliveredSum) -> Self {
        Self { undelivered, ..Self::default() }
    }

    /// Reads an entry with its number on the tape, which skips lost entries.
    pub fn read_numbered(&mut self, number: u64, entry: &Entry<'_>) -> EntryReading {
        let undelivered = match entry.kind {
            // Only messages are delivered to anyone.
            EntryKind::Message => self.undelivered.why(number).map(str::to_owned),
            _ => None,
        };
        EntryReading { undelivered, ..self.read(entry) }
    }

    /// Takes the next entry.
    pub fn read(&mut self, entry: &Entry<'_>) -> EntryReading {
        let number = self.next_entry;
        self.next_entry += 1;
        // An original belongs to the entry right after it, and to no other.
        let original = self.original.take();
        if entry.rule_marks.is_intercepted() && entry.kind == EntryKind::Message {
            self.collector.observe_interception();
        }
        if entry.kind != EntryKind::Message {
            let mut abandoned = Vec::new();
            // The original was never forwarded, so it is neither counted as a message nor linked to one.
            self.original = (entry.kind == EntryKind::Original).then(|| entry.payload.into());
            let gap = if entry.kind == EntryKind::Gap { gap_messages(entry.payload) } else { 0 };
            self.collector.observe_fact(entry.kind, entry.direction, gap);
            if entry.kind == EntryKind::Note
                && let Some(left_out) = LeftOut::from_note(entry.payload)
            {
                self.collector.observe_left_out(&left_out);
            } else if entry.kind == EntryKind::Note
                && let Some(moved) = SessionMoved::from_note(entry.payload)
            {
                self.collector.observe_session(moved.session);
            } else if entry.kind == EntryKind::Note
                && let Some(undelivered) = Undelivered::from_note(entry.payload)
            {
                self.collector.observe_undelivered(&undelivered);
            } else if entry.kind == EntryKind::Note
                && let Some(ended) = BackendEnded::from_note(entry.payload)
            {
                self.collector.observe_backend_ended();
                // What is still open on an ended connection will never be answered.
                let operations = self.backends.remove(&(ended.backend, ended.connection));
                abandoned = operations.map(Operations::end).unwrap_or_default();
            }
            let envelope = Envelope::default();
            return EntryReading {
                envelope,
                links: Vec::new(),
                original: None,
                abandoned,
                undelivered: None,
            };
        }
        let envelope = Envelope::parse(entry.payload);
        let at =
            EntryPosition { entry: number, direction: entry.direction, since_start_ns: entry.since_start_ns };
        let links = match entry.via {
            None => {
                let links = self.operations.observe(at, &envelope);
                self.collector.observe_message(
                    entry.direction,
                    entry.payload.len() as u64,
                    &envelope,
                    &links,
                );
                links
            }
            Some(backend) => {
                self.collector.observe_backend_message();
                let leg = (backend.to_owned(), entry.connection);
                let mut links = self.backends.get_or_insert_default(leg).observe(at, &envelope);
                for link in &mut links {
                    // The answer is found by ids within the leg; the operation is the client's, and the entry names it.
                    link.operation = entry.operation.or(link.operation);
                }
                links
            }
        };
        EntryReading { envelope, links, original, abandoned: Vec::new(), undelivered: None }
    }

    /// Returns the totals of the tape.
    #[must_use]
    pub fn finish(self) -> TapeMetadata {
        let unanswered = self.operations.unanswered().len() as u64;
        self.collector.finish(unanswered)
    }
}

fn gap_messages(payload: &[u8]) -> u64 {
    serde_json::from_slice::<Gap>(payload).map_or(1, |gap| gap.messages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Direction, RuleEffects, RuleMarks, Terminator, Transport};

    #[test]
    fn the_totals_of_a_conversation_are_computed() {
        let script: [(Direction, &str); 7] = [
            (
                Direction::ClientToServer,
                r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","clientInfo":{"name":"c"}}}"#,
            ),
            (
                Direction::ServerToClient,
                r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","serverInfo":{"name":"s"}}}"#,
            ),
            (Direction::ClientToServer, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
            (
                Direction::ClientToServer,
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#,
            ),
            (Direction::ServerToClient, r#"{"jsonrpc":"2.0","id":1,"result":{"isError":true}}"#),
            (Direction::ClientToServer, r#"{"jsonrpc":"2.0","id":2,"method":"nope"}"#),
            (
                Direction::ServerToClient,
                r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no such method"}}"#,
            ),
        ];
        let mut reader = EntryReader::default();
        for (number, (direction, line)) in script.iter().enumerate() {
            let reading = reader.read(&Entry {
                kind: EntryKind::Message,
                direction: *direction,
                transport: Transport::Stdio,
                terminator: Terminator::Lf,
                wall_ns: 0,
                since_start_ns: number as u64 * 10,
                processing_ns: 0,
                via: None,
                connection: 0,
                operation: None,
                rule_marks: RuleMarks::default(),
                payload: line.as_bytes(),
            });
            assert_eq!(reading.is_failure(), number == 4 || number == 6);
        }
        let sums = reader.finish();
        assert_eq!((sums.total_messages, sums.total_requests, sums.total_errors), (7, 3, 2));
        assert_eq!(sums.error_codes.get(&-32601), Some(&1));
        assert_eq!(sums.methods["tools/call"].error_count, 1);
        assert_eq!(sums.tools["t"].avg_response_time_ns, 10);
        assert_eq!(sums.protocol_version.as_deref(), Some("2025-11-25"));
        assert_eq!(sums.client_info.as_ref().and_then(|i| i["name"].as_str()), Some("c"));
        assert_eq!(sums.method_pairs.len(), 2);
        assert!((sums.error_rate - 2.0 / 3.0).abs() < 1e-9);
        assert!(!sums.probe);
    }

    #[test]
    fn a_tape_with_only_a_greeting_is_a_probe_unless_the_greeting_failed() {
        let check = |lines: &[(Direction, &str)], expected: bool| {
            let mut reader = EntryReader::default();
            for (direction, payload) in lines {
                reader.read(&Entry {
                    kind: EntryKind::Message,
                    direction: *direction,
                    transport: Transport::Stdio,
                    terminator: Terminator::Lf,
                    wall_ns: 0,
                    since_start_ns: 0,
                    processing_ns: 0,
                    via: None,
                    connection: 0,
                    operation: None,
                    rule_marks: RuleMarks::default(),
                    payload: payload.as_bytes(),
                });
            }
            assert_eq!(reader.finish().probe, expected, "{lines:?}");
        };
        let hello = (UP, r#"{"id":0,"method":"initialize"}"#);
        let (welcome, refusal) =
            ((DOWN, r#"{"id":0,"result":{}}"#), (DOWN, r#"{"id":0,"error":{"code":-1,"message":"no"}}"#));
        let ready = (UP, r#"{"method":"notifications/initialized"}"#);
        check(&[hello, welcome, ready], true);
        check(
            &[hello, welcome, (DOWN, r#"{"id":9,"method":"ping"}"#), (UP, r#"{"id":9,"result":{}}"#)],
            true,
        );
        check(&[hello, refusal], false);
        check(&[hello], false);
        check(&[hello, welcome, ready, (UP, r#"{"id":1,"method":"tools/list"}"#)], false);
        check(
            &[(UP, r#"{"id":1,"method":"server/discover"}"#), (DOWN, r#"{"id":1,"error":{"code":-32601}}"#)],
            true,
        );
        check(&[], true);
    }

    /// Reads `(direction, connection to backend "b", line)`, and describes how each fits the others.
    fn read_legs(script: &[(Direction, u32, &str)]) -> (Vec<String>, Vec<Vec<u64>>, TapeMetadata) {
        let mut reader = EntryReader::default();
        let (mut links, mut abandoned) = (Vec::new(), Vec::new());
        for (number, (direction, connection, line)) in (0u64..).zip(script) {
            let kind = if line.contains("event") { EntryKind::Note } else { EntryKind::Message };
            let reading = reader.read(&Entry {
                kind,
                direction: *direction,
                transport: Transport::Stdio,
                terminator: Terminator::Lf,
                wall_ns: 0,
                since_start_ns: number,
                processing_ns: 0,
                via: (kind == EntryKind::Message).then_some("b"),
                connection: *connection,
                operation: None,
                rule_marks: RuleMarks::default(),
                payload: line.as_bytes(),
            });
            links.push(reading.link().map_or_else(String::new, |link| {
                let name = link.name.as_deref().or(link.method.as_deref());
                format!("{:?} {:?} {} {:?}", link.role, link.answers, name.unwrap_or("-"), link.flags)
            }));
            abandoned.push(reading.abandoned.iter().map(|(entry, _)| *entry).collect());
        }
        (links, abandoned, reader.finish())
    }

    const UP: Direction = Direction::ClientToServer;
    const DOWN: Direction = Direction::ServerToClient;

    #[test]
    fn ids_are_matched_only_within_one_connection() {
        let call = |id: u64, name: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}"}}}}"#)
        };
        let (crash, echo) = (call(2, "crash"), call(2, "echo"));
        let (roots, result) =
            (r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#, r#"{"id":2,"result":{}}"#);
        let (links, ..) = read_legs(&[
            (UP, 1, &crash),
            (DOWN, 1, roots),
            (UP, 2, &echo),
            (DOWN, 2, roots),
            (DOWN, 2, result),
            (UP, 2, r#"{"id":1,"result":{}}"#),
            (DOWN, 1, result),
            (UP, 1, r#"{"id":1,"result":{}}"#),
        ]);
        assert_eq!(
            links,
            [
                "Request None crash []",
                "Request None roots/list []",
                "Request None echo []",
                "Request None roots/list []",
                "Answer Some(2) echo []",
                "Answer Some(3) roots/list []",
                "Answer Some(0) crash []",
                "Answer Some(1) roots/list []",
            ]
        );
    }

    #[test]
    fn open_requests_of_an_ended_backend_are_abandoned() {
        let call = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"crash"}}"#;
        let asks = r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#;
        let ended = BackendEnded { backend: "b".to_owned(), connection: 1, ..BackendEnded::default() };
        let ended = String::from_utf8(ended.note()).unwrap();
        let result = r#"{"id":2,"result":{}}"#;
        let (links, abandoned, sums) = read_legs(&[
            (UP, 1, call),
            (DOWN, 1, asks),
            (UP, 2, call),
            (DOWN, 0, &ended),
            (DOWN, 2, result),
            (DOWN, 1, result),
            (UP, 1, r#"{"id":1,"result":{}}"#),
        ]);
        assert_eq!(abandoned[3], [0, 1]);
        assert_eq!(links[4], "Answer Some(2) crash []");
        assert_eq!(links[5], "Alone None - [UnmatchedAnswer]");
        assert_eq!(links[6], "Alone None - [UnmatchedAnswer]");
        assert_eq!((sums.backends_ended, sums.total_entries), (1, 7));
    }

    #[test]
    fn a_changed_message_is_counted_once_and_has_its_original() {
        let entry = |kind: EntryKind, direction: Direction, effects: RuleEffects, line: &'static str| Entry {
            kind,
            direction,
            transport: Transport::Stdio,
            terminator: Terminator::Lf,
            wall_ns: 0,
            since_start_ns: 0,
            processing_ns: 0,
            via: None,
            connection: 0,
            operation: None,
            rule_marks: RuleMarks { effects, ..RuleMarks::default() },
            payload: line.as_bytes(),
        };
        let (client, server) = (Direction::ClientToServer, Direction::ServerToClient);
        let (came, went) = (r#"{"id":1,"method":"a"}"#, r#"{"id":1,"method":"a","params":{}}"#);
        let mut reader = EntryReader::default();
        let mut original = |entry| reader.read(&entry).original;
        assert_eq!(original(entry(EntryKind::Original, client, RuleEffects::default(), came)), None);
        let seen = original(entry(EntryKind::Message, client, RuleEffects::CHANGED, went));
        assert_eq!(seen.as_deref(), Some(came.as_bytes()));
        assert_eq!(
            original(entry(EntryKind::Message, server, RuleEffects::default(), r#"{"id":1,"result":{}}"#)),
            None
        );
        let sums = reader.finish();
        assert_eq!(
            (sums.total_entries, sums.total_messages, sums.intercepted, sums.unanswered),
            (3, 2, 1, 0)
        );
        assert_eq!(sums.total_bytes_sent, went.len() as u64);
        assert!(sums.error_rate == 0.0 && sums.methods["a"].count == 1);
    }
}
