//! A running `scrubjay serve`, on HTTP or on standard streams, and what it recorded.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use scrubjay_tape::clock;
use serde_json::{Value, json};

use super::http::{Reply, Target};

/// The longest time that anything may take here, on a busy machine.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

pub(super) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the crate is in its repository")
}

/// The conformance fixture, with arguments.
pub(super) fn fixture(args: &[&str]) -> Vec<String> {
    let script = repository().join("tests/conformance/conformance_server.py");
    let mut command = vec!["python3".to_owned(), "-B".to_owned(), text(&script)];
    command.extend(args.iter().map(ToString::to_string));
    command
}

/// The server that misbehaves on request.
pub(super) fn bad_server(prefix: &str) -> Vec<String> {
    let script = repository().join("tests/backends/bad_server.py");
    vec!["python3".to_owned(), "-B".to_owned(), text(&script), prefix.to_owned()]
}

/// A command with a tap before it: what it reads and writes goes to `backend.in` and `backend.out`.
pub(super) fn tapped(directory: &Path, command: Vec<String>) -> Vec<String> {
    let tap = repository().join("tests/peers/tap");
    let mut all = vec![text(&tap), text(directory), "backend".to_owned()];
    all.extend(command);
    all
}

pub(super) fn text(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// A directory for one test: data, taps.
pub(super) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("there is a temporary directory")
}

/// Writes a file with a secret in it, for its owner alone.
pub(super) fn write_private(path: &Path, text: &str) {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.as_mut()
        .expect("it is new")
        .write_all(text.as_bytes())
        .expect("the test can write in its directory");
}

/// Waits for something to become true.
pub(super) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = clock::now().instant + DEADLINE;
    while !done() {
        assert!(clock::now().instant < deadline, "{what}: not within {DEADLINE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn serve(data: &Path, options: &[&str], backend: &[String]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scrubjay"));
    command.env(crate::harness::BACKGROUND_VARIABLE, "false");
    command.arg("--data").arg(data).arg("serve");
    if !options.contains(&"--toolsets") {
        // These tests are about backends, so the own toolsets are off.
        command.args(["--toolsets", "none"]);
    }
    command.args(options).arg("--").args(backend);
    command
}

/// Prepares `scrubjay` with these settings; its data and its log are in the directory, which is its home.
pub(super) fn logged(directory: &Path, settings: &Value) -> Command {
    let config = directory.join("scrubjay-config.json");
    std::fs::write(&config, settings.to_string()).expect("the test can write in its directory");
    let mut command = Command::new("sh");
    let script = "exec \"$@\" 2>\"$SCRATCH/log\"";
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_scrubjay"), "--config"]);
    command.arg(&config).arg("--data").arg(directory.join("data"));
    command.env("SCRATCH", directory).env("HOME", directory).env("SCRUBJAY_LLM_RETRIES", "0");
    command
}

/// Runs `scrubjay` on a data directory to its end, and returns what it printed.
pub(super) fn scrubjay(data: &Path, args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_scrubjay")).arg("--data").arg(data).args(args).output();
    let output = output.expect("scrubjay starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {}\n{complaint}", output.status);
    String::from_utf8(output.stdout).expect("scrubjay prints text")
}

/// Returns the entries of the tape with this name that has more than a greeting; there is exactly one.
pub(super) fn entries(data: &Path, name: &str) -> Vec<Value> {
    let listed: Value =
        serde_json::from_str(&scrubjay(data, &["--json", "tape", "ls", "--all"])).expect("JSON");
    let found: Vec<&Value> = listed
        .as_array()
        .expect("a list")
        .iter()
        .filter(|tape| tape["name"] == name && tape["probe"] == false)
        .collect();
    assert_eq!(found.len(), 1, "one tape is called {name}: {listed}");
    let id = found[0]["id"].as_str().expect("an id");
    let exported = scrubjay(data, &["--json", "tape", "export", id, "--format", "jsonl"]);
    let entries = exported.lines().map(|line| serde_json::from_str(line).expect("a line of JSON"));
    entries.filter(|entry: &Value| entry.get("entry").is_some()).collect()
}

