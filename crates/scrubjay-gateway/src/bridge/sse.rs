//! Parses server-sent events from bytes as they arrive. Pure.
//!
//! Events other than `message` and `endpoint` are ignored. An id counts once its event is complete, so a stream that
//! breaks within an event is resumed before that event.

use std::time::Duration;

use scrubjay_core::message_limit::MessageLimit;

/// The longest line that sets an id, in bytes; a longer one is ignored.
const ID_BYTES_MAX: usize = 4096;

/// The name of the field and what separates it from a message of the full length.
const FIELD_NAME_BYTES: usize = 16;

/// A complete event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The data of a message, on one line.
    Message(Vec<u8>),
    /// The address for messages, from a server of the first HTTP transport.
    Endpoint(Vec<u8>),
    /// A message beyond the limit, by its length; its text was dropped.
    TooLong(u64),
}

/// The parser of one stream, and of those that resume it.
#[derive(Debug)]
pub(crate) struct Parser {
    limit: MessageLimit,
    /// The beginning of a line whose end has not arrived.
    line: Vec<u8>,
    /// How many bytes of the line were dropped.
    skipped: u64,
    after_cr: bool,
    at_start: bool,
    data: Option<Vec<u8>>,
    /// The length of this event, if it is too long.
    too_long: u64,
    kind: Vec<u8>,
    id: Option<String>,
    last_id: Option<String>,
    retry: Option<Duration>,
}

impl Parser {
    pub(crate) fn new(limit: impl Into<MessageLimit>) -> Self {
        Self {
            limit: limit.into(),
            line: Vec::new(),
            skipped: 0,
            after_cr: false,
            at_start: true,
            data: None,
            too_long: 0,
            kind: Vec::new(),
            id: None,
            last_id: None,
            retry: None,
        }
    }

    /// Drops an incomplete event; keeps the last id and the pause.
    pub(crate) fn restart(&mut self) {
        let (last_id, retry) = (self.last_id.take(), self.retry);
        *self = Self { last_id, retry, ..Self::new(self.limit) };
    }

