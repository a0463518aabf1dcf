//! An HTTP server for tests that runs a script: a function from each request to the bytes of its response. It stores
//! the requests that it received.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::rig::DEADLINE;

/// A request that the server received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names are in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// What the server does with a connection next.
#[derive(Clone)]
pub(crate) enum Action {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Waits until the client closes the connection, and counts that it did.
    AwaitDisconnect,
    /// Sends what comes on this channel, until it is closed.
    SendFrom(Arc<tokio::sync::Mutex<tokio::sync::mpsc::Receiver<String>>>),
}

pub(crate) type Script = dyn Fn(&ReceivedRequest) -> Vec<Action> + Send + Sync;

pub(crate) struct ScriptedServer {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    disconnected: Arc<tokio::sync::Semaphore>,
}

impl ScriptedServer {
    pub(crate) async fn start(
        script: impl Fn(&ReceivedRequest) -> Vec<Action> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("the listener is bound"));
        let requests = Arc::<Mutex<Vec<ReceivedRequest>>>::default();
        let disconnected = Arc::new(tokio::sync::Semaphore::new(0));
        let script: Arc<Script> = Arc::new(script);
        let (log, disconnects) = (requests.clone(), disconnected.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, script.clone(), log.clone(), disconnects.clone()));
            }
        });
        Self { url, requests, disconnected }
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().expect("nothing panics while it holds the lock").clone()
    }

    /// Waits until the server has received such a request.
    pub(crate) async fn wait_for_request(&self, expected: impl Fn(&ReceivedRequest) -> bool) {
        let received = async {
            while !self.requests().iter().any(&expected) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(DEADLINE, received).await.expect("the request arrives in time");
    }

    /// Waits until a client has closed a connection on which the script awaits that.
    pub(crate) async fn client_disconnected(&self) {
        self.disconnected.acquire().await.expect("never closed").forget();
    }
}

async fn serve(
    mut stream: TcpStream,
    script: Arc<Script>,
    log: Arc<Mutex<Vec<ReceivedRequest>>>,
    disconnected: Arc<tokio::sync::Semaphore>,
) {
    let Some(request) = read_request(&mut stream).await else { return };
    log.lock().expect("nothing panics while it holds the lock").push(request.clone());
    for action in script(&request) {
        match action {
            Action::Send(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Action::SendFrom(texts) => {
                let mut texts = texts.lock().await;
                while let Some(text) = texts.recv().await {
                    if stream.write_all(text.as_bytes()).await.is_err() {
                        return;
                    }
                }
            }
            Action::AwaitDisconnect => {
                let mut rest = [0; 64];
                while stream.read(&mut rest).await.is_ok_and(|n| n > 0) {}
                disconnected.add_permits(1);
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<ReceivedRequest> {
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
    Some(ReceivedRequest { method, path, headers, body })
}

/// A complete response.
pub(crate) fn response(status: &str, headers: &str, body: &str) -> Vec<Action> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    vec![Action::Send((head + body).into_bytes())]
}

pub(crate) fn json_response(body: &str) -> Vec<Action> {
    response("200 OK", "Content-Type: application/json\r\n", body)
}

/// The head and beginning of an event stream that is complete when the connection closes.
pub(crate) fn event_stream(text: &str) -> Action {
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n";
    Action::Send(format!("{head}{text}").into_bytes())
}

/// The head and beginning of an event stream that is incomplete when the connection closes, because its last chunk is
/// missing.
pub(crate) fn unfinished_event_stream(text: &str) -> Action {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    Action::Send(format!("{head}{:x}\r\n{text}\r\n", text.len()).into_bytes())
}
