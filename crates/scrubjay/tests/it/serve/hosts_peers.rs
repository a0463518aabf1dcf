//! Real hosts: each asks its model, which answers with a tool call, and makes the call through `wrap` and `serve`.
//!
//! The hosts are the programs people use, from the npm registry; only the model is replaced. One prompt makes
//! a call through each [`Route`], on standard streams and over HTTP, to real servers. Nothing leaves the machine.
//! Needs `scripts/install-peers` and `SCRUBJAY_PEERS`.

mod model;
mod programs;

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::conformance_peers::{HttpServer, Server};
use super::peers::{everything, peers, python_server};
use super::rig::{Served, scratch, scrubjay, text};
use model::Model;
use programs::Host;

/// The tool that is called; both servers have it.
const TOOL: &str = "echo";

/// The longest time for a host's whole conversation; then `timeout` ends it.
const CONVERSATION_LIMIT_S: &str = "120";

/// A proxy that does not exist, so that a host's requests to other machines fail.
const NO_PROXY_THERE: &str = "http://127.0.0.1:9";

/// How a host reaches a server.
enum Endpoint {
    /// The host starts it.
    Stdio(Vec<String>),
    /// It runs at this address.
    Http(String),
}

/// An entry of the host's configuration: one route through Scrubjay to a real server.
struct Route {
    name: &'static str,
    endpoint: Endpoint,
}

impl Route {
    /// The argument and the result of the tool on this route.
    fn message(&self) -> String {
        format!("héllo 鳥 through {}", self.name)
    }
}

/// The routes through Scrubjay, and the processes that some of them need.
struct Routes {
    all: Vec<Route>,
    _running: (HttpServer, [Served; 2]),
}

impl Routes {
    /// `wrap` and `serve` on standard streams and on HTTP, with servers of both eras behind them.
    fn open(peers: &Path, data: &Path) -> Self {
        let remote = Server::everything(peers).start();
        let gateway = Served::start(data, &[], &everything(peers));
        let bridge = Served::wrap(data, &["--"], &python_server(peers));
        let over_http = |served: &Served| Endpoint::Http(format!("http://{}/mcp", served.address));
        let all = vec![
            Route {
                name: "wrapped",
                endpoint: started(data, &["wrap", "--name", "wrapped"], &everything(peers)),
            },
            Route { name: "remote", endpoint: started(data, &["wrap", "--url", &remote.url], &[]) },
            Route { name: "served", endpoint: started(data, &["serve"], &python_server(peers)) },
            Route { name: "gateway", endpoint: over_http(&gateway) },
            Route { name: "bridge", endpoint: over_http(&bridge) },
        ];
        Self { all, _running: (remote, [gateway, bridge]) }
    }
}

/// Returns an endpoint: the host starts Scrubjay, before a server if there is a command for one.
fn started(data: &Path, verb: &[&str], server: &[String]) -> Endpoint {
    let program = env!("CARGO_BIN_EXE_scrubjay").to_owned();
    let mut command = vec![program, "--data".to_owned(), text(data)];
    command.extend(verb.iter().map(ToString::to_string));
    if !server.is_empty() {
        command.push("--".to_owned());
    }
    command.extend_from_slice(server);
    Endpoint::Stdio(command)
}

/// What a host printed.
struct HostOutput {
    stdout: String,
    stderr: String,
}

