//! What was typed: global options, the list of commands, and how an error is told.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use scrubjay_core::inert::inert;
use scrubjay_store::home::Home;

use crate::commands;

/// The flight recorder for AI agents: put it between an agent and its tools.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, infer_subcommands = false)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Where recordings are kept [default: $XDG_DATA_HOME/scrubjay or ~/.local/share/scrubjay]
    #[arg(long, value_name = "DIR", env = "SCRUBJAY_DATA", global = true, hide_env_values = true)]
    data: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say nothing on standard error but errors
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

impl Global {
    /// Returns the data directory.
    pub(crate) fn home(&self) -> anyhow::Result<Home> {
        let root = match &self.data {
            Some(data) => data.clone(),
            None => default_data().context("no home directory is known: name one with --data DIR")?,
        };
        Ok(Home::new(std::path::absolute(root)?))
    }
}

fn default_data() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let share = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")))?;
    Some(share.join("scrubjay"))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(commands::demo::DemoArgs),
    Serve(commands::serve::ServeArgs),
    Wrap(commands::wrap::WrapArgs),
    #[command(subcommand)]
    Tape(commands::tape::TapeCommand),
    Completions(commands::completions::CompletionsArgs),
    #[command(hide = true)]
    SampleServer(commands::sample_server::SampleServerArgs),
}

/// Tells a person what went wrong, and returns the exit code for it.
pub(crate) fn explain(error: &anyhow::Error) -> ExitCode {
    let broken_pipe = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe);
    if broken_pipe {
        // Whoever reads has seen enough.
        return ExitCode::SUCCESS;
    }
    let causes: Vec<String> = error.chain().map(|cause| inert(&cause.to_string()).into_owned()).collect();
    // With standard error gone too, the exit code has to do.
    let _ = writeln!(std::io::stderr(), "scrubjay: {}", causes.join(": "));
    ExitCode::FAILURE
}
