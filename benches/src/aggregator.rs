//! The crate `mcp-aggregator` in front of the server: merges stdio servers into one HTTP endpoint, and records nothing.
//!
//! `scripts/bench --peers` installs it below `tests/peers/bench`. As of November 2026 (0.1.0) it starts each
//! server once and shares it among all clients, speaks one protocol version, and calls tools only.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::http;
use crate::json::Json;
use crate::procfs;
use crate::target::{self, Scratch};

/// An aggregator that answers; ended when dropped.
pub struct Aggregator {
    child: Child,
    // Held for its removal at the end.
    _scratch: Scratch,
    /// Where it serves.
    pub port: u16,
}

impl Aggregator {
    /// Returns the program, where `scripts/bench --peers` installed it.
    #[must_use]
    pub fn find(peers: &Path) -> Option<PathBuf> {
        Some(peers.join("cargo/bin/mcp-aggregator")).filter(|program| program.exists())
    }

    /// Starts the program in front of `server` and waits until it accepts connections.
    pub fn start(program: &Path, server: &Path, root: &Path) -> io::Result<Self> {
        let scratch = Scratch::new(root, "mcp-aggregator")?;
        let config = scratch.path().join("config.json");
        let command = Json::text(server.to_string_lossy());
        std::fs::write(&config, format!(r#"{{"servers":{{"b":{{"type":"stdio","command":{command}}}}}}}"#))?;
        let port = http::free_port()?;
        let mut command = Command::new(program);
        command.arg("--config").arg(&config).args(["--addr", &format!("127.0.0.1:{port}")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        target::isolate(&mut command, &scratch);
        let started = Self { child: command.spawn()?, _scratch: scratch, port };
        http::connect(port)?;
        Ok(started)
    }

    /// Returns its process, without the server's.
    pub fn pids(&self, server: &Path) -> io::Result<Vec<u32>> {
        procfs::relay_processes(self.child.id(), server)
    }
}

impl Drop for Aggregator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
