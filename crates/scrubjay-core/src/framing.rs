//! Splits a byte stream into lines as it arrives, without copying them.
//!
//! The relay reads into [`Framer::room`] and takes [`LineBatch`]es: all complete lines that arrived together,
//! contiguous, so that they can be forwarded with one write. A line beyond the limit is not buffered: it is measured
//! while it arrives and returned as an [`Oversize`]. Bytes are never changed; a byte order mark or a stray carriage
//! return is part of its line.

use std::ops::Range;

use crate::entry::Terminator;
use crate::message_limit::MessageLimit;
use crate::oversize::{Oversize, OversizeScanner};

/// The bytes read at once unless a longer line is pending. 64 KiB is a pipe's default capacity.
const READ_BYTES: usize = 64 * 1024;
/// The batches in a row that may leave a grown buffer mostly unused before it is freed. A large message resets the
/// count, so a stream that has them regularly keeps its buffer.
const SMALL_BATCHES_MAX: u32 = 1024;

/// Puts JSON on one line: line breaks between tokens become spaces. A break inside a string is invalid JSON and stays,
/// so that invalid JSON does not become valid.
pub fn one_line(json: &mut [u8]) {
    if !json.iter().any(|b| matches!(b, b'\n' | b'\r')) {
        return;
    }
    let (mut in_string, mut is_escaped) = (false, false);
    for byte in json {
        match byte {
            _ if std::mem::take(&mut is_escaped) => {}
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'\n' | b'\r' if !in_string => *byte = b' ',
            _ => {}
        }
    }
}

/// The incremental line reader of one stream.
#[derive(Debug)]
pub struct Framer {
    buffer: Vec<u8>,
    /// Everything before this position has been returned.
    taken: usize,
    /// Everything before this position has been searched for line ends.
    searched: usize,
    /// Ends (past the terminator) of the lines of the current batch.
    ends: Vec<usize>,
    limit: MessageLimit,
    /// The scanner of a line beyond the limit that is under way.
    oversize: Option<OversizeScanner>,
    /// The batches in a row that left the buffer mostly unused.
    small_batches: u32,
}

/// What the bytes so far contain.
#[derive(Debug)]
pub enum FramerOutput<'a> {
    /// Complete lines.
    Batch(LineBatch<'a>),
    /// The end of a line beyond the limit, which was not buffered.
    Oversize(Oversize),
    /// No complete line: read more.
    Starved,
}

/// Complete lines that arrived together.
#[derive(Clone, Copy, Debug)]
pub struct LineBatch<'a> {
    bytes: &'a [u8],
    ends: &'a [usize],
    base: usize,
}

/// One line of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramedLine<'a> {
    /// The line without its line end.
    pub bytes: &'a [u8],
    /// How it ended.
    pub terminator: Terminator,
}

impl<'a> LineBatch<'a> {
    /// Returns all lines with their line ends, as they were on the wire.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the lines one by one.
    pub fn lines(&self) -> impl ExactSizeIterator<Item = FramedLine<'a>> + Clone + use<'a> {
        let (bytes, base) = (self.bytes, self.base);
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let line = &bytes[start..end - base];
            start = end - base;
            split_terminator(line)
        })
    }
}

impl Framer {
    /// Makes a reader that does not buffer lines beyond the limit.
    #[must_use]
    pub fn new(limit: impl Into<MessageLimit>) -> Self {
        Self {
            buffer: Vec::new(),
            taken: 0,
            searched: 0,
            ends: Vec::new(),
            limit: limit.into(),
            oversize: None,
            small_batches: 0,
        }
    }

    /// Returns the buffer to append the next bytes to; it has spare capacity.
    pub fn room(&mut self) -> &mut Vec<u8> {
        if self.taken > 0 {
            // Only here and not when lines are taken, because a batch borrows the buffer until it is forwarded.
            self.buffer.drain(..self.taken);
            self.searched -= self.taken;
            self.taken = 0;
        }
        let pending = self.buffer.len();
        if pending == 0 && self.buffer.capacity() > READ_BYTES && self.small_batches >= SMALL_BATCHES_MAX {
            self.buffer = Vec::new();
            self.small_batches = 0;
        }
        // Little room would mean many small reads.
        if self.buffer.capacity() - pending < READ_BYTES / 4 {
            // Doubling the buffer for a long line keeps the cost of moving its bytes linear.
            self.buffer.reserve(READ_BYTES.max(pending.min(self.limit.bytes_max())));
        }
        &mut self.buffer
    }

