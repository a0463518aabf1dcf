//! `scrubjay tape …`: commands for recordings.

mod checkpoint;
mod du;
mod export;
mod follow;
mod import;
mod ls;
mod rm;
mod search;
mod show;
mod stats;
mod verify;

use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use scrubjay_tape::format::reader::Tape;
use scrubjay_tape::home::Home;

use crate::cli::Global;

/// List, show, search, analyse, check, export, import and remove recordings
#[derive(Debug, Subcommand)]
pub(crate) enum TapeCommand {
    Ls(ls::LsArgs),
    Show(show::ShowArgs),
    Follow(follow::FollowArgs),
    Search(search::SearchArgs),
    Stats(stats::StatsArgs),
    Verify(verify::VerifyArgs),
    Checkpoint(checkpoint::CheckpointArgs),
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    Rm(rm::RmArgs),
    Du(du::DuArgs),
}

pub(crate) fn run(global: &Global, command: &TapeCommand) -> anyhow::Result<ExitCode> {
    match command {
        TapeCommand::Ls(args) => ls::run(global, &global.home()?, args),
        TapeCommand::Show(args) => show::run(global, &global.home()?, args),
        TapeCommand::Follow(args) => follow::run(global, &global.home()?, args),
        TapeCommand::Search(args) => search::run(global, args),
        TapeCommand::Stats(args) => stats::run(global, args),
        TapeCommand::Verify(args) => verify::run(global, &global.home()?, args),
        TapeCommand::Checkpoint(args) => checkpoint::run(global, &global.home()?, args),
        TapeCommand::Export(args) => export::run(global, &global.home()?, args),
        TapeCommand::Import(args) => import::run(global, args),
        TapeCommand::Rm(args) => rm::run(global, args),
        TapeCommand::Du(args) => du::run(global, &global.home()?, args),
    }
}

/// Opens the tape a person named.
fn open(home: &Home, name: &str) -> anyhow::Result<Tape> {
    let file = home.find(name)?;
    home.open(&file).with_context(|| format!("tape {}", file.id))
}

pub(crate) use search::{found_json, marked_words};
pub(crate) use show::print_tape;
