//! Server-sent events: a stream has the events of the specification, however it is split into reads.

use std::time::Duration;

use self::parser::{Event, Parser};
use crate::{Dice, pieces, settings};

/// The gateway's parser, included by its path because it is private.
#[path = "../../crates/scrubjay-gateway/src/bridge/sse.rs"]
mod parser;

/// Checks a stream; the first byte is the longest message allowed, the second seeds the split into reads.
pub fn check(data: &[u8]) {
    let Some(([limit, cut], stream)) = settings(data) else { return };
    let limit = if limit < 128 { 1 << 20 } else { usize::from(limit) - 127 };
    let mut parser = Parser::new(limit);
    let events = parser.feed(stream);
    let settings_seen = (parser.last_id().map(str::to_owned), parser.retry());
    let mut cut_parser = Parser::new(limit);
    let mut cut_events = Vec::new();
    for piece in pieces(stream, Dice::new(u64::from(cut) + 1)) {
        cut_events.extend(cut_parser.feed(piece));
        assert!(cut_parser.held_bytes() <= 2 * limit + 64, "no more is held than a message may be long");
    }
    if limit > stream.len() {
        assert_eq!(events, cut_events, "where a stream is cut makes no difference");
        assert_eq!(settings_seen, (cut_parser.last_id().map(str::to_owned), cut_parser.retry()));
        assert_eq!((events, settings_seen), by_the_specification(stream));
    } else {
        for event in &events {
            assert!(!matches!(event, Event::Message(data) | Event::Endpoint(data) if data.len() > limit));
        }
        assert_eq!(events.len(), cut_events.len());
    }
    parser.restart();
    assert_eq!(parser.held_bytes(), 0);
}

type SettingsSeen = (Option<String>, Option<Duration>);

/// Reads a stream as <https://html.spec.whatwg.org/multipage/server-sent-events.html> says, all at once.
fn by_the_specification(stream: &[u8]) -> (Vec<Event>, SettingsSeen) {
    let stream = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let (mut events, mut last_id, mut retry) = (Vec::new(), None, None);
    let (mut data, mut kind, mut id) = (Vec::<Vec<u8>>::new(), Vec::new(), None);
    for line in lines(stream) {
        if line.is_empty() {
            last_id = id.take().or(last_id);
            let message = std::mem::take(&mut data).join(&b' ');
            match std::mem::take(&mut kind).as_slice() {
                _ if message.trim_ascii().is_empty() => {}
                b"" | b"message" => events.push(Event::Message(message)),
                b"endpoint" => events.push(Event::Endpoint(message)),
                _ => {}
            }
            continue;
        }
        let (name, value) = match line.iter().position(|byte| *byte == b':') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = std::str::from_utf8(value).ok();
        match name {
            b"data" => data.push(value.to_vec()),
            b"event" => kind = value.to_vec(),
            b"id" if !line.contains(&0) && line.len() <= 4096 => id = text.map(str::to_owned),
            b"retry" => retry = text.and_then(|text| text.parse().ok()).map(Duration::from_millis).or(retry),
            _ => {}
        }
    }
    (events, (last_id, retry))
}

/// Lists the lines that have ended: by CR, LF or both.
fn lines(stream: &[u8]) -> Vec<&[u8]> {
    let (mut lines, mut rest) = (Vec::new(), stream);
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        lines.push(&rest[..at]);
        let both = rest[at..].starts_with(b"\r\n");
        rest = &rest[at + 1 + usize::from(both)..];
    }
    lines
}
