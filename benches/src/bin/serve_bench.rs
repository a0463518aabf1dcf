//! What `scrubjay serve --http` costs compared with a relay that copies bytes and parses nothing.
//!
//! Small calls to one stdio backend over HTTP, both legs recorded, interleaved with the raw relay in front of
//! a server that answers at once. Writes `bench-results/serve.json`.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use scrubjay_bench::aggregator::Aggregator;
use scrubjay_bench::http_load::{Connection, Outcome, run};
use scrubjay_bench::json::Json;
use scrubjay_bench::many::{self, Gateway};
use scrubjay_bench::peers::{self, HttpPeer};
use scrubjay_bench::plan::Plan;
use scrubjay_bench::procfs;
use scrubjay_bench::series::{Series, median, quantile, ratios};
use scrubjay_bench::table::Table;

fn main() -> io::Result<()> {
    let quick = std::env::args().any(|a| a == "--quick");
    let (rounds, time) = if quick { (3, Duration::from_millis(600)) } else { (7, Duration::from_secs(2)) };
    let program_directory = std::env::current_exe()?.parent().map(Path::to_owned).unwrap_or_default();
    let data = program_directory.join("serve-bench-data");
    let mut raw = Series::of("raw relay");
    let mut own = Series::of("scrubjay serve");
    let mut shared = Series::of("scrubjay serve, shared");
    let mut aggregator = Series::of("mcp-aggregator");
    {
        let targets = Targets::start(&program_directory, &data)?;
        for connections in [16, 64] {
            for round in 0..rounds {
                let mut contenders = vec![
                    (&mut raw, targets.raw_port, vec![targets.relay.id()]),
                    (&mut own, targets.own.port, targets.own_pids()?),
                    (&mut shared, targets.shared.port, targets.shared.pids(&targets.backend)?),
                ];
                if let Some(other) = targets.aggregator.as_ref().filter(|_| connections == 16) {
                    contenders.push((&mut aggregator, other.port, other.pids(&targets.backend)?));
                }
                // Rotated, so that each target goes first equally often.
                let first = round % contenders.len();
                contenders.rotate_left(first);
                for (series, port, pids) in contenders {
                    measure(series, connections, port, &pids, time)?;
                }
            }
        }
        let half = own.median("calls/s 16").unwrap_or(1000.0) / 2.0;
        for _ in 0..rounds {
            at_load(&mut raw, targets.raw_port, half, time)?;
            at_load(&mut own, targets.own.port, half, time)?;
        }
        many_sessions(&mut own, &targets)?;
    }
    many::measure(&mut own, &program_directory, &data, rounds)?;
    let others = in_turn(&program_directory, &data, quick)?;
    std::fs::remove_dir_all(&data)?;
    report(&raw, &own, &shared, &aggregator, &others)
}

/// Makes calls one at a time, to `scrubjay` and, with `--peers-dir`, to others that offer a stdio server
/// over HTTP.
fn in_turn(program_directory: &Path, data: &Path, quick: bool) -> io::Result<Vec<Series>> {
    let Some(directory) = peers_directory()? else { return Ok(Vec::new()) };
    let plan = if quick { Plan::QUICK } else { Plan::FULL };
    let (server, scrubjay) = (program_directory.join("bench-server"), program_directory.join("scrubjay"));
    let mut peers = peers::find(&directory, &server, data, &plan);
    for note in peers.notes.iter().filter(|note| !note.contains("cannot do this job")) {
        io::stdout().write_all(format!("{note}\n").as_bytes())?;
    }
    peers.http.insert(0, HttpPeer::own(&scrubjay, "scrubjay serve", "serve", "--http"));
    peers.http.insert(1, HttpPeer::own(&scrubjay, "scrubjay wrap --listen", "wrap", "--listen"));
    peers::run_http(&peers, &server, data, &plan)
}

/// Returns where the other relays are installed, if they are to be measured.
fn peers_directory() -> io::Result<Option<PathBuf>> {
    // Absolute: each is started in a directory of its own.
    std::env::args().skip_while(|a| a != "--peers-dir").nth(1).map(std::fs::canonicalize).transpose()
}

/// The servers under load, ended when dropped.
struct Targets {
    server: Child,
    relay: Child,
    own: Gateway,
    /// One server for all clients, as `aggregator` has it.
    shared: Gateway,
    aggregator: Option<Aggregator>,
    raw_port: u16,
    backend: PathBuf,
}

impl Targets {
    fn start(program_directory: &Path, data: &Path) -> io::Result<Self> {
        let (server, server_port) = start_raw(program_directory, &["serve"])?;
        let (relay, raw_port) = start_raw(program_directory, &["relay", &server_port.to_string()])?;
        let backend = program_directory.join("bench-server");
        std::fs::create_dir_all(data)?;
        // 5000: each session has a server of its own, and the harness closes no session.
        let own = start_own(program_directory, data, "own", "maxConnections: 5000")?;
        let shared = start_own(program_directory, data, "shared", "shared: true")?;
        let program = peers_directory()?.and_then(|peers| Aggregator::find(&peers));
        let aggregator = program.map(|program| Aggregator::start(&program, &backend, data)).transpose()?;
        Ok(Self { server, relay, own, shared, aggregator, raw_port, backend })
    }

