//! `scrubjay route …`: evaluates how tools are found for tasks in plain words.

mod cases;
mod catalog;
mod eval;
mod tapes;

use std::process::ExitCode;

use clap::Subcommand;

use crate::cli::Global;

/// Evaluate how tools are found for tasks in plain words
#[derive(Debug, Subcommand)]
pub(crate) enum RouteCommand {
    Eval(eval::EvalArgs),
}

pub(crate) fn run(global: &Global, command: &RouteCommand) -> anyhow::Result<ExitCode> {
    match command {
        RouteCommand::Eval(args) => eval::run(global, args),
    }
}
