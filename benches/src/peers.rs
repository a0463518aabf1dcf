//! Other relays, if they are installed below `tests/peers` and can be compared.
//!
//! As of November 2026: `fastmcp run mcp.json` (3.4) relays stdio to stdio by terminating
//! MCP on both sides. `mcp-proxy` from npm (6.7) and `mcp-proxy` from PyPI (0.13) only turn a
//! stdio server into an HTTP one (or an HTTP one into a stdio one), so no host can start them in
//! place of a stdio server; sequential calls over HTTP are the one thing comparable.

use std::io;
use std::path::{Path, PathBuf};

use crate::http::HttpSession;
use crate::plan::Plan;
use crate::series::{Series, median, quantile};
use crate::session::Session;
use crate::target::{Relay, Target};

const WARM_UP_CALLS: u64 = 100;

/// A relay that offers a stdio server over HTTP at `/mcp`.
pub struct HttpPeer {
    /// The name in the report.
    pub name: String,
    /// What to run.
    pub program: PathBuf,
    /// What to run it with, before the port and the server's command.
    pub options: Vec<String>,
    /// The option for the port, and what precedes the number.
    pub port: (&'static str, &'static str),
}

impl HttpPeer {
    /// Returns `scrubjay` in the same place, by one of its commands.
    #[must_use]
    pub fn own(program: &Path, name: &str, command: &str, port_option: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            program: program.to_owned(),
            options: vec![command.to_owned()],
            port: (port_option, "127.0.0.1:"),
        }
    }
}

/// The peers that can be measured.
#[derive(Default)]
pub struct Peers {
    /// Those that can be used in place of `wrap`.
    pub stdio: Vec<Target>,
    /// Those that speak HTTP to the host.
    pub http: Vec<HttpPeer>,
    /// What cannot be measured, and why.
    pub notes: Vec<String>,
}

/// Finds the peers below `directory` and tries each with one call.
pub fn find(directory: &Path, server: &Path, root: &Path, plan: &Plan) -> Peers {
    let mut peers = Peers::default();
    let venv = directory.join(".venv/bin");
    let fastmcp = venv.join("fastmcp");
    if peers.is_installed("fastmcp", &fastmcp) {
        let relay = Relay::FastMcp(fastmcp);
        let target = Target { name: "fastmcp run".to_owned(), relay, server: server.to_owned() };
        match Session::open(&target, root, plan) {
            Ok(_) => peers.stdio.push(target),
            Err(error) => peers.notes.push(format!("fastmcp: does not work here: {error}")),
        }
    }
    let npm = directory.join("node_modules/.bin/mcp-proxy");
    peers.try_http("mcp-proxy (npm, HTTP)", npm, &["--host", "127.0.0.1"], server, root);
    peers.try_http("mcp-proxy (PyPI, HTTP)", venv.join("mcp-proxy"), &[], server, root);
    peers
}

impl Peers {
    fn is_installed(&mut self, name: &str, program: &Path) -> bool {
        let installed = program.exists();
        if !installed {
            self.notes.push(format!("{name}: not installed ({})", program.display()));
        }
        installed
    }

    fn try_http(&mut self, name: &str, program: PathBuf, options: &[&str], server: &Path, root: &Path) {
        if !self.is_installed(name, &program) {
            return;
        }
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let peer = HttpPeer { name: name.to_owned(), program, options, port: ("--port", "") };
        match HttpSession::open(&peer, server, root) {
            Ok(_) => {
                self.notes.push(format!(
                    "{name}: cannot do this job: it has no stdio to stdio mode, it offers a stdio \
                     server over HTTP; measured are sequential calls over HTTP"
                ));
                self.http.push(peer);
            }
            Err(error) => self.notes.push(format!("{name}: does not work here: {error}")),
        }
    }
}

/// Makes sequential calls to the peers that speak HTTP.
pub fn run_http(peers: &Peers, server: &Path, root: &Path, plan: &Plan) -> io::Result<Vec<Series>> {
    let mut all: Vec<Series> = peers.http.iter().map(|peer| Series::of(&peer.name)).collect();
    for _ in 0..plan.peer_rounds {
        for (peer, series) in peers.http.iter().zip(&mut all) {
            let context = |error: io::Error| io::Error::other(format!("{}: {error}", peer.name));
            let mut session = HttpSession::open(peer, server, root).map_err(context)?;
            session.call_in_turn(WARM_UP_CALLS, plan.block_limit, &mut Vec::new()).map_err(context)?;
            let before = session.cpu()?;
            let mut samples_us = Vec::new();
            for _ in 0..plan.blocks {
                session.call_in_turn(plan.seq_calls, plan.block_limit, &mut samples_us).map_err(context)?;
            }
            let cpu = session.cpu()?.since(before);
            series.push("median_us", median(&samples_us).unwrap_or(f64::NAN));
            series.push("p99_us", quantile(&samples_us, 0.99).unwrap_or(f64::NAN));
            series.push("cpu_us_per_call", cpu.scheduled.as_secs_f64() * 1e6 / samples_us.len() as f64);
        }
    }
    Ok(all)
}
