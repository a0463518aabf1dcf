//! The command line: global options, the list of commands, and how an error is printed.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use scrubjay_config::{ConfigError, Environment, Flag, Loaded, Loader, LogLevel, Sources, TrustStore};
use scrubjay_core::inert::inert;
use scrubjay_store::files::FileError;
use scrubjay_store::files::rewind::RewindError;
use scrubjay_store::ledger::LedgerError;
use scrubjay_store::views::ViewError;
use scrubjay_tape::home::Home;
use scrubjay_tools::progress::ProgressFailure;

use crate::commands;

/// The flight recorder for AI agents: put it between an agent and its tools.
#[derive(Debug, Parser)]
#[command(version, bin_name = "scrubjay", max_term_width = 100, infer_subcommands = false)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
// A heading of their own, because clap would mix them with the options of the command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// The directory of recordings, ledger and index [env: SCRUBJAY_DATA] [default: $XDG_DATA_HOME/scrubjay or
    /// ~/.local/share/scrubjay]
    #[arg(long, value_name = "DIR", global = true)]
    data: Option<PathBuf>,
    /// Read this configuration instead of the user's and the project's
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Take variables that the environment lacks from this file
    #[arg(long, value_name = "FILE", global = true)]
    env_file: Option<PathBuf>,
    /// Log messages of this level and above [env: SCRUBJAY_LOG_LEVEL] [default: info]
    #[arg(long, value_name = "LEVEL", value_enum, hide_possible_values = true, global = true)]
    log_level: Option<LogLevel>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print only errors on standard error
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Show times in UTC instead of the local zone (TZ)
    #[arg(long, global = true)]
    pub(crate) utc: bool,
    /// Do not show long output in a pager (SCRUBJAY_PAGER, PAGER, less)
    #[arg(long, global = true)]
    pub(crate) no_pager: bool,
}

impl Global {
    /// Returns the data directory; prints a notice if an untrusted file names another.
    pub(crate) fn home(&self) -> anyhow::Result<Home> {
        let mut notices = Vec::new();
        let home = self.data(&mut notices);
        if !self.quiet {
            notices.iter().for_each(|notice| tell(notice));
        }
        home
    }

    /// Loads the configuration, and returns it with the data directory, for a command that needs both: both come from one
    /// reading of the files. Prints the notices of [`Self::home`].
    pub(crate) fn load_with_home(&self) -> anyhow::Result<(Loaded, Home)> {
        let loaded = self.load()?;
        let home = loaded.home()?;
        if !self.quiet {
            loaded.data_notice.iter().for_each(|notice| tell(notice));
        }
        Ok((loaded, home))
    }

    /// Returns the data directory of a configuration, or the one that can still be found if it could not be loaded.
    pub(crate) fn home_of(&self, loaded: &anyhow::Result<Loaded>) -> anyhow::Result<Home> {
        loaded.as_ref().map_or_else(|_| self.home(), Loaded::home)
    }

    /// Returns the data directory, and adds the notices to a list instead of printing them.
    pub(crate) fn data(&self, notices: &mut Vec<String>) -> anyhow::Result<Home> {
        self.loader(Vec::new())?.data(notices)
    }

    /// Loads the configuration.
    pub(crate) fn load(&self) -> anyhow::Result<Loaded> {
        self.load_with(Vec::new())
    }

    /// Loads the configuration; a command's own flags have precedence over it.
    pub(crate) fn load_with(&self, flags: Vec<Flag>) -> anyhow::Result<Loaded> {
        self.loader(flags)?.load()
    }

    /// Loads the configuration without the project file in the working directory.
    pub(crate) fn load_own(&self) -> anyhow::Result<Loaded> {
        self.loader(Vec::new())?.load_own()
    }

    /// Opens the list of trusted files.
    pub(crate) fn trust_store(&self) -> anyhow::Result<TrustStore> {
        self.loader(Vec::new())?.trust_store()
    }

    fn loader(&self, flags: Vec<Flag>) -> anyhow::Result<Loader> {
        Loader::new(self.sources(flags)?)
    }

    /// Repeats the flags for data directory and configuration on the command line of another process.
    pub(crate) fn repeat(&self, command: &mut std::process::Command) {
        // Only what decides where data and configuration are: the other process prints and logs nothing.
        let paths = [("--data", &self.data), ("--config", &self.config), ("--env-file", &self.env_file)];
        for (name, path) in paths {
            if let Some(path) = path {
                command.arg(name).arg(path);
            }
        }
    }

    /// Returns the file of `--env-file`.
    pub(crate) fn env_file(&self) -> Option<&std::path::Path> {
        self.env_file.as_deref()
    }