    /// Returns the id of the last complete event that had one.
    pub(crate) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// Returns the pause that the server wants before a stream is resumed.
    pub(crate) fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Returns how many bytes of an incomplete event are in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.line.len() + self.data.as_ref().map_or(0, Vec::len)
    }

    /// Takes bytes and returns the events they complete.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            // The line feed of a CR LF, which may come with the next bytes.
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = bytes.iter().position(|b| matches!(b, b'\n' | b'\r')) else {
                self.keep(bytes);
                break;
            };
            self.keep(&bytes[..end]);
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            events.extend(self.end_line());
        }
        events
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.limit.plus(FIELD_NAME_BYTES).is_exceeded_by(self.line.len() + bytes.len()) {
            self.skipped += bytes.len() as u64;
        } else {
            self.line.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self) -> Option<Event> {
        let mut line = std::mem::take(&mut self.line);
        // A byte order mark at the beginning of the stream is not part of it.
        if std::mem::take(&mut self.at_start) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        let skipped = std::mem::take(&mut self.skipped);
        if skipped > 0 {
            self.too_long += skipped + line.len() as u64;
        } else if line.is_empty() {
            return self.end_event();
        } else {
            self.field(line);
        }
        None
    }

    fn field(&mut self, mut line: Vec<u8>) {
        let colon = line.iter().position(|b| *b == b':').unwrap_or(line.len());
        let value_at = match line.get(colon + 1) {
            Some(b' ') => colon + 2,
            _ => (colon + 1).min(line.len()),
        };
        match &line[..colon] {
            b"data" => {
                line.drain(..value_at);
                self.add_data(line);
            }
            b"event" => self.kind = line.split_off(value_at),
            // The specification ignores an id with a NUL.
            b"id" if line.len() <= ID_BYTES_MAX && !line.contains(&0) => {
                self.id = String::from_utf8(line.split_off(value_at)).ok();
            }
            b"retry" => {
                let millis = std::str::from_utf8(&line[value_at..]).ok().and_then(|v| v.parse().ok());
                self.retry = millis.map(Duration::from_millis).or(self.retry);
            }
            _ => {}
        }
    }

    fn add_data(&mut self, value: Vec<u8>) {
        let held = self.data.as_ref().map_or(0, |data| data.len() + 1);
        if self.too_long > 0 || self.limit.is_exceeded_by(held + value.len()) {
            self.too_long += (held + value.len()) as u64;
            self.data = None;
        } else if let Some(data) = &mut self.data {
            // A space stands for the line break, so that the message stays on one line: JSON has no raw line breaks in
            // strings.
            data.push(b' ');
            data.extend_from_slice(&value);
        } else {
            self.data = Some(value);
        }
    }

    fn end_event(&mut self) -> Option<Event> {
        self.last_id = self.id.take().or_else(|| self.last_id.take());
        let (data, too_long) = (self.data.take(), std::mem::take(&mut self.too_long));
        let kind = std::mem::take(&mut self.kind);
        if !matches!(kind.as_slice(), b"" | b"message" | b"endpoint") {
            return None;
        }
        if too_long > 0 {
            return Some(Event::TooLong(too_long));
        }
        let data = data.filter(|data| !data.trim_ascii().is_empty());
        data.map(if kind == b"endpoint" { Event::Endpoint } else { Event::Message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events are the same however the bytes are split.
    fn check(limit: usize, bytes: &str, expected: &[&str], last_id: Option<&str>) {
        for size in [1, 2, 3, 7, bytes.len().max(1)] {
            let mut parser = Parser::new(limit);
            let events: Vec<String> = bytes
                .as_bytes()
                .chunks(size)
                .flat_map(|chunk| parser.feed(chunk))
                .map(|event| match event {
                    Event::Message(data) => String::from_utf8(data).unwrap(),
                    Event::Endpoint(data) => format!("endpoint: {}", String::from_utf8(data).unwrap()),
                    Event::TooLong(bytes) => format!("too long: {}", bytes > limit as u64),
                })
                .collect();
            assert_eq!(events, expected, "in pieces of {size}");
            assert_eq!(parser.last_id(), last_id, "in pieces of {size}");
        }
    }

    #[test]
    fn events_are_read() {
        check(99, "event: message\nid: 1\ndata: {\"a\":1}\n\n", &["{\"a\":1}"], Some("1"));
        check(99, "data:{\r\ndata: \"a\":1}\r\n\r\ndata: 2\r\r", &["{ \"a\":1}", "2"], None);
        check(99, "\u{feff}data: 1\n\n: comment\n\nretry: 5\n\nunknown: 3\n\n", &["1"], None);
        check(99, "event: ping\ndata: 1\n\nevent: endpoint\ndata: /x\n\n", &["endpoint: /x"], None);
    }

    #[test]
    fn an_unfinished_event_does_not_count() {
        check(99, "id: 1\ndata: \n\nid: 2\ndata: 2", &[], Some("1"));
        let mut parser = Parser::new(99);
        assert!(parser.feed(b"id: a\nretry: 7\ndata: \n\nid: b\ndata: half").is_empty());
        parser.restart();
        assert_eq!(parser.feed(b"data: whole\n\n"), [Event::Message(b"whole".to_vec())]);
        assert_eq!(parser.last_id(), Some("a"));
        assert_eq!(parser.retry(), Some(Duration::from_millis(7)));
    }

    #[test]
    fn a_long_event_is_measured_and_dropped() {
        let long = "x".repeat(100);
        check(20, &format!("data: {long}\n\ndata: 1\n\n"), &["too long: true", "1"], None);
        check(20, "data: 0123456789\ndata: 0123456789\n\ndata: 1\n\n", &["too long: true", "1"], None);
        check(20, "data: 01234567890123456789\n\n", &["01234567890123456789"], None);
    }
}
