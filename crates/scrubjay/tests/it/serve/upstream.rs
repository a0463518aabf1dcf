//! A server on HTTP that stores the requests it gets, and answers with the bytes that a test chooses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A received request.
#[derive(Clone, Debug)]
pub(super) struct UpstreamRequest {
    pub(super) method: String,
    /// Lower-case names.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl UpstreamRequest {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

pub(super) struct Upstream {
    pub(super) url: String,
    asked: Arc<Mutex<Vec<UpstreamRequest>>>,
}

impl Upstream {
    /// Starts one; it lives as long as the test does.
    pub(super) fn start(answer: impl Fn(&UpstreamRequest) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("it is bound"));
        let asked = Arc::<Mutex<Vec<UpstreamRequest>>>::default();
        let (log, answer) = (asked.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, answer) = (log.clone(), answer.clone());
                std::thread::spawn(move || {
                    let Some(asked) = read(&stream) else { return };
                    let answer = answer(&asked);
                    log.lock().expect("no test panics with it").push(asked);
                    // The client may have left.
                    let _ = (&stream).write_all(answer.as_bytes());
                });
            }
        });
        Self { url, asked }
    }

    pub(super) fn asked(&self) -> Vec<UpstreamRequest> {
        self.asked.lock().expect("no test panics with it").clone()
    }
}

fn read(stream: &TcpStream) -> Option<UpstreamRequest> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let method = line.split(' ').next()?.to_owned();
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.and_then(|(_, length)| length.parse().ok()).unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(UpstreamRequest { method, headers, body })
}

/// An answer that is complete.
pub(super) fn whole(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

pub(super) fn json(headers: &str, body: &str) -> String {
    whole("200 OK", &format!("Content-Type: application/json\r\n{headers}"), body)
}

/// A stream of events that ends with the connection.
pub(super) fn events(text: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n{text}")
}
