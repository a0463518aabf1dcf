//! `scrubjay session`: what agents did, told from the ledger.

mod evolution;
mod ls;
mod rewind;
mod show;
mod story;
mod timeline;

use std::process::ExitCode;

use clap::Subcommand;

use crate::cli::Global;

/// Look into sessions: what was done, in which order, to which files; and take it back
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    Ls(ls::LsArgs),
    Show(show::ShowArgs),
    Timeline(timeline::TimelineArgs),
    Story(story::StoryArgs),
    Evolution(evolution::EvolutionArgs),
    Rewind(rewind::RewindArgs),
}

pub(crate) fn run(global: &Global, command: &SessionCommand) -> anyhow::Result<ExitCode> {
    match command {
        SessionCommand::Ls(args) => ls::run(global, args),
        SessionCommand::Show(args) => show::run(global, args),
        SessionCommand::Timeline(args) => timeline::run(global, args),
        SessionCommand::Story(args) => story::run(global, args),
        SessionCommand::Evolution(args) => evolution::run(global, args),
        SessionCommand::Rewind(args) => rewind::run(global, args),
    }
}
