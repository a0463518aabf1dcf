//! Reads the answers of a target from its pipe, line by line, with few reads and copies: what the harness spends here
//! is added to every target's time.

use std::io::{self, Read};
use std::ops::Range;
use std::process::ChildStdout;

use crate::wire;

const BUFFER_BYTES: usize = 256 * 1024;
const HEAD_BYTES: usize = 128;

/// Reads a target's output.
pub struct Answers {
    pipe: ChildStdout,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

/// A long line that was read but not kept.
pub struct LongLine {
    /// Its first bytes.
    pub head: Vec<u8>,
    /// Its length, newline included.
    pub bytes: usize,
}

impl Answers {
    /// Starts to read from `pipe`.
    pub fn new(pipe: ChildStdout) -> Self {
        Self { pipe, buffer: vec![0; BUFFER_BYTES], start: 0, end: 0 }
    }

    /// Waits for more bytes with one read.
    pub fn fill(&mut self) -> io::Result<()> {
        if self.start > 0 {
            // Rarely more than the beginning of one line: whole lines were taken before.
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            return Err(io::Error::other("an answer is longer than expected"));
        }
        let bytes = self.pipe.read(&mut self.buffer[self.end..])?;
        if bytes == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the output ended"));
        }
        self.end += bytes;
        Ok(())
    }

    /// Takes the next whole line that is already here, with its newline.
    pub fn take_line(&mut self) -> Option<&[u8]> {
        let start = self.start;
        let bytes = wire::find_newline(&self.buffer[start..self.end])? + 1;
        self.start += bytes;
        Some(&self.buffer[start..start + bytes])
    }

    /// Waits for the next line and takes it.
    ///
    /// Relays that speak MCP themselves may send notifications in between; those are skipped unless the relay has to be
    /// `verbatim`.
    pub fn next_answer(&mut self, verbatim: bool) -> io::Result<&[u8]> {
        loop {
            let line = self.next_line()?;
            if verbatim || wire::answer_id(&self.buffer[line.clone()]).is_some() {
                return Ok(&self.buffer[line]);
            }
        }
    }

    /// Waits for the end of a long line of which only the head and the length matter.
    pub fn skip_long_line(&mut self) -> io::Result<LongLine> {
        let mut line = LongLine { head: Vec::with_capacity(HEAD_BYTES), bytes: 0 };
        self.each_part(|part| {
            let wanted = HEAD_BYTES - line.head.len();
            line.head.extend_from_slice(&part[..part.len().min(wanted)]);
            line.bytes += part.len();
        })?;
        Ok(line)
    }

    /// Waits for the end of a long line and returns all of it.
    pub fn read_long_line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        self.each_part(|part| line.extend_from_slice(part))?;
        Ok(line)
    }

    /// Waits for the end of the output and returns how many bytes came that answer no call.
    pub fn drain(mut self) -> io::Result<usize> {
        let mut left = self.end - self.start;
        loop {
            match self.pipe.read(&mut self.buffer)? {
                0 => return Ok(left),
                bytes => left += bytes,
            }
        }
    }

    fn next_line(&mut self) -> io::Result<Range<usize>> {
        let mut scanned = 0;
        loop {
            if let Some(at) = wire::find_newline(&self.buffer[self.start + scanned..self.end]) {
                let from = self.start;
                self.start += scanned + at + 1;
                return Ok(from..self.start);
            }
            scanned = self.end - self.start;
            self.fill()?;
        }
    }

    fn each_part(&mut self, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        loop {
            let here = &self.buffer[self.start..self.end];
            if let Some(at) = wire::find_newline(here) {
                take(&here[..=at]);
                self.start += at + 1;
                return Ok(());
            }
            take(here);
            self.start = self.end;
            self.fill()?;
        }
    }
}
