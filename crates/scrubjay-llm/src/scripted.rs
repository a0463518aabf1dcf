//! A local endpoint that answers as a test scripts it, and remembers the requests it received.
//!
//! It speaks just enough HTTP/1.1 to be cut off, slow or wrong on purpose. One request per connection.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

/// How much of a request is read.
const REQUEST_BYTES_MAX: usize = 16 << 20;

/// A request that the endpoint received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// The path.
    pub path: String,
    /// The header `authorization`.
    pub authorization: Option<String>,
    /// The body.
    pub body: Value,
}

impl ReceivedRequest {
    /// Returns the text of the last message.
    #[must_use]
    pub fn last_text(&self) -> &str {
        let last = self.body["messages"].as_array().and_then(|messages| messages.last());
        last.and_then(|message| message["content"].as_str()).unwrap_or_default()
    }
}

/// An answer of the endpoint.
#[derive(Clone, Debug)]
pub struct ScriptedAnswer {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Whole,
    Cut,
    Never,
}

impl ScriptedAnswer {
    /// Answers with a text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::message(&json!({"role": "assistant", "content": text}), "stop")
    }

    /// Answers with one call of a function.
    #[must_use]
    pub fn tool_call(name: &str, arguments: &Value) -> Self {
        Self::tool_calls(&[(name, arguments.to_string())])
    }

    /// Answers with calls of functions; their arguments are texts, which need not be JSON.
    #[must_use]
    pub fn tool_calls(calls: &[(&str, String)]) -> Self {
        let call = |(i, (name, arguments)): (usize, &(&str, String))| {
            json!({"id": format!("call_{i}"), "type": "function",
                "function": {"name": name, "arguments": arguments}})
        };
        let calls: Vec<Value> = calls.iter().enumerate().map(call).collect();
        let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
        Self::message(&message, "tool_calls")
    }

    /// Answers with any status and body.
    #[must_use]
    pub fn status(status: u16, body: impl Into<String>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), end: End::Whole }
    }

    /// Never answers.
    #[must_use]
    pub fn never() -> Self {
        Self { end: End::Never, ..Self::status(200, "") }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Breaks off in the middle of the body.
    #[must_use]
    pub fn cut(self) -> Self {
        Self { end: End::Cut, ..self }
    }

    fn message(message: &Value, finish_reason: &str) -> Self {
        let body = json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "scripted",
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        });
        Self::status(200, body.to_string())
    }
}

type Script = Box<dyn FnMut(&ReceivedRequest) -> ScriptedAnswer + Send>;

struct State {
    script: Mutex<Script>,
    asked: Mutex<Vec<ReceivedRequest>>,
    /// How many requests are being answered, and the maximum so far.
    open: Mutex<(usize, usize)>,
    arrived: watch::Sender<usize>,
    gate: Semaphore,
}

/// The endpoint; it stops when dropped.
pub struct ScriptedEndpoint {
    address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

impl ScriptedEndpoint {
    /// Answers each request with the next of these, and all further ones with the last.
    ///
    /// # Panics
    /// There is no answer, or no port.
    pub async fn answering(answers: impl IntoIterator<Item = ScriptedAnswer>) -> Self {
        let mut queue: VecDeque<ScriptedAnswer> = answers.into_iter().collect();
        assert!(!queue.is_empty(), "a script needs an answer");
        Self::start(move |_| {
            if queue.len() > 1 { queue.pop_front() } else { queue.front().cloned() }
                .expect("the last answer stays")
        })
        .await
    }

    /// Answers each request as a function says.
    ///
    /// # Panics
    /// There is no port.
    pub async fn start(script: impl FnMut(&ReceivedRequest) -> ScriptedAnswer + Send + 'static) -> Self {
        let server = Self::held(script).await;
        server.release(Semaphore::MAX_PERMITS);
        server
    }

    /// Answers as a function says, each request only when it is released.
    ///
    /// # Panics
    /// There is no port.
    pub async fn held(script: impl FnMut(&ReceivedRequest) -> ScriptedAnswer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(State {
            script: Mutex::new(Box::new(script)),
            asked: Mutex::default(),
            open: Mutex::default(),
            arrived: watch::Sender::new(0),
            gate: Semaphore::new(0),
        });
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                // A client may hang up: tests of deadlines do.
                tokio::spawn(async move { drop(converse(stream, &state).await) });
            }
        });
        Self { address, state, task }
    }

    /// Lets this many held requests be answered.
    pub fn release(&self, requests: usize) {
        self.state.gate.add_permits(requests);
    }

    /// Waits until this many requests have arrived.
    pub async fn arrived(&self, requests: usize) {
        let mut arrived = self.state.arrived.subscribe();
        // The sender lives as long as we do.
        let _ = arrived.wait_for(|count| *count >= requests).await;
    }

    /// Returns the base URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns the requests received so far, in order.
    #[must_use]
    pub fn asked(&self) -> Vec<ReceivedRequest> {
        lock(&self.state.asked).clone()
    }

    /// Returns the most requests that were open at once.
    #[must_use]
    pub fn open_max(&self) -> usize {
        lock(&self.state.open).1
    }
}

impl Drop for ScriptedEndpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn converse(stream: TcpStream, state: &State) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let asked = read_request(&mut stream).await?;
    {
        let mut open = lock(&state.open);
        open.0 += 1;
        open.1 = open.1.max(open.0);
    }
    lock(&state.asked).push(asked.clone());
    state.arrived.send_modify(|count| *count += 1);
    state.gate.acquire().await.expect("the gate is never closed").forget();
    let answer = (lock(&state.script))(&asked);
    if answer.end == End::Never {
        return std::future::pending().await;
    }
    lock(&state.open).0 -= 1;
    let mut head = format!("HTTP/1.1 {} Scripted\r\n", answer.status);
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\nconnection: close\r\n\r\n", answer.body.len()));
    let body = answer.body.as_bytes();
    let body = if answer.end == End::Cut { &body[..body.len() / 2] } else { body };
    stream.write_all(&[head.as_bytes(), body].concat()).await?;
    stream.shutdown().await
}

async fn read_request(stream: &mut BufReader<TcpStream>) -> std::io::Result<ReceivedRequest> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let header = |name: &str| {
        lines
            .iter()
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .find_map(|(key, value)| key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned()))
    };
    let length: usize = header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length.min(REQUEST_BYTES_MAX)];
    stream.read_exact(&mut body).await?;
    Ok(ReceivedRequest {
        path: lines.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned(),
        authorization: header("authorization"),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    })
}