fn lines_of(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (lines, received) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    received
}

fn end(child: &mut Child) {
    let pid = rustix::process::Pid::from_child(child);
    // It may have ended already.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    let _ = child.wait();
}

fn send(child: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).expect("it runs");
}

/// A gateway on HTTP.
pub(super) struct Served {
    child: Child,
    pub(super) address: String,
}

impl Served {
    pub(super) fn start(data: &Path, options: &[&str], backend: &[String]) -> Self {
        let mut all = vec!["--http", "127.0.0.1:0"];
        all.extend(options);
        Self::started(serve(data, &all, backend))
    }

    /// Starts a gateway with this configuration.
    pub(super) fn configured(directory: &Path, config: &str, authority: Option<&Path>) -> Self {
        let file = directory.join("scrubjay.yaml");
        std::fs::write(&file, config).expect("the directory is ours");
        let mut command = Command::new(env!("CARGO_BIN_EXE_scrubjay"));
        command.env(crate::harness::BACKGROUND_VARIABLE, "false");
        command.arg("--config").arg(file).arg("--data").arg(directory.join("data"));
        command.args(["serve", "--http", "127.0.0.1:0"]);
        if !config.contains("toolsets") {
            command.args(["--toolsets", "none"]);
        }
        command.envs(authority.map(|file| ("SSL_CERT_FILE", file)));
        Self::started(command)
    }

    /// Starts `scrubjay wrap --listen` before a server: what follows its options.
    pub(super) fn wrap(data: &Path, options: &[&str], server: &[String]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scrubjay"));
        command.env(crate::harness::BACKGROUND_VARIABLE, "false");
        command.arg("--data").arg(data).args(["wrap", "--name", "odd", "--listen", "127.0.0.1:0"]);
        command.args(options).args(server);
        Self::started(command)
    }

    /// Starts `scrubjay wrap --listen` with a configuration file.
    pub(super) fn wrap_configured(config: &Path, data: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scrubjay"));
        command.env(crate::harness::BACKGROUND_VARIABLE, "false");
        command.arg("--config").arg(config).arg("--data").arg(data);
        command.args(["wrap", "--name", "odd", "--listen", "127.0.0.1:0"]).args(options);
        Self::started(command)
    }

    fn started(mut command: Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut served = Self { child: child.expect("scrubjay starts"), address: String::new() };
        let lines = lines_of(served.child.stderr.take().expect("it is piped"));
        while served.address.is_empty() {
            let line = lines.recv_timeout(DEADLINE).expect("it says where it serves");
            if let Some((_, rest)) = line.split_once("serving on http://") {
                rest.trim_end_matches("/mcp").clone_into(&mut served.address);
            }
        }
        served
    }

    pub(super) fn target(&self) -> Target {
        Target::new(&self.address)
    }

    /// Sends a signal to the process that a host would know.
    pub(super) fn signal(&mut self, signal: rustix::process::Signal) {
        send(&self.child, signal);
    }

    /// Returns the process that a host would know.
    pub(super) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Returns a modern request.
pub(super) fn modern(id: u64, method: &str, params: &Value) -> Value {
    modern_as(id, method, params, &json!({ "sampling": {}, "elicitation": {}, "roots": {} }), None)
}

pub(super) fn modern_as(
    id: u64,
    method: &str,
    params: &Value,
    capabilities: &Value,
    log_level: Option<&str>,
) -> Value {
    let mut params = params.clone();
    let mut meta = params.get("_meta").cloned().unwrap_or_else(|| json!({}));
    meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    meta["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
    meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "test", "version": "1" });
    if let Some(level) = log_level {
        meta["io.modelcontextprotocol/logLevel"] = json!(level);
    }
    params["_meta"] = meta;
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// Sends a modern request with the headers that go with it.
pub(super) fn post_modern(target: &Target, request: &Value) -> Reply {
    let method = request["method"].as_str().expect("a method");
    let mut target = target.clone().with("MCP-Protocol-Version", "2026-07-28").with("Mcp-Method", method);
    let named = request["params"]["name"].as_str().or_else(|| request["params"]["uri"].as_str());
    if let Some(name) = named {
        target = target.with("Mcp-Name", name);
    }
    target.post(&request.to_string())
}

pub(super) fn initialize(id: u64) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": { "sampling": {}, "elicitation": {}, "roots": {} },
        "clientInfo": { "name": "test", "version": "1" },
    }})
}

