//! Splits a stream of server-sent events into its events, each with all its bytes. Pure: bytes in, events out.

use scrubjay_core::message_limit::MessageLimit;

use crate::bridge::sse::{Event, Parser};

/// How many bytes the comments and fields of an event may have besides its data.
const FIELDS_BYTES_MAX: usize = 64 * 1024;

/// Collects bytes until they complete an event.
#[derive(Debug, Default)]
pub(super) struct EventSplitter {
    partial: Vec<u8>,
    /// How many bytes of it were searched for the event's end.
    scanned: usize,
    /// Whether the current line is empty so far: a line end here ends the event.
    at_line_start: bool,
    after_cr: bool,
}

impl EventSplitter {
    pub(super) fn new() -> Self {
        Self { at_line_start: true, ..Self::default() }
    }

    /// Takes bytes and returns the events that they complete, unchanged.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.partial.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(&byte) = self.partial.get(self.scanned) {
            self.scanned += 1;
            let follows_cr = std::mem::replace(&mut self.after_cr, byte == b'\r');
            match byte {
                // The second half of CR LF.
                b'\n' if follows_cr => {}
                // An empty line. After CR it ends the event at once: to wait for LF could delay the event without end.
                b'\n' | b'\r' if self.at_line_start => {
                    events.push(self.partial.drain(..self.scanned).collect());
                    self.scanned = 0;
                }
                byte => self.at_line_start = matches!(byte, b'\n' | b'\r'),
            }
        }
        events
    }

    /// Tells whether the incomplete event is already too long.
    pub(super) fn is_too_long(&self, limit: MessageLimit) -> bool {
        limit.plus(FIELDS_BYTES_MAX).is_exceeded_by(self.partial.len())
    }

    /// Returns the incomplete event at the end of the stream.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.partial)
    }
}

/// Returns the message in an event, on one line.
pub(super) fn message(event: &[u8], limit: MessageLimit) -> Option<Vec<u8>> {
    Parser::new(limit.plus(FIELDS_BYTES_MAX)).feed(event).into_iter().find_map(|event| match event {
        Event::Message(line) => Some(line),
        Event::Endpoint(_) | Event::TooLong(_) => None,
    })
}

/// Removes from an event without a message everything that another parser could take for one.
pub(super) fn without_message(event: &[u8]) -> Vec<u8> {
    let mut lines = event.split(|b| matches!(b, b'\n' | b'\r'));
    let is_primer = lines.any(|line| matches!(line, b"data" | b"data:" | b"data: "));
    let holds_none = !event
        .split(|b| matches!(b, b'\n' | b'\r'))
        .any(|line| line.len() > b"data: ".len() && is_data(line));
    with_message(event, (is_primer && holds_none).then_some(b""))
}

fn is_data(line: &[u8]) -> bool {
    line == b"data" || line.starts_with(b"data:")
}

/// Tells whether some parser could split this line: some take other separators of Unicode or ASCII for line ends.
fn is_several(line: &[u8]) -> bool {
    let separators: [&[u8]; 3] = [b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9"];
    std::str::from_utf8(line).is_err()
        || line.iter().any(|b| matches!(b, 0x0b | 0x0c | 0x1c..=0x1e))
        || separators.iter().any(|separator| line.windows(separator.len()).any(|part| part == *separator))
}

/// Replaces or removes the message of an event. Its other fields stay, unless parsers may read them differently.
pub(super) fn with_message(event: &[u8], message: Option<&[u8]>) -> Vec<u8> {
    let mut changed = Vec::with_capacity(event.len());
    for line in event.split(|b| matches!(b, b'\n' | b'\r')) {
        if !is_data(line) && !line.is_empty() && !is_several(line) {
            changed.extend_from_slice(line);
            changed.push(b'\n');
        }
    }
    if let Some(message) = message {
        changed.extend_from_slice(b"data: ");
        changed.extend_from_slice(message);
        changed.push(b'\n');
    }
    changed.push(b'\n');
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_keep_their_bytes_however_they_arrive() {
        let stream = "id: 1\ndata: {\"a\":\ndata: 1}\n\n: comment\r\n\r\ndata: 2\r\rdata: half";
        for size in [1, 2, 5, stream.len()] {
            let mut splitter = EventSplitter::new();
            let mut events: Vec<Vec<u8>> =
                stream.as_bytes().chunks(size).flat_map(|chunk| splitter.feed(chunk)).collect();
            let messages: Vec<_> =
                events.iter().filter_map(|event| message(event, MessageLimit::from(99))).collect();
            assert_eq!(messages, [b"{\"a\": 1}".to_vec(), b"2".to_vec()], "in pieces of {size}");
            events.push(splitter.rest());
            assert_eq!(events.concat(), stream.as_bytes(), "in pieces of {size}");
        }
    }

    #[test]
    fn a_message_is_replaced_within_its_event() {
        let event = b"event: message\r\nid: 7\r\ndata: 1\r\n\r\n";
        assert_eq!(with_message(event, Some(b"2")), b"event: message\nid: 7\ndata: 2\n\n");
        assert_eq!(with_message(event, None), b"event: message\nid: 7\n\n");
    }

    #[test]
    fn no_reader_finds_a_message_where_we_found_none() {
        for (event, left) in [
            ("id: 7\ndata:\n\n", "id: 7\ndata: \n\n"),
            ("event: ping\ndata: {}\n\n", "event: ping\n\n"),
            (": a\u{b}data: {}\nid: 1\n\n", "id: 1\n\n"),
            (": a\u{2028}data: {}\n: b\n\n", ": b\n\n"),
        ] {
            assert_eq!(String::from_utf8_lossy(&without_message(event.as_bytes())), left, "{event:?}");
        }
    }
}
