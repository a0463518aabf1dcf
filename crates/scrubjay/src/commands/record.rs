//! `scrubjay record …`: shows the records of design reasoning that agents write.

mod diff;
mod history;
mod json;
mod ls;
mod show;
mod tree;

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use scrubjay_store::ledger::records::collection::{self, RecordCollection};
use scrubjay_store::ledger::{Read, project};

use super::ledger;
use crate::cli::Global;

/// List, show and compare the records of design reasoning that agents write
#[derive(Debug, Subcommand)]
pub(crate) enum RecordCommand {
    Ls(ls::LsArgs),
    Show(show::ShowArgs),
    Tree(tree::TreeArgs),
    History(history::HistoryArgs),
    Diff(diff::DiffArgs),
}

/// The option that names the project.
#[derive(Debug, Args)]
struct ProjectArg {
    /// The project [default: the configured one, or the name of the repository]
    #[arg(long, value_name = "ID")]
    project: Option<String>,
}

pub(crate) fn run(global: &Global, command: &RecordCommand) -> anyhow::Result<ExitCode> {
    match command {
        RecordCommand::Ls(args) => ls::run(global, args),
        RecordCommand::Show(args) => show::run(global, args),
        RecordCommand::Tree(args) => tree::run(global, args),
        RecordCommand::History(args) => history::run(global, args),
        RecordCommand::Diff(args) => diff::run(global, args),
    }
}

/// Runs `with` on the records of a project. It sees one snapshot of them.
fn read_records<T>(
    global: &Global,
    whose: &ProjectArg,
    with: impl AsyncFnOnce(&mut Read, &RecordCollection) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let directory = std::env::current_dir().context("cannot find the working directory")?;
    ledger::within(global, async |ledger, loaded| {
        let project = loaded.toolset_setup(&directory, whose.project.as_deref())?.project;
        let mut read = ledger.read().await?;
        if project::get(&mut read, &project).await?.is_none() {
            // Twenty are enough to show how ids look; a shared ledger may have thousands.
            let known = project::list(&mut read, "", 20).await?;
            let known: Vec<_> = known.iter().map(|project| project.id.as_str()).collect();
            bail!("there is no project \"{project}\": name one with --project; known are {known:?}");
        }
        let collection = collection::open(&mut read, &project).await?;
        with(&mut read, &collection).await
    })
}
