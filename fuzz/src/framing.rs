//! Framing: a stream has the lines of a plain split, byte for byte, however it is split into reads.

use scrubjay_core::entry::Terminator;
use scrubjay_core::envelope::Envelope;
use scrubjay_core::framing::{Framer, FramerOutput};
use scrubjay_core::oversize::Oversize;

use crate::{Dice, pieces, settings};

#[derive(Debug, PartialEq)]
enum Seen {
    Line(Vec<u8>, Terminator),
    TooLong(Oversize),
}

/// Checks a stream; the first byte is the longest line allowed, the second seeds the split into reads.
pub fn check(data: &[u8]) {
    let Some(([limit, cut], stream)) = settings(data) else { return };
    let limit = usize::from(limit).max(1);
    let (whole, forwarded) = run(&[stream], limit);
    let (cut, cut_forwarded) = run(&pieces(stream, Dice::new(u64::from(cut) + 1)), limit);
    assert_eq!(whole, cut, "where a stream is cut makes no difference");
    assert_eq!(forwarded, cut_forwarded);
    let mut kept = Vec::new();
    let mut seen = whole.iter();
    for line in stream.split_inclusive(|byte| *byte == b'\n') {
        let content = line.strip_suffix(b"\n").unwrap_or(line);
        match seen.next().expect("no line is missing") {
            Seen::Line(bytes, terminator) => {
                assert!(content.len() <= limit);
                assert_eq!([bytes, terminator.bytes()].concat(), line);
                kept.extend_from_slice(line);
            }
            Seen::TooLong(oversize) => {
                assert!(content.len() > limit);
                measured(content, oversize);
            }
        }
    }
    assert!(seen.next().is_none(), "there are no additional lines");
    assert_eq!(forwarded, kept);
}

fn run(pieces: &[&[u8]], limit: usize) -> (Vec<Seen>, Vec<u8>) {
    let mut framer = Framer::new(limit);
    let (mut seen, mut forwarded) = (Vec::new(), Vec::new());
    let mut take = |step: FramerOutput<'_>| match step {
        FramerOutput::Batch(batch) => {
            forwarded.extend_from_slice(batch.bytes());
            assert!(batch.lines().len() > 0, "a batch has a line");
            seen.extend(batch.lines().map(|line| Seen::Line(line.bytes.to_vec(), line.terminator)));
            true
        }
        FramerOutput::Oversize(oversize) => {
            seen.push(Seen::TooLong(oversize));
            true
        }
        FramerOutput::Starved => false,
    };
    for piece in pieces {
        framer.room().extend_from_slice(piece);
        while take(framer.step()) {}
    }
    while take(framer.finish()) {}
    (seen, forwarded)
}

/// Checks what was noted of a line that was too long to keep.
fn measured(line: &[u8], noted: &Oversize) {
    assert_eq!(noted.bytes, line.len() as u64);
    assert_eq!(noted.hash, blake3::hash(line).to_hex().to_string());
    let envelope = Envelope::parse(line);
    if !envelope.defects.is_empty() || !envelope.batch.is_empty() {
        return;
    }
    let id = envelope.id.as_ref().map(|id| id.as_raw());
    if noted.id.is_some() {
        assert_eq!(noted.id.as_deref(), id, "the peer that waits gets its answer under its own id");
    }
    if noted.method.is_some() {
        assert_eq!(noted.method, envelope.method);
    }
    let is_plain = |id: &str| id.len() < 200 && !id.starts_with(['{', '[']);
    if !line.contains(&b'\\') && id.is_some_and(is_plain) {
        assert_eq!(noted.id.as_deref(), id, "an id that is there is found");
    }
}
