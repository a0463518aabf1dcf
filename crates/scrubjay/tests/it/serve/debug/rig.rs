//! A gateway with debug endpoints, and clients of these.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

use super::super::rig::{DEADLINE, Piped, logged, scratch, until};

/// A gateway on standard streams with debug endpoints.
pub(super) struct DebuggedGateway {
    piped: Piped,
    directory: tempfile::TempDir,
    next: u64,
    pub(super) address: String,
    pub(super) token: String,
    pub(super) token_file: PathBuf,
}

/// An answer of an endpoint.
pub(super) struct DebugAnswer {
    pub(super) status: u16,
    head: String,
    body: String,
}

impl DebugAnswer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Starts a gateway with endpoints on any port.
pub(super) fn start(variables: &[(&str, &str)]) -> DebuggedGateway {
    start_with_backends(&[], variables)
}

/// Starts a gateway with more backends.
pub(super) fn start_with_backends(more: &[Value], variables: &[(&str, &str)]) -> DebuggedGateway {
    let mut gateway = DebuggedGateway::start(more, variables, &["--debug-port", "0"]);
    gateway.find();
    gateway
}

/// Starts a gateway without endpoints, and initializes it with these options.
pub(super) fn with_options(options: &Value) -> DebuggedGateway {
    let mut gateway = DebuggedGateway::start(&[], &[], &[]);
    gateway.open_with(options);
    gateway
}

impl DebuggedGateway {
    fn start(more: &[Value], variables: &[(&str, &str)], flags: &[&str]) -> Self {
        let directory = scratch();
        let sample = json!({ "id": "sample", "displayName": "The sample", "type": "stdio",
            "command": env!("CARGO_BIN_EXE_scrubjay"), "args": ["sample-server"],
            "env": { "API_TOKEN": "c4n4ry-53cr3t", "PLAIN": "seen" } });
        let backends = [&[sample], more].concat();
        let settings = json!({ "log_level": "debug", "llm": { "base_url": "http://127.0.0.1:9/" }, "backends": backends });
        let mut command = logged(directory.path(), &settings);
        command.args(["serve", "--toolsets", "none"]).args(flags);
        command.env_remove("DEBUG_PORT").env("OPENAI_API_KEY", "sk-some-0123456789");
        command.envs(variables.iter().copied());
        let (address, token, token_file) = (String::new(), String::new(), PathBuf::new());
        Self { piped: Piped::started(command), directory, next: 0, address, token, token_file }
    }

