//! Cuts a stream of server-sent events into its events, each with all its bytes. Pure: bytes in, events out.

use crate::bridge::sse::{Event, Parser};

/// Comments and fields besides the data of an event may take so much.
const FIELDS_BYTES_MAX: usize = 64 * 1024;

/// The part of a stream that has arrived and is not complete.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    held: Vec<u8>,
    /// How much of it has been looked at.
    looked: usize,
    /// Whether nothing stands on the line that is looked at.
    at_line_start: bool,
    after_cr: bool,
}

impl Cutter {
    pub(super) fn new() -> Self {
        Self { at_line_start: true, ..Self::default() }
    }

    /// Takes bytes and returns the events they complete, as they stood there.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.held.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(&byte) = self.held.get(self.looked) {
            self.looked += 1;
            let follows_cr = std::mem::replace(&mut self.after_cr, byte == b'\r');
            match byte {
                // The second half of a line's end.
                b'\n' if follows_cr => {}
                b'\n' | b'\r' if self.at_line_start => {
                    events.push(self.held.drain(..self.looked).collect());
                    self.looked = 0;
                }
                byte => self.at_line_start = matches!(byte, b'\n' | b'\r'),
            }
        }
        events
    }

    /// Tells whether an event is longer than any may be.
    pub(super) fn is_too_long(&self, limit: usize) -> bool {
        self.held.len() > limit + FIELDS_BYTES_MAX
    }

    /// Returns what is left when the stream ends.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

/// Returns the message that an event holds, on one line.
pub(super) fn message(event: &[u8], limit: usize) -> Option<Vec<u8>> {
    Parser::new(limit + FIELDS_BYTES_MAX).feed(event).into_iter().find_map(|event| match event {
        Event::Message(line) => Some(line),
        Event::Endpoint(_) | Event::TooLong(_) => None,
    })
}

/// Puts another message into an event, or none; its other fields stay.
pub(super) fn with_message(event: &[u8], message: Option<&[u8]>) -> Vec<u8> {
    let mut changed = Vec::with_capacity(event.len());
    for line in event.split(|b| matches!(b, b'\n' | b'\r')) {
        let is_data = line == b"data" || line.starts_with(b"data:");
        if !is_data && !line.is_empty() {
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
            let mut cutter = Cutter::new();
            let mut events: Vec<Vec<u8>> =
                stream.as_bytes().chunks(size).flat_map(|chunk| cutter.feed(chunk)).collect();
            let messages: Vec<_> = events.iter().filter_map(|event| message(event, 99)).collect();
            assert_eq!(messages, [b"{\"a\": 1}".to_vec(), b"2".to_vec()], "in pieces of {size}");
            events.push(cutter.rest());
            assert_eq!(events.concat(), stream.as_bytes(), "in pieces of {size}");
        }
    }

    #[test]
    fn a_message_is_replaced_within_its_event() {
        let event = b"event: message\r\nid: 7\r\ndata: 1\r\n\r\n";
        assert_eq!(with_message(event, Some(b"2")), b"event: message\nid: 7\ndata: 2\n\n");
        assert_eq!(with_message(event, None), b"event: message\nid: 7\n\n");
    }
}