    /// Returns the sources of the configuration; a command's own flags come last, and win.
    pub(crate) fn sources(&self, flags: Vec<Flag>) -> anyhow::Result<Sources> {
        let mut all = Vec::new();
        if self.quiet {
            all.push(Flag { name: "--quiet", key: "log_level", value: LogLevel::Error.to_string() });
        }
        // After --quiet, because the last flag for a key has precedence.
        if let Some(level) = self.log_level {
            all.push(Flag { name: "--log-level", key: "log_level", value: level.to_string() });
        }
        if let Some(data) = &self.data {
            let value = data.to_str().context("--data must be UTF-8")?.to_owned();
            all.push(Flag { name: "--data", key: "data", value });
        }
        all.extend(flags);
        Ok(Sources {
            directory: std::env::current_dir().context("cannot find the working directory")?,
            environment: Environment::of_process(),
            config: self.config.clone(),
            env_file: self.env_file.clone(),
            flags: all,
            tell,
        })
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(commands::demo::DemoArgs),
    Serve(commands::serve::ServeArgs),
    Wrap(commands::wrap::WrapArgs),
    #[command(subcommand)]
    Tape(commands::tape::TapeCommand),
    #[command(subcommand)]
    Record(commands::record::RecordCommand),
    #[command(subcommand)]
    Index(commands::index::IndexCommand),
    #[command(subcommand)]
    Route(commands::route::RouteCommand),
    #[command(subcommand)]
    Session(commands::session::SessionCommand),
    #[command(subcommand)]
    Progress(commands::progress::ProgressCommand),
    #[command(subcommand)]
    Config(commands::config::ConfigCommand),
    Redact(commands::redact::RedactArgs),
    Trust(commands::trust::TrustArgs),
    Doctor(commands::doctor::DoctorArgs),
    Completions(commands::completions::CompletionsArgs),
    #[command(hide = true)]
    SampleServer(commands::sample_server::SampleServerArgs),
}

/// The exit code for wrong usage.
pub(crate) const WRONG_USAGE: u8 = 2;

/// Prints what went wrong, and returns the exit code.
pub(crate) fn explain(error: &anyhow::Error) -> ExitCode {
    let broken_pipe = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe);
    if broken_pipe {
        // The reader (`head`, a pager) has read enough and closed the pipe. That is not a failure.
        return ExitCode::SUCCESS;
    }
    let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    let message = causes.join(": ");
    match hint(error) {
        // Some messages end with a full stop of their own.
        Some(hint) => tell(&format!("{}. {hint}", message.trim_end_matches('.'))),
        None => tell(&message),
    }
    for problem in error.downcast_ref::<ConfigError>().iter().flat_map(|error| &error.problems) {
        tell(&problem.to_string());
    }
    ExitCode::FAILURE
}

/// Returns what a person can do about an error, if its type says so.
fn hint(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        let ledger = cause.downcast_ref::<LedgerError>().map(|e| e.hint().to_owned());
        let view = || cause.downcast_ref::<ViewError>().map(|e| e.hint().to_owned());
        let file = || cause.downcast_ref::<FileError>().and_then(FileError::hint).map(str::to_owned);
        let rewind = || cause.downcast_ref::<RewindError>().and_then(RewindError::hint);
        let progress = || match cause.downcast_ref::<ProgressFailure>()? {
            ProgressFailure::Ledger(e) => Some(e.hint().to_owned()),
            // Their hints name arguments of the tool, which are flags here.
            ProgressFailure::Problems(_) | ProgressFailure::NotFound(_) => None,
        };
        ledger.or_else(view).or_else(file).or_else(rewind).or_else(progress)
    })
}

/// Prints a line on standard error.
pub(crate) fn tell(text: &str) {
    // If standard error is closed, only the exit code remains to report it.
    let _ = writeln!(std::io::stderr(), "scrubjay: {}", inert(text));
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ffi::OsString;

    use clap::CommandFactory;

    use super::*;

    /// Loads a configuration of one file.
    pub(crate) fn loaded(text: &str) -> Loaded {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("config.yaml");
        std::fs::write(&config, text).unwrap();
        let home = directory.path().to_string_lossy();
        let sources = Sources {
            directory: directory.path().to_owned(),
            environment: Environment::of(&[("HOME", &home)]),
            config: Some(config),
            env_file: None,
            flags: Vec::new(),
            tell: |_| (),
        };
        Loader::new(sources).and_then(Loader::load).unwrap()
    }

    /// Splits a line as a shell does that has single quotes and comments, and nothing else.
    fn shell_words(line: &str) -> Vec<OsString> {
        let line = line.split(" # ").next().unwrap_or_default();
        let mut words = vec![String::new()];
        let mut is_quoted = false;
        for c in line.trim().chars() {
            match c {
                '\'' => is_quoted = !is_quoted,
                ' ' if !is_quoted => words.push(String::new()),
                c => words.last_mut().unwrap().push(c),
            }
        }
        words.into_iter().map(OsString::from).collect()
    }

    fn check_examples(command: &clap::Command) -> usize {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples: Vec<&str> = help.lines().filter(|line| line.starts_with("  scrubjay ")).collect();
        for line in &examples {
            let words = commands::tape::marked_words(shell_words(line).into_iter());
            Cli::try_parse_from(words).map_err(|e| format!("{line}: {e}")).unwrap();
        }
        examples.len() + command.get_subcommands().map(check_examples).sum::<usize>()
    }

    #[test]
    fn examples_of_the_help_are_command_lines() {
        assert!(check_examples(&Cli::command()) > 10);
    }
}
