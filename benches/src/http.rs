//! A client for relays that only offer a stdio server over HTTP: enough of Streamable HTTP to make one call at a time
//! on one connection. Such a relay cannot be used in place of `wrap`, so it runs only the sequential workload.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::clock;
use crate::peers::HttpPeer;
use crate::procfs::{self, Cpu};
use crate::target::{self, Scratch};
use crate::watchdog;
use crate::wire;

const CONNECT_MAX: Duration = Duration::from_secs(30);
const CONNECT_STEP: Duration = Duration::from_millis(50);
const ANSWER_MAX: Duration = Duration::from_secs(10);
const BODY_BYTES_MAX: usize = 1024 * 1024;
const HEADERS_MAX: usize = 100;

/// A running relay with one HTTP connection to it.
pub struct HttpSession {
    child: Child,
    // Held for its removal at the end.
    _scratch: Scratch,
    connection: BufReader<TcpStream>,
    session_id: Option<String>,
    relay_pids: Vec<u32>,
    next_id: u64,
}

impl HttpSession {
    /// Starts the peer in front of `server`, initializes and checks one small call.
    pub fn open(peer: &HttpPeer, server: &Path, root: &Path) -> io::Result<Self> {
        let scratch = Scratch::new(root, &peer.name)?;
        let port = free_port()?;
        let log = File::create(scratch.path().join("stderr.log"))?;
        let mut command = Command::new(&peer.program);
        let (option, before) = peer.port;
        command.args(&peer.options).args([option, &format!("{before}{port}"), "--"]).arg(server);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        target::isolate(&mut command, &scratch);
        let child = command.spawn()?;
        // From here on a failure must not leave the process behind.
        let mut guard = KillOnDrop(Some(child));
        let connection = BufReader::new(connect(port)?);
        let child = guard.0.take().expect("the child is in the guard until here");
        let mut session = Self {
            child,
            _scratch: scratch,
            connection,
            session_id: None,
            relay_pids: Vec::new(),
            next_id: 1,
        };
        session.initialize()?;
        session.relay_pids = procfs::relay_processes(session.child.id(), server)?;
        Ok(session)
    }

    /// Makes small calls one at a time and adds what each took, in µs, to `samples_us`.
    pub fn call_in_turn(&mut self, calls: u64, limit: Duration, samples_us: &mut Vec<f64>) -> io::Result<()> {
        let begin = clock::now();
        let mut done = 0;
        while done < calls && begin.elapsed() < limit {
            let sent = clock::now();
            self.call_echo()?;
            samples_us.push(sent.elapsed().as_nanos() as f64 / 1000.0);
            done += 1;
        }
        Ok(())
    }

    /// Returns the CPU time of the relay so far.
    pub fn cpu(&self) -> io::Result<Cpu> {
        procfs::cpu(&self.relay_pids)
    }

    fn initialize(&mut self) -> io::Result<()> {
        let id = self.new_id();
        let mut body = Vec::new();
        wire::push_initialize(&mut body, id);
        let answer = self.post(&body)?;
        if wire::answer_id(&answer) != Some(id) {
            return Err(wrong(&answer));
        }
        self.post(wire::INITIALIZED)?;
        self.call_echo()
    }

    fn call_echo(&mut self) -> io::Result<()> {
        let id = self.new_id();
        let mut body = Vec::new();
        wire::push_echo_call(&mut body, id);
        let answer = self.post(&body)?;
        // A byte search finds the result in plain JSON and in an event stream.
        if wire::is_echo_result(&answer, id) { Ok(()) } else { Err(wrong(&answer)) }
    }

    fn post(&mut self, body: &[u8]) -> io::Result<Vec<u8>> {
        let session =
            self.session_id.as_ref().map_or_else(String::new, |id| format!("Mcp-Session-Id: {id}\r\n"));
        let mut request = format!(
            "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{session}Content-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.connection.get_mut().write_all(&request)?;
        self.read_answer()
    }

    fn read_answer(&mut self) -> io::Result<Vec<u8>> {
        let status = self.read_line()?;
        if !status.starts_with("HTTP/1.1 2") {
            return Err(io::Error::other(format!("answered {status}")));
        }
        let (mut body_bytes, mut chunked) = (0, false);
        for _ in 0..HEADERS_MAX {
            let line = self.read_line()?;
            if line.is_empty() {
                return if chunked { self.read_chunks() } else { self.read_bytes(body_bytes) };
            }
            let Some((key, value)) = line.split_once(": ") else { continue };
            match key.to_ascii_lowercase().as_str() {
                "content-length" => body_bytes = value.parse().map_err(io::Error::other)?,
                "transfer-encoding" => chunked = value.eq_ignore_ascii_case("chunked"),
                "mcp-session-id" => self.session_id = Some(value.to_owned()),
                _ => {}
            }
        }
        Err(io::Error::other("too many headers"))
    }

    fn read_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while body.len() < BODY_BYTES_MAX {
            let line = self.read_line()?;
            let bytes = usize::from_str_radix(&line, 16).map_err(io::Error::other)?;
            body.extend(self.read_bytes(bytes)?);
            self.read_line()?;
            if bytes == 0 {
                return Ok(body);
            }
        }
        Err(wrong(&body))
    }

    fn read_bytes(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        if bytes > BODY_BYTES_MAX {
            return Err(io::Error::other(format!("an answer of {bytes} bytes")));
        }
        let mut body = vec![0; bytes];
        self.connection.read_exact(&mut body)?;
        Ok(body)
    }

    fn read_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.connection.by_ref().take(BODY_BYTES_MAX as u64).read_line(&mut line)?;
        if line.ends_with('\n') { Ok(line.trim_end().to_owned()) } else { Err(wrong(line.as_bytes())) }
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }
}

impl Drop for HttpSession {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Ends a child if no session could be opened with it.
struct KillOnDrop(Option<Child>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            end(child);
        }
    }
}

fn end(child: &mut Child) {
    let _ = watchdog::kill_tree(child.id());
    let _ = child.wait();
}

/// Returns a free port. If another process takes it before the peer does, the peer fails, and the report notes it.
pub(crate) fn free_port() -> io::Result<u16> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr().map(|address| address.port())
}

/// Connects, waiting until a process listens on the port.
pub(crate) fn connect(port: u16) -> io::Result<TcpStream> {
    let begin = clock::now();
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(ANSWER_MAX))?;
                return Ok(stream);
            }
            Err(error) if begin.elapsed() > CONNECT_MAX => return Err(error),
            Err(_) => thread::sleep(CONNECT_STEP),
        }
    }
}

fn wrong(answer: &[u8]) -> io::Error {
    let head = String::from_utf8_lossy(&answer[..answer.len().min(300)]).into_owned();
    io::Error::other(format!("a wrong answer of {} bytes: {head}", answer.len()))
}
