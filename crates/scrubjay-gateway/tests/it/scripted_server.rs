//! An HTTP server that follows a script: it keeps what it was sent, and answers with given bytes.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::rig::DEADLINE;

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Lower-case names.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// What the server does next.
#[derive(Clone)]
pub(crate) enum Act {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Waits until the client leaves, and notes that it did.
    AwaitLeave,
    /// Sends what comes here, until nothing more can.
    Follow(Arc<tokio::sync::Mutex<tokio::sync::mpsc::Receiver<String>>>),
}

pub(crate) type Script = dyn Fn(&Asked) -> Vec<Act> + Send + Sync;

pub(crate) struct Scripted {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    left: Arc<tokio::sync::Semaphore>,
}

impl Scripted {
    pub(crate) async fn start(script: impl Fn(&Asked) -> Vec<Act> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback is there");
        let url = format!("http://{}/mcp", listener.local_addr().expect("it is bound"));
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let left = Arc::new(tokio::sync::Semaphore::new(0));
        let script: Arc<Script> = Arc::new(script);
        let (log, leaves) = (asked.clone(), left.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, script.clone(), log.clone(), leaves.clone()));
            }
        });
        Self { url, asked, left }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no test panics with it").clone()
    }

    /// Waits until it was asked something.
    pub(crate) async fn asked_for(&self, what: impl Fn(&Asked) -> bool) {
        let asked = async {
            while !self.asked().iter().any(&what) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, asked).await.expect("it is asked in time");
    }

    /// Waits until a client left while it was waited for.
    pub(crate) async fn client_left(&self) {
        self.left.acquire().await.expect("never closed").forget();
    }
}

async fn converse(
    mut stream: TcpStream,
    script: Arc<Script>,
    log: Arc<Mutex<Vec<Asked>>>,
    left: Arc<tokio::sync::Semaphore>,
) {
    let Some(asked) = read_request(&mut stream).await else { return };
    log.lock().expect("no test panics with it").push(asked.clone());
    for act in script(&asked) {
        match act {
            Act::Send(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Act::Follow(said) => {
                let mut said = said.lock().await;
                while let Some(text) = said.recv().await {
                    if stream.write_all(text.as_bytes()).await.is_err() {
                        return;
                    }
                }
            }
            Act::AwaitLeave => {
                let mut rest = [0; 64];
                while stream.read(&mut rest).await.is_ok_and(|n| n > 0) {}
                left.add_permits(1);
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).ok()?;
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    while bytes.len() < head_end + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = String::from_utf8(bytes[head_end + 4..].to_vec()).ok()?;
    Some(Asked { method, path, headers, body })
}

/// An answer that is complete.
pub(crate) fn whole(status: &str, headers: &str, body: &str) -> Vec<Act> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    vec![Act::Send((head + body).into_bytes())]
}

pub(crate) fn json(body: &str) -> Vec<Act> {
    whole("200 OK", "Content-Type: application/json\r\n", body)
}

/// The head of an event stream that ends when the connection does.
pub(crate) fn events(text: &str) -> Act {
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n";
    Act::Send(format!("{head}{text}").into_bytes())
}

/// The head of an event stream that has not ended when the connection does.
pub(crate) fn broken_events(text: &str) -> Act {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    Act::Send(format!("{head}{:x}\r\n{text}\r\n", text.len()).into_bytes())
}