    /// Returns the number of buffered bytes of a line that is not complete.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.buffer.len() - self.taken
    }

    /// Treats the incomplete line as one beyond the limit: frees its bytes, and only measures the rest. All complete
    /// lines must have been taken.
    pub fn drop_pending(&mut self) {
        self.oversize.get_or_insert_default().feed(&self.buffer[self.taken..]);
        self.buffer = Vec::new();
        (self.taken, self.searched) = (0, 0);
    }

    /// Frees the buffer if it is empty and larger than `bytes_max`.
    pub fn shrink(&mut self, bytes_max: usize) {
        if self.buffer.len() == self.taken && self.buffer.capacity() > bytes_max.max(READ_BYTES) {
            self.buffer = Vec::new();
            (self.taken, self.searched) = (0, 0);
        }
    }

    /// Returns the complete lines.
    pub fn step(&mut self) -> FramerOutput<'_> {
        if self.oversize.is_some() {
            return self.measure_oversize();
        }
        let start = self.taken;
        self.ends.clear();
        let mut line_start = start;
        // The start of a line beyond the limit. The lines before it are returned first, and the next step handles it.
        let mut oversized = None;
        for at in memchr::memchr_iter(b'\n', &self.buffer[self.searched..]) {
            let end = self.searched + at + 1;
            if self.limit.is_exceeded_by(end - 1 - line_start) {
                oversized = Some(line_start);
                break;
            }
            self.ends.push(end);
            line_start = end;
        }
        if line_start > start {
            self.taken = line_start;
            self.searched = oversized.unwrap_or(self.buffer.len());
            self.note_use(line_start - start);
            return FramerOutput::Batch(LineBatch {
                bytes: &self.buffer[start..line_start],
                ends: &self.ends,
                base: start,
            });
        }
        if oversized.is_some() || self.limit.is_exceeded_by(self.buffer.len() - start) {
            self.oversize = Some(OversizeScanner::default());
            return self.measure_oversize();
        }
        // A line that arrives in many pieces must not be searched from its beginning each time.
        self.searched = self.buffer.len();
        FramerOutput::Starved
    }

    /// Returns the rest after the end of the stream: a last line without a line end.
    pub fn finish(&mut self) -> FramerOutput<'_> {
        if let Some(scanner) = self.oversize.take() {
            return FramerOutput::Oversize(scanner.finish());
        }
        let rest = self.taken..self.buffer.len();
        if rest.is_empty() {
            return FramerOutput::Starved;
        }
        self.taken = rest.end;
        self.searched = rest.end;
        self.ends.clear();
        self.ends.push(rest.end);
        FramerOutput::Batch(LineBatch { base: rest.start, bytes: &self.buffer[rest], ends: &self.ends })
    }

    /// Measures and drops the bytes of a line beyond the limit, up to its end.
    fn measure_oversize(&mut self) -> FramerOutput<'_> {
        let fresh: Range<usize> = self.taken..self.buffer.len();
        let scanner = self.oversize.get_or_insert_default();
        match memchr::memchr(b'\n', &self.buffer[fresh.clone()]) {
            Some(at) => {
                scanner.feed(&self.buffer[fresh.start..fresh.start + at]);
                self.taken = fresh.start + at + 1;
                self.searched = self.taken;
                let scanner = self.oversize.take().expect("set just above");
                FramerOutput::Oversize(scanner.finish())
            }
            None => {
                scanner.feed(&self.buffer[fresh]);
                self.buffer.clear();
                self.taken = 0;
                self.searched = 0;
                FramerOutput::Starved
            }
        }
    }

    fn note_use(&mut self, batch_bytes: usize) {
        self.small_batches =
            if batch_bytes * 4 < self.buffer.capacity() { self.small_batches.saturating_add(1) } else { 0 };
    }
}

