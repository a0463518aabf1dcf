//! A small HTTP/1.1 client: a test controls every header, and can disconnect in the middle of a stream.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use rustix::net::sockopt::set_socket_recv_buffer_size;
use serde_json::Value;

use super::rig::DEADLINE;

/// The receive buffer of a client that may pause.
const RECEIVE_BYTES: usize = 64 * 1024;

/// Where requests go, and the headers they carry.
#[derive(Clone, Debug)]
pub(super) struct Target {
    address: String,
    headers: Vec<(String, String)>,
}

/// An answer: its head has been read, its body has not.
pub(super) struct Reply {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    body: BufReader<TcpStream>,
    /// What is left of the chunk that is being read.
    chunk: Vec<u8>,
    rest: Option<usize>,
}

/// A connection that stays open.
pub(super) struct Connection {
    target: Target,
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// Posts a message with more headers, and reads an answer that is one JSON.
    pub(super) fn post(&mut self, headers: &[(&str, &str)], body: &str) -> Value {
        let target =
            headers.iter().fold(self.target.clone(), |target, (name, value)| target.with(name, value));
        target.write(self.stream.get_mut(), "POST", body.as_bytes());
        let mut length = 0;
        loop {
            let line = line(&mut self.stream);
            match line.split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().expect("a length");
                }
                Some(_) => {}
                None if line.is_empty() => break,
                None => assert!(line.contains("200"), "{line}"),
            }
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer).expect("the body is whole");
        serde_json::from_slice(&answer).expect("JSON")
    }
}

/// One event of a stream.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) id: Option<String>,
    pub(super) message: Value,
}

impl Target {
    pub(super) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), headers: Vec::new() }
            .with("Host", address)
            .with("Connection", "close")
            .with("Content-Type", "application/json")
            .with("Accept", "application/json, text/event-stream")
    }

    /// Sets a header; without a value it is not sent.
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        if !value.is_empty() {
            self.headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Sends a header in addition to others with its name.
    pub(super) fn also(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(super) fn post(&self, body: &str) -> Reply {
        self.send("POST", body)
    }

    pub(super) fn get(&self) -> Reply {
        self.send("GET", "")
    }

    pub(super) fn delete(&self) -> Reply {
        self.send("DELETE", "")
    }

    pub(super) fn options(&self) -> Reply {
        self.send("OPTIONS", "")
    }

    /// Connects, and stays connected.
    pub(super) fn connect(&self) -> Connection {
        let stream = TcpStream::connect(&self.address).expect("the gateway listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
        Connection { target: self.clone().with("Connection", "keep-alive"), stream: BufReader::new(stream) }
    }

    /// Sends a request and does not wait for its answer.
    pub(super) fn begin(&self, method: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("the gateway listens");
        // A size of our own: the system would let the buffer grow, on some machines to tens of megabytes, and a client
        // that does not read would not block the sender.
        set_socket_recv_buffer_size(&stream, RECEIVE_BYTES).expect("a socket has a buffer");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
        self.write(&mut stream, method, body.as_bytes());
        stream
    }

    fn write(&self, stream: &mut TcpStream, method: &str, body: &[u8]) {
        let mut head = format!("{method} /mcp HTTP/1.1\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).expect("the gateway reads");
        // If the server refuses a body without reading it, the rest cannot be sent.
        let _ = stream.write_all(body);
    }

    /// Posts bytes that need not be text.
    pub(super) fn post_bytes(&self, body: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(&self.address).expect("the gateway listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
        self.write(&mut stream, "POST", body);
        Self::reply(BufReader::new(stream))
    }

    fn send(&self, method: &str, body: &str) -> Reply {
        Self::reply(BufReader::new(self.begin(method, body)))
    }

    fn reply(mut body: BufReader<TcpStream>) -> Reply {
        let status = line(&mut body);
        let status = status.split(' ').nth(1).and_then(|s| s.parse().ok());
        let mut headers = Vec::new();
        loop {
            let line = line(&mut body);
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let status = status.expect("an answer begins with its status");
        let mut reply = Reply { status, headers, body, chunk: Vec::new(), rest: None };
        reply.rest = reply.header("content-length").and_then(|l| l.parse().ok());
        reply
    }
}

fn line(reader: &mut impl BufRead) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).expect("the gateway answers in time");
    line.trim_end().to_owned()
}

impl Reply {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn is_stream(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }

    /// Reads the answer: the only message, or the last one of a stream.
    pub(super) fn json(self) -> Value {
        let status = self.status;
        if self.is_stream() {
            return self.messages().pop().expect("an answer");
        }
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{status}: {e}: {text:?}"))
    }

    /// Reads the answer in its original spelling: the only message, or, if it was slow, the last one of a stream.
    pub(super) fn raw_answer(self) -> String {
        let is_stream = self.is_stream();
        let body = self.text();
        if !is_stream {
            return body;
        }
        let data = body.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
        data.expect("a stream ends with an answer").to_owned()
    }

    /// Reads the whole body.
    pub(super) fn text(mut self) -> String {
        let mut body = Vec::new();
        match self.rest {
            Some(length) => {
                body.resize(length, 0);
                self.body.read_exact(&mut body).expect("the body is whole");
            }
            None => {
                while self.next_chunk() {
                    body.append(&mut self.chunk);
                }
            }
        }
        String::from_utf8(body).expect("a body is text")
    }

    /// Reads the next event; `None` when the stream has ended.
    pub(super) fn event(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.chunk.windows(2).position(|w| w == b"\n\n") {
                let event: Vec<u8> = self.chunk.drain(..end + 2).collect();
                let event = String::from_utf8(event).expect("events are text");
                let field = |name: &str| event.lines().find_map(|l| l.strip_prefix(name).map(str::to_owned));
                // An event without data only has an id to resume from.
                let Some(data) = field("data: ").filter(|data| !data.is_empty()) else { continue };
                let message = serde_json::from_str(&data).expect("an event holds a message");
                return Some(Event { id: field("id: "), message });
            }
            if !self.next_chunk() {
                return None;
            }
        }
    }

    /// Reads all messages to the end, of a stream or a single one.
    pub(super) fn messages(mut self) -> Vec<Value> {
        if !self.is_stream() {
            return vec![self.json()];
        }
        let mut all = Vec::new();
        while let Some(event) = self.event() {
            all.push(event.message);
        }
        all
    }

    fn next_chunk(&mut self) -> bool {
        let size = line(&mut self.body);
        let size = usize::from_str_radix(&size, 16).unwrap_or(0);
        let mut chunk = vec![0; size];
        if size > 0 {
            self.body.read_exact(&mut chunk).expect("a chunk is whole");
            line(&mut self.body);
        }
        self.chunk.append(&mut chunk);
        size > 0
    }
}
