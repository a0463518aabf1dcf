//! `scrubjay wrap`: record one server, transparently.

mod listen;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use scrubjay_config::{ConfigError, Loaded, Problem};
use scrubjay_core::entry::Transport;
use scrubjay_core::redact::Redactor;
use scrubjay_core::rules::{Judge, Rules};
use scrubjay_core::units::{parse_duration, parse_size};
use scrubjay_gateway::bridge::endpoint::Endpoint;
use scrubjay_gateway::config::HttpConfig;
use scrubjay_gateway::relay::{Durability, OnRecordFailure, Options};
use scrubjay_gateway::{pipe, tree, warden, wrap};
use scrubjay_tape::clock_trust::ClockReading;
use scrubjay_tape::conversation::{self, Conversation};
use scrubjay_tape::format::header::{Origin, TapeKind};
use scrubjay_tape::home::Home;
use scrubjay_tape::private::CheckDepth;
use scrubjay_tape::recording::{Policy, Recording, RotationLimits, Subject};
use scrubjay_tape::retention::Expired;

use super::index::background;
use crate::cli::Global;

const EXAMPLES: &str = "\
Examples:
  scrubjay wrap -- npx -y @modelcontextprotocol/server-everything
  scrubjay wrap --url https://mcp.example.com/mcp --header 'Authorization: Bearer ${TOKEN}'
  scrubjay wrap --listen 127.0.0.1:7421 -- npx -y @modelcontextprotocol/server-everything";

/// Record one server, transparently
///
/// Starts COMMAND and passes messages between it and standard input and output, unchanged; each is recorded before
/// it is passed on. In a host's configuration, put `scrubjay wrap --` before the server's own command. With --url, the
/// server is one on Streamable HTTP; with --listen, hosts connect over Streamable HTTP.
#[derive(Debug, Args)]
#[command(
    after_help = EXAMPLES,
    group = clap::ArgGroup::new("server").required(true),
    override_usage = "scrubjay wrap [OPTIONS] -- COMMAND...\n       scrubjay wrap [OPTIONS] --url URL"
)]
pub(crate) struct WrapArgs {
    /// Name this connection [default: the program's name]
    #[arg(long)]
    name: Option<String>,
    /// Connect to this Streamable HTTP server instead of starting one
    #[arg(long, value_name = "URL", group = "server")]
    url: Option<String>,
    /// A header for every request to --url; ${VAR} stands for a variable of the environment
    #[arg(long = "header", value_name = "NAME: VALUE", requires = "url")]
    headers: Vec<String>,
    /// Serve Streamable HTTP at this address, under /mcp, instead of standard input and output
    ///
    /// Each host that opens a session gets a server process of its own; requests without a session share one.
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// A file with the token that hosts must send; required if ADDR is not a loopback address
    #[arg(long, value_name = "FILE", requires = "listen")]
    auth_token_file: Option<PathBuf>,
    /// Choose what happens to messages when the tape cannot be written [default: stop]
    #[arg(long, value_parser = values(&ON_RECORD_FAILURE), value_name = "WHAT")]
    on_record_failure: Option<OnRecordFailure>,
    /// Choose what a recorded message must survive before it is passed on [default: process]
    #[arg(long, value_parser = values(&DURABILITY), value_name = "WHAT")]
    durability: Option<Durability>,
    /// Refuse messages longer than this [default: 16MiB]
    #[arg(long, value_parser = parse_message_size, value_name = "SIZE")]
    max_message_size: Option<usize>,
    /// Begin a new tape when this one reaches this size [default: 100MB]
    #[arg(long, value_parser = parse_size, value_name = "SIZE")]
    max_tape_size: Option<u64>,
    /// Begin a new tape after this time [default: 1h]
    #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
    max_tape_duration: Option<Duration>,
    /// The server to start
    #[arg(last = true, value_name = "COMMAND", group = "server")]
    command: Vec<OsString>,
}

/// The values of a flag: name, help and meaning of each. Tables and not clap's derive, because the types are the relay's,
/// which knows nothing of command lines.
type Values<T> = [(&'static str, &'static str, T)];

static ON_RECORD_FAILURE: [(&str, &str, OnRecordFailure); 2] = [
    (
        "stop",
        "They are not passed on; requests are answered with an error that says why",
        OnRecordFailure::Stop,
    ),
    ("forward", "They are passed on, and the tape says later how many are missing", OnRecordFailure::Forward),
];
static DURABILITY: [(&str, &str, Durability); 2] = [
    ("process", "The end of any process, even by kill -9", Durability::Process),
    ("power", "The loss of power", Durability::Power),
];