fn split_terminator(line: &[u8]) -> FramedLine<'_> {
    match line {
        [bytes @ .., b'\r', b'\n'] => FramedLine { bytes, terminator: Terminator::Crlf },
        [bytes @ .., b'\n'] => FramedLine { bytes, terminator: Terminator::Lf },
        bytes => FramedLine { bytes, terminator: Terminator::Eof },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds the pieces and returns every line (or `!length` for an oversized one) and the forwarded bytes.
    fn run(pieces: &[&[u8]], limit: usize) -> (Vec<String>, Vec<u8>) {
        let mut framer = Framer::new(limit);
        let (mut lines, mut forwarded) = (Vec::new(), Vec::new());
        let mut take = |step: FramerOutput<'_>| match step {
            FramerOutput::Batch(batch) => {
                forwarded.extend_from_slice(batch.bytes());
                let before = lines.len();
                lines.extend(batch.lines().map(|l| {
                    format!("{}{}", String::from_utf8_lossy(l.bytes), l.terminator.bytes().escape_ascii())
                }));
                lines.len() > before
            }
            FramerOutput::Oversize(oversize) => {
                lines.push(format!("!{}", oversize.bytes));
                true
            }
            FramerOutput::Starved => false,
        };
        for piece in pieces {
            framer.room().extend_from_slice(piece);
            while take(framer.step()) {}
        }
        take(framer.finish());
        (lines, forwarded)
    }

    #[test]
    fn only_line_breaks_between_tokens_are_replaced() {
        let check = |json: &str, expected: &str| {
            let mut line = json.as_bytes().to_vec();
            one_line(&mut line);
            assert_eq!(String::from_utf8_lossy(&line), expected, "{json:?}");
        };
        check("{\n\"a\":\r\n[1]}", "{ \"a\":  [1]}");
        check("{\"a\nb\":\n1}", "{\"a\nb\": 1}");
        check("[\"\\\"\n\",\n\"\\\\\",\n1]", "[\"\\\"\n\", \"\\\\\", 1]");
    }

    #[test]
    fn lines_of_every_kind() {
        let (lines, forwarded) = run(&[b"\xef\xbb\xbf{}\r\n\n", b"a", b"b\nrest"], 100);
        assert_eq!(lines, ["\u{feff}{}\\r\\n", "\\n", "ab\\n", "rest"]);
        assert_eq!(forwarded, b"\xef\xbb\xbf{}\r\n\nab\nrest");
    }

    #[test]
    fn a_line_beyond_the_limit_is_measured_and_others_are_returned() {
        for cut in 0..=20 {
            let stream = b"one\n0123456789\ntwo\n0123";
            let cut = cut.min(stream.len());
            let (lines, forwarded) = run(&[&stream[..cut], &stream[cut..]], 4);
            assert_eq!(lines, ["one\\n", "!10", "two\\n", "0123"], "cut at {cut}");
            assert_eq!(forwarded, b"one\ntwo\n0123");
        }
    }

    #[test]
    fn the_buffer_is_freed_after_a_large_line() {
        let mut framer = Framer::new(1 << 24);
        framer.room().extend(std::iter::repeat_n(b'x', 1 << 20));
        framer.room().push(b'\n');
        assert!(matches!(framer.step(), FramerOutput::Batch(_)));
        for _ in 0..=SMALL_BATCHES_MAX {
            framer.room().extend_from_slice(b"small\n");
            assert!(matches!(framer.step(), FramerOutput::Batch(_)));
        }
        assert!(framer.room().capacity() < 1 << 20);
    }

    proptest! {
        #[test]
        fn lines_are_the_same_for_any_split_of_the_stream(
            stream in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'x')], 0..200),
            cuts in prop::collection::vec(0usize..200, 0..8),
            limit in 1usize..40,
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &stream[w[0]..w[1]]).collect();
            let (lines, forwarded) = run(&pieces, limit);
            prop_assert_eq!(&lines, &run(&[&stream], limit).0);
            if !lines.iter().any(|l| l.starts_with('!')) {
                prop_assert_eq!(forwarded, stream);
            }
        }
    }
}