/// Lets a host answer one prompt, and checks that it succeeds.
fn converse(host: Host, peers: &Path, directory: &Path, routes: &[Route]) -> HostOutput {
    let home = directory.join("home");
    std::fs::create_dir(&home).expect("the test can write in its directory");
    let model = Model::start(directory, routes);
    let host_command = host.command(peers, &home, routes, &model.url);
    let mut limited = Command::new("timeout");
    limited.args(["--kill-after=5", CONVERSATION_LIMIT_S]).arg(host_command.get_program());
    limited.args(host_command.get_args()).env_clear().env("PATH", std::env::var_os("PATH").expect("a PATH"));
    limited.env("HOME", &home).env("HTTPS_PROXY", NO_PROXY_THERE).env("HTTP_PROXY", NO_PROXY_THERE);
    limited.env("NO_PROXY", "127.0.0.1,localhost");
    limited.envs(host_command.get_envs().filter_map(|(name, value)| value.map(|value| (name, value))));
    let output = limited.current_dir(&home).stdin(Stdio::null()).output().expect("timeout is installed");
    let printed = HostOutput {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    let (stdout, stderr, requests) = (&printed.stdout, &printed.stderr, model.requests());
    assert!(output.status.success(), "{host:?}: {}\n{stdout}\n{stderr}\n{requests}", output.status);
    printed
}

/// Finds a call by a text in it, and returns the answer that was delivered.
fn recorded_answer(data: &Path, message: &str) -> String {
    // A modern host may be asked for its roots first; then it repeats the call as another request.
    let query = format!("tool:{TOOL} \"{message}\" -result.resultType=input_required");
    let found = scrubjay(data, &["--json", "tape", "search", &query]);
    let found: Value = serde_json::from_str(&found).expect("JSON");
    let hits = found["hits"].as_array().expect("hits");
    assert_eq!(hits.len(), 1, "{message}: what happened once is found once: {hits:#?}");
    let hit = &hits[0];
    assert_eq!(hit["failed"], false, "{hit:#}");
    let (tape, answer) = (hit["tape"].as_str().expect("a tape"), hit["answer"].as_u64().expect("an answer"));
    let shown = scrubjay(data, &["--json", "tape", "show", tape]);
    let entries: Vec<Value> = serde_json::from_str(&shown).expect("JSON");
    let entry = entries.iter().find(|entry| entry["entry"] == answer).expect("the answer is on the tape");
    entry["raw"].as_str().expect("a message").to_owned()
}

/// One conversation of a host with calls on every route, seen from the host and from the tapes.
fn calls_through_every_route(host: Host) {
    let peers = peers();
    let scratch = scratch();
    let data = scratch.path().join("data");
    let routes = Routes::open(&peers, &data);
    let printed = converse(host, &peers, scratch.path(), &routes.all);
    let messages: Vec<String> = routes.all.iter().map(Route::message).collect();
    for message in &messages {
        assert!(printed.stdout.contains(message), "{message}: {}\n{}", printed.stdout, printed.stderr);
    }
    // The HTTP servers are ended, so that their tapes are complete.
    drop(routes);
    for message in &messages {
        let answer = recorded_answer(&data, message);
        assert!(answer.contains(message), "{message}: {answer}");
    }
    scrubjay(&data, &["tape", "verify"]);
}

/// A host reads the schemas of all our own tools and prints no warning about them.
fn accepts_our_schemas_without_a_warning(host: Host) {
    let peers = peers();
    let scratch = scratch();
    let endpoint = started(&scratch.path().join("data"), &["serve"], &python_server(&peers));
    let printed = converse(host, &peers, scratch.path(), &[Route { name: "served", endpoint }]);
    let warnings: Vec<&str> = printed.stderr.lines().filter(|line| line.contains("schema")).collect();
    assert!(
        warnings.is_empty(),
        "{} warnings, first {:#?}",
        warnings.len(),
        &warnings[..warnings.len().min(5)]
    );
}

#[test]
#[ignore = "needs peers"]
fn claude_code_calls_through_wrap_and_serve() {
    calls_through_every_route(Host::ClaudeCode);
}

#[test]
#[ignore = "needs peers"]
fn codex_calls_through_wrap_and_serve() {
    calls_through_every_route(Host::Codex);
}

#[test]
#[ignore = "needs peers"]
fn gemini_cli_calls_through_wrap_and_serve() {
    calls_through_every_route(Host::GeminiCli);
}

#[test]
#[ignore = "needs peers"]
fn opencode_calls_through_wrap_and_serve() {
    calls_through_every_route(Host::Opencode);
}

#[test]
#[ignore = "needs peers"]
fn gemini_cli_accepts_our_schemas_without_a_warning() {
    accepts_our_schemas_without_a_warning(Host::GeminiCli);
}

#[test]
#[ignore = "needs peers"]
fn opencode_accepts_our_schemas_without_a_warning() {
    accepts_our_schemas_without_a_warning(Host::Opencode);
}
