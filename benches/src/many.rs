//! Many backends behind one gateway: the time until all are listed, and their memory while idle.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::http_load::Connection;
use crate::series::Series;
use crate::{clock, procfs, wire};

/// How many backends.
pub const BACKENDS: usize = 50;
/// How many sessions are open while memory is measured.
pub const SESSIONS: usize = 1000;

/// A gateway that accepts connections; stopped when dropped.
pub struct Gateway {
    child: Child,
    /// Where it serves.
    pub port: u16,
}

impl Gateway {
    /// Runs this command, and waits until it prints its address.
    pub fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut stderr = BufReader::new(child.stderr.take().ok_or_else(|| io::Error::other("no stderr"))?);
        let mut line = String::new();
        let port = loop {
            line.clear();
            if stderr.read_line(&mut line)? == 0 {
                return Err(io::Error::other("scrubjay serve ended"));
            }
            if let Some(port) = line.split("127.0.0.1:").nth(1).and_then(|p| p.split('/').next()) {
                break port.parse().map_err(io::Error::other)?;
            }
        };
        // Read to the end, or it would block on a full pipe.
        std::thread::spawn(move || io::copy(&mut stderr, &mut io::sink()));
        Ok(Self { child, port })
    }

    /// Returns its processes, without the backends'.
    pub fn pids(&self, backend: &Path) -> io::Result<Vec<u32>> {
        procfs::relay_processes(self.child.id(), backend)
    }

    /// Returns the memory of its processes, without the backends'.
    pub fn pss_mib(&self, backend: &Path) -> io::Result<f64> {
        let mut kib = 0;
        for pid in self.pids(backend)? {
            kib += procfs::memory(pid)?.pss_kib;
        }
        Ok(kib as f64 / 1024.0)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// Starts many backends behind a new gateway in each round, and measures the memory of the last.
pub fn measure(series: &mut Series, program_directory: &Path, data: &Path, rounds: usize) -> io::Result<()> {
    std::fs::create_dir_all(data)?;
    let backend = program_directory.join("bench-server");
    let config = data.join("many.yaml");
    let mut text = "backends:\n".to_owned();
    for number in 0..BACKENDS {
        text += &format!("  - {{ id: b{number}, type: stdio, command: {backend:?} }}\n");
    }
    std::fs::write(&config, text)?;
    for round in 1..=rounds {
        let mut slowest: f64 = 0.0;
        for _ in 0..BACKENDS {
            slowest = slowest.max(alone_ms(&backend)?);
        }
        series.push("slowest alone ms", slowest);
        let begun = clock::now();
        let mut command = Command::new(program_directory.join("scrubjay"));
        command.arg("--config").arg(&config).arg("--data").arg(data.join("tapes-of-many"));
        command.args(["serve", "--toolsets", "none", "--http", "127.0.0.1:0"]);
        let gateway = Gateway::start(command)?;
        let mut connection = Connection::open(gateway.port)?;
        let listed = connection.list()?;
        series.push("all listed ms", begun.elapsed().as_secs_f64() * 1000.0);
        if listed < BACKENDS {
            return Err(io::Error::other(format!("{listed} tools of {BACKENDS} backends are listed")));
        }
        if round == rounds {
            series.push("MiB with 50 backends", gateway.pss_mib(&backend)?);
            let mut open = Vec::new();
            for _ in 0..SESSIONS {
                open.push(Connection::open(gateway.port)?);
            }
            series.push("MiB with 50 backends and 1000 sessions", gateway.pss_mib(&backend)?);
        }
    }
    Ok(())
}

/// Starts one backend by itself and lists its tools; returns how long that took.
fn alone_ms(backend: &Path) -> io::Result<f64> {
    let begun = clock::now();
    let mut child = Command::new(backend).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().ok_or_else(|| io::Error::other("no stdin"))?;
    let mut answers = BufReader::new(child.stdout.take().ok_or_else(|| io::Error::other("no stdout"))?);
    let mut hello = Vec::new();
    wire::push_initialize(&mut hello, 1);
    let list: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/list\"}\n";
    let mut answer = String::new();
    for question in [&hello, list] {
        stdin.write_all(question)?;
        answers.read_line(&mut answer)?;
    }
    let took = begun.elapsed();
    drop(stdin);
    child.wait()?;
    Ok(took.as_secs_f64() * 1000.0)
}
