//! A load of small calls over HTTP: many connections, each calling in turn, every answer checked.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::{clock, wire};

/// Returns where a whole HTTP message at the start of the bytes ends, and where its body begins.
pub fn message(bytes: &[u8]) -> Option<(usize, usize)> {
    let head = bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&bytes[..head]).ok()?.to_ascii_lowercase();
    let length = text.split("content-length:").nth(1)?.split("\r\n").next()?.trim().parse::<usize>().ok()?;
    (bytes.len() >= head + length).then_some((head + length, head))
}

/// One connection with a session of its own.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    session: Option<String>,
    calls: u64,
}

impl Connection {
    /// Connects and initializes.
    pub fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        // Without it Nagle's algorithm delays small requests.
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let mut connection = Self { stream, buffer: Vec::new(), session: None, calls: 0 };
        let mut body = Vec::new();
        wire::push_initialize(&mut body, 0);
        let head = connection.post(body.trim_ascii_end())?;
        connection.session = head
            .split("mcp-session-id:")
            .nth(1)
            .and_then(|s| s.split("\r\n").next())
            .map(|s| s.trim().to_owned());
        Ok(connection)
    }

    /// Makes one small call and checks its answer.
    pub fn call(&mut self) -> io::Result<()> {
        self.calls += 1;
        let mut body = Vec::new();
        wire::push_echo_call(&mut body, self.calls);
        let calls = self.calls;
        self.post(body.trim_ascii_end())?;
        let (whole, start) = message(&self.buffer).ok_or_else(|| io::Error::other("no answer"))?;
        let mut answer = self.buffer[start..whole].to_vec();
        self.buffer.drain(..whole);
        answer.push(b'\n');
        if wire::is_echo_result(&answer, calls) {
            return Ok(());
        }
        let head = String::from_utf8_lossy(&answer[..answer.len().min(300)]).into_owned();
        Err(io::Error::other(format!("a wrong answer to call {calls}: {head}")))
    }

    /// Lists the tools and returns how many there are.
    pub fn list(&mut self) -> io::Result<usize> {
        self.calls += 1;
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},"method":"tools/list"}}"#, self.calls);
        self.post(body.as_bytes())?;
        let (whole, start) = message(&self.buffer).ok_or_else(|| io::Error::other("no answer"))?;
        let answer = String::from_utf8_lossy(&self.buffer[start..whole]).into_owned();
        self.buffer.drain(..whole);
        Ok(answer.matches("\"inputSchema\"").count())
    }

    /// Sends a body and waits for the answer, which stays in the buffer for a call; returns its head.
    fn post(&mut self, body: &[u8]) -> io::Result<String> {
        let session = self.session.as_ref();
        let session =
            session.map(|id| format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: {}\r\n", wire::VERSION));
        let session = session.unwrap_or_default();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{session}Content-Length: {}\r\n\r\n",
            body.len()
        );
        self.stream.write_all(&[head.as_bytes(), body].concat())?;
        let mut chunk = [0; 16 * 1024];
        loop {
            if let Some((whole, start)) = message(&self.buffer) {
                let head = String::from_utf8_lossy(&self.buffer[..start]).to_ascii_lowercase();
                if self.session.is_none() && self.calls == 0 {
                    self.buffer.drain(..whole);
                }
                if !head.starts_with("http/1.1 200") {
                    return Err(io::Error::other(format!(
                        "answered {}",
                        head.lines().next().unwrap_or_default()
                    )));
                }
                return Ok(head);
            }
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::Error::other("the connection ended")),
                n => self.buffer.extend_from_slice(&chunk[..n]),
            }
        }
    }
}

/// The result of a load.
pub struct Outcome {
    /// Calls made.
    pub calls: u64,
    /// How long they took.
    pub elapsed: Duration,
    /// Each call's time, in µs, sorted.
    pub samples_us: Vec<f64>,
}

/// Calls on all connections at once for some time; with a pace, each connection calls at that interval.
pub fn run(
    connections: Vec<Connection>,
    time: Duration,
    pace: Option<Duration>,
) -> io::Result<(Vec<Connection>, Outcome)> {
    let begun = clock::now();
    let workers: Vec<_> = connections
        .into_iter()
        .map(|connection| std::thread::spawn(move || work(connection, begun, time, pace)))
        .collect();
    let (mut connections, mut samples_us) = (Vec::new(), Vec::new());
    for worker in workers {
        let (connection, samples) = worker.join().map_err(|_| io::Error::other("a worker panicked"))??;
        connections.push(connection);
        samples_us.extend(samples);
    }
    let elapsed = begun.elapsed();
    samples_us.sort_by(f64::total_cmp);
    Ok((connections, Outcome { calls: samples_us.len() as u64, elapsed, samples_us }))
}

fn work(
    mut connection: Connection,
    begun: Instant,
    time: Duration,
    pace: Option<Duration>,
) -> io::Result<(Connection, Vec<f64>)> {
    let mut samples = Vec::new();
    while begun.elapsed() < time {
        let called = clock::now();
        connection.call()?;
        let took = called.elapsed();
        samples.push(took.as_secs_f64() * 1e6);
        if let Some(rest) = pace.and_then(|pace| pace.checked_sub(took)) {
            std::thread::sleep(rest);
        }
    }
    Ok((connection, samples))
}