    /// Waits until it prints where the endpoints are.
    pub(super) fn find(&mut self) {
        let find = |log: &str| {
            let (_, rest) = log.split_once("debug endpoints on http://")?;
            let (address, rest) = rest.split_once(", token in ")?;
            let (file, _) = rest.split_once('\n')?;
            Some((address.to_owned(), PathBuf::from(file)))
        };
        let mut found = None;
        until("the address is logged", || {
            found = find(&self.log());
            found.is_some()
        });
        (self.address, self.token_file) = found.expect("it was found");
        self.token =
            std::fs::read_to_string(&self.token_file).expect("the test can read its files").trim().to_owned();
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.directory.path().join("log")).unwrap_or_default())
            .into_owned()
    }

    pub(super) fn has_logged(&self, text: &str) -> bool {
        self.log().contains(text)
    }

    pub(super) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub(super) fn open(&mut self) {
        self.open_with(&Value::Null);
    }

    pub(super) fn open_with(&mut self, options: &Value) {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" }, "initializationOptions": options });
        let greeted = self.request("initialize", &params);
        assert!(greeted["result"].is_object(), "{greeted}");
        // A backend that is listed has started.
        self.request("tools/list", &json!({}));
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params });
        self.piped.ask(&request).pop().expect("an answer")
    }

    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.request("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    pub(super) fn task(&mut self, query: &str) -> Value {
        self.request("agentify/orchestrateTask", &json!({ "query": query }))
    }

    /// Ends the gateway.
    pub(super) fn finish(self) {
        self.piped.finish();
    }

    /// Sends a request with exactly these headers.
    pub(super) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> DebugAnswer {
        self.try_ask(method, path, headers).expect("it answers")
    }

    fn try_ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Option<DebugAnswer> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(DEADLINE)).ok()?;
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            head += &format!("{name}: {value}\r\n");
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).ok()?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).ok()?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).ok()?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let mut answer = DebugAnswer { status, head, body: String::new() };
        let length = answer.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        answer.body = String::from_utf8(body).ok()?;
        Some(answer)
    }

    fn allowed(&self) -> [(&'static str, String); 2] {
        [("Host", self.address.clone()), ("Authorization", format!("Bearer {}", self.token))]
    }

    pub(super) fn try_status(&self, path: &str) -> Option<u16> {
        let allowed = self.allowed();
        let headers: Vec<(&str, &str)> =
            allowed.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.try_ask("GET", path, &headers).map(|answer| answer.status)
    }

    pub(super) fn status(&self, path: &str) -> u16 {
        self.try_status(path).expect("it answers")
    }

    /// Sends a request with the token; waits if there were too many requests.
    pub(super) fn get(&self, path: &str) -> Value {
        let allowed = self.allowed();
        let headers: Vec<(&str, &str)> =
            allowed.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut answer = None;
        until("it answers", || {
            answer = self.try_ask("GET", path, &headers).filter(|answer| answer.status != 429);
            answer.is_some()
        });
        let answer = answer.expect("it answered");
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        serde_json::from_str(&answer.body).unwrap_or_else(|e| panic!("{path}: {e}: {}", answer.body))
    }

    fn upgrade(&self, path: &str, with_token: bool) -> Result<FollowerSocket, tungstenite::Error> {
        let mut request = format!("ws://{}{path}", self.address).into_client_request()?;
        if with_token {
            let bearer = format!("Bearer {}", self.token).parse().expect("a header");
            request.headers_mut().insert("authorization", bearer);
        }
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
        match tungstenite::client::client(request, stream) {
            Ok((socket, _)) => Ok(FollowerSocket(socket)),
            Err(tungstenite::HandshakeError::Failure(e)) => Err(e),
            Err(tungstenite::HandshakeError::Interrupted(_)) => panic!("it answers in time"),
        }
    }

    pub(super) fn follow(&self, path: &str) -> FollowerSocket {
        self.upgrade(path, true).expect("it may follow")
    }

    /// Opens a WebSocket as a page in a browser does.
    pub(super) fn follow_without_header(&self, path: &str) -> FollowerSocket {
        self.upgrade(path, false).expect("it may follow")
    }

    pub(super) fn follow_refused(&self, path: &str) -> u16 {
        match self.upgrade(path, true) {
            Err(tungstenite::Error::Http(response)) => response.status().as_u16(),
            Err(e) => panic!("{e}"),
            Ok(_) => 101,
        }
    }
}

/// A WebSocket.
pub(super) struct FollowerSocket(WebSocket<TcpStream>);

impl FollowerSocket {
    /// Waits for the next line; `None` when it has ended.
    pub(super) fn receive(&mut self) -> Option<Value> {
        loop {
            match self.0.read() {
                Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).expect("a line is JSON")),
                Ok(Message::Close(_)) | Err(tungstenite::Error::ConnectionClosed) => return None,
                Ok(_) => {}
                Err(e) => panic!("{e}"),
            }
        }
    }

    /// Waits for the next message of a call; earlier messages may arrive before it.
    pub(super) fn receive_call(&mut self) -> Value {
        loop {
            let received = self.receive().expect("the socket is open");
            if received["method"] == "tools/call" {
                return received;
            }
        }
    }

    /// Sends something repeatedly until the connection is closed.
    pub(super) fn send_until_closed(mut self) {
        until("the connection is closed", || self.0.send(Message::Text("hello".into())).is_err());
    }
}