    fn own_pids(&self) -> io::Result<Vec<u32>> {
        self.own.pids(&self.backend)
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        for child in [&mut self.server, &mut self.relay] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts `scrubjay serve` in front of one backend with this setting, with a data directory of its own.
fn start_own(program_directory: &Path, data: &Path, name: &str, setting: &str) -> io::Result<Gateway> {
    let backend = program_directory.join("bench-server");
    let data = data.join(name);
    std::fs::create_dir_all(&data)?;
    let config = data.join("serve.yaml");
    std::fs::write(
        &config,
        format!("backends:\n  - {{ id: b, type: stdio, command: {backend:?}, {setting} }}\n"),
    )?;
    let mut command = Command::new(program_directory.join("scrubjay"));
    command.arg("--config").arg(config).arg("--data").arg(data);
    command.args(["serve", "--toolsets", "none", "--http", "127.0.0.1:0"]);
    Gateway::start(command)
}

fn start_raw(program_directory: &Path, arguments: &[&str]) -> io::Result<(Child, u16)> {
    let mut child =
        Command::new(program_directory.join("raw-http")).args(arguments).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let stdout = child.stdout.take().ok_or_else(|| io::Error::other("no stdout"))?;
    BufReader::new(stdout).read_line(&mut line)?;
    Ok((child, line.trim().parse().map_err(io::Error::other)?))
}

fn measure(
    series: &mut Series,
    connections: usize,
    port: u16,
    pids: &[u32],
    time: Duration,
) -> io::Result<()> {
    let mut open = (0..connections).map(|_| Connection::open(port)).collect::<io::Result<Vec<_>>>()?;
    for connection in &mut open {
        // As clients do. Without it mcp-aggregator may not know the tool.
        connection.list()?;
    }
    let (open, _) = run(open, time / 5, None)?;
    let before = procfs::cpu(pids)?;
    let (_, outcome) = run(open, time, None)?;
    let used = procfs::cpu(pids)?.since(before);
    series.push(&format!("calls/s {connections}"), rate(&outcome));
    series.push(&format!("cpu {connections}"), used.scheduled.as_secs_f64() * 1e6 / outcome.calls as f64);
    Ok(())
}

fn rate(outcome: &Outcome) -> f64 {
    outcome.calls as f64 / outcome.elapsed.as_secs_f64()
}

/// Measures latency with 16 connections that together call at a fixed rate.
fn at_load(series: &mut Series, port: u16, rate: f64, time: Duration) -> io::Result<()> {
    let open = (0..16).map(|_| Connection::open(port)).collect::<io::Result<Vec<_>>>()?;
    let (_, outcome) = run(open, time, Some(Duration::from_secs_f64(16.0 / rate)))?;
    series.push("half p50 us", quantile(&outcome.samples_us, 0.5).unwrap_or(0.0));
    series.push("half p99 us", quantile(&outcome.samples_us, 0.99).unwrap_or(0.0));
    Ok(())
}

/// Opens a thousand sessions and looks at the memory.
fn many_sessions(series: &mut Series, targets: &Targets) -> io::Result<()> {
    let mut open = Vec::new();
    for _ in 0..1000 {
        let mut connection = Connection::open(targets.own.port)?;
        connection.call()?;
        open.push(connection);
    }
    series.push("MiB with 1000 sessions", targets.own.pss_mib(&targets.backend)?);
    Ok(())
}

fn report(
    raw: &Series,
    own: &Series,
    shared: &Series,
    aggregator: &Series,
    others: &[Series],
) -> io::Result<()> {
    let mut text = String::new();
    let mut table = Table::new("small calls over HTTP", &["calls/s", "% of raw", "CPU µs/call"]);
    for connections in [16, 64] {
        let (calls, cpu) = (format!("calls/s {connections}"), format!("cpu {connections}"));
        for series in [raw, own, shared, aggregator] {
            // No share: it was not measured.
            let Some(share) = median(&ratios(series.rounds(&calls), raw.rounds(&calls))) else { continue };
            let name = format!("{} × {connections}", series.target);
            let figure = |name: &str| series.median(name).map(|v| format!("{v:.1}")).unwrap_or_default();
            table.push(&name, [figure(&calls), format!("{:.0}", share * 100.0), figure(&cpu)]);
        }
    }
    table.push_to(&mut text);
    let mut table = Table::new("at half of scrubjay's load, 16 connections", &["p50 µs", "p99 µs"]);
    for (name, series) in [("raw relay", raw), ("scrubjay serve", own)] {
        let figure = |name: &str| series.median(name).map(|v| format!("{v:.0}")).unwrap_or_default();
        table.push(name, [figure("half p50 us"), figure("half p99 us")]);
    }
    table.push_to(&mut text);
    let mib = own.median("MiB with 1000 sessions").unwrap_or(0.0);
    text += &format!(
        "memory with 1,000 open sessions: {mib:.1} MiB (Pss of all its processes, without the backend)\n"
    );
    let figure = |name: &str| own.median(name).unwrap_or(0.0);
    text += &format!(
        "50 backends started and listed in {:.0} ms, slowest alone {:.0} ms; memory with them idle {:.1} MiB, \
         and with 1,000 open sessions {:.1} MiB\n",
        figure("all listed ms"),
        figure("slowest alone ms"),
        figure("MiB with 50 backends"),
        figure("MiB with 50 backends and 1000 sessions")
    );
    if !others.is_empty() {
        let mut table = Table::new("one call at a time over HTTP", &["p50 µs", "p99 µs", "CPU µs/call"]);
        for series in others {
            let figure = |name: &str| series.median(name).map(|v| format!("{v:.0}")).unwrap_or_default();
            table.push(&series.target, [figure("median_us"), figure("p99_us"), figure("cpu_us_per_call")]);
        }
        table.push_to(&mut text);
    }
    io::stdout().write_all(text.as_bytes())?;
    std::fs::create_dir_all("bench-results")?;
    let json =
        Json::List([raw, own, shared, aggregator].into_iter().chain(others).map(Series::to_json).collect());
    std::fs::write("bench-results/serve.json", format!("{json}\n"))
}
