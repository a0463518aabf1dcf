//! `scrubjay wrap`: record one server, transparently.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use scrubjay_core::entry::Transport;
use scrubjay_core::units::{parse_duration, parse_size};
use scrubjay_gateway::relay::{self, Options};
use scrubjay_gateway::{pipe, tree, warden, wrap};
use scrubjay_store::home::Home;
use scrubjay_store::recording::{Limits, Recording, Subject};
use scrubjay_store::tape::header::{Origin, SessionRef};

use crate::cli::Global;
use crate::config;

/// Record one server, transparently
///
/// Starts COMMAND and passes everything between it and standard input and output, unchanged, recording each
/// message before it is passed on. In a host's configuration, put `scrubjay wrap --` before the server's own
/// command.
#[derive(Debug, Args)]
pub(crate) struct WrapArgs {
    /// What to call this connection [default: the program's name]
    #[arg(long)]
    name: Option<String>,
    /// What to do with messages when the tape cannot be written [default: stop]
    #[arg(long, value_enum, value_name = "WHAT")]
    on_record_failure: Option<OnRecordFailure>,
    /// What a recorded message must survive before it is passed on [default: process]
    #[arg(long, value_enum, value_name = "WHAT")]
    durability: Option<Durability>,
    /// Refuse messages longer than this [default: 16MiB]
    #[arg(long, value_parser = parse_message_size, value_name = "SIZE")]
    max_message_size: Option<usize>,
    /// Begin a new tape when this one has so many bytes [default: 100MB]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    max_tape_size: Option<u64>,
    /// Begin a new tape after so long [default: 1h]
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    max_tape_duration: Option<Duration>,
    /// The server to start
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnRecordFailure {
    /// Do not pass them on; answer with an error that says why
    Stop,
    /// Pass them on, and record later that some are missing
    Forward,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Durability {
    /// The end of any process, by kill -9 too
    Process,
    /// The loss of power
    Power,
}

pub(crate) fn run(global: &Global, args: &WrapArgs) -> anyhow::Result<ExitCode> {
    let runtime = super::runtime()?;
    match warden::role() {
        warden::Role::Warden => {
            let code = runtime.block_on(warden::watch_over()).context("cannot start the recorder")?;
            Ok(ExitCode::from(code))
        }
        warden::Role::Worker { warden } => {
            let _inside = runtime.enter();
            warden::begin_work(warden).context("cannot start the recorder")?;
            work(global, args, &runtime, warden)
        }
    }
}

fn work(
    global: &Global,
    args: &WrapArgs,
    runtime: &tokio::runtime::Runtime,
    warden: rustix::process::Pid,
) -> anyhow::Result<ExitCode> {
    let home = global.home()?;
    let (options, limits) = settings(global, args);
    let recording = Recording::new(home.clone(), subject(args, warden), limits);
    let sweep = sweep_beside(&home)?;
    let outcome = runtime.block_on(wrap::run(&args.command, recording, options, Box::new(say)))?;
    if let Some(unsealed) = outcome.unsealed {
        let why = anyhow::Error::from(unsealed);
        say(&format!("{why:#}; the recording is complete, and the next start seals it"));
    }
    // A panic there has been reported; tapes it did not reach are sealed at the next start.
    let _ = sweep.join();
    // Leaves at once: threads that copy standard streams may never return.
    std::process::exit(outcome.exit_code.into())
}

/// Returns how to relay and when a tape is full: as typed, else as configured.
fn settings(global: &Global, args: &WrapArgs) -> (Options, Limits) {
    let (mut options, mut limits) = match config::load(global) {
        Ok(loaded) => (loaded.relay, loaded.limits),
        Err(e) => {
            // A file that happens to lie in the working directory must not keep a server from starting.
            say(&format!("the configuration is left out: {e:#}"));
            Default::default()
        }
    };
    match args.on_record_failure {
        Some(OnRecordFailure::Stop) => options.on_record_failure = relay::OnRecordFailure::Stop,
        Some(OnRecordFailure::Forward) => options.on_record_failure = relay::OnRecordFailure::Forward,
        None => {}
    }
    match args.durability {
        Some(Durability::Process) => options.durability = relay::Durability::Process,
        Some(Durability::Power) => options.durability = relay::Durability::Power,
        None => {}
    }
    options.message_bytes_max = args.max_message_size.unwrap_or(options.message_bytes_max);
    limits.tape_bytes_max = args.max_tape_size.unwrap_or(limits.tape_bytes_max);
    limits.tape_duration_max = args.max_tape_duration.unwrap_or(limits.tape_duration_max);
    (options, limits)
}

fn parse_message_size(text: &str) -> Result<usize, String> {
    let bytes = usize::try_from(parse_size(text)?).unwrap_or(usize::MAX);
    if (1024..1 << 30).contains(&bytes) {
        Ok(bytes)
    } else {
        Err("it must be between 1 KiB and 1 GiB".to_owned())
    }
}

fn subject(args: &WrapArgs, warden: rustix::process::Pid) -> Subject {
    let program = args.command.first().map(|p| Path::new(p).file_name().unwrap_or(p).to_string_lossy());
    let workspace = std::env::current_dir().ok().map(|d| d.to_string_lossy().into_owned());
    let origin = origin(warden);
    Subject {
        name: args.name.clone().or_else(|| program.as_deref().map(str::to_owned)).unwrap_or_default(),
        transport: Transport::Stdio,
        program: program.map(std::borrow::Cow::into_owned),
        session: SessionRef::of_host(&origin, workspace.as_deref()),
        workspace,
        origin,
    }
}

/// Gathers what tells which conversation this connection belongs to.
pub(super) fn origin(warden: rustix::process::Pid) -> Origin {
    let host = tree::parent(warden);
    let host_facts = host.and_then(tree::start_and_name);
    Origin {
        host_session: std::env::var("CLAUDE_CODE_SESSION_ID").ok(),
        traceparent: std::env::var("TRACEPARENT").ok(),
        host_pid: host.map(|p| p.as_raw_nonzero().get().cast_unsigned()),
        host_started: host_facts.as_ref().map(|(started, _)| *started),
        host_program: host_facts.map(|(_, name)| name),
    }
}

/// Seals what earlier crashes left behind, in a thread of its own.
pub(super) fn sweep_beside(home: &Home) -> std::io::Result<std::thread::JoinHandle<()>> {
    let home = home.clone();
    std::thread::Builder::new().name("sweep".to_owned()).spawn(move || sweep(&home))
}

fn sweep(home: &Home) {
    match home.seal_abandoned() {
        Ok(outcomes) => {
            outcomes
                .into_iter()
                .filter_map(Result::err)
                .for_each(|e| say(&format!("{:#}", anyhow::Error::from(e))));
        }
        Err(e) => say(&format!("cannot look for unsealed tapes: {e}")),
    }
}

pub(super) fn say(text: &str) {
    pipe::say(&format!("scrubjay: {text}"));
}
