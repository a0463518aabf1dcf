//! `bench-server`: a stdio MCP server that answers as fast as pipes allow.
//!
//! It answers every request that one `read` brought with one `write`, finds ids by byte search,
//! and keeps large results ready-made, so that what the benchmark sees is the relay in front of
//! it. It knows just enough of MCP (`initialize`, `tools/list`, `ping`) for relays that speak it.

use std::fs::File;
use std::io::{self, Read, Write};

use scrubjay_bench::{payload, stdio, wire};

const READ_BYTES: usize = 64 * 1024;
const LINE_BYTES_MAX: usize = 1024 * 1024;
const TEXT_BYTES_MAX: usize = 256 * 1024 * 1024;
const TEXTS_MAX: usize = 4;
// Room before a ready-made text for the head of an answer with an id of any length.
const HEADROOM_BYTES: usize = 256;

fn main() -> io::Result<()> {
    let mut input = stdio::input()?;
    let mut server = Server { output: stdio::output()?, answers: Vec::new(), texts: Vec::new() };
    let mut buffer = vec![0; READ_BYTES];
    let mut filled = 0;
    loop {
        if filled == buffer.len() {
            if filled >= LINE_BYTES_MAX {
                return Err(io::Error::other("a request is longer than 1 MiB"));
            }
            buffer.resize(filled * 2, 0);
        }
        let bytes = input.read(&mut buffer[filled..])?;
        if bytes == 0 {
            return Ok(());
        }
        filled += bytes;
        let used = server.answer_all(&buffer[..filled])?;
        buffer.copy_within(used..filled, 0);
        filled -= used;
    }
}

struct Server {
    output: File,
    answers: Vec<u8>,
    texts: Vec<Text>,
}

/// A large answer, ready but for its head, which is written into the room before it.
struct Text {
    bytes: usize,
    buffer: Vec<u8>,
}

impl Server {
    // Returns how many bytes were whole lines.
    fn answer_all(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut used = 0;
        while let Some(end) = wire::find_newline(&bytes[used..]) {
            self.answer(&bytes[used..=used + end])?;
            used += end + 1;
        }
        self.flush()?;
        Ok(used)
    }

    fn answer(&mut self, line: &[u8]) -> io::Result<()> {
        let Some(id) = wire::raw_id(line) else { return Ok(()) };
        if is_plain_echo(line, id) {
            self.push(id, wire::ECHO_ANSWER);
            return Ok(());
        }
        match wire::string_after(line, b"\"method\":") {
            Some(b"tools/call") => match wire::number_after(line, b"\"size\":") {
                Some(bytes) => self.write_text(id, usize::try_from(bytes).unwrap_or(usize::MAX))?,
                None => self.push(id, wire::ECHO_ANSWER),
            },
            Some(b"initialize") => self.push_initialize(id, line),
            Some(b"tools/list") => self.push(id, TOOLS),
            Some(b"ping") => self.push(id, b",\"result\":{}}\n"),
            Some(_) => self.push(id, b",\"error\":{\"code\":-32601,\"message\":\"Method not found\"}}\n"),
            // An answer to a request this server never made.
            None => {}
        }
        Ok(())
    }

    fn push(&mut self, id: &[u8], rest: &[u8]) {
        self.answers.extend_from_slice(wire::HEAD);
        self.answers.extend_from_slice(id);
        self.answers.extend_from_slice(rest);
    }

    fn push_initialize(&mut self, id: &[u8], line: &[u8]) {
        let version = wire::string_after(line, b"\"protocolVersion\":").unwrap_or(b"2025-06-18");
        self.push(id, b",\"result\":{\"protocolVersion\":\"");
        self.answers.extend_from_slice(version);
        self.answers.extend_from_slice(
            b"\",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"bench-server\",\"version\":\"1\"}}}\n",
        );
    }

    fn write_text(&mut self, id: &[u8], bytes: usize) -> io::Result<()> {
        self.flush()?;
        let at = self.ready_text(bytes)?;
        let buffer = &mut self.texts[at].buffer;
        let head_bytes = wire::HEAD.len() + id.len();
        let start = HEADROOM_BYTES
            .checked_sub(wire::TEXT_BEFORE.len() + head_bytes)
            .ok_or_else(|| io::Error::other("an id too long for a large answer"))?;
        buffer[start..start + wire::HEAD.len()].copy_from_slice(wire::HEAD);
        buffer[start + wire::HEAD.len()..start + head_bytes].copy_from_slice(id);
        // Head and text are contiguous, so that a large answer begins with a full pipe, not with
        // a write of sixty bytes.
        self.output.write_all(&buffer[start..])
    }

    fn ready_text(&mut self, bytes: usize) -> io::Result<usize> {
        if let Some(at) = self.texts.iter().position(|text| text.bytes == bytes) {
            return Ok(at);
        }
        if bytes > TEXT_BYTES_MAX || self.texts.len() == TEXTS_MAX {
            return Err(io::Error::other("too large a text, or too many sizes"));
        }
        let mut buffer = vec![0; HEADROOM_BYTES - wire::TEXT_BEFORE.len()];
        buffer.extend_from_slice(wire::TEXT_BEFORE);
        buffer.extend_from_slice(&payload::log_text(bytes));
        buffer.extend_from_slice(wire::TEXT_AFTER);
        self.texts.push(Text { bytes, buffer });
        Ok(self.texts.len() - 1)
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.answers.is_empty() {
            self.output.write_all(&self.answers)?;
            self.answers.clear();
        }
        Ok(())
    }
}

// Recognises the call as the benchmark writes it; any other line is parsed.
fn is_plain_echo(line: &[u8], id: &[u8]) -> bool {
    line.len() == wire::HEAD.len() + id.len() + wire::ECHO_CALL.len() && line.ends_with(wire::ECHO_CALL)
}

const TOOLS: &[u8] = b",\"result\":{\"tools\":[\
{\"name\":\"echo\",\"description\":\"A small answer\",\"inputSchema\":{\"type\":\"object\"}},\
{\"name\":\"large\",\"description\":\"An answer of a given size\",\"inputSchema\":{\"type\":\"object\",\
\"properties\":{\"size\":{\"type\":\"integer\"}}}}]}}\n";
