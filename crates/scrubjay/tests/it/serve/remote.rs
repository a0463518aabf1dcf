//! Remote servers: `wrap --url` and backends on HTTP, over TLS, over a slow network, and with cancelled calls.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::listen::{GREETING, LIST, error, log, odd_server, request, result};
use super::peers::peers;
use super::rig::{
    Piped, Served, answer_text, initialize, modern, open_session, post_modern, repository, scratch, text,
    until,
};

/// A TCP forwarder between a client and a server.
struct TcpForwarder {
    child: Child,
    port: u16,
}

impl TcpForwarder {
    fn start(server: &Served, options: &[&str]) -> Self {
        let script = repository().join("tests/backends/tcp_front.py");
        let mut command = Command::new("python3");
        command.arg("-B").arg(script).arg(&server.address).args(options);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut between = Self { child: child.expect("Python starts"), port: 0 };
        let mut line = String::new();
        let stdout = between.child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it says where it listens");
        between.port = line.trim().parse().expect("a port");
        between
    }
}

impl Drop for TcpForwarder {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn openssl(directory: &Path, args: &[&str]) {
    let done =
        Command::new("openssl").args(args).current_dir(directory).output().expect("openssl is installed");
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Makes a certificate authority and a certificate for this machine; returns authority, certificate and key.
fn certificates(directory: &Path) -> [PathBuf; 3] {
    const KEY: [&str; 6] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-batch"];
    let authority =
        ["req", "-x509", "-days", "2", "-subj", "/CN=test", "-keyout", "ca.key", "-out", "ca.pem"];
    openssl(directory, &[&authority[..], &KEY[..]].concat());
    let wanted = ["req", "-subj", "/CN=localhost", "-keyout", "leaf.key", "-out", "leaf.csr"];
    openssl(directory, &[&wanted[..], &KEY[..]].concat());
    std::fs::write(directory.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").expect("ours");
    let signed = ["x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
    openssl(directory, &[&signed[..], &["-days", "2", "-extfile", "names", "-out", "leaf.pem"]].concat());
    ["ca.pem", "leaf.pem", "leaf.key"].map(|name| directory.join(name))
}

/// What a host on standard streams receives from the server with unusual spelling, byte for byte.
fn check_messages(mut host: Piped) {
    host.ask(&initialize(1));
    host.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    for (id, method, params) in [
        (2, "tools/list", json!({ "cursor": "x" })),
        (3, "tools/call", json!({ "name": "nobody" })),
        (4, "odd/method", json!({})),
    ] {
        host.send(&serde_json::from_str(&request(id, method, &params)).expect("JSON"));
        host.receive_line();
    }
    let (_, received) = host.finish();
    assert_eq!(received, [result(1, GREETING), result(2, LIST), error(3, "nobody"), error(4, "odd/method")]);
}

#[test]
fn a_host_on_stdio_gets_the_messages_of_a_server_on_http() {
    let directory = scratch();
    let server = Served::wrap(&directory.path().join("behind"), &[], &odd_server(directory.path()));
    let url = format!("http://{}/mcp", server.address);
    check_messages(Piped::wrap_url(&directory.path().join("plain"), &url, None));
    let slow = TcpForwarder::start(&server, &["--trickle"]);
    let url = format!("http://127.0.0.1:{}/mcp", slow.port);
    check_messages(Piped::wrap_url(&directory.path().join("slow"), &url, None));
}

#[test]
fn tls_is_used_only_with_a_trusted_certificate() {
    let directory = scratch();
    let server = Served::wrap(&directory.path().join("behind"), &[], &odd_server(directory.path()));
    let [authority, certificate, key] = certificates(directory.path());
    let tls = TcpForwarder::start(&server, &["--tls", &text(&certificate), &text(&key)]);
    let url = format!("https://localhost:{}/mcp", tls.port);
    check_messages(Piped::wrap_url(&directory.path().join("trusted"), &url, Some(&authority)));

    // With another authority, the host gets an error, and the server receives nothing.
    let before = log(directory.path());
    let other = scratch();
    let [stranger, ..] = certificates(other.path());
    let mut host = Piped::wrap_url(&directory.path().join("stranger"), &url, Some(&stranger));
    let answer = host.ask(&initialize(1)).pop().expect("an answer");
    let why = answer["error"]["message"].as_str().unwrap_or_default().to_lowercase();
    assert!(why.contains("certificate"), "{answer}");
    assert_eq!(log(directory.path()), before);

    // The same for a gateway's backend.
    let config = format!("backends:\n  - {{ id: far, type: http, url: \"{url}\" }}\n");
    let gateway = Served::configured(directory.path(), &config, Some(&authority));
    let session = open_session(&gateway.target());
    // A list does not wait long for a backend that starts slowly; it is named as missing until then.
    let mut lists = (2..200).map(|id| session.post(&request(id, "tools/list", &json!({}))).json());
    let listed = lists.find(|listed| listed["result"]["_meta"]["scrubjay/incomplete"].is_null());
    let listed = listed.expect("the backend is listed in time");
    assert_eq!(listed["result"]["tools"][0]["name"], "pid", "{listed}");
}

#[test]
fn a_gateway_serves_a_backend_on_http_to_both_eras() {
    let directory = scratch();
    let server = Served::wrap(&directory.path().join("behind"), &[], &odd_server(directory.path()));
    let slow = TcpForwarder::start(&server, &["--trickle"]);
    let config =
        format!("backends:\n  - {{ id: far, type: http, url: \"http://127.0.0.1:{}/mcp\" }}\n", slow.port);
    let gateway = Served::configured(directory.path(), &config, None);
    let target = gateway.target();
    let call = json!({ "name": "pid" });
    let legacy = open_session(&target).post(&request(2, "tools/call", &call)).json();
    let modern = post_modern(&target, &modern(2, "tools/call", &call)).json();
    // Each client in its own era: a session for the legacy one, none for the modern one.
    assert_ne!(answer_text(&legacy), answer_text(&modern));
    // And each legacy client has its own session.
    let count = json!({ "name": "far__pid" });
    let other = open_session(&target).post(&request(3, "tools/call", &count)).json();
    assert!(
        answer_text(&other) != answer_text(&legacy) && answer_text(&other) != answer_text(&modern),
        "{other}"
    );
}

/// A real server of the first HTTP transport, and where its stream is.
struct FirstTransport {
    child: Child,
    url: String,
}

impl FirstTransport {
    fn start(peers: &Path) -> Self {
        let mut command = Command::new(peers.join(".venv/bin/python"));
        command.arg("-B").arg(repository().join("tests/peers/python_sse_server.py"));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("Python starts");
        let mut port = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut port).expect("it says where it listens");
        Self { child, url: format!("http://127.0.0.1:{}/sse", port.trim()) }
    }
}

impl Drop for FirstTransport {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "needs peers"]
fn a_server_of_the_first_http_transport_is_detected_and_used() {
    let peers = peers();
    let directory = scratch();
    let server = FirstTransport::start(&peers);
    let echo = json!({ "name": "echo", "arguments": { "message": "ça va" } });
    let echo: Value = serde_json::from_str(&request(2, "tools/call", &echo)).expect("JSON");
    let mut host = Piped::wrap_url(&directory.path().join("wrapped"), &server.url, None);
    let greeted = host.ask(&initialize(1)).pop().expect("a greeting");
    assert_eq!(greeted["result"]["serverInfo"]["name"], "scrubjay-peer", "{greeted}");
    host.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    assert_eq!(answer_text(&host.ask(&echo).pop().expect("an answer")), "ça va");
    let count = json!({ "name": "count", "arguments": { "steps": 3 }, "_meta": { "progressToken": "p" } });
    let counted = host.ask(&serde_json::from_str(&request(3, "tools/call", &count)).expect("JSON"));
    assert_eq!(counted.len(), 4, "{counted:?}");
    host.finish();
    for kind in ["http", "sse"] {
        let config = format!("backends:\n  - {{ id: old, type: {kind}, url: \"{}\" }}\n", server.url);
        let directory = directory.path().join(kind);
        std::fs::create_dir(&directory).expect("the test can write in its directory");
        let gateway = Served::configured(&directory, &config, None);
        let legacy = open_session(&gateway.target()).post(&echo.to_string()).json();
        assert_eq!(answer_text(&legacy), "ça va", "{kind}");
        let call = modern(2, "tools/call", &echo["params"]);
        assert_eq!(answer_text(&post_modern(&gateway.target(), &call).json()), "ça va", "{kind}");
    }
}

/// A gateway before the fixture in one era, with a tap.
fn tapped_gateway(directory: &Path, era: &str) -> Served {
    let backend = super::rig::tapped(directory, super::rig::fixture(&["--era", era]));
    Served::start(&directory.join("data"), &[], &backend)
}

#[test]
fn a_cancellation_reaches_a_backend_of_the_other_era() {
    const SLOW: &str = "test_reconnection";
    let params: Value = json!({ "name": SLOW, "arguments": { "seconds": 60 } });
    let received =
        |directory: &Path| std::fs::read_to_string(directory.join("backend.in")).unwrap_or_default();
    for (era, is_modern) in [("legacy", true), ("modern", false)] {
        let directory = scratch();
        let served = tapped_gateway(directory.path(), era);
        let waiting = if is_modern {
            let target = served.target().with("MCP-Protocol-Version", "2026-07-28").with("Mcp-Name", SLOW);
            let asked = modern(2, "tools/call", &params).to_string();
            target.with("Mcp-Method", "tools/call").begin("POST", &asked)
        } else {
            let host = open_session(&served.target());
            let waiting = host.begin("POST", &request(2, "tools/call", &params));
            until("the backend is asked", || received(directory.path()).contains(SLOW));
            let params = json!({ "requestId": 2, "reason": "enough" });
            let notification =
                json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
            assert_eq!(host.post(&notification.to_string()).status, 202);
            waiting
        };
        until("the backend is asked", || received(directory.path()).contains(SLOW));
        drop(waiting);
        until("the backend gets the cancellation", || {
            received(directory.path()).contains("notifications/cancelled")
        });
    }
}