/// Makes the parser of a flag from the table of its values.
fn values<T: Copy + Send + Sync + 'static>(
    all: &'static Values<T>,
) -> impl TypedValueParser<Value = T> + 'static {
    let names = all.iter().map(|(name, help, _)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(names).map(move |given| {
        let value = all.iter().find(|(name, ..)| *name == given);
        value.expect("the parser takes only the names of the table").2
    })
}

pub(crate) fn run(global: &Global, args: &WrapArgs) -> anyhow::Result<ExitCode> {
    // Called for its error: a wrong address is reported before anything starts.
    endpoint(args)?;
    let listening = args.listen.map(|address| listen::config(global, args, address)).transpose()?;
    let runtime = super::runtime()?;
    match warden::role() {
        warden::Role::Warden => {
            let ended = runtime
                .block_on(warden::watch_over(args.listen.is_some()))
                .context("cannot start the recorder")?;
            let loaded = listening.map_or_else(|| global.load(), |(loaded, _)| Ok(loaded));
            if ended.was_killed {
                // The worker could not seal its tapes itself.
                sweep(&global.home_of(&loaded)?);
            }
            // By the warden, which is there even if the worker was killed.
            if let Ok(loaded) = loaded {
                background::start_at_end(global, &loaded);
            }
            Ok(ExitCode::from(ended.exit_code))
        }
        warden::Role::Worker { warden } => {
            let _inside = runtime.enter();
            warden::begin_work().context("cannot start the recorder")?;
            work(global, args, listening, &runtime, warden)
        }
    }
}

fn work(
    global: &Global,
    args: &WrapArgs,
    listening: Option<(Loaded, HttpConfig)>,
    runtime: &tokio::runtime::Runtime,
    warden: rustix::process::Pid,
) -> anyhow::Result<ExitCode> {
    let (loaded, http) = listening.unzip();
    let (loaded, home) = configuration(global, loaded)?;
    let settings = settings(args, &loaded, &home)?;
    let remote = endpoint(args)?;
    let subject = subject(args, &home, remote.as_ref(), warden);
    let starter = background::Starter::new(global, settings.indexes_in_background);
    let sweep = sweep_in_background(&home, settings.retention, &starter)?;
    warn_if_off(&settings.policy);
    if let Some(http) = http {
        runtime.block_on(listen::run(args, http, home, (settings, starter.backlog()), subject))?;
        // A panic there has been reported; tapes it did not reach are sealed at the next start.
        let _ = sweep.join();
        std::process::exit(0)
    }
    let Settings { options, limits, redactor, rules, policy, .. } = settings;
    let judge = rules.map(|rules| Judge::new(rules, &subject.name, options.message_bytes_max));
    let recording = Recording::new(home.clone(), subject, limits, redactor)
        .with_policy(&policy)
        .with_backlog(&starter.backlog());
    let report = Box::new(say);
    let outcome = match remote {
        Some(remote) => runtime.block_on(wrap::run_remote(remote, recording, options, judge, report))?,
        None => runtime.block_on(wrap::run(&args.command, recording, options, judge, report))?,
    };
    if let Some(unsealed) = outcome.unsealed {
        let why = anyhow::Error::from(unsealed);
        say(&format!("{why:#}; the recording is complete, and the next start seals it"));
    }
    // A panic there has been reported; tapes it did not reach are sealed at the next start.
    let _ = sweep.join();
    // Without waiting: threads that copy standard streams may block for ever.
    std::process::exit(outcome.exit_code.into())
}

/// How to relay and record.
struct Settings {
    options: Options,
    limits: RotationLimits,
    redactor: Arc<Redactor>,
    rules: Option<Arc<Rules>>,
    policy: Policy,
    retention: Option<Duration>,
    indexes_in_background: bool,
}

impl Settings {
    fn of(loaded: &Loaded, home: &Home) -> anyhow::Result<Self> {
        Ok(Self {
            options: loaded.relay(),
            limits: loaded.limits(),
            redactor: loaded.redactor(Some(home))?,
            rules: loaded.rules(),
            policy: loaded.policy()?,
            retention: loaded.retention(),
            indexes_in_background: loaded.indexes_in_background(),
        })
    }
}

