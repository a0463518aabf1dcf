//! `scrubjay route …`: how a plain-language task finds its tool.

mod cases;
mod catalog;
mod eval;
mod tapes;

use std::process::ExitCode;

use clap::Subcommand;

use crate::cli::Global;

/// Grade how tasks find their tools
#[derive(Debug, Subcommand)]
pub(crate) enum RouteCommand {
    Eval(eval::EvalArgs),
}

pub(crate) fn run(global: &Global, command: &RouteCommand) -> anyhow::Result<ExitCode> {
    match command {
        RouteCommand::Eval(args) => eval::run(global, args),
    }
}