/// Opens a legacy session; the returned target has its id.
pub(super) fn open_session(target: &Target) -> Target {
    let reply = target.post(&initialize(1).to_string());
    assert_eq!(reply.status, 200);
    let session = reply.header("mcp-session-id").expect("a session").to_owned();
    let target = target.clone().with("Mcp-Session-Id", &session).with("MCP-Protocol-Version", "2025-11-25");
    let notification = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(target.post(&notification.to_string()).status, 202);
    target
}

/// A gateway on standard streams, and all messages on them.
pub(super) struct Piped {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    pub(super) sent: Vec<String>,
    pub(super) received: Vec<String>,
}

impl Piped {
    pub(super) fn start(data: &Path, backend: &[String]) -> Self {
        Self::started(serve(data, &[], backend))
    }

    /// Starts `scrubjay wrap --url`; if there is a certificate authority, only its certificates are trusted.
    pub(super) fn wrap_url(data: &Path, url: &str, authority: Option<&Path>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scrubjay"));
        command.env(crate::harness::BACKGROUND_VARIABLE, "false");
        command.arg("--data").arg(data).args(["wrap", "--url", url]);
        command.envs(authority.map(|file| ("SSL_CERT_FILE", file)));
        Self::started(command)
    }

    pub(super) fn started(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("scrubjay starts");
        let lines = lines_of(child.stdout.take().expect("it is piped"));
        let stdin = child.stdin.take();
        Self { child, stdin, lines, sent: Vec::new(), received: Vec::new() }
    }

    pub(super) fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string());
    }

    /// Sends a line in this spelling.
    pub(super) fn send_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("it is open");
        stdin.write_all(format!("{line}\n").as_bytes()).expect("the gateway reads");
        self.sent.push(line.to_owned());
    }

    /// Sends lines unchanged, each with its own line end.
    pub(super) fn send_bytes(&mut self, lines: &[u8]) {
        self.stdin.as_mut().expect("it is open").write_all(lines).expect("the gateway reads");
    }

    pub(super) fn receive(&mut self) -> Value {
        serde_json::from_str(&self.receive_line()).expect("a line of JSON")
    }

    /// Reads a line in its original spelling.
    pub(super) fn receive_line(&mut self) -> String {
        let line = self.lines.recv_timeout(DEADLINE).expect("the gateway says something in time");
        self.received.push(line.clone());
        line
    }

    /// Sends a request and returns all messages up to its answer, the answer last.
    pub(super) fn ask(&mut self, request: &Value) -> Vec<Value> {
        self.send(request);
        self.receive_answer(&request["id"])
    }

    pub(super) fn receive_answer(&mut self, id: &Value) -> Vec<Value> {
        let mut received = Vec::new();
        loop {
            let message = self.receive();
            let answers = message.get("method").is_none() && message["id"] == *id;
            received.push(message);
            if answers {
                return received;
            }
        }
    }

    /// Sends a signal to the process that a host knows.
    pub(super) fn signal(&mut self, signal: rustix::process::Signal) {
        send(&self.child, signal);
    }

    /// Waits for the gateway to exit by itself, and returns its exit code.
    pub(super) fn exit_code(&mut self) -> Option<i32> {
        let mut status = None;
        until("the gateway leaves", || {
            status = self.child.try_wait().expect("the child is the test's own");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }

    /// Closes the stream and waits for the gateway to exit.
    pub(super) fn finish(mut self) -> (Vec<String>, Vec<String>) {
        self.stdin = None;
        until("the gateway leaves", || self.child.try_wait().expect("the child is the test's own").is_some());
        while let Ok(line) = self.lines.recv_timeout(DEADLINE) {
            self.received.push(line);
        }
        (std::mem::take(&mut self.sent), std::mem::take(&mut self.received))
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Returns the text a tool answered with.
pub(super) fn answer_text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"))
}