/// Returns the configuration, which is loaded unless it is given, and the data directory.
fn configuration(global: &Global, loaded: Option<Loaded>) -> anyhow::Result<(Loaded, Home)> {
    let (loaded, home) = match loaded.map_or_else(|| global.load(), Ok) {
        // Recording without the redaction and the rules that the user asked for would be worse than not starting.
        Err(e) if is_about_recorder(&e) => return Err(e),
        Err(e) => {
            // A file that happens to be in the working directory must neither keep a server from starting nor
            // disable the owner's own rules.
            let own = global.load_own()?;
            let wrong: Vec<String> = problems(&e).iter().map(ToString::to_string).collect();
            say(&format!("the project's configuration is not used: {}", wrong.join("; ")));
            // The project may have its recordings in a directory of its own all the same.
            (own, global.home()?)
        }
        Ok(loaded) => {
            let home = loaded.home()?;
            (loaded, home)
        }
    };
    if !global.quiet {
        loaded.notices.iter().for_each(|notice| say(notice));
    }
    Ok((loaded, home))
}

/// Returns how to relay and record: flags first, then the configuration.
fn settings(args: &WrapArgs, loaded: &Loaded, home: &Home) -> anyhow::Result<Settings> {
    let mut settings = Settings::of(loaded, home)?;
    let (options, limits) = (&mut settings.options, &mut settings.limits);
    options.on_record_failure = args.on_record_failure.unwrap_or(options.on_record_failure);
    options.durability = args.durability.unwrap_or(options.durability);
    options.message_bytes_max = args.max_message_size.unwrap_or(options.message_bytes_max);
    limits.tape_bytes_max = args.max_tape_size.unwrap_or(limits.tape_bytes_max);
    limits.tape_duration_max = args.max_tape_duration.unwrap_or(limits.tape_duration_max);
    check_durability(*options, &settings.policy)?;
    Ok(settings)
}

/// Refuses `durability: power` together with messages that are passed on before they are written.
pub(super) fn check_durability(options: Options, policy: &Policy) -> anyhow::Result<()> {
    anyhow::ensure!(
        options.durability == Durability::Process || policy.buffer_max.is_none(),
        "durability `power` requires that every message is written before it is passed on: switch \
         recorder.performance.async_storage off, or use durability `process`"
    );
    Ok(())
}

/// Warns the user if recording is switched off.
pub(super) fn warn_if_off(policy: &Policy) {
    if !policy.enabled {
        say("nothing is recorded: recorder.enabled is false");
    }
}

fn is_about_recorder(error: &anyhow::Error) -> bool {
    problems(error).iter().any(|problem| problem.key.starts_with("recorder"))
}

fn problems(error: &anyhow::Error) -> &[Problem] {
    error.downcast_ref::<ConfigError>().map(|e| e.problems.as_slice()).unwrap_or_default()
}

