//! `wrap-bench`: what `scrubjay wrap` costs compared with no relay and with a raw one.
//!
//! All targets run the same calls, interleaved, in one run. Prints a table with the goals and
//! writes `bench-results/wrap.json`. Fails when an answer is wrong; a goal that is missed is
//! only shown, because the machine may be busy.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use scrubjay_bench::peers::Peers;
use scrubjay_bench::plan::Plan;
use scrubjay_bench::report::{DIRECT, RAW, Results, SCRUBJAY};
use scrubjay_bench::series::Series;
use scrubjay_bench::target::{Relay, Target};
use scrubjay_bench::workload::{Bench, flight, idle, large, seq, start};
use scrubjay_bench::{clock, peers, procfs};

const USAGE: &str = "\
usage: wrap-bench [--quick] [--peers] [--peers-dir DIR] [--scrubjay PROGRAM] [--only WORKLOAD]…
  --quick             about 15 s instead of about 75 s
  --peers             other relays too, as far as they are installed
  --peers-dir DIR     where: the directory of node_modules and .venv (default: tests/peers)
  --scrubjay PROGRAM  what to run as scrubjay (default: the one in the directory of wrap-bench)
  --only WORKLOAD     seq, flight64, 1MiB, 10MiB, start or idle; may be repeated";

const WORKLOADS: [&str; 6] = ["seq", "flight64", "1MiB", "10MiB", "start", "idle"];
const BUSY_SAMPLE: Duration = Duration::from_millis(200);
const MIB: usize = 1024 * 1024;

struct Options {
    plan: Plan,
    peers: bool,
    peers_dir: PathBuf,
    scrubjay: Option<PathBuf>,
    only: Vec<String>,
}

fn main() -> ExitCode {
    let Some(options) = parse(std::env::args().skip(1)) else {
        let _ = writeln!(io::stderr(), "{USAGE}");
        return ExitCode::from(2);
    };
    match bench(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "wrap-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(options: &Options) -> io::Result<()> {
    let program_directory = directory_of_this_program()?;
    let scrubjay =
        fs::canonicalize(options.scrubjay.clone().unwrap_or_else(|| program_directory.join("scrubjay")))
            .map_err(|error| io::Error::other(format!("no scrubjay to measure (see --scrubjay): {error}")))?;
    let server = fs::canonicalize(program_directory.join("bench-server"))?;
    let scratch_root = scratch_root(&program_directory)?;
    let targets = targets(&program_directory, &scrubjay, &server);
    let mut bench = Bench { targets, plan: options.plan, scratch_root };
    let outcome = measure(&mut bench, options, &scrubjay, &server);
    // An indexer may still write there; the next run removes what is left.
    let _ = fs::remove_dir_all(&bench.scratch_root);
    let results = outcome?;

    io::stdout().write_all(results.to_text().as_bytes())?;
    fs::create_dir_all("bench-results")?;
    fs::write("bench-results/wrap.json", format!("{}\n", results.to_json()))
}

fn measure(bench: &mut Bench, options: &Options, scrubjay: &Path, server: &Path) -> io::Result<Results> {
    let begin = clock::now();
    let peers = if options.peers { find_peers(bench, &options.peers_dir, server)? } else { Peers::default() };
    bench.targets.extend(peers.stdio.iter().cloned());
    let mut busy_shares = Vec::new();
    let mut workloads = Vec::new();
    for name in WORKLOADS {
        if options.only.is_empty() || options.only.iter().any(|only| only == name) {
            say(name)?;
            busy_shares.push(procfs::busy_share(BUSY_SAMPLE)?);
            let mut series = run(bench, name)?;
            if name == "seq" {
                series.extend(peers::run_http(&peers, server, &bench.scratch_root, &bench.plan)?);
            }
            workloads.push((name, series));
        }
    }
    busy_shares.push(procfs::busy_share(BUSY_SAMPLE)?);
    say("")?;
    let took_s = begin.elapsed().as_secs_f64();
    let scrubjay = scrubjay.display().to_string();
    Ok(Results { plan: bench.plan, busy_shares, took_s, scrubjay, workloads, notes: peers.notes })
}

fn find_peers(bench: &Bench, directory: &Path, server: &Path) -> io::Result<Peers> {
    say("peers")?;
    // Absolute, because a target runs in a directory of its own.
    let directory = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    Ok(peers::find(&directory, server, &bench.scratch_root, &bench.plan))
}

// Progress goes to stderr: stdout is for the results.
fn say(what: &str) -> io::Result<()> {
    if io::stderr().is_terminal() { write!(io::stderr(), "\r{what:<10}\r") } else { Ok(()) }
}

fn run(bench: &Bench, workload: &str) -> io::Result<Vec<Series>> {
    match workload {
        "seq" => seq::run(bench),
        "flight64" => flight::run(bench),
        "1MiB" => large::run(bench, MIB, bench.plan.mib_calls, false),
        "10MiB" => large::run(bench, 10 * MIB, bench.plan.ten_mib_calls, true),
        "start" => start::run(bench),
        "idle" => idle::run(bench),
        other => unreachable!("{other} is not in WORKLOADS"),
    }
}

fn targets(program_directory: &Path, scrubjay: &Path, server: &Path) -> Vec<Target> {
    let target = |name: &str, relay| Target { name: name.to_owned(), relay, server: server.to_owned() };
    vec![
        target(DIRECT, Relay::Direct),
        target(RAW, Relay::Raw(program_directory.join("raw-relay"))),
        target(SCRUBJAY, Relay::Scrubjay(scrubjay.to_owned())),
        target("tee to a file", Relay::Tee),
    ]
}

// None if the arguments are not understood.
fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Options> {
    let peers_dir = PathBuf::from("tests/peers");
    let mut options = Options { plan: Plan::FULL, peers: false, peers_dir, scrubjay: None, only: Vec::new() };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => options.plan = Plan::QUICK,
            "--peers" => options.peers = true,
            "--peers-dir" => options.peers_dir = arguments.next()?.into(),
            "--scrubjay" => options.scrubjay = Some(arguments.next()?.into()),
            "--only" => {
                options.only.push(arguments.next().filter(|name| WORKLOADS.contains(&name.as_str()))?)
            }
            _ => return None,
        }
    }
    Some(options)
}

fn directory_of_this_program() -> io::Result<PathBuf> {
    let program = fs::canonicalize(std::env::current_exe()?)?;
    Ok(program.parent().expect("a program is in a directory").to_owned())
}

// On the disk of the build, not in /tmp, which may be memory: recordings grow to hundreds of MB.
fn scratch_root(program_directory: &Path) -> io::Result<PathBuf> {
    let all = program_directory.join("wrap-bench-scratch");
    fs::create_dir_all(&all)?;
    for entry in fs::read_dir(&all)? {
        let entry = entry?;
        // Left behind by a run that was interrupted.
        if !Path::new("/proc").join(entry.file_name()).exists() {
            fs::remove_dir_all(entry.path())?;
        }
    }
    let own = all.join(std::process::id().to_string());
    fs::create_dir_all(&own)?;
    Ok(own)
}