fn parse_message_size(text: &str) -> anyhow::Result<usize> {
    let bytes = parse_size(text)?;
    // As for `limits.max_message_size` in the configuration.
    anyhow::ensure!((1 << 10..=1 << 30).contains(&bytes), "it must be between 1 KiB and 1 GiB");
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Returns the address and headers of the server; `None` if it is a program to start.
fn endpoint(args: &WrapArgs) -> anyhow::Result<Option<Endpoint>> {
    let Some(url) = &args.url else { return Ok(None) };
    let headers = headers(args)?;
    Ok(Some(Endpoint::new(url, headers.iter().map(|(name, value)| (*name, value.as_str())))?))
}

fn headers(args: &WrapArgs) -> anyhow::Result<Vec<(&str, String)>> {
    let headers = args.headers.iter().map(|header| {
        let (name, value) = header.split_once(':').context("--header must be a name, a colon and a value")?;
        let name = name.trim();
        let value = expand(value.trim(), |variable| std::env::var(variable).ok())
            .with_context(|| format!("the value of the header {name} cannot be expanded"))?;
        Ok((name, value))
    });
    headers.collect()
}

/// Replaces `${NAME}` by the value of the variable.
fn expand(text: &str, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<String> {
    let mut pieces = text.split("${");
    let mut expanded = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once('}').context("a ${ has no closing }")?;
        let value = variable(name).with_context(|| format!("the variable {name} is not set"))?;
        expanded.push_str(&value);
        expanded.push_str(rest);
    }
    Ok(expanded)
}

fn subject(args: &WrapArgs, home: &Home, remote: Option<&Endpoint>, warden: rustix::process::Pid) -> Subject {
    let program = args.command.first().map(|p| Path::new(p).file_name().unwrap_or(p).to_string_lossy());
    let workspace = std::env::current_dir().ok().map(|d| d.to_string_lossy().into_owned());
    let origin = origin(warden);
    let named = program.as_deref().or(remote.map(Endpoint::authority));
    Subject {
        name: args.name.clone().or_else(|| named.map(str::to_owned)).unwrap_or_default(),
        kind: TapeKind::Conversation,
        gateway: None,
        transport: if remote.is_some() { Transport::Http } else { Transport::Stdio },
        program: program.map(std::borrow::Cow::into_owned),
        session: None,
        conversation: Some(conversation(home, &origin, workspace.as_deref())),
        workspace,
        origin,
    }
}

/// Describes the conversation that this process belongs to. The server is identified by this command line without its first
/// word, which is the path of this program.
pub(super) fn conversation(home: &Home, origin: &Origin, workspace: Option<&str>) -> Arc<Conversation> {
    let server: Vec<_> = std::env::args_os().skip(1).collect();
    let workspace = workspace.map(str::to_owned);
    Arc::new(Conversation::new(home.clone(), origin.clone(), workspace, format!("{server:?}")))
}

/// Collects the facts by which a connection is assigned to a conversation. The host is the parent of the warden.
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

/// Seals tapes that earlier crashes left unsealed, and removes those past their retention, on a thread, because the first
/// message must not wait for it.
pub(super) fn sweep_in_background(
    home: &Home,
    retention: Option<Duration>,
    starter: &background::Starter,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let (home, starter) = (home.clone(), starter.clone());
    std::thread::Builder::new().name("sweep".to_owned()).spawn(move || {
        // The directory itself is private by now. Files in it may have been made readable for others before.
        match home.make_private(CheckDepth::All) {
            Ok(mended) => mended.iter().for_each(|mended| say(&mended.to_string())),
            Err(e) => say(&e.to_string()),
        }
        let sealed = sweep(&home);
        if let Err(e) = conversation::sweep(&home) {
            say(&format!("cannot clear {}: {e}", home.conversations().display()));
        }
        let removed = expire(&home, retention);
        if sealed + removed > 0 {
            // At once: sealed tapes are new to the index, and the text of removed ones must leave it.
            starter.start_after(Duration::ZERO);
        }
    })
}

/// Removes tapes past their retention, unless the clock is in doubt; returns how many.
///
/// The clocks are compared even without a retention, so that a later jump can be noticed.
fn expire(home: &Home, retention: Option<Duration>) -> usize {
    if !home.root().is_dir() {
        return 0;
    }
    let now = ClockReading::take(home);
    let Some(retention) = retention else {
        // If it fails, a later start has no earlier time to compare with, and removes fewer tapes.
        let _ = home.check_clock(&now, None);
        return 0;
    };
    match home.expire(retention, &now) {
        Ok(Expired { doubt: Some(doubt), .. }) => {
            say(&format!(
                "no old tapes were removed: {}. Set the clock of this machine. If it is right (the machine may have been \
                 off for long), confirm it once with `scrubjay tape rm --older-than {}s --trust-clock`",
                doubt.words(),
                retention.as_secs()
            ));
            0
        }
        Ok(Expired { removed, .. }) => removed,
        Err(e) => {
            say(&format!("cannot remove old tapes: {:#}", anyhow::Error::from(e)));
            // Some tapes may have been removed before the error.
            1
        }
    }
}

/// Seals the tapes of processes that were killed; returns how many.
pub(super) fn sweep(home: &Home) -> usize {
    match home.seal_abandoned() {
        Ok(outcomes) => {
            let count = outcomes.len();
            outcomes
                .into_iter()
                .filter_map(Result::err)
                .for_each(|e| say(&format!("{:#}", anyhow::Error::from(e))));
            count
        }
        Err(e) => {
            say(&format!("cannot list unsealed tapes: {e}"));
            0
        }
    }
}

pub(super) fn say(text: &str) {
    pipe::write_to_stderr(&format!("scrubjay: {text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_size_option_has_the_bounds_of_the_configuration() {
        assert_eq!(parse_message_size("1KiB").unwrap(), 1 << 10);
        assert_eq!(parse_message_size("1GiB").unwrap(), 1 << 30);
        assert!(parse_message_size("1023").is_err() && parse_message_size("1025MiB").is_err());
    }

    #[test]
    fn variables_are_expanded() {
        let variable = |name: &str| (name == "KEY").then(|| "secret".to_owned());
        let check = |text: &str| expand(text, variable).map_err(|e| e.to_string());
        assert_eq!(check("Bearer ${KEY}, $KEY ${KEY}}").unwrap(), "Bearer secret, $KEY secret}");
        assert_eq!(check("plain").unwrap(), "plain");
        assert_eq!(check("${OTHER}").unwrap_err(), "the variable OTHER is not set");
        assert!(check("${KEY").is_err());
    }
}
